//! What a lock costs that nobody else wants, on servers.
//!
//! In a program of its own, and one store after the other: `tracing` may take another thread's word that nobody listens
//! to what is counted here.

mod two_statements;

use std::sync::Arc;

use lock_sql::{MySqlLock, PostgresLock, PostgresSessionLock, ServerOptions};
use test_servers::{MariaDbServer, PostgresServer};
use two_statements::counted;

#[tokio::test]
async fn postgres_and_mysql() {
    let server = PostgresServer::start();
    counted(Arc::new(PostgresLock::connect(&server.url(), "t").await.unwrap())).await;
    let sessions = ServerOptions::new(&server.url()).unwrap().table("sessions").unwrap();
    counted(Arc::new(PostgresSessionLock::with(sessions).await.unwrap())).await;
    let server = MariaDbServer::start();
    counted(Arc::new(MySqlLock::connect(&server.url(), "t").await.unwrap())).await;
}
