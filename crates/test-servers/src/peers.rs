//! Other libraries' locks, each in a program that is told what to do by lines on standard input, `lock NAME`, of a
//! read-write lock `read NAME` or `write NAME`, and `unlock`; of a semaphore `permits NAME TAKE OF` and `give`. It
//! answers `locked`, perhaps with what the store calls the holder, and `unlocked`; or `failed`, and then nothing of it
//! is left. It ends when its standard input does.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::kept_as;
use crate::zookeeper::curator;

/// Go's `concurrency.Mutex` and `recipes.RWMutex`: what follows is where etcd's members are, and for how many seconds
/// its session lasts. It locks what it is told and nothing more: a name is the whole key of a lock.
///
/// # Panics
/// Without Debian's packages `golang-go` and `golang-etcd-server-dev`.
pub fn go_mutex() -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    Command::new(PROGRAM.get_or_init(|| {
        let folder = kept_as("go");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/peers/mutex.go");
        // One process at a time. It takes a moment if nothing has changed.
        let lock = File::create(folder.join("lock")).expect("a file in the target folder");
        lock.lock().expect("a file of our own");
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

/// kazoo's `ReadLock`, `WriteLock` and `Semaphore`, of a version whose readers do not wait for writers that come later:
/// what follows is where ZooKeeper's servers are, and the patterns of other nodes by which writers wait, and by which
/// readers do. A name is the whole path of a lock.
///
/// # Panics
/// Without Debian's package `python3-pip`, and if it cannot fetch kazoo.
pub fn kazoo_locks() -> Command {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    const VERSION: &str = "2.11.0";
    let library = LIBRARY.get_or_init(|| {
        let folder = kept_as("kazoo");
        // One process at a time.
        let lock = File::create(folder.join("lock")).expect("a file in the target folder");
        lock.lock().expect("a file of our own");
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
    let mut python = Command::new(PYTHON);
    python.env("PYTHONPATH", library).env("PYTHONDONTWRITEBYTECODE", "1");
    python.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/peers/kazoo_locks.py"));
    python
}

/// Debian's own.
const PYTHON: &str = "/usr/bin/python3";

/// Curator's `InterProcessMutex`, `InterProcessReadWriteLock` and `InterProcessSemaphoreV2`: what follows is where
/// ZooKeeper's servers are. A name is the whole path of a lock.
pub fn curator_mutex() -> Command {
    let mut java = curator();
    java.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/peers/CuratorMutex.java"));
    java
}
