//! The public interface of the libraries: a line for each item, kept in `docs/api`, so that no change of it goes
//! unseen.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Compares the public interface with the listings in docs/api.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Write the listings instead.
    #[arg(long)]
    write: bool,
}

/// What others depend on.
const LIBRARIES: [&str; 10] = [
    "lock-core",
    "lock-fence",
    "lock-quorum",
    "lock-sql",
    "lock-memcached",
    "lock-redis",
    "lock-zookeeper",
    "lock-etcd",
    "conformance-tests",
    "oarlock",
];

const LISTINGS: &str = "docs/api";

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let documents = document()?;
    let mut changed = Vec::new();
    for library in LIBRARIES {
        let json = documents.join(library.replace('-', "_")).with_extension("json");
        let public = public_api::Builder::from_rustdoc_json(&json)
            .omit_blanket_impls(true)
            .omit_auto_trait_impls(true)
            .omit_auto_derived_impls(true)
            .build()
            .map_err(|error| format!("{}: {error}", json.display()))?;
        let listing: String = public.items().map(|item| format!("{item}\n")).collect();
        let file = Path::new(LISTINGS).join(library).with_extension("txt");
        let failed = |error: std::io::Error| format!("{}: {error}", file.display());
        if options.write {
            fs::create_dir_all(LISTINGS).map_err(failed)?;
            fs::write(&file, listing).map_err(failed)?;
        } else if let Some(line) = first_change(&fs::read_to_string(&file).unwrap_or_default(), &listing) {
            changed.push(format!("{}: {line}", file.display()));
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    Err(format!("the public interface has changed; `cargo xtask api --write` lists it anew\n{}", changed.join("\n")))
}

/// The first line that only one of them has.
fn first_change(before: &str, now: &str) -> Option<String> {
    let gone = before.lines().find(|line| !now.lines().any(|other| other == *line)).map(|line| format!("- {line}"));
    let new = now.lines().find(|line| !before.lines().any(|other| other == *line)).map(|line| format!("+ {line}"));
    gone.or(new)
}

/// Has rustdoc tell of everything, as JSON, and answers where. That is an unstable format, for which rustdoc has to
/// take itself for a nightly one; for the compiler that would mean to build all anew.
fn document() -> Result<PathBuf, String> {
    let failed = |error: std::io::Error| format!("the interface cannot be listed: {error}");
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let target = std::path::absolute(target).map_err(failed)?;
    let rustdoc = target.join("rustdoc-json");
    fs::create_dir_all(&target).map_err(failed)?;
    fs::write(&rustdoc, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n").map_err(failed)?;
    fs::set_permissions(&rustdoc, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(["doc", "--quiet", "--locked", "--workspace", "--no-deps", "--lib", "--all-features"]);
    cargo.env("RUSTDOC", &rustdoc).env("RUSTDOCFLAGS", "-Z unstable-options --output-format json");
    match cargo.status() {
        Ok(status) if status.success() => Ok(target.join("doc")),
        Ok(status) => Err(format!("cargo doc: {status}")),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_named() {
        assert_eq!(first_change("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_change("a\nb\n", "b\n").as_deref(), Some("- a"));
        assert_eq!(first_change("a\n", "a\nb\n").as_deref(), Some("+ b"));
    }
}
