//! How MariaDB's waiters hear of their grants.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{claim, granted, in_background, in_line, until};
use lock_core::{Claim, DistributedLock, Grant, Mode, Result, Unlocked};
use lock_sql::{MySqlLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use test_servers::{MariaDbServer, Proxy};
use tokio::task::JoinHandle;

async fn client(url: &str) -> Arc<MySqlLock> {
    let options = ServerOptions::new(url).unwrap().timeout(Duration::from_secs(6));
    Arc::new(MySqlLock::with(options).await.unwrap())
}

async fn raw(server: &MariaDbServer) -> MySqlConnection {
    MySqlConnection::connect(&server.url()).await.unwrap()
}

/// What this answers first, as text; none if it answers nothing.
async fn text(raw: &mut MySqlConnection, query: &str) -> Option<String> {
    let row = raw.fetch_optional(sqlx::raw_sql(AssertSqlSafe(query))).await.unwrap();
    row.map(|row| String::from_utf8(row.get_unchecked::<Vec<u8>, _>(0)).unwrap())
}

/// Somebody holds the lock, and this client is in line for it, with a bell that sleeps.
async fn awaited(
    server: &MariaDbServer,
    holder: &MySqlLock,
    waiter: &Arc<MySqlLock>,
) -> (Claim, JoinHandle<Result<Grant>>) {
    let held = claim("x", "holder");
    holder.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(waiter, &claim("x", "waiter"));
    until("it is in line", async || in_line(holder, "x").await == 1).await;
    let mut raw = raw(server).await;
    until("the bell sleeps", async || text(&mut raw, &of_bell("ID")).await.is_some()).await;
    (held, waiting)
}

/// How many are in line, or were granted the lock there.
const ROWS: &str = "SELECT CAST(COUNT(*) AS BINARY) FROM oarlock_waiter";

/// This of a session that is a bell.
fn of_bell(column: &str) -> String {
    format!(
        "SELECT CAST({column} AS BINARY) FROM information_schema.PROCESSLIST
            WHERE INFO LIKE 'SELECT IF(EXISTS%GET_LOCK(%' AND ID <> CONNECTION_ID()"
    )
}

/// A release ends the statement by which the waiter's client sleeps, and the row of what was told goes.
#[tokio::test]
async fn whoever_releases_rings() {
    let server = MariaDbServer::start();
    let (one, other, mut raw) = (client(&server.url()).await, client(&server.url()).await, raw(&server).await);
    let (held, waiting) = awaited(&server, &one, &other).await;
    let kills =
        "SELECT CAST(VARIABLE_VALUE AS BINARY) FROM information_schema.GLOBAL_STATUS WHERE VARIABLE_NAME = 'COM_KILL'";
    let before = text(&mut raw, kills).await;
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::Released);
    assert_ne!(text(&mut raw, kills).await, before);
    // The grant is on the disk, and the waiter need not write anything to know that.
    let safe = "SELECT CAST(COUNT(IS_USED_LOCK(CONCAT('oarlock_', c.id, '_', l.token, '_', CRC32(l.owner)))) AS BINARY)
            FROM oarlock_lock AS l, oarlock_client AS c";
    assert_eq!(text(&mut raw, safe).await.as_deref(), Some("1"));
    granted(waiting).await;
    until("no row is left", async || text(&mut raw, ROWS).await.as_deref() == Some("0")).await;
    assert_eq!(other.unlock(&claim("x", "waiter")).await.unwrap(), Unlocked::Released);
    // With nobody in line, one statement takes it again.
    let line = "SELECT CAST(line_us AS BINARY) FROM oarlock_lock";
    assert_eq!(text(&mut raw, line).await.as_deref(), Some("0"));
}

/// Nobody shows that a grant is on the disk: before the waiter hears of it, its client has written something behind it.
#[tokio::test]
async fn a_grant_that_may_not_be_on_the_disk_is_made_sure_of() {
    let server = MariaDbServer::start();
    let (one, other, mut raw) = (client(&server.url()).await, client(&server.url()).await, raw(&server).await);
    let (_, waiting) = awaited(&server, &one, &other).await;
    let id = text(&mut raw, &of_bell("ID")).await.expect("it sleeps again and again");
    let grant = "UPDATE oarlock_lock SET owner = 'waiter', token = token + 1;
        UPDATE oarlock_waiter SET token = (SELECT token FROM oarlock_lock), at_us = (SELECT since_us FROM oarlock_lock)";
    raw.execute(sqlx::raw_sql(AssertSqlSafe(format!("START TRANSACTION; {grant}; COMMIT; KILL QUERY {id}"))))
        .await
        .unwrap();
    granted(waiting).await;
    assert_eq!(text(&mut raw, ROWS).await.as_deref(), Some("0"));
}

/// The bell's connection dies, and nobody tells its client, as where a NAT forgot it: releases pass it over, until it has
/// noticed and has another one.
#[tokio::test]
async fn a_bell_that_dies_in_silence_is_noticed() {
    let server = MariaDbServer::start();
    let proxy = Proxy::new(server.address());
    let (one, other) = (client(&server.url()).await, client(&format!("mysql://root@{}/mysql", proxy.address())).await);
    let (held, waiting) = awaited(&server, &one, &other).await;
    let mut raw = raw(&server).await;
    let host = text(&mut raw, &of_bell("HOST")).await.expect("it sleeps");
    let id = text(&mut raw, &of_bell("ID")).await.expect("it sleeps again and again");
    proxy.hold_from(host.rsplit_once(':').unwrap().1.parse().unwrap());
    raw.execute(sqlx::raw_sql(AssertSqlSafe(format!("KILL {id}")))).await.unwrap();
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::Released);
    granted(waiting).await;
}

/// The same where the network swallows what the bell would tell, and the server knows nothing of it.
#[tokio::test]
async fn a_bell_that_is_not_heard_costs_a_look() {
    let server = MariaDbServer::start();
    let proxy = Proxy::new(server.address());
    let (one, other) = (client(&server.url()).await, client(&format!("mysql://root@{}/mysql", proxy.address())).await);
    let (held, waiting) = awaited(&server, &one, &other).await;
    let host = text(&mut raw(&server).await, &of_bell("HOST")).await.expect("it sleeps");
    proxy.hold_from(host.rsplit_once(':').unwrap().1.parse().unwrap());
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::Released);
    granted(waiting).await;
}

/// Another user may not end our statements: its releases cost a look each, and none is lost.
#[tokio::test]
async fn who_may_not_ring_costs_a_look() {
    let server = MariaDbServer::start();
    let waiter = client(&server.url()).await;
    for statement in ["CREATE USER other", "GRANT SELECT, INSERT, UPDATE, DELETE ON mysql.* TO other"] {
        raw(&server).await.execute(statement).await.unwrap();
    }
    let holder = client(&server.url().replace("root", "other")).await;
    for _ in 0..3 {
        let (held, waiting) = awaited(&server, &holder, &waiter).await;
        assert_eq!(holder.unlock(&held).await.unwrap(), Unlocked::Released);
        granted(waiting).await;
        assert_eq!(waiter.unlock(&claim("x", "waiter")).await.unwrap(), Unlocked::Released);
    }
}

/// 257. A writer's client is gone, and readers are in line behind it: whoever reads last hands the lock to them.
#[tokio::test]
async fn readers_behind_the_dead_are_served() {
    let server = MariaDbServer::start();
    let [one, dies, other] = [client(&server.url()).await, client(&server.url()).await, client(&server.url()).await];
    let reads = |owner| {
        let mut reads = claim("x", owner);
        reads.mode = Mode::Shared;
        reads
    };
    let held = [reads("first"), reads("second")];
    for held in &held {
        one.try_lock(held).await.unwrap().unwrap();
    }
    let writing = in_background(&dies, &claim("x", "writer"));
    until("the writer is in line", async || in_line(&*one, "x").await == 1).await;
    let waiting = in_background(&other, &reads("third"));
    until("both are in line", async || in_line(&*one, "x").await == 2).await;
    writing.abort();
    dies.close().await.unwrap();
    until("the writer's client is gone", async || in_line(&*one, "x").await == 1).await;
    for held in &held {
        assert_eq!(one.unlock(held).await.unwrap(), Unlocked::Released);
    }
    let status = one.inspect(&held[0].name).await.unwrap();
    assert_eq!(status.holders.iter().map(|holder| holder.owner.as_str()).collect::<Vec<_>>(), ["third"]);
    granted(waiting).await;
    assert_eq!(other.unlock(&reads("third")).await.unwrap(), Unlocked::Released);
}

/// Waiters leave while the lock is being handed to them: it is nobody's in the end.
#[tokio::test(flavor = "multi_thread")]
async fn who_leaves_takes_nothing_along() {
    let server = MariaDbServer::start();
    let (one, other) = (client(&server.url()).await, client(&server.url()).await);
    for round in 0..100_u64 {
        let held = claim("x", &format!("holder {round}"));
        one.lock(&held).await.unwrap();
        let leaving = claim("x", &format!("leaves {round}"));
        let waiting = in_background(&other, &leaving);
        until("it is in line", async || in_line(&*one, "x").await == 1).await;
        let (released, left) = tokio::join!(one.unlock(&held), async {
            tokio::time::sleep(Duration::from_micros(round * 50)).await;
            waiting.abort();
            // On another thread it may go on until its next pause.
            let _ = waiting.await;
            other.unlock(&leaving).await
        });
        assert_eq!(released.unwrap(), Unlocked::Released);
        left.unwrap();
        let next = claim("x", &format!("next {round}"));
        one.try_lock(&next).await.unwrap().expect("nobody has it");
        assert_eq!(one.unlock(&next).await.unwrap(), Unlocked::Released);
    }
}
