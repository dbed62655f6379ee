//! Type-checks for other systems. Nothing is linked, so that neither their linkers nor their libraries are needed: the
//! standard library is built from its source, for the check alone.

use std::process::Command;

/// Debian's own compiler has that source beside it.
const NEEDED: [(&str, &str); 4] = [
    ("/usr/bin/rustc", "rustc-web"),
    ("/usr/bin/cargo", "cargo-web"),
    ("/usr/lib/rustlib/src/rust/library/std/src/lib.rs", "rust-web-src"),
    ("x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"),
];

/// What is checked for which system. TLS is C in part, for which there is no compiler here, and etcd's client needs TLS's
/// crates.
const CHECKS: [(&str, &[&str]); 2] = [
    (
        "aarch64-apple-darwin",
        &[
            "-p",
            "oarlock-cli",
            "--no-default-features",
            "--features",
            "sqlite,postgres,mysql,redis,memcached,zookeeper,quorum",
        ],
    ),
    (
        "x86_64-pc-windows-gnu",
        &[
            "-p",
            "oarlock",
            "--no-default-features",
            "--features",
            "blocking,macros,metrics,postgres,mysql,redis,memcached,zookeeper,quorum",
        ],
    ),
];

/// Installs what that needs, and checks.
pub(crate) fn check() -> Result<(), String> {
    crate::setup::install(&NEEDED)?;
    for (target, arguments) in CHECKS {
        let mut cargo = Command::new("/usr/bin/cargo");
        cargo.args(["check", "--locked", "-Zbuild-std=std,panic_unwind", "--target", target]).args(arguments);
        cargo.args(["--target-dir", "target/cross"]).env("RUSTC", "/usr/bin/rustc").env("RUSTC_BOOTSTRAP", "1");
        // What is C in a dependency is not compiled for macOS.
        cargo.env("CC_aarch64_apple_darwin", "true").env("AR_aarch64_apple_darwin", "true");
        match cargo.status() {
            Ok(status) if status.success() => {}
            Ok(_) => return Err(format!("it does not build for {target}")),
            Err(error) => return Err(format!("/usr/bin/cargo cannot be run: {error}")),
        }
    }
    Ok(())
}
