//! Servers that are slow, measured by the lease.

use std::time::Duration;

use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use lock_zookeeper::{ZookeeperLock, ZookeeperOptions};
use test_servers::{Proxy, ZookeeperServers};

const LEASE: Duration = Duration::from_secs(2);

/// How long a request may take: several leases.
const PATIENCE: Duration = Duration::from_secs(30);

fn claim(owner: &str) -> Claim {
    Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LEASE)
}

async fn connect(proxy: &Proxy) -> ZookeeperLock {
    let url = format!("zookeeper://{}", proxy.address());
    ZookeeperOptions::new(&url).unwrap().timeout(PATIENCE).connect().await.unwrap()
}

/// What a first claim needs of a new session takes several requests. Together they take longer than the lease, and far
/// less than a request may.
#[tokio::test]
async fn a_first_claim_takes_longer_than_its_lease() {
    let servers = ZookeeperServers::start();
    let proxy = Proxy::new(servers.addresses()[0]);
    let lock = connect(&proxy).await;
    // Not so long that the connection is given up.
    let delay = LEASE * 3 / 10;
    proxy.delay_s2c(delay..delay);
    let first = claim("first");
    // A hold lives by quick writes: a grant waits for those.
    let quicker = async {
        tokio::time::sleep(LEASE * 3).await;
        proxy.forward();
    };
    let (granted, ()) = tokio::join!(lock.try_lock(&first), quicker);
    assert!(granted.unwrap().unwrap().valid_until > lock.clock().now());
}

/// The session of a lease ends while a claim gets ready in it, of which nothing was sent yet: it is granted in the next.
#[tokio::test]
async fn a_session_that_ends_before_a_claim_is_sent_is_replaced() {
    let servers = ZookeeperServers::start();
    let proxy = Proxy::new(servers.addresses()[0]);
    let lock = connect(&proxy).await;
    let (before, after) = (claim("before"), claim("after"));
    let token = lock.try_lock(&before).await.unwrap().unwrap().token;
    lock.unlock(&before).await.unwrap();
    proxy.hold();
    // The connection is given up, and the session not yet.
    tokio::time::sleep(LEASE / 2).await;
    let back = async {
        tokio::time::sleep(LEASE * 3 / 2).await;
        proxy.forward();
    };
    let (granted, ()) = tokio::join!(lock.try_lock(&after), back);
    assert!(granted.unwrap().unwrap().token > token);
}
