//! What building and testing everything needs.

use std::process::Command;

/// Programs (and files) that building and testing everything needs, and the Debian packages that have them.
const NEEDED: [(&str, &str); 26] = [
    ("sh", "dash"),
    ("cc", "gcc"),
    ("setsid", "util-linux"),
    ("setpriv", "util-linux"),
    ("ipcrm", "util-linux"),
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
    ("/usr/lib/python3/dist-packages/pip/__init__.py", "python3-pip"),
    ("etcd", "etcd-server"),
    ("etcdctl", "etcd-client"),
    ("go", "golang-go"),
    ("/usr/share/gocode/src/go.etcd.io/etcd/clientv3/client.go", "golang-etcd-server-dev"),
    ("protoc", "protobuf-compiler"),
    ("/usr/include/google/protobuf/descriptor.proto", "libprotobuf-dev"),
    ("memcached", "memcached"),
    ("strace", "strace"),
    ("codespell", "codespell"),
];

/// Installs what building and testing everything needs, where that is possible.
pub(crate) fn set_up() -> Result<(), String> {
    install(&NEEDED)
}

/// Installs the packages of those programs and files that are missing.
pub(crate) fn install(needed: &[(&str, &str)]) -> Result<(), String> {
    let missing: Vec<_> =
        needed.iter().filter(|(program, _)| !is_there(program)).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    println!("installing {}", missing.join(", "));
    let update = Command::new("apt-get").arg("update").status();
    // Another may be installing, too.
    let install = ["-o", "DPkg::Lock::Timeout=600", "install", "-y", "--no-install-recommends"];
    let mut apt = Command::new("apt-get");
    // Java would leave a folder in /tmp when its package is set up.
    apt.env("JAVA_TOOL_OPTIONS", "-XX:-UsePerfData");
    let install = apt.args(install).args(&missing).status();
    match (update, install) {
        (Ok(_), Ok(status)) if status.success() => Ok(()),
        _ => Err(format!("these packages are needed and could not be installed: {}", missing.join(", "))),
    }
}

fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}
