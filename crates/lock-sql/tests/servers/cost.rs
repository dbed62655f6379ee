//! What a lock costs that nobody else wants.

use std::sync::Arc;

use lock_sql::{MySqlLock, PostgresLock};
use test_servers::{MariaDbServer, PostgresServer};

use crate::two_statements::counted;

#[tokio::test]
async fn postgres() {
    let server = PostgresServer::start();
    counted(Arc::new(PostgresLock::connect(&server.url(), "t").await.unwrap())).await;
}

#[tokio::test]
async fn mysql() {
    let server = MariaDbServer::start();
    counted(Arc::new(MySqlLock::connect(&server.url(), "t").await.unwrap())).await;
}
