//! Whom PostgreSQL notifies of a lock that is handed over, and when.

use std::sync::Arc;
use std::time::Duration;

use crate::by_hand::{client, number, run};
use crate::common::{LET_COMMIT, claim, granted, hangs, have_commits_hang, in_background, in_line, until};
use lock_core::{DistributedLock, ErrorKind, Mode, Unlocked};
use lock_sql::{PostgresLock, ServerOptions};
use sqlx::{Connection, Executor, PgConnection};
use test_servers::PostgresServer;

/// Whose commits wait for a standby, and whose do not.
const SLOW: &str = "postgres:s3cr3t";
const QUICK: &str = "quick:x";

/// A server that knows both, and a connection that is quick.
async fn with_quick_role() -> (PostgresServer, PgConnection) {
    let server = PostgresServer::start();
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    admin.execute("CREATE ROLE quick SUPERUSER LOGIN PASSWORD 'x'").await.unwrap();
    admin.execute("ALTER ROLE quick SET synchronous_commit = local").await.unwrap();
    admin.execute("SET synchronous_commit = local").await.unwrap();
    (server, admin)
}

async fn of_role(server: &PostgresServer, role: &str, timeout: Duration) -> Arc<PostgresLock> {
    let options = ServerOptions::new(&server.url().replace(SLOW, role)).unwrap().timeout(timeout);
    Arc::new(PostgresLock::with(options).await.unwrap())
}

/// A hand-over that waits for the disk, or here for a standby, holds up no hand-over of another lock: the server lets
/// only one notify at a time, and that one is done with it before.
#[tokio::test]
async fn a_commit_that_hangs_holds_up_no_other_hand_over() {
    let (server, mut admin) = with_quick_role().await;
    let timeout = Duration::from_secs(30);
    let (slow, quick) = (of_role(&server, SLOW, timeout).await, of_role(&server, QUICK, timeout).await);
    let (x, y) = (claim("x", "slow"), claim("y", "quick"));
    slow.try_lock(&x).await.unwrap().unwrap();
    quick.try_lock(&y).await.unwrap().unwrap();
    let [behind_x, behind_y] = ["x", "y"].map(|name| in_background(&quick, &claim(name, &format!("behind {name}"))));
    until("both in line", async || in_line(&*slow, "x").await == 1 && in_line(&*slow, "y").await == 1).await;

    let commits = have_commits_hang(&server, &mut admin).await;
    let releasing = tokio::spawn(async move { slow.unlock(&x).await });
    until("the release hangs", async || hangs(&mut admin, "%oarlock_release%").await).await;
    assert_eq!(quick.unlock(&y).await.unwrap(), Unlocked::Released);
    granted(behind_y).await;
    for statement in LET_COMMIT {
        admin.execute(statement).await.unwrap();
    }
    assert_eq!(releasing.await.unwrap().unwrap(), Unlocked::Released);
    commits.abort();
    granted(behind_x).await;
}

/// 282. An application's own notification hangs, and keeps all others from theirs. A hand-over is done all the same, and
/// the release says that it may be.
#[tokio::test]
async fn a_hand_over_that_cannot_be_notified_is_done() {
    let (server, mut admin) = with_quick_role().await;
    let lock = of_role(&server, QUICK, Duration::from_secs(2)).await;
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&lock, &claim("x", "waiter"));
    until("the waiter is in line", async || in_line(&*lock, "x").await == 1).await;

    let commits = have_commits_hang(&server, &mut admin).await;
    let mut application = PgConnection::connect(&server.url()).await.unwrap();
    let notifying = "SELECT pg_logical_emit_message(true, 'theirs', ''), pg_notify('theirs', '')";
    let notifies = tokio::spawn(async move { application.execute(notifying).await.map(drop) });
    until("their notification hangs", async || hangs(&mut admin, "%pg_notify%").await).await;
    assert_eq!(lock.unlock(&held).await.unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(lock.holder(&held.name).await.unwrap().unwrap().owner, claim("x", "waiter").owner);
    for statement in LET_COMMIT {
        admin.execute(statement).await.unwrap();
    }
    notifies.await.unwrap().unwrap();
    commits.abort();
    granted(waiting).await;
}

/// Whoever releases dies between the hand-over and the notification of it: the waiter finds its grant.
#[tokio::test]
async fn a_releaser_that_dies_before_it_notifies_costs_a_look() {
    let server = PostgresServer::start();
    let lock = Arc::new(PostgresLock::connect(&server.url(), "oarlock").await.unwrap());
    let held = claim("x", "holder");
    let first = lock.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&lock, &claim("x", "waiter"));
    until("the waiter in line", async || in_line(&*lock, "x").await == 1).await;
    let mut raw = PgConnection::connect(&server.url()).await.unwrap();
    let handed_over = "SELECT oarlock_hand_over('oarlock/x', oarlock_now()) IS NOT NULL";
    assert!(sqlx::query_scalar::<_, bool>(handed_over).fetch_one(&mut raw).await.unwrap());
    assert!(granted(waiting).await.token > first.token);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
}

/// Others read the lock, one who waits to write is behind a reader whose client is gone, and that one comes back with
/// another client: it reads at once.
#[tokio::test]
async fn who_comes_back_to_the_head_is_served() {
    let server = PostgresServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    for owner in ["first", "second"] {
        let mut reads = claim("x", owner);
        reads.mode = Mode::Shared;
        one.try_lock(&reads).await.unwrap().unwrap();
    }
    let writing = in_background(&other, &claim("x", "writer"));
    until("the writer is in line", async || in_line(&*one, "x").await == 1).await;
    let before =
        "INSERT INTO oarlock_waiter (name, owner, lease_us, client, place, mode, ticket) OVERRIDING SYSTEM VALUE
        SELECT name, 'reader', 1000000, 1, 1, 's', ticket - 1 FROM oarlock_waiter";
    run(&server, before).await;
    let granted = "SELECT (oarlock_acquire_beside(name, 'reader', 1000000, client, 9, 's'))[1] FROM oarlock_waiter
        WHERE owner = 'writer'";
    assert!(number(&server, granted).await > 1);
    writing.abort();
}
