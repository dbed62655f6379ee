//! Claims that are undone all the time, beside others of the same client.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, DistributedLock, LockName, OwnerId, Renewal};
use lock_etcd::EtcdLock;
use test_servers::{EtcdCluster, Proxy};
use tokio::task::JoinSet;

/// Never over while a test runs.
const LONG: Duration = Duration::from_secs(300);

const BOUND: Duration = Duration::from_secs(30);

fn claim(name: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store("owner"), LONG)
}

/// The way to the store takes so long that one undoing is always on its way when something else is sent. Renewals are
/// confirmed, each at once, and locks are had.
#[tokio::test(flavor = "multi_thread")]
async fn undoings_keep_nobody_from_the_store() {
    const WAY: Duration = Duration::from_millis(20);
    let cluster = EtcdCluster::start(1);
    let proxy = Proxy::new(cluster.addresses()[0]);
    let lock = Arc::new(EtcdLock::connect(&format!("etcd://{}", proxy.address()), "oarlock").await.unwrap());
    let held = claim("held");
    lock.try_lock(&held).await.unwrap().unwrap();
    proxy.delay(WAY);
    let mut undoing = JoinSet::new();
    for number in 0..4 {
        let (lock, doubtful) = (Arc::clone(&lock), claim(&format!("undone-{number}")));
        undoing.spawn(async move {
            loop {
                // Unless this host stops for as long as the way takes, there is no answer yet.
                drop(tokio::time::timeout(WAY, lock.try_lock(&doubtful)).await);
                lock.unlock(&doubtful).await.unwrap();
            }
        });
    }
    let others = async {
        for turn in 0..20 {
            let renewed = lock.renew(std::slice::from_ref(&held)).await.pop().unwrap();
            assert!(matches!(renewed, Ok(Renewal::Held { .. })), "{turn}: {renewed:?}");
            let other = claim(&format!("other-{turn}"));
            lock.try_lock(&other).await.unwrap().expect("nobody else wants it");
            lock.unlock(&other).await.unwrap();
        }
    };
    tokio::time::timeout(BOUND, others).await.expect("locks are had");
    assert_eq!(undoing.len(), 4);
    assert!(undoing.try_join_next().is_none(), "they are undone to the end");
}
