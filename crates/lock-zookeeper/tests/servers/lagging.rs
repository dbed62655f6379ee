//! A server that is behind the others.

use std::time::Duration;

use lock_core::{Claim, DistributedLock, ListQuery, LockName, OwnerId};
use lock_zookeeper::ZookeeperLock;
use test_servers::ZookeeperServers;

const LEASE: Duration = Duration::from_secs(60);

/// Long enough for a server to answer by itself, and short enough for it to keep its sessions.
const CUT_OFF: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread")]
async fn what_others_did_before_is_seen_there() {
    let mut servers = ZookeeperServers::start_with(3, &[]);
    let leader = servers.leader().expect("somebody leads");
    let behind = (leader + 1) % 3;
    let at = |server: usize| format!("zookeeper://{}", servers.addresses()[server]);
    let (holder, looker) = (at(leader), at(behind));
    let connect = async |url: &str| ZookeeperLock::connect(url, "oarlock").await.unwrap();
    let (holder, looker) = (connect(&holder).await, connect(&looker).await);
    let name = LockName::new("x").unwrap();
    // Its session is open before it is cut off.
    assert!(looker.inspect(&name).await.unwrap().holder().is_none());
    servers.cut(behind);
    let claim = Claim::new(name.clone(), OwnerId::from_store("holder"), LEASE);
    holder.try_lock(&claim).await.unwrap().unwrap();
    let all = ListQuery::default();
    let asked = async { tokio::join!(told(|| looker.inspect(&name)), told(|| looker.list(&all))) };
    let healed = async {
        tokio::time::sleep(CUT_OFF).await;
        servers.heal(behind);
    };
    let ((status, page), ()) = tokio::join!(asked, healed);
    assert_eq!(status.into_holder().expect("it is held").owner, claim.owner);
    assert_eq!(page.locks.len(), 1);
    let evicted = told(|| looker.evict(&name)).await;
    assert_eq!(evicted.expect("it was held").owner, claim.owner);
}

/// Its first answer. Until then it may have lost its session: the server follows nobody while it is cut off.
async fn told<T, F: Future<Output = lock_core::Result<T>>>(ask: impl Fn() -> F) -> T {
    let asking = async {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    };
    tokio::time::timeout(LEASE, asking).await.expect("an answer")
}
