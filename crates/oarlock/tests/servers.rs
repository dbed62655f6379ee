//! The same application on every store with a server.
#![cfg(all(feature = "postgres", feature = "mysql", feature = "redis", feature = "zookeeper"))]

mod application;
// The example has a `main`, which is not what is called here.
#[allow(dead_code)]
#[path = "../examples/scheduled_job.rs"]
mod scheduled_job;

use application::works;
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
