//! Whoever observes a lock is told of what happens to it, also after whatever ends a stream of watches.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, CompactionOptions};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use lock_core::{Claim, DistributedLock, Kept, LockName, LockValue, OwnerId, Proclaimed};
use lock_etcd::EtcdLock;
use test_servers::{EtcdCluster, GrpcProxy, Proxy};

const LONG: Duration = Duration::from_secs(300);

const BOUND: Duration = Duration::from_secs(20);

/// Longer than an event takes. What is not told by then is not told.
const QUIET: Duration = Duration::from_millis(500);

fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

fn claim(lock: &str, owner: &str) -> Claim {
    let mut claim = Claim::new(name(lock), OwnerId::from_store(owner), LONG);
    claim.value = Some(LockValue::new("here").unwrap());
    claim
}

async fn connect(url: &str) -> Arc<EtcdLock> {
    Arc::new(EtcdLock::connect(url, "oarlock").await.unwrap())
}

/// All that was told until now.
async fn quiet(changes: &mut BoxStream<'static, ()>) {
    while tokio::time::timeout(QUIET, changes.next()).await.is_ok() {}
}

async fn told(changes: &mut BoxStream<'static, ()>, of: &str) {
    tokio::time::timeout(BOUND, changes.next()).await.unwrap_or_else(|_| panic!("not told of {of}")).unwrap();
    quiet(changes).await;
}

/// Everything that another client does with the lock, and nothing that it does with others.
async fn all_is_told(changes: &mut BoxStream<'static, ()>, other: &EtcdLock, round: &str) {
    let (first, second) = (claim("a/b", &format!("1 {round}")), claim("a/b", &format!("2 {round}")));
    quiet(changes).await;
    other.try_lock(&first).await.unwrap().unwrap();
    told(changes, "a grant").await;
    assert_eq!(other.proclaim(&first, &LockValue::new("there").unwrap()).await.unwrap(), Proclaimed::Shown);
    told(changes, "a value").await;
    for lock in ["a", "a/b/c", "a/"] {
        let elsewhere = claim(lock, &format!("{lock} {round}"));
        other.try_lock(&elsewhere).await.unwrap().unwrap();
        other.unlock(&elsewhere).await.unwrap();
    }
    assert!(tokio::time::timeout(QUIET, changes.next()).await.is_err(), "it is another lock");
    other.unlock(&first).await.unwrap();
    told(changes, "a release").await;
    other.try_lock(&second).await.unwrap().unwrap();
    told(changes, "another grant").await;
    assert_eq!(other.keep(&second, Duration::from_secs(2)).await.unwrap(), Kept::Kept);
    told(changes, "that it is kept").await;
    told(changes, "the end of that").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_happens_to_a_lock_is_told() {
    let cluster = EtcdCluster::start(1);
    let (observing, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let mut changes = observing.changes(&name("a/b"));
    all_is_told(&mut changes, &other, "").await;
    // The last observer closes its watch, and the next one has another.
    let mut second = observing.changes(&name("a/b"));
    drop(changes);
    all_is_told(&mut second, &other, "second").await;
    drop(second);
    let mut third = observing.changes(&name("a/b"));
    all_is_told(&mut third, &other, "third").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_a_broken_connection_nor_a_compaction_silences_it() {
    let mut cluster = EtcdCluster::start(1);
    let proxy = Proxy::new(cluster.addresses()[0]);
    let (observing, other) = (connect(&format!("etcd://{}", proxy.address())).await, connect(&cluster.url()).await);
    let mut changes = observing.changes(&name("a/b"));
    told(&mut changes, "the beginning").await;
    proxy.reset();
    // What happened meanwhile is not told; that something may have is.
    told(&mut changes, "a new beginning").await;
    all_is_told(&mut changes, &other, "reset").await;
    let mut raw = Client::connect([cluster.addresses()[0].to_string()], None).await.unwrap();
    let present = raw.put("z", "", None).await.unwrap().header().unwrap().revision();
    raw.compact(present, Some(CompactionOptions::new().with_physical())).await.unwrap();
    all_is_told(&mut changes, &other, "compacted").await;
    tokio::task::block_in_place(|| cluster.restart(0));
    told(&mut changes, "a new beginning").await;
    let again = connect(&cluster.url()).await;
    all_is_told(&mut changes, &again, "restarted").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_told_behind_a_proxy_too() {
    let cluster = EtcdCluster::start(1);
    let proxy = GrpcProxy::start(&cluster);
    let (observing, other) = (connect(&proxy.url()).await, connect(&cluster.url()).await);
    let mut changes = observing.changes(&name("a/b"));
    all_is_told(&mut changes, &other, "").await;
    drop(changes);
    let mut again = observing.changes(&name("a/b"));
    all_is_told(&mut again, &other, "again").await;
}
