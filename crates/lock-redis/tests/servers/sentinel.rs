//! A primary, a replica and three sentinels: what a fail-over does to the locks.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{LONG, claim, holder, raw, soon, try_raw, until};
use lock_core::{Config, DistributedLock, ErrorKind, LockGuard, Locks, Registry};
use lock_redis::{RedisFactory, RedisLock, RedisOptions};
use test_servers::{Proxy, RedisServer, Sentinels};

/// With this, a primary that is cut off from its replicas stops granting.
const GUARD: [&str; 6] =
    ["--min-replicas-to-write", "1", "--min-replicas-max-lag", "1", "--repl-ping-replica-period", "1"];

struct Group {
    primary: RedisServer,
    replica: RedisServer,
    /// Between the two.
    replication: Proxy,
    sentinels: Sentinels,
}

impl Group {
    fn start(arguments: &[&str]) -> Self {
        let primary = RedisServer::start_with(arguments);
        let replication = Proxy::new(primary.address());
        let replica = RedisServer::start_replica_through(replication.address(), &primary, arguments);
        let sentinels = Sentinels::start(&primary, 1);
        Self { primary, replica, replication, sentinels }
    }

    async fn client(&self) -> Arc<RedisLock> {
        let options = RedisOptions::new(&self.sentinels.url()).unwrap().timeout(Duration::from_secs(1));
        Arc::new(options.connect().await.unwrap())
    }

    async fn locks(&self) -> Locks {
        Locks::builder(self.client().await).lease(LONG).build().unwrap()
    }

    async fn promoted(&self) {
        until("the replica is the primary", async || {
            // The sentinel that promotes it ends all connections to it.
            let role = try_raw::<redis::Value>(self.replica.address(), &["ROLE"]).await;
            role.is_ok_and(|role| format!("{role:?}").contains("master"))
        })
        .await;
    }
}

/// Asks again while the store is not there.
async fn take(locks: &Locks, name: &str) -> LockGuard {
    loop {
        match soon("an answer", locks.mutex(name).lock()).await {
            Ok(guard) => return guard,
            Err(error) => assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The primary dies. A lock that had reached the replica is held over it, its waiter keeps its place or comes again,
/// and all goes on; with one sentinel dead as well.
#[tokio::test]
async fn a_fail_over_is_followed() {
    let mut group = Group::start(&[]);
    group.sentinels.kill_one();
    let locks = group.locks().await;
    let guard = locks.mutex("x").lock().await.unwrap();
    until("the replica has it", async || holder(group.replica.address(), "x").await.is_some()).await;
    group.primary.kill();
    group.promoted().await;
    assert!(locks.mutex("other").lock().await.is_ok() || take(&locks, "other").await.is_held());
    assert!(guard.is_held());
    let found = locks.doctor().await.unwrap();
    assert_eq!(found.iter().map(|finding| finding.setting.as_str()).collect::<Vec<_>>(), ["appendonly=no"]);
    assert_eq!(holder(group.replica.address(), "x").await.as_deref(), Some(guard.owner().as_str()));
    guard.unlock().await.unwrap();
}

/// 66. A lock that had not reached the replica is lost with the primary: its holder is told as soon as there is a new
/// one, long before its next renewal, and tokens rise over it.
#[tokio::test]
async fn redis_failover_lost_key() {
    let mut group = Group::start(&[]);
    let (locks, other) = (group.locks().await, group.locks().await);
    group.replication.hold_s2c();
    let guard = locks.mutex("x").lock().await.unwrap();
    group.primary.kill();
    soon("the loss", guard.lost()).await;
    assert_eq!(holder(group.replica.address(), "x").await, None);
    let next = take(&other, "x").await;
    assert!(next.fencing_token() > guard.fencing_token());
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.is_held());
}

/// 67. The primary was only asleep, and grants again when it wakes up, until it is told that it is none any more. Who
/// holds a lock there is told at the fail-over, and whoever asks the sentinels is not led there.
#[tokio::test]
async fn redis_old_primary_resumes() {
    let group = Group::start(&[]);
    let (locks, other) = (group.locks().await, group.locks().await);
    group.replication.hold_s2c();
    let guard = locks.mutex("x").lock().await.unwrap();
    group.primary.pause();
    soon("the loss", guard.lost()).await;
    let next = take(&other, "x").await;
    assert!(next.fencing_token() > guard.fencing_token());
    group.primary.resume();
    for _ in 0..20 {
        assert!(locks.mutex("x").try_lock().await.unwrap().is_none());
    }
    assert!(next.is_held());
    next.unlock().await.unwrap();
}

/// 67. With `min-replicas-to-write`, it grants nothing soon after it wakes up, to those who follow no sentinel either.
/// Until it has counted its replicas anew it does, and there `replicas=1` helps.
#[tokio::test]
async fn redis_old_primary_resumes_guarded() {
    let group = Group::start(&GUARD);
    let direct = RedisOptions::new(&group.primary.url()).unwrap().replicas(1).connect().await.unwrap();
    let held = claim("before", "owner");
    direct.try_lock(&held).await.unwrap().unwrap();
    group.primary.pause();
    group.promoted().await;
    group.primary.resume();
    for round in 0..20 {
        // A name of its own: a grant that it refuses to take back keeps others out until its lease is over.
        let error = direct.try_lock(&claim(&format!("x {round}"), "owner")).await.unwrap_err();
        // Unknown, if it is made a replica while a grant waits for one, or refuses to take that back.
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error:?}");
    }
    assert!(direct.doctor().await.unwrap().iter().all(|finding| !finding.setting.starts_with("min-replicas")));
}

/// What the sentinels do not know, and what they keep from those who do not log in.
#[tokio::test]
async fn what_sentinels_refuse() {
    let group = Group::start(&[]);
    for address in group.sentinels.addresses() {
        raw::<()>(address, &["ACL", "SETUSER", "asker", "on", ">s3cr3t", "allchannels", "+@all"]).await;
        raw::<()>(address, &["ACL", "SETUSER", "default", "resetpass", ">other"]).await;
    }
    let mut registry = Registry::new();
    registry.register(RedisFactory);
    let connect = async |url: &str| registry.connect(Config::from_url(url).unwrap()).await;
    let url = group.sentinels.url();
    let error = connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    let login = "sentinel_user=asker&sentinel_password=s3cr3t";
    let error = connect(&format!("{}?{login}", url.replace("/main", "/nobody"))).await.unwrap_err();
    assert!(error.to_string().contains("nobody") && !format!("{error:?}").contains("s3cr3t"), "{error:?}");
    let locks = connect(&format!("{url}?{login}")).await.unwrap();
    assert!(locks.mutex("x").try_lock().await.unwrap().is_some());
    // Nobody listens there.
    let error = connect("redis+sentinel://127.0.0.1:1,127.0.0.1:2/main").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}
