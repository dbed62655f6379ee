//! Locks for which many wait.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{claim, until};
use lock_core::{DistributedLock, ErrorKind, Locks, Unlocked};
use lock_sql::PostgresLock;
use sqlx::{Connection, Executor, PgConnection};
use test_servers::PostgresServer;

/// How many rows of the line were read.
const READ: &str =
    "SELECT (seq_tup_read + idx_tup_fetch)::bigint FROM pg_stat_user_tables WHERE relname = 'oarlock_waiter'";

/// Who comes to a long line, waits in vain, is told who holds the lock, and leaves, reads as much of the line as of a
/// short one; and so does a release.
#[tokio::test]
async fn the_length_of_a_line_costs_nothing() {
    let server = PostgresServer::start_with(&["autovacuum=off"]);
    let mut raw = PgConnection::connect(&server.url()).await.unwrap();
    let connect = async || Arc::new(PostgresLock::connect(&server.url(), "oarlock").await.unwrap());
    let (one, other) = (connect().await, connect().await);
    let held = claim("x", "holder");
    one.try_lock(&held).await.unwrap().unwrap();
    // A client that lives: one that listens has this lock.
    let line = "SELECT pg_advisory_lock(1);
        INSERT INTO oarlock_waiter (name, owner, lease_us, client, place)
            SELECT 'oarlock/x', 'waiter ' || number, 300000000, 1, number FROM generate_series(1, 10000) AS number;
        UPDATE oarlock_lock SET waited_for = true;
        SELECT pg_stat_force_next_flush()";
    raw.execute(sqlx::raw_sql(line)).await.unwrap();
    let before: i64 = sqlx::query_scalar(READ).fetch_one(&mut raw).await.unwrap();

    let error = Locks::new(other).mutex("x").wait(Duration::from_millis(300)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    assert_eq!(error.holder().unwrap().owner.as_str(), "holder");
    raw.execute("INSERT INTO oarlock_client VALUES (1, oarlock_now() + 10000000, true)").await.unwrap();
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::Released);
    let next: String = sqlx::query_scalar("SELECT owner FROM oarlock_lock").fetch_one(&mut raw).await.unwrap();
    assert_eq!(next, "waiter 1");
    // A session's numbers are complete when it has ended.
    one.close().await.unwrap();
    let ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'oarlock'";
    until("the sessions have ended", async || {
        raw.execute(ended).await.unwrap();
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oarlock'";
        sqlx::query_scalar::<_, i64>(sessions).fetch_one(&mut raw).await.unwrap() == 0
    })
    .await;
    let read = sqlx::query_scalar::<_, i64>(READ).fetch_one(&mut raw).await.unwrap() - before;
    assert!((1..1000).contains(&read), "{read} rows of a line of 10000 were read");
}
