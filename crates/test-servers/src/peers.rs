//! Other libraries' locks, each in a program that is told what to do by lines on standard input: `lock NAME`, of a
//! read-write lock `read NAME` or `write NAME`, and `unlock`; of a semaphore `permits NAME TAKE OF` and `give`. What it
//! answers to these and to `check` stands in `peer.rs` of the crate `conformance-tests`.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::kept_as;
use crate::zookeeper::{curator, curator_jars};

/// Go's `concurrency.Mutex`, its `Election` (`campaign NAME`) and `recipes.RWMutex`: what follows is where etcd's
/// members are, and for how many seconds its session lasts. It locks what it is told and nothing more: a name is the
/// whole key of a lock.
///
/// # Panics
/// Without Debian's packages `golang-go` and `golang-etcd-server-dev`.
pub fn go_mutex() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    Command::new(PROGRAM.get_or_init(|| {
        let folder = kept_as("go");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/peers/mutex.go");
        // It takes a moment if nothing has changed.
        let _alone = alone_in(&folder);
        let (program, new) = (folder.join("mutex"), folder.join("mutex-new"));
        let mut go = Command::new("go");
        go.env("GO111MODULE", "off").env("GOPATH", "/usr/share/gocode").env("GOCACHE", folder.join("cache"));
        let built = go.arg("build").arg("-o").args([&new, &source]).output();
        let built = built.expect("install Debian's packages golang-go and golang-etcd-server-dev");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        fs::rename(&new, &program).expect("our own folder");
        program
    }))
}

/// One process at a time, as long as this is kept.
fn alone_in(folder: &Path) -> File {
    let lock = File::create(folder.join("lock")).expect("a file in the target folder");
    lock.lock().expect("a file of our own");
    lock
}

/// kazoo's `Lock`, `ReadLock`, `WriteLock` and `Semaphore`, of a version whose readers do not wait for writers that come
/// later: what follows is where ZooKeeper's servers are, the patterns of other nodes by which writers wait, and by which
/// readers do, and for how many milliseconds its session lasts, 15000 if nothing follows. A name is the whole path of a
/// lock.
///
/// # Panics
/// Without Debian's package `python3-pip`, and if it cannot fetch kazoo.
pub fn kazoo_locks() -> Command {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    const VERSION: &str = "2.11.0";
    let library = LIBRARY.get_or_init(|| {
        let folder = kept_as("kazoo");
        let _alone = alone_in(&folder);
        let (library, new) = (folder.join(VERSION), folder.join("new"));
        if !library.exists() {
            // What an earlier attempt left.
            let _ = fs::remove_dir_all(&new);
            let mut pip = Command::new(PYTHON);
            pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--no-cache-dir", "--target"]);
            let fetched = pip.arg(&new).arg(format!("kazoo=={VERSION}")).output();
            let fetched = fetched.expect("install Debian's package python3-pip");
            assert!(fetched.status.success(), "{}", String::from_utf8_lossy(&fetched.stderr));
            fs::rename(&new, &library).expect("our own folder");
        }
        library
    });
    let mut python = python("kazoo_locks");
    python.env("PYTHONPATH", library);
    python
}

/// `etcdctl lock`: what follows is where etcd's members are, and for how many seconds its session lasts. A name is the
/// whole key of a lock.
pub fn etcdctl_lock() -> Command {
    let mut python = python("etcdctl_lock");
    python.env("ETCDCTL_API", "3");
    python
}

/// redis-py's `Lock`, of Debian's package python3-redis: what follows is where the server is, and for how many
/// milliseconds the lock is taken. A name is the whole key of a lock.
pub fn redis_py_lock() -> Command {
    python("redis_py_lock")
}

/// Debian's own.
const PYTHON: &str = "/usr/bin/python3";

fn python(program: &str) -> Command {
    let mut python = Command::new(PYTHON);
    python.arg(format!("{}/src/peers/{program}.py", env!("CARGO_MANIFEST_DIR")));
    // Nothing is left in the libraries, nor beside the programs.
    python.env("PYTHONDONTWRITEBYTECODE", "1");
    python
}

/// Curator's `InterProcessMutex` (after `revoke NAME`, too, which asks Oarlock's clients to let go first),
/// `InterProcessReadWriteLock` and `InterProcessSemaphoreV2`: what follows is where ZooKeeper's servers are, and for how
/// many milliseconds its session lasts, 15000 if nothing follows. A name is the whole path of a lock.
///
/// # Panics
/// Without Debian's packages `default-jdk-headless` and `libcurator-recipes-java`.
pub fn curator_mutex() -> Command {
    static CLASSES: OnceLock<PathBuf> = OnceLock::new();
    let classes = CLASSES.get_or_init(|| {
        let folder = kept_as("curator");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/peers/CuratorMutex.java");
        let _alone = alone_in(&folder);
        let changed = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        if changed(&folder.join("CuratorMutex.class")) < changed(source.as_ref()) {
            let mut javac = Command::new("javac");
            javac.args(["-nowarn", "-cp", &curator_jars()]).arg("-d").arg(&folder).arg(source);
            let built = javac.output().expect("install Debian's package default-jdk-headless");
            assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        }
        folder
    });
    let mut java = curator();
    java.args(["-XX:TieredStopAtLevel=1", "-cp", &format!("{}:{}", classes.display(), curator_jars())]);
    java.arg("CuratorMutex");
    java
}
