//! The same application on every store with a server.
#![cfg(all(feature = "postgres", feature = "mysql", feature = "redis", feature = "zookeeper"))]

mod application;
// The example has a `main`, which is not what is called here.
#[allow(dead_code)]
#[path = "../examples/scheduled_job.rs"]
mod scheduled_job;

use std::time::Duration;

use application::works;
use oarlock::Fence;
use test_servers::{MariaDbServer, PostgresServer, RedisServer, ZookeeperServers};

#[tokio::test]
async fn redis() {
    works(&RedisServer::start().url()).await;
}

#[tokio::test]
async fn postgres() {
    let server = PostgresServer::start();
    for url in [server.url(), server.socket_url()] {
        works(&url).await;
    }
}

#[tokio::test]
async fn mysql() {
    let server = MariaDbServer::start();
    for url in [server.url(), format!("mariadb://root@localhost/mysql?host={}", server.socket().display())] {
        works(&url).await;
    }
}

#[tokio::test]
async fn zookeeper() {
    works(&ZookeeperServers::start().url()).await;
}

#[cfg(feature = "etcd")]
#[tokio::test]
async fn etcd() {
    works(&test_servers::EtcdCluster::start(1).url()).await;
}

/// One resource that checks tokens, and one service that is carried from store to store and back: it changes nothing but
/// its URL, and no holder is refused.
#[cfg(all(feature = "etcd", feature = "sqlite"))]
#[tokio::test]
async fn one_resource_through_all_stores() {
    let folder = tempfile::tempdir().unwrap();
    let (redis, zookeeper, etcd) =
        (RedisServer::start(), ZookeeperServers::start(), test_servers::EtcdCluster::start(1));
    let (postgres, mysql) = (PostgresServer::start(), MariaDbServer::start());
    let sqlite = format!("sqlite:{}", folder.path().join("locks.db").display());
    let there = [sqlite, redis.url(), zookeeper.url(), etcd.url(), postgres.url(), mysql.url()];
    let resource = Fence::new();
    for url in there.iter().chain(there.iter().rev()) {
        let locks = oarlock::connect(url).await.unwrap();
        for _ in 0..3 {
            let guard = locks.mutex("orders/42").lock().await.unwrap();
            resource.check(guard.fencing_token()).unwrap_or_else(|stale| panic!("{url}: {stale}"));
            guard.unlock().await.unwrap();
        }
        assert!(locks.shutdown(Duration::from_secs(5)).await.unreleased.is_empty(), "{url}");
        // ZooKeeper's clock tells milliseconds.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
