//! A request that got stuck on its way to one member and was repeated at another: its first copy lands later.

mod line;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use line::key_of;
use lock_core::{Claim, DistributedLock, LockName, OwnerId, Unlocked};
use lock_etcd::{EtcdLock, EtcdOptions};
use test_servers::{EtcdCluster, Proxy};

/// Never over while a test runs.
const LONG: Duration = Duration::from_secs(300);

/// For what needs no lease's end.
const BOUND: Duration = Duration::from_secs(20);

/// How long a member may take to answer. Then the request is repeated at another.
const TIMEOUT: Duration = Duration::from_millis(500);

fn claim(name: &str, owner: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), LONG)
}

async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(BOUND, waiting).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"));
}

/// Three members, the first behind a proxy, and a client with a session that talks to that one.
struct Stuck {
    cluster: EtcdCluster,
    proxy: Proxy,
    lock: Arc<EtcdLock>,
    raw: Client,
}

impl Stuck {
    async fn new() -> Self {
        let cluster = EtcdCluster::start(3);
        let members: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
        let proxy = Proxy::new(cluster.addresses()[0]);
        let url = format!("etcd://{},{},{}", proxy.address(), members[1], members[2]);
        let lock = Arc::new(EtcdOptions::new(&url).unwrap().in_order(true).timeout(TIMEOUT).connect().await.unwrap());
        let raw = Client::connect(members, None).await.unwrap();
        let first = claim("first", "first");
        until("a session", async || lock.try_lock(&first).await.is_ok_and(|grant| grant.is_some())).await;
        Self { cluster, proxy, lock, raw }
    }

    /// The copy that is stuck is done now. It leaves nothing: not a key, and nobody in the way of the next.
    async fn lands(self, name: &str) {
        let before = self.cluster.requests(&["Txn"]);
        self.proxy.forward();
        until("the first copy", async || self.cluster.requests(&["Txn"]) > before).await;
        for _ in 0..20 {
            assert!(key_of(&self.raw, name, "late").await.is_none());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let next = claim(name, "next");
        until("the next", async || self.lock.try_lock(&next).await.is_ok_and(|grant| grant.is_some())).await;
    }
}

/// The first member's answers are lost: each of its requests is done twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_asked_for_twice_is_one() {
    let cluster = EtcdCluster::start(3);
    let members: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    let proxy = Proxy::new(cluster.addresses()[0]);
    let url = format!("etcd://{},{},{}", proxy.address(), members[1], members[2]);
    let lock = EtcdOptions::new(&url).unwrap().in_order(true).timeout(TIMEOUT).connect().await.unwrap();
    let mut raw = Client::connect(members, None).await.unwrap();
    // Nobody else asks in vain, which would take the client to another member.
    until("a watch", async || cluster.requests(&["Watch"]) > 0).await;
    proxy.hold_s2c();
    let first = claim("x", "first");
    until("a grant", async || lock.try_lock(&first).await.is_ok_and(|grant| grant.is_some())).await;
    assert_eq!(cluster.requests(&["LeaseGrant"]), 2, "it is asked for twice");
    assert_eq!(raw.leases().await.unwrap().leases().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_granted_and_released_is_not_taken_again() {
    let stuck = Stuck::new().await;
    let late = claim("x", "late");
    stuck.proxy.hold_c2s();
    stuck.lock.try_lock(&late).await.unwrap().expect("another member grants it");
    assert_eq!(stuck.lock.unlock(&late).await.unwrap(), Unlocked::Released);
    stuck.lands("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waited_and_released_does_not_stand_in_line_again() {
    let stuck = Stuck::new().await;
    let late = claim("x", "late");
    stuck.proxy.hold_c2s();
    stuck.lock.lock(&late).await.unwrap();
    assert_eq!(stuck.lock.unlock(&late).await.unwrap(), Unlocked::Released);
    stuck.lands("x").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_try_that_was_denied_takes_nothing_later() {
    let stuck = Stuck::new().await;
    let near = EtcdLock::connect(&stuck.cluster.url(), "oarlock").await.unwrap();
    let (holder, late) = (claim("x", "holder"), claim("x", "late"));
    near.try_lock(&holder).await.unwrap().unwrap();
    stuck.proxy.hold_c2s();
    assert!(stuck.lock.try_lock(&late).await.unwrap().is_none());
    assert_eq!(near.unlock(&holder).await.unwrap(), Unlocked::Released);
    stuck.lands("x").await;
}
