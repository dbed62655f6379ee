//! What the suite cannot see of PostgreSQL's locks by sessions: what ends a session, and what is left of its lock then.

use std::sync::Arc;
use std::time::Duration;

use crate::by_hand::{number, run, session_client as client};
use crate::by_sessions;
use crate::common::{LONG, claim, granted, in_background, in_line, lasting, renewed, soon, until};
use lock_core::{Config, DistributedLock, ErrorKind, LockName, Registry, Renewal, StoreToken, Unlocked};
use lock_sql::{PostgresFactory, PostgresLock, PostgresSessionLock, ServerOptions};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use test_servers::{PgBouncer, PostgresServer, Proxy};

/// How many sessions have an advisory lock, or wait for one.
const IN_LINE: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";

async fn connect(url: &str) -> lock_core::Result<lock_core::Locks> {
    let mut registry = Registry::new();
    registry.register(PostgresFactory);
    registry.connect(Config::from_url(url).unwrap()).await
}

/// 175. Something ends a holder's session while its process lives: nobody else has the lock before its lease is over, it
/// is renewed and released over other connections, and who waits has it then.
#[tokio::test]
async fn a_hold_outlives_its_session() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let one = PostgresSessionLock::connect(&PostgresServer::url_at(proxy.address()), "oarlock").await.unwrap();
    let other = client(&server).await;
    let gone = async || number(&server, IN_LINE).await == 0;
    let waits = async || number(&server, IN_LINE).await == 1;
    for by_the_server in [true, false] {
        let end = async || match by_the_server {
            true => run(&server, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'").await,
            false => proxy.reset(),
        };
        by_sessions::outlives_its_session(&one, &other, &by_the_server.to_string(), end, gone, waits).await;
        other.unlock(&claim("x", &format!("next {by_the_server}"))).await.unwrap();
    }
}

/// 256. A release is done, or a hold is kept, and the answer is lost: nobody says that the lock was not held until then.
#[tokio::test]
async fn an_end_whose_answer_is_lost_is_unknown() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let lock = PostgresSessionLock::connect(&PostgresServer::url_at(proxy.address()), "oarlock").await.unwrap();
    by_sessions::ended_unheard(Arc::new(lock), &proxy, &*client(&server).await).await;
}

/// 267. A hold is evicted, and its owner gives it back before it could hear of that: it is told.
#[tokio::test]
async fn who_was_evicted_is_told_at_its_release() {
    let server = PostgresServer::start();
    by_sessions::evicted_before_its_release(&*client(&server).await, &*client(&server).await).await;
}

/// 270. A claim is undone because its session broke, and made anew in another session; then the request that undoes it
/// lands once more. What is held by then goes on, and so it does with a request that has it kept.
#[tokio::test]
async fn what_undoes_another_session_lands_late() {
    let server = PostgresServer::start();
    let (lock, held) = (client(&server).await, claim("x", "holder"));
    lock.try_lock(&held).await.unwrap().unwrap();
    // There is no process 1 of the server's, as of one that has ended.
    run(&server, "SELECT oarlock_undo('oarlock/x', 'holder', 1, 1)").await;
    run(&server, "SELECT oarlock_keep_alone('oarlock/x', 'holder', 60000000, 1, 1)").await;
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}

/// 176. A client falls silent: the server ends its session when its lease is over, and who waits has the lock then, not
/// sooner. The session of who waits is never idle.
#[tokio::test]
async fn a_silent_session_ends_with_its_lease() {
    const LEASE: Duration = Duration::from_secs(2);
    let server = PostgresServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    by_sessions::ends_with_its_lease(&*one, &other, LEASE, LEASE / 4 * 3).await;
}

/// On a busy machine the server does not come to read what a session is asked: it is waited for as for any answer.
#[tokio::test]
async fn a_session_that_begins_late_is_waited_for() {
    let server = PostgresServer::start();
    let options = ServerOptions::new(&server.url()).unwrap().timeout(Duration::from_secs(20));
    let (one, other) = (client(&server).await, Arc::new(PostgresSessionLock::with(options).await.unwrap()));
    let (held, before) = (claim("x", "holder"), claim("y", "before"));
    one.try_lock(&held).await.unwrap().unwrap();
    other.try_lock(&before).await.unwrap().unwrap();
    let session = number(&server, "SELECT pid::bigint FROM oarlock_hold WHERE name = 'oarlock/y'").await;
    other.unlock(&before).await.unwrap();
    let session = Pid::from_raw(session.try_into().unwrap());
    kill(session, Signal::SIGSTOP).unwrap();
    let waiting = in_background(&other, &claim("x", "next"));
    tokio::time::sleep(Duration::from_millis(1500)).await;
    kill(session, Signal::SIGCONT).unwrap();
    until("it is in line", async || in_line(&*one, "x").await == 1).await;
    one.unlock(&held).await.unwrap();
    granted(waiting).await;
    // The one that was stopped, and no other that took its place.
    let holds = format!("SELECT count(*) FROM oarlock_hold WHERE name = 'oarlock/x' AND pid = {session}");
    assert_eq!(number(&server, &holds).await, 1);
}

/// 177. A waiter's client is gone: its session leaves the line while others hold the lock.
#[tokio::test]
async fn who_waits_and_is_gone_leaves_the_line() {
    let server = PostgresServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    one.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
    let waiting = in_background(&other, &claim("x", "gone"));
    until("the waiter in line", async || in_line(&*one, "x").await == 1).await;
    waiting.abort();
    until("nobody in line", async || in_line(&*one, "x").await == 0).await;
}

/// 182. Who waits for long keeps no snapshot of the database for as long, and counts its lease from the grant; who has to
/// be served in its turn stays where it is in the line.
#[tokio::test]
async fn a_long_wait_keeps_no_old_snapshot() {
    const OLDEST: &str = "SELECT extract(epoch FROM max(clock_timestamp() - query_start))::bigint FROM pg_stat_activity \
                          WHERE wait_event = 'advisory'";
    let server = PostgresServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let (held, mut fair) = (claim("x", "holder"), claim("fair", "fair"));
    fair.fair = true;
    one.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&other, &claim("x", "waiter"));
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(number(&server, OLDEST).await < 5);
    assert_eq!(in_line(&*one, "x").await, 1);
    one.try_lock(&claim("fair", "other")).await.unwrap().unwrap();
    let in_turn = in_background(&other, &fair);
    tokio::time::sleep(Duration::from_secs(5)).await;
    one.unlock(&held).await.unwrap();
    let grant = granted(waiting).await;
    let left = grant.valid_until.saturating_duration_since(other.clock().now());
    assert!(left > LONG - Duration::from_secs(2), "{left:?} of {LONG:?} are left of what was granted just now");
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(number(&server, OLDEST).await >= 10);
    one.unlock(&claim("fair", "other")).await.unwrap();
    granted(in_turn).await;
}

/// 178. Tables are of one mode, and clients of the other are refused; so are tables that were made before there were modes.
#[tokio::test]
async fn modes_do_not_mix() {
    let server = PostgresServer::start();
    let with = |query: &str| format!("{}?{query}", server.url());
    let refused = async |query: &str| {
        let error = connect(&with(query)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        for said in ["mode=row", "mode=session", "`table`"] {
            assert!(error.to_string().contains(said), "{error}");
        }
    };
    connect(&with("table=rows")).await.unwrap();
    refused("table=rows&mode=session").await;
    run(&server, "DELETE FROM rows_meta WHERE key = 'mode'").await;
    refused("table=rows&mode=session").await;
    connect(&with("table=rows&mode=row")).await.unwrap();
    connect(&with("table=sessions&mode=session")).await.unwrap();
    refused("table=sessions").await;
    refused("table=sessions&mode=row").await;
    // Even where the tables of both are there.
    let rows = ServerOptions::new(&server.url()).unwrap().table("sessions").unwrap();
    run(&server, &rows.postgres_schema()).await;
    refused("table=sessions").await;
    connect(&with("table=sessions&mode=session")).await.unwrap();

    for (query, kind) in [("mode=table", ErrorKind::Invalid), ("mode=session&pooler=true", ErrorKind::Invalid)] {
        assert_eq!(connect(&with(query)).await.unwrap_err().kind(), kind, "{query}");
    }
    let pooler = PgBouncer::start(&server);
    let error = connect(&format!("{}?table=sessions&mode=session", pooler.url())).await.unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unsupported | ErrorKind::Unavailable), "{error:?}");
}

/// 179. A process's number is another's by now: that one is not ended.
#[tokio::test]
async fn only_the_session_that_asked_is_ended() {
    let server = PostgresServer::start();
    let lock = client(&server).await;
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    let ended = "SELECT count(*) FROM oarlock_hold WHERE oarlock_end(pid, began_us - 1)";
    assert_eq!(number(&server, ended).await, 1, "there is none that began then");
    assert_eq!(number(&server, IN_LINE).await, 1);
    assert_eq!(number(&server, "SELECT count(*) FROM oarlock_hold WHERE oarlock_end(pid, began_us)").await, 1);
    assert_eq!(number(&server, IN_LINE).await, 0);
}

/// 180. The server crashes: holds are forgotten, which holders are told, and tokens are above all that were given, also
/// where they are ahead of the clock.
#[tokio::test]
async fn tokens_leap_over_a_crash() {
    let mut server = PostgresServer::start();
    let lock = client(&server).await;
    let name = LockName::new("x").unwrap();
    let ahead = lock.try_lock(&claim("y", "clock")).await.unwrap().unwrap().token.get() + (1 << 42);
    lock.raise_tokens(&name, StoreToken::new(ahead).unwrap()).await.unwrap();
    let held = claim("x", "holder");
    let first = lock.try_lock(&held).await.unwrap().unwrap().token;
    assert_eq!(first.get(), ahead + 1);
    server.restart();
    let next = soon("a grant", async {
        loop {
            match client(&server).await.try_lock(&claim("x", "next")).await {
                Ok(granted) => return granted.expect("nobody holds it any more"),
                Err(error) => assert!(!matches!(error.kind(), ErrorKind::Invalid), "{error}"),
            }
        }
    });
    assert!(next.await.token.get() > first.get() + 1000);
    assert_eq!(renewed(&*lock, &held).await, Renewal::NotHeld);
}

/// 83. The server's clock is set forward by an hour: who holds goes on to hold, as long as its session lives.
#[tokio::test]
async fn server_wall_plus_1h() {
    let (server, clock) = PostgresServer::start_with_clock();
    by_sessions::holds_on_ahead(&*client(&server).await, &clock, async {}).await;
}

/// 83. It is set back by an hour: who holds goes on to hold, a hold whose session is gone lasts a lease longer at most, and
/// tokens rise.
#[tokio::test]
async fn server_wall_minus_1h() {
    let (server, clock) = PostgresServer::start_with_clock();
    by_sessions::ends_behind(&client(&server).await, client(&server).await, &clock, 3).await;
}

/// 99. What the manual names is enough to lock, to wait and to give up.
#[tokio::test]
async fn rights() {
    let server = PostgresServer::start();
    run(&server, "CREATE ROLE app LOGIN PASSWORD 'hunter2'; CREATE SCHEMA locks; GRANT USAGE ON SCHEMA locks TO app")
        .await;
    let url = format!("{}?table=locks.own&mode=session", server.url().replace("postgres:s3cr3t", "app:hunter2"));
    let error = connect(&url).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("oarlock schema"), "{error}");
    let mut registry = Registry::new();
    registry.register(PostgresFactory);
    run(&server, &registry.schema(Config::from_url(&url).unwrap()).unwrap()).await;
    run(&server, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA locks TO app").await;
    run(&server, "GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA locks TO app").await;
    by_sessions::rights_are_enough(connect(&url).await.unwrap(), connect(&url).await.unwrap()).await;
}

/// 181. What is held by sessions and by rows in one database are different locks, and so are those of different tables.
#[tokio::test]
async fn other_tables_are_other_locks() {
    let server = PostgresServer::start();
    let rows = PostgresLock::connect(&server.url(), "oarlock").await.unwrap();
    rows.try_lock(&lasting("x", "row", LONG)).await.unwrap().unwrap();
    for table in ["sessions", "others"] {
        let options = ServerOptions::new(&server.url()).unwrap().table(table).unwrap();
        let lock = PostgresSessionLock::with(options).await.unwrap();
        lock.try_lock(&claim("x", table)).await.unwrap().expect("another lock");
        let other = ServerOptions::new(&server.url()).unwrap().table(&format!("public.{table}")).unwrap();
        let other = PostgresSessionLock::with(other).await.unwrap();
        assert!(other.try_lock(&claim("x", "other")).await.unwrap().is_none(), "the same tables by another name");
        drop(lock);
    }
}
