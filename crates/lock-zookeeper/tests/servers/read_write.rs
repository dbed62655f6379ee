//! Readers beside programs without Oarlock: Curator's `InterProcessReadWriteLock`, its `InterProcessMutex`, and kazoo's
//! `ReadLock` and `WriteLock`.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, LockGuard, Locks, Mode, RwLock};
use lock_zookeeper::ZookeeperOptions;
use test_servers::{ZookeeperServers, curator_mutex, kazoo_locks};
use tokio::process::Command;
use tokio::task::JoinHandle;

use crate::common::{soon, until};
use crate::interop::Peer;

/// One of Curator's locks, in a program of its own.
fn curator(servers: &ZookeeperServers) -> Peer {
    let mut java = Command::from(curator_mutex());
    java.arg(servers.addresses()[0].to_string());
    Peer::start(java)
}

async fn locks(servers: &ZookeeperServers, read_write: bool) -> Locks {
    let mut options = ZookeeperOptions::new(&servers.url()).unwrap();
    if read_write {
        options = options.curator_read_write();
    }
    let lock = Arc::new(options.connect().await.unwrap());
    // Each reader is to stand in the line itself.
    Locks::builder(lock).lease(Duration::from_secs(300)).hand_overs(0).build().unwrap()
}

fn waits(locks: &Locks, mode: Mode) -> JoinHandle<LockGuard> {
    let lock = locks.rw_lock("job").unwrap();
    tokio::spawn(async move { if mode == Mode::Shared { lock.read().await } else { lock.write().await }.unwrap() })
}

/// So many hold, and so many wait.
async fn in_line(locks: &Locks, holders: usize, waiters: usize) {
    until("the line", async || {
        let seen = locks.inspect("job").await.unwrap();
        (seen.holders.len(), seen.waiters.len()) == (holders, waiters)
    })
    .await;
}

/// Our writer goes, whom the other of theirs waits for to read; then the one writes. Answers our reader behind that one.
async fn turns_of_both(
    locks: &Locks,
    lock: &RwLock,
    writer: LockGuard,
    [one, other]: [&mut Peer; 2],
) -> JoinHandle<LockGuard> {
    in_line(locks, 1, 1).await;
    writer.unlock().await.unwrap();
    other.has_it().await;
    let reader = lock.try_read().await.unwrap().expect("both read");
    // Theirs waits for ours, and ours, which comes later, for theirs.
    one.tell("write /oarlock/job").await;
    in_line(locks, 2, 1).await;
    let late = waits(locks, Mode::Shared);
    in_line(locks, 2, 2).await;
    assert_eq!(other.ask("unlock").await, "unlocked");
    in_line(locks, 1, 2).await;
    reader.unlock().await.unwrap();
    one.has_it().await;
    assert!(!late.is_finished() && lock.try_read().await.unwrap().is_none());
    late
}

#[tokio::test(flavor = "multi_thread")]
async fn curators_readers_and_writers_and_ours_stand_in_one_line() {
    let servers = ZookeeperServers::start();
    // One of ours is of the other kind: that makes no difference among ours.
    let (locks, plain) = (locks(&servers, true).await, locks(&servers, false).await);
    let lock = locks.rw_lock("job").unwrap();
    let (mut one, mut other) = (curator(&servers), curator(&servers));
    one.tell("read /oarlock/job").await;
    one.has_it().await;
    let reader = lock.try_read().await.unwrap().expect("both read");
    assert!(lock.try_write().await.unwrap().is_none() && locks.mutex("job").try_lock().await.unwrap().is_none());
    in_line(&plain, 2, 0).await;
    // Ours waits for theirs, and theirs, which comes later, for ours.
    let writer = waits(&locks, Mode::Exclusive);
    in_line(&locks, 2, 1).await;
    other.tell("read /oarlock/job").await;
    in_line(&locks, 2, 2).await;
    assert!(lock.try_read().await.unwrap().is_none());
    reader.unlock().await.unwrap();
    assert!(!writer.is_finished());
    assert_eq!(one.ask("unlock").await, "unlocked");
    let writer = soon("the writer's turn", writer).await.unwrap();
    let late = turns_of_both(&locks, &lock, writer, [&mut one, &mut other]).await;
    // Who would not be noticed by them does not take part.
    for error in [
        plain.rw_lock("job").unwrap().try_read().await.unwrap_err(),
        plain.mutex("job").try_lock().await.unwrap_err(),
        soon("the refusal", plain.mutex("job").lock()).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("__WRIT__") && error.to_string().contains("curator=read-write"), "{error}");
    }
    assert_eq!(one.ask("unlock").await, "unlocked");
    soon("the reader's turn", late).await.unwrap().unlock().await.unwrap();
    in_line(&locks, 0, 0).await;
    // Ours of either kind.
    let writer = plain.mutex("job").try_lock().await.unwrap().unwrap();
    assert!(lock.try_read().await.unwrap().is_none());
    let reader = waits(&locks, Mode::Shared);
    in_line(&plain, 1, 1).await;
    writer.unlock().await.unwrap();
    let reader = soon("the reader's turn", reader).await.unwrap();
    assert!(plain.rw_lock("job").unwrap().try_read().await.unwrap().is_some());
    assert!(plain.mutex("job").try_lock().await.unwrap().is_none());
    reader.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_is_another_holder_for_curators_mutex() {
    let servers = ZookeeperServers::start();
    let (locks, other) = (locks(&servers, false).await, locks(&servers, true).await);
    let mut mutex = curator(&servers);
    let (one, two) = (waits(&locks, Mode::Shared).await.unwrap(), waits(&locks, Mode::Shared).await.unwrap());
    mutex.tell("lock /oarlock/job").await;
    in_line(&locks, 2, 1).await;
    let late = waits(&locks, Mode::Shared);
    in_line(&locks, 2, 2).await;
    one.unlock().await.unwrap();
    in_line(&locks, 1, 2).await;
    two.unlock().await.unwrap();
    mutex.has_it().await;
    assert!(!late.is_finished() && locks.rw_lock("job").unwrap().try_read().await.unwrap().is_none());
    let error = other.mutex("job").try_lock().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("curator=mutex"), "{error}");
    assert_eq!(mutex.ask("unlock").await, "unlocked");
    soon("the reader's turn", late).await.unwrap().unlock().await.unwrap();
}

/// kazoo's locks, in a program of its own, with the patterns that the manual names.
fn kazoo(servers: &ZookeeperServers, read_write: bool) -> Peer {
    let mut python = Command::from(kazoo_locks());
    python.arg(servers.addresses()[0].to_string());
    python.args(if read_write { ["__WRIT__ __READ__", "__WRIT__"] } else { ["-lock-", "[0-9]-lock-"] });
    Peer::start(python)
}

#[tokio::test(flavor = "multi_thread")]
async fn kazoos_readers_and_writers_and_ours_stand_in_one_line() {
    let servers = ZookeeperServers::start();
    // Beside either of Curator's locks.
    for read_write in [false, true] {
        let locks = locks(&servers, read_write).await;
        let lock = locks.rw_lock("job").unwrap();
        let (mut one, mut other) = (kazoo(&servers, read_write), kazoo(&servers, read_write));
        one.tell("read /oarlock/job").await;
        one.has_it().await;
        let reader = lock.try_read().await.unwrap().expect("both read");
        assert!(lock.try_write().await.unwrap().is_none() && locks.mutex("job").try_lock().await.unwrap().is_none());
        other.tell("read /oarlock/job").await;
        other.has_it().await;
        in_line(&locks, 3, 0).await;
        assert_eq!(other.ask("unlock").await, "unlocked");
        // Ours waits for theirs, and theirs, which comes later, for ours.
        let writer = waits(&locks, Mode::Exclusive);
        in_line(&locks, 2, 1).await;
        other.tell("read /oarlock/job").await;
        in_line(&locks, 2, 2).await;
        reader.unlock().await.unwrap();
        in_line(&locks, 1, 2).await;
        assert!(!writer.is_finished());
        assert_eq!(one.ask("unlock").await, "unlocked");
        let writer = soon("the writer's turn", writer).await.unwrap();
        let late = turns_of_both(&locks, &lock, writer, [&mut one, &mut other]).await;
        assert!(locks.mutex("job").try_lock().await.unwrap().is_none());
        assert_eq!(one.ask("unlock").await, "unlocked");
        soon("the reader's turn", late).await.unwrap().unlock().await.unwrap();
        in_line(&locks, 0, 0).await;
        // One who holds alone keeps theirs of both kinds out.
        let writer = locks.mutex("job").try_lock().await.unwrap().unwrap();
        one.tell("read /oarlock/job").await;
        in_line(&locks, 1, 1).await;
        other.tell("write /oarlock/job").await;
        in_line(&locks, 1, 2).await;
        writer.unlock().await.unwrap();
        one.has_it().await;
        in_line(&locks, 1, 1).await;
        assert_eq!(one.ask("unlock").await, "unlocked");
        other.has_it().await;
        assert_eq!(other.ask("unlock").await, "unlocked");
    }
}
