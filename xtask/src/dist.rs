//! What is handed out: the program with its manual pages and completions, in one archive.

use std::env::consts::{ARCH, OS};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The commands that have a page of their own.
const COMMANDS: [&str; 14] = [
    "run", "elect", "leader", "list", "inspect", "evict", "resize", "latch", "top", "doctor", "compare", "tokens",
    "fence", "schema",
];

/// Each shell, and where it looks for completions.
const SHELLS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/oarlock"),
    ("zsh", "share/zsh/site-functions/_oarlock"),
    ("fish", "share/fish/vendor_completions.d/oarlock.fish"),
];

const DOCUMENTS: [&str; 4] = ["README.md", "CHANGELOG.md", "LICENSE-APACHE", "LICENSE-MIT"];

/// Builds the program for this machine, and packs it. Unpacked into `/usr/local`, everything is where it is looked for.
pub(crate) fn pack() -> Result<(), String> {
    let built = crate::cargo(&["build", "--locked", "--release", "-p", "oarlock-cli"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return Err("the program does not build".to_owned());
    }
    let target = PathBuf::from(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()));
    let dist = target.join("dist");
    let name = format!("oarlock-{}-{ARCH}-{OS}", env!("CARGO_PKG_VERSION"));
    fill(&target.join("release/oarlock"), &dist.join(&name)).map_err(|error| format!("{name}: {error}"))?;
    let mut tar = Command::new("tar");
    tar.args(["--owner=0", "--group=0", "-czf"]).arg(dist.join(format!("{name}.tar.gz"))).arg("-C").arg(&dist);
    match tar.arg(&name).status() {
        Ok(status) if status.success() => {
            println!("{}", dist.join(format!("{name}.tar.gz")).display());
            Ok(())
        }
        _ => Err("tar failed".to_owned()),
    }
}

fn fill(program: &Path, root: &Path) -> io::Result<()> {
    if root.exists() {
        fs::remove_dir_all(root)?;
    }
    let place = |path: &str| -> io::Result<PathBuf> {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap_or(root))?;
        Ok(path)
    };
    fs::copy(program, place("bin/oarlock")?)?;
    for document in DOCUMENTS {
        fs::copy(document, place(&format!("share/doc/oarlock/{document}"))?)?;
    }
    said(program, &["man"], &place("share/man/man1/oarlock.1")?)?;
    for command in COMMANDS {
        said(program, &["man", command], &place(&format!("share/man/man1/oarlock-{command}.1"))?)?;
    }
    for (shell, path) in SHELLS {
        said(program, &["completions", shell], &place(path)?)?;
    }
    Ok(())
}

/// Puts what the program says into a file.
fn said(program: &Path, arguments: &[&str], file: &Path) -> io::Result<()> {
    let status = Command::new(program).args(arguments).stdout(File::create(file)?).status()?;
    if status.success() { Ok(()) } else { Err(io::Error::other(format!("oarlock {}: {status}", arguments.join(" ")))) }
}
