//! PostgreSQL: clients of ours, and what somebody does and sees with the server's own tools.

use std::sync::Arc;

use lock_sql::{PostgresLock, PostgresSessionLock};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use test_servers::PostgresServer;

/// A client of locks by rows.
pub(crate) async fn client(server: &PostgresServer) -> Arc<PostgresLock> {
    Arc::new(PostgresLock::connect(&server.url(), "oarlock").await.unwrap())
}

/// A client of locks by sessions.
pub(crate) async fn session_client(server: &PostgresServer) -> Arc<PostgresSessionLock> {
    Arc::new(PostgresSessionLock::connect(&server.url(), "oarlock").await.unwrap())
}

pub(crate) async fn raw(server: &PostgresServer) -> PgConnection {
    PgConnection::connect(&server.url()).await.unwrap()
}

pub(crate) async fn run(server: &PostgresServer, statement: &str) {
    raw(server).await.execute(sqlx::raw_sql(AssertSqlSafe(statement))).await.unwrap();
}

pub(crate) async fn number(server: &PostgresServer, query: &str) -> i64 {
    sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut raw(server).await).await.unwrap()
}

pub(crate) async fn text(server: &PostgresServer, query: &str) -> String {
    sqlx::query_scalar(AssertSqlSafe(query)).fetch_one(&mut raw(server).await).await.unwrap()
}
