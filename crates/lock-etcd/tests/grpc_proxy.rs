//! Behind etcd's own proxy, which answers keep-alives otherwise than a member does.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    Claim, Clock, DistributedLock, Kept, LockName, LockValue, OwnerId, Proclaimed, Renewal, SystemClock, Unlocked,
};
use lock_etcd::EtcdLock;
use test_servers::{EtcdCluster, GrpcProxy};

/// The proxy answers a second keep-alive after a third of it, which no request waits for.
const LEASE: Duration = Duration::from_secs(30);

const BOUND: Duration = Duration::from_secs(20);

fn claim(owner: &str) -> Claim {
    Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LEASE)
}

async fn connect(url: &str) -> Arc<EtcdLock> {
    Arc::new(EtcdLock::connect(url, "oarlock").await.unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn leases_are_renewed() {
    let cluster = EtcdCluster::start(1);
    let proxy = GrpcProxy::start(&cluster);
    let (lock, held) = (connect(&proxy.url()).await, claim("holder"));
    let grant = lock.try_lock(&held).await.unwrap().unwrap();
    let mut until = grant.valid_until;
    for turn in 0..3 {
        // The proxy goes by whole seconds: each time one has passed it counts.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let renewed = lock.renew(std::slice::from_ref(&held)).await.pop().unwrap();
        let Ok(Renewal::Held { valid_until }) = renewed else { panic!("{turn}: {renewed:?}") };
        assert!(valid_until > until && valid_until <= SystemClock.now() + LEASE, "{turn}: {valid_until:?}");
        until = valid_until;
    }
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}

/// One behind the proxy and one beside it hand the lock to each other.
#[tokio::test(flavor = "multi_thread")]
async fn locks_are_handed_over() {
    let cluster = EtcdCluster::start(1);
    let proxy = GrpcProxy::start(&cluster);
    let (behind, beside) = (connect(&proxy.url()).await, connect(&cluster.url()).await);
    let (mut holder, mut waiter) = ((behind, claim("behind")), (beside, claim("beside")));
    holder.0.try_lock(&holder.1).await.unwrap().unwrap();
    for _ in 0..10 {
        let waiting = tokio::spawn({
            let (lock, claim) = waiter.clone();
            async move { lock.lock(&claim).await }
        });
        let in_line = async {
            while holder.0.inspect(&holder.1.name).await.unwrap().waiters.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, in_line).await.expect("the waiter stands in line");
        assert_eq!(holder.0.unlock(&holder.1).await.unwrap(), Unlocked::Released);
        tokio::time::timeout(BOUND, waiting).await.expect("its turn").unwrap().unwrap();
        std::mem::swap(&mut holder, &mut waiter);
    }
}

/// A hold goes on without its owner, who is behind the proxy, and shows its value until it ends.
#[tokio::test(flavor = "multi_thread")]
async fn holds_are_kept_and_show_values() {
    const REST: Duration = Duration::from_secs(3);
    let cluster = EtcdCluster::start(1);
    let proxy = GrpcProxy::start(&cluster);
    let (behind, beside) = (connect(&proxy.url()).await, connect(&cluster.url()).await);
    let mut ours = claim("ours");
    ours.value = Some(LockValue::new("here").unwrap());
    behind.try_lock(&ours).await.unwrap().unwrap();
    let there = LockValue::new("there").unwrap();
    assert_eq!(behind.proclaim(&ours, &there).await.unwrap(), Proclaimed::Shown);
    let waiting: Vec<_> = [(&behind, "next"), (&beside, "last")]
        .map(|(lock, owner)| {
            let (lock, claim) = (Arc::clone(lock), claim(owner));
            tokio::spawn(async move {
                lock.lock(&claim).await.unwrap();
                lock.unlock(&claim).await.unwrap();
            })
        })
        .into();
    let began = std::time::Instant::now();
    assert_eq!(behind.keep(&ours, REST).await.unwrap(), Kept::Kept);
    let holder = beside.holder(&ours.name).await.unwrap().unwrap();
    assert!(holder.kept && holder.value == Some(there), "{holder:?}");
    for waiting in waiting {
        tokio::time::timeout(BOUND, waiting).await.expect("its turn").unwrap();
    }
    assert!(began.elapsed() >= REST, "after {:?}", began.elapsed());
}

/// Through it, watches and leases are less than what members offer. Who asks is told.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_knows_it() {
    let cluster = EtcdCluster::start(1);
    let proxy = GrpcProxy::start(&cluster);
    for (url, is_proxy) in [(proxy.url(), true), (cluster.url(), false)] {
        let findings = connect(&url).await.doctor().await.unwrap();
        let found = findings.iter().any(|finding| finding.setting.contains("grpc-proxy"));
        assert_eq!(found, is_proxy, "{url}: {findings:?}");
    }
}
