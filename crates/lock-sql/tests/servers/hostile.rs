//! 93. Servers that mean well until a lock is asked for.

use test_servers::{MariaDbServer, PostgresServer};

use crate::says;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn postgres() {
    let server = PostgresServer::start();
    says::postgres(Some((server.address(), b"oarlock_"))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mysql() {
    let server = MariaDbServer::start();
    says::mysql(Some((server.address(), b"oarlock"))).await;
}
