//! All tests, with their own set-up.

use std::process::Command;

/// Programs (and files) that building and testing everything needs, and the Debian packages that have them.
const NEEDED: [(&str, &str); 20] = [
    ("sh", "dash"),
    ("cc", "gcc"),
    ("setsid", "util-linux"),
    ("setpriv", "util-linux"),
    ("/usr/lib/postgresql/15/bin/postgres", "postgresql-15"),
    ("/usr/sbin/pgbouncer", "pgbouncer"),
    ("/usr/sbin/mariadbd", "mariadb-server-core"),
    ("my_print_defaults", "mariadb-client-core"),
    ("redis-server", "redis-server"),
    ("redis-cli", "redis-tools"),
    ("/usr/lib/python3/dist-packages/redis/lock.py", "python3-redis"),
    ("javac", "default-jdk-headless"),
    ("/usr/share/java/zookeeper.jar", "libzookeeper-java"),
    ("/usr/share/java/curator-recipes.jar", "libcurator-recipes-java"),
    ("/usr/lib/python3/dist-packages/kazoo/recipe/lock.py", "python3-kazoo"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("protoc", "protobuf-compiler"),
    ("/usr/include/google/protobuf/descriptor.proto", "libprotobuf-dev"),
    ("strace", "strace"),
];

/// A backend as somebody outside the workspace writes it.
const EXAMPLE: &str = "examples/file-lock/Cargo.toml";

/// What the test command tortures, long enough for many blows; a store that forgets, with what makes it forget.
const TORTURED: [&[&str]; 7] = [
    &["sqlite"],
    &["redis"],
    &["redis-forgetful", "--faults", "stop,cut,kill-server,restart-server"],
    &["zookeeper"],
    &["etcd"],
    &["postgres"],
    &["mysql"],
];

pub(crate) fn run() -> Result<(), String> {
    set_up()?;
    // The torture's workers and the tests of the program run what is built here.
    cargo(&["test", "--locked", "--workspace", "--no-fail-fast"])?;
    cargo(&["test", "--locked", "-p", "lock-core", "--features", "metrics", "--test", "metrics"])?;
    // What no default feature switches on.
    cargo(&["test", "--locked", "-p", "oarlock", "-p", "oarlock-cli", "--features", "etcd", "etcd"])?;
    cargo(&["test", "--locked", "-p", "lock-etcd", "--features", "tls", "--test", "tls"])?;
    cargo(&["test", "--locked", "--manifest-path", EXAMPLE, "--target-dir", "target"])?;
    cargo(&["test", "--locked", "-p", "lock-zookeeper", "--features", "tls,sasl", "--test", "secure"])?;
    if crate::fuzz::is_possible() {
        cargo(&["xtask", "fuzz", "--seconds", "8"])?;
    } else {
        println!("== without cargo-fuzz, the property tests stand in for the targets in fuzz/");
    }
    let common = ["--minutes", "0.5", "--seed", "7"];
    TORTURED.iter().try_for_each(|store| cargo(&[&["xtask", "torture"], *store, &common].concat()))
}

/// Installs what is missing, where that is possible.
pub(crate) fn set_up() -> Result<(), String> {
    let missing: Vec<_> =
        NEEDED.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing {}", missing.join(", "));
    let update = Command::new("apt-get").arg("update").status();
    let install = Command::new("apt-get").args(["install", "-y", "--no-install-recommends"]).args(&missing).status();
    match (update, install) {
        (Ok(_), Ok(status)) if status.success() => Ok(()),
        _ => Err(format!("these packages are needed and could not be installed: {}", missing.join(", "))),
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

pub(crate) fn cargo(arguments: &[&str]) -> Result<(), String> {
    println!("== cargo {}", arguments.join(" "));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    match Command::new(cargo).args(arguments).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {}: {status}", arguments.join(" "))),
        Err(error) => Err(format!("cargo cannot be run: {error}")),
    }
}
