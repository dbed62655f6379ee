//! The rights for which the manual asks are enough: on one server, with replicas, in a cluster. Whoever has fewer is told.

mod common;

use std::net::SocketAddr;

use common::{raw, soon, until};
use lock_core::{Config, ErrorKind, Locks, Registry, Result, Unlocked};
use lock_redis::RedisFactory;
use test_servers::{Cluster, RedisServer};

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
    assert_eq!(soon("the hand-over", second).await.unwrap(), Unlocked::Released);
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
