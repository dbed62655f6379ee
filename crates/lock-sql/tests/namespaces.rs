//! A waiter in another network namespace, as in another container with the same volume, whom no release can wake.
//!
//! A program of its own, which is started again in such a namespace.

use std::cell::Cell;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use lock_sql::SqliteLock;
use tokio::process::Command;

/// For how long each holds the lock.
const TURN: Duration = Duration::from_millis(50);

/// By then the waiter has looked several times.
const TURNS: u32 = 100;

fn claim(owner: &str) -> Claim {
    Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), Duration::from_secs(300))
}

async fn open(path: &Path) -> SqliteLock {
    SqliteLock::open(path, "t").await.expect("a file")
}

/// Two who take turns, so that there is always somebody in line who can be woken.
async fn take_turns(path: &Path, turns: &Cell<u32>) {
    let take = async |owner: &str| {
        let (lock, claim) = (open(path).await, claim(owner));
        while turns.get() < TURNS {
            lock.lock(&claim).await.unwrap();
            turns.set(turns.get() + 1);
            tokio::time::sleep(TURN).await;
            lock.unlock(&claim).await.unwrap();
        }
    };
    tokio::join!(take("one"), take("other"));
}

async fn in_another_namespace_served() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("locks.db");
    let (lock, held) = (open(&path).await, claim("holder"));
    lock.try_lock(&held).await.unwrap().unwrap();
    let this = std::env::current_exe().unwrap();
    let mut waiter = Command::new("unshare");
    // Who may not make one may in a namespace of users; and that nobody may make in a changed root.
    let users: &[&str] = if nix::unistd::geteuid().is_root() { &[] } else { &["--user", "--map-root-user"] };
    waiter.args(users).arg("--net").arg(this).arg(&path).kill_on_drop(true);
    let mut waiter = waiter.spawn().expect("install Debian's package util-linux");
    while lock.inspect(&held.name).await.unwrap().waiters.is_empty() {
        assert_eq!(waiter.try_wait().unwrap(), None, "a namespace cannot be made, or the waiter fails");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let turns = Cell::new(0);
    let others = take_turns(&path, &turns);
    let served = async {
        lock.unlock(&held).await.unwrap();
        let served = waiter.wait().await.unwrap();
        assert!(served.success());
        assert!(turns.replace(TURNS) < TURNS, "others had {TURNS} turns meanwhile");
    };
    tokio::join!(others, served);
}

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    match std::env::args_os().nth(1).filter(|path| Path::new(path).is_absolute()) {
        Some(path) => runtime.block_on(async {
            let (lock, claim) = (open(Path::new(&path)).await, claim("in another namespace"));
            lock.lock(&claim).await.expect("granted");
            lock.unlock(&claim).await.expect("released");
        }),
        None => {
            runtime.block_on(in_another_namespace_served());
            println!("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        }
    }
    ExitCode::SUCCESS
}
