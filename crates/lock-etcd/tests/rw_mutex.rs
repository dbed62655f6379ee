//! Go's `recipes.RWMutex` and ours exclude each other, in both directions.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{LockGuard, Locks, Mode};
use lock_etcd::EtcdLock;
use test_servers::EtcdCluster;
use tokio::task::JoinHandle;

#[expect(dead_code, reason = "others ask for plain locks")]
mod go;

use go::GoSession;

/// Longer than any step takes, shorter than the leases.
const BOUND: Duration = Duration::from_secs(20);

async fn locks(cluster: &EtcdCluster) -> Locks {
    let backend = EtcdLock::connect(&cluster.url(), "oarlock").await.unwrap();
    // Each reader is to stand in the line itself.
    Locks::builder(Arc::new(backend)).lease(Duration::from_secs(300)).hand_overs(0).build().unwrap()
}

async fn soon<T>(waiting: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, waiting).await.expect("its turn")
}

/// So many are in line by now, whether they hold or wait.
async fn in_line(locks: &Locks, count: usize) {
    soon(async {
        loop {
            let seen = locks.inspect("x").await.unwrap();
            if seen.holders.len() + seen.waiters.len() == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

fn waits(locks: &Locks, mode: Mode) -> JoinHandle<LockGuard> {
    let lock = locks.rw_lock("x").unwrap();
    tokio::spawn(async move { if mode == Mode::Shared { lock.read().await } else { lock.write().await }.unwrap() })
}

#[tokio::test]
async fn readers_of_both_share_and_writers_of_both_do_not() {
    let cluster = EtcdCluster::start(1);
    let locks = locks(&cluster).await;
    let (lock, mut go, mut other) = (locks.rw_lock("x").unwrap(), GoSession::open(&cluster), GoSession::open(&cluster));
    go.order("read", "oarlock/x").await;
    go.has_it().await;
    let reader = lock.try_read().await.unwrap().expect("both read");
    assert!(lock.try_write().await.unwrap().is_none() && locks.mutex("x").try_lock().await.unwrap().is_none());
    let seen = locks.inspect("x").await.unwrap();
    assert!(seen.holders.len() == 2 && seen.holders.iter().all(|holder| holder.mode == Mode::Shared), "{seen:?}");
    // Ours waits for theirs, and theirs, which comes later, for ours.
    let writer = waits(&locks, Mode::Exclusive);
    in_line(&locks, 3).await;
    other.order("read", "oarlock/x").await;
    in_line(&locks, 4).await;
    assert!(lock.try_read().await.unwrap().is_none());
    reader.unlock().await.unwrap();
    assert!(!writer.is_finished());
    go.unlock().await;
    let writer = soon(writer).await.unwrap();
    assert_eq!(locks.inspect("x").await.unwrap().waiters.len(), 1);
    writer.unlock().await.unwrap();
    other.has_it().await;
    let reader = lock.try_read().await.unwrap().expect("both read");
    // Theirs waits for ours, and ours, which comes later, for theirs.
    go.order("write", "oarlock/x").await;
    in_line(&locks, 3).await;
    let late = waits(&locks, Mode::Shared);
    in_line(&locks, 4).await;
    other.unlock().await;
    assert_eq!(locks.inspect("x").await.unwrap().waiters.len(), 2);
    reader.unlock().await.unwrap();
    go.has_it().await;
    assert!(!late.is_finished() && lock.try_read().await.unwrap().is_none());
    go.unlock().await;
    soon(late).await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn our_mutex_is_their_writer() {
    let cluster = EtcdCluster::start(1);
    let locks = locks(&cluster).await;
    let mut go = GoSession::open(&cluster);
    for how in ["read", "write", "lock"] {
        let mutex = locks.mutex("x").lock().await.unwrap();
        go.order(how, "oarlock/x").await;
        in_line(&locks, 2).await;
        let seen = locks.inspect("x").await.unwrap();
        assert_eq!((seen.holders.len(), seen.waiters.len()), (1, 1), "{how}: {seen:?}");
        mutex.unlock().await.unwrap();
        go.has_it().await;
        assert!(locks.mutex("x").try_lock().await.unwrap().is_none(), "{how}");
        assert_eq!(locks.rw_lock("x").unwrap().try_read().await.unwrap().is_some(), how == "read");
        go.unlock().await;
    }
    // Neither takes part where permits are counted.
    let permit = locks.semaphore("x", 2).unwrap().acquire().await.unwrap();
    go.order("read", "oarlock/x").await;
    go.has_it().await;
    assert!(permit.is_held());
    go.unlock().await;
}
