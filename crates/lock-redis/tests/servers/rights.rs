//! The rights for which the manual asks are enough: on one server, with replicas, in a cluster. Whoever has fewer is
//! told.

use std::net::SocketAddr;
use std::time::Duration;

use crate::common::{raw, soon, until};
use lock_core::{Config, ErrorKind, Locks, OnceRun, Registry, Result};
use lock_redis::RedisFactory;
use test_servers::{Cluster, Proxy, RedisServer};

/// On one server.
const RIGHTS: &str = "~*oarlock* &oarlock-client:* +eval +evalsha +get +set +del +incr +exists +pexpire +pttl +zadd +zrem \
    +zpopmin +zrange +zscore +time +publish +subscribe +scan +info +config|get +client|setname +client|id +client|kill";

/// A user `locks` with these rights and more.
async fn allow(server: SocketAddr, more: &[&str]) {
    let mut user = vec!["ACL", "SETUSER", "locks", "on", ">s3cr3t"];
    user.extend(RIGHTS.split_whitespace().chain(more.iter().copied()));
    raw::<()>(server, &user).await;
}

async fn connect(url: &str) -> Result<Locks> {
    let mut registry = Registry::new();
    registry.register(RedisFactory);
    registry.connect(Config::from_url(url).unwrap()).await
}

async fn works(url: &str) {
    let locks = connect(url).await.unwrap();
    let guard = locks.mutex("x").lock().await.unwrap();
    locks.list(&Default::default()).await.unwrap();
    locks.doctor().await.unwrap();
    let second = tokio::spawn({
        let mutex = connect(url).await.unwrap().mutex("x");
        async move { mutex.lock().await.unwrap().unlock().await.unwrap() }
    });
    until("another in line", async || !locks.inspect("x").await.unwrap().waiters.is_empty()).await;
    guard.unlock().await.unwrap();
    soon("the hand-over", second).await.unwrap();
    let job = locks.once("job").at_least(Duration::from_secs(60));
    assert_eq!(job.run(async |_| ()).await.unwrap(), OnceRun::Ran(()));
    let leadership = locks.election("leader").campaign("here").await.unwrap();
    leadership.proclaim("there").await.unwrap();
    leadership.resign().await.unwrap();
    assert!(!format!("{locks:?}").contains("s3cr3t"));
}

#[tokio::test]
async fn on_one_server() {
    let server = RedisServer::start();
    allow(server.address(), &[]).await;
    works(&format!("redis://locks:s3cr3t@{}", server.address())).await;
}

#[tokio::test]
async fn with_replicas() {
    let server = RedisServer::start();
    let _replica = RedisServer::start_replica(&server, &[]);
    allow(server.address(), &["+wait"]).await;
    works(&format!("redis://locks:s3cr3t@{}?replicas=1", server.address())).await;
}

#[tokio::test]
async fn in_a_cluster() {
    let cluster = Cluster::start();
    for node in cluster.addresses() {
        allow(node, &["+cluster|info", "+cluster|slots"]).await;
    }
    works(&cluster.url().replace("://", "://locks:s3cr3t@")).await;
}

/// What the server refuses says what and why, without the password.
#[tokio::test]
async fn who_may_not_is_told() {
    let server = RedisServer::start();
    allow(server.address(), &[]).await;
    raw::<()>(server.address(), &["ACL", "SETUSER", "nobody", "on", ">s3cr3t", "+ping"]).await;
    for login in ["locks:wr0ng", "nobody:s3cr3t"] {
        let error = connect(&format!("redis://{login}@{}", server.address())).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        let shown = format!("{error:?}");
        assert!(!shown.contains("wr0ng") && !shown.contains("s3cr3t"), "{shown}");
    }
}

/// Who may not end a connection, as with some services, is told at connecting what is missing and what for.
#[tokio::test]
async fn who_may_end_no_connection_is_told() {
    let server = RedisServer::start();
    allow(server.address(), &["-client|kill"]).await;
    let error = connect(&format!("redis://locks:s3cr3t@{}", server.address())).await.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(
        error.to_string().contains("refuses CLIENT KILL ID") && error.to_string().contains("+client|kill"),
        "{error}"
    );
}

/// A login that is taken back while locks are in use: each request is told so, and asks once, and nothing asks without
/// end.
#[tokio::test]
async fn who_may_not_any_more_is_told_and_does_not_storm() {
    const REQUESTS: u64 = 10;
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    allow(server.address(), &[]).await;
    let locks = connect(&format!("redis://locks:s3cr3t@{}", proxy.address())).await.unwrap();
    let guard = locks.mutex("x").lock().await.unwrap();
    raw::<()>(server.address(), &["ACL", "SETUSER", "locks", "off"]).await;
    raw::<i64>(server.address(), &["CLIENT", "KILL", "USER", "locks"]).await;
    let before = proxy.connections();
    for _ in 0..REQUESTS {
        let error = soon("an answer", locks.mutex("y").lock()).await.unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Refused | ErrorKind::Unknown), "{error:?}");
        assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
    }
    let error = soon("an answer", guard.unlock()).await.unwrap_err();
    assert!(!format!("{error:?}").contains("s3cr3t"), "{error:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    // Renewals and clean-up try again within the lease, of thirty seconds, a few times each second at the most.
    let made = proxy.connections() - before;
    assert!(made <= 2 * REQUESTS + 3 * 5 * 2, "{made} connections");
    // And once it may again, all is as it was.
    raw::<()>(server.address(), &["ACL", "SETUSER", "locks", "on"]).await;
    soon("a lock", locks.mutex("y").lock()).await.unwrap().unlock().await.unwrap();
}
