//! What the suite cannot see on PostgreSQL: sessions that are ended, commits that hang, rights, how much is asked.

use std::sync::Arc;
use std::time::Duration;

use crate::by_hand::{client, number, raw, run};
use crate::common::{
    BOUND, LET_COMMIT, LONG, claim, connect, granted, have_commits_hang, in_background, in_line, lasting, until,
};
use lock_core::{
    Claim, Config, DistributedLock, ErrorKind, Grant, LockName, OnceRun, Registry, Renewal, Result, Unlocked,
};
use lock_sql::{PostgresFactory, PostgresLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection};
use test_servers::{PostgresServer, Proxy};
use tokio::task::JoinHandle;

/// Ends every session of ours.
const ENDED: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'oarlock'";

/// A lock that `one` holds, and another client, which waits for it through this proxy.
async fn held_and_awaited(one: &PostgresLock, proxy: &Proxy) -> (Claim, Arc<PostgresLock>, JoinHandle<Result<Grant>>) {
    let other = Arc::new(PostgresLock::connect(&PostgresServer::url_at(proxy.address()), "oarlock").await.unwrap());
    let first = claim("x", "first");
    one.try_lock(&first).await.unwrap().unwrap();
    let waiting = in_background(&other, &claim("x", "second"));
    until("the second in line", async || in_line(one, "x").await == 1).await;
    (first, other, waiting)
}

/// The server ends every session, that which listens too: holds last, and those in line keep their places.
#[tokio::test]
async fn sessions_that_are_ended_cost_nothing() {
    let server = PostgresServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let first = claim("x", "first");
    one.try_lock(&first).await.unwrap().unwrap();
    let second = in_background(&other, &claim("x", "second"));
    until("the second in line", async || in_line(&*one, "x").await == 1).await;
    let third = in_background(&one, &claim("x", "third"));
    until("the third in line", async || in_line(&*one, "x").await == 2).await;
    let before = number(&server, "SELECT count(*) FROM oarlock_client").await;
    run(&server, ENDED).await;
    until("both clients listen anew", async || {
        number(&server, "SELECT count(*) FROM oarlock_client").await == before + 2 && in_line(&*one, "x").await == 2
    })
    .await;
    assert_eq!(one.unlock(&first).await.unwrap(), Unlocked::Released);
    let second = granted(second).await;
    assert_eq!(other.unlock(&claim("x", "second")).await.unwrap(), Unlocked::Released);
    assert!(granted(third).await.token > second.token);
}

/// The connection that listens dies, and nobody tells its client, as where a NAT forgot it: the client notices within its
/// turn, listens anew, and has the lock.
#[tokio::test]
async fn a_listener_that_dies_in_silence_is_noticed() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let one = client(&server).await;
    let (first, _other, waiting) = held_and_awaited(&one, &proxy).await;
    // Its last statement was the one to listen.
    let listener =
        "SELECT client_port::bigint FROM pg_stat_activity WHERE query LIKE 'LISTEN %' AND application_name = 'oarlock'";
    proxy.hold_from(number(&server, listener).await as u16);
    // It is gone before the lock is released.
    run(&server, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'").await;
    assert_eq!(client(&server).await.unlock(&first).await.unwrap(), Unlocked::Released);
    granted(waiting).await;
}

/// The lock is free, and neither those in line nor whoever asks is seen to live, as after a stop of the whole host: the
/// asker has the lock, and is not in line for it any more.
#[tokio::test]
async fn who_is_granted_leaves_the_line() {
    let server = PostgresServer::start();
    client(&server).await.try_lock(&claim("made", "first")).await.unwrap().unwrap();
    run(
        &server,
        "INSERT INTO oarlock_lock (name, token, lease_us, since_us, expires_us, waited_for) VALUES ('x', 1, 0, 0, 0, true);
         INSERT INTO oarlock_waiter (name, owner, lease_us, client, place) VALUES ('x', 'dead', 1000000, 1, 1);
         INSERT INTO oarlock_client VALUES (1, oarlock_now() - 30000000, false), (77, oarlock_now() - 30000000, false)",
    )
    .await;
    let granted = "SELECT (oarlock_acquire('x', 'asker', 1000000, 77, 1))[1]";
    assert!(number(&server, granted).await > 1);
    assert_eq!(number(&server, "SELECT count(*) FROM oarlock_waiter WHERE owner = 'asker'").await, 0);
    assert_eq!(number(&server, "SELECT count(*) FROM oarlock_waiter WHERE owner = 'dead'").await, 1);
}

/// The server is killed and restarted: the hold is what it was, and those who wait are served.
#[tokio::test]
async fn a_restart_is_no_loss() {
    let mut server = PostgresServer::start();
    let (one, other) = (client(&server).await, client(&server).await);
    let held = claim("x", "holder");
    one.try_lock(&held).await.unwrap().unwrap();
    server.restart();
    let answer = one.renew(std::slice::from_ref(&held)).await.pop().unwrap().unwrap();
    assert!(matches!(answer, Renewal::Held { .. }));
    let waiting = in_background(&other, &claim("x", "waiter"));
    until("the waiter in line", async || in_line(&*one, "x").await == 1).await;
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::Released);
    granted(waiting).await;
}

/// Commits hang, because a synchronous standby is missing: an error in bounded time. What was done all the same is
/// undone.
#[tokio::test]
async fn a_commit_that_hangs_is_unknown_and_undone() {
    let server = PostgresServer::start();
    let options = ServerOptions::new(&server.url()).unwrap();
    let lock = PostgresLock::with(options).await.unwrap();
    let mut admin = raw(&server).await;
    let commits = have_commits_hang(&server, &mut admin).await;
    let late = claim("x", "late");
    let error = tokio::time::timeout(BOUND, lock.try_lock(&late)).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    admin.execute("SET synchronous_commit = local").await.unwrap();
    for statement in LET_COMMIT {
        admin.execute(statement).await.unwrap();
    }
    commits.abort();
    until("the release", async || lock.unlock(&late).await.is_ok()).await;
    assert!(lock.try_lock(&late).await.is_err(), "it has given up for good");
    assert!(lock.try_lock(&claim("x", "next")).await.unwrap().is_some());
}

/// A paused server costs every request a bounded wait, and then all goes on.
#[tokio::test]
async fn a_paused_server_is_an_error_in_time() {
    let server = PostgresServer::start();
    let options = ServerOptions::new(&server.url()).unwrap();
    let lock = Arc::new(PostgresLock::with(options).await.unwrap());
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&lock, &claim("x", "waiter"));
    until("the waiter in line", async || in_line(&*lock, "x").await == 1).await;
    server.pause();
    let waited = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap().unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::Unknown, "{waited}");
    let refused = tokio::time::timeout(BOUND, lock.try_lock(&claim("y", "other"))).await.unwrap().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{refused}");
    server.resume();
    until("an answer", async || lock.unlock(&claim("x", "waiter")).await.is_ok()).await;
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}

/// 9. The server stalls for longer than a lease, and then does what was given up long ago: nothing of it stays.
#[tokio::test]
async fn what_a_stalled_server_does_too_late_is_undone() {
    let server = PostgresServer::start();
    let locks = connect(&format!("{}?timeout=1s&connections=1", server.url())).await.unwrap();
    // From now on there is a connection that is ready, and only one: what undoes the request cannot be sent beside it.
    locks.run("x", async |_| ()).await.unwrap();
    server.pause();
    let lease = Duration::from_secs(2);
    locks.mutex("x").lease(lease).wait(lease / 4).lock().await.unwrap_err();
    tokio::time::sleep(lease * 3).await;
    server.resume();
    until("it is given up", async || number(&server, "SELECT count(*) FROM oarlock_gone").await == 1).await;
    // What undoes it may have the only connection for longer than one may wait for that.
    until("the lock is free", async || locks.inspect("x").await.is_ok_and(|status| status.holder().is_none())).await;
}

/// The notification of a grant is lost with its connection: the waiter finds the lock its own.
#[tokio::test]
async fn a_grant_whose_notification_was_lost_is_found() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let one = client(&server).await;
    let (first, other, waiting) = held_and_awaited(&one, &proxy).await;
    proxy.hold_s2c();
    one.unlock(&first).await.unwrap();
    let holder = one.inspect(&first.name).await.unwrap().into_holder().unwrap();
    assert_eq!(holder.owner.as_str(), "second");
    proxy.reset();
    proxy.forward();
    assert!(granted(waiting).await.valid_until <= other.clock().now() + LONG);
    assert_eq!(other.unlock(&claim("x", "second")).await.unwrap(), Unlocked::Released);
}

/// Another transaction keeps a lock's row: a try is an error in bounded time, which other locks do not feel. Does it
/// end in time, the lock that was over by then is granted, and is held for as long as was promised.
#[tokio::test]
async fn a_row_that_another_transaction_keeps() {
    let server = PostgresServer::start();
    let options = ServerOptions::new(&server.url()).unwrap().timeout(Duration::from_secs(6)).connections(2);
    let lock = Arc::new(PostgresLock::with(options).await.unwrap());
    let short = Duration::from_millis(500);
    lock.try_lock(&lasting("x", "first", short)).await.unwrap().unwrap();
    tokio::time::sleep(short).await;
    let mut other = raw(&server).await;
    let mut transaction = other.begin().await.unwrap();
    transaction.execute("SELECT FROM oarlock_lock FOR UPDATE").await.unwrap();
    let waiting = {
        let lock = Arc::clone(&lock);
        tokio::spawn(async move { lock.try_lock(&claim("x", "second")).await })
    };
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert!(lock.try_lock(&claim("y", "other")).await.unwrap().is_some());
    transaction.rollback().await.unwrap();
    let granted = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap().unwrap().unwrap();
    let left = lock.inspect(&LockName::new("x").unwrap()).await.unwrap().into_holder().unwrap().remaining;
    assert!(granted.valid_until <= lock.clock().now() + left + Duration::from_millis(1));

    let mut transaction = other.begin().await.unwrap();
    transaction.execute("SELECT FROM oarlock_lock WHERE name = 'oarlock/x' FOR UPDATE").await.unwrap();
    let error = tokio::time::timeout(BOUND, lock.unlock(&claim("x", "second"))).await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
}

/// A server that has no connection left, a pool whose only one is in use, and a server that only reads: errors that say
/// so.
#[tokio::test]
async fn what_is_full_or_read_only_says_so() {
    let full = PostgresServer::start_with(&["max_connections=4", "superuser_reserved_connections=1"]);
    run(&full, "CREATE ROLE app LOGIN PASSWORD 'x'; GRANT ALL ON SCHEMA public TO app").await;
    let url = full.url().replace("postgres:s3cr3t", "app:x");
    let mut taken = Vec::new();
    while let Ok(connection) = PgConnection::connect(&url).await {
        taken.push(connection);
    }
    let error = PostgresLock::connect(&url, "oarlock").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("max_connections"), "{error}");

    let server = PostgresServer::start();
    let options = ServerOptions::new(&server.url()).unwrap().connections(1);
    let lock = Arc::new(PostgresLock::with(options).await.unwrap());
    lock.try_lock(&claim("x", "first")).await.unwrap().unwrap();
    server.pause();
    let busy = {
        let lock = Arc::clone(&lock);
        tokio::spawn(async move { lock.unlock(&claim("x", "first")).await })
    };
    tokio::time::sleep(Duration::from_millis(50)).await;
    let error = lock.try_lock(&claim("y", "other")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(busy.await.unwrap().is_err());
    server.resume();

    let lock = client(&server).await;
    run(&server, "ALTER DATABASE postgres SET default_transaction_read_only = on").await;
    run(&server, ENDED).await;
    // The first copy of the first request went over a session that had ended, unless its end had been heard of: of such a
    // copy nothing is known.
    for (owner, may_be_unknown) in [("first", true), ("second", false)] {
        let error = lock.try_lock(&claim("z", owner)).await.unwrap_err();
        let kind = error.kind();
        assert!(kind == ErrorKind::Unavailable || may_be_unknown && kind == ErrorKind::Unknown, "{error}");
        assert!(error.to_string().contains("read-only"), "{error}");
    }
}

/// Sessions in other time zones, and with another isolation, make no difference.
#[tokio::test]
async fn settings_of_the_session_make_no_difference() {
    let server = PostgresServer::start();
    let one = client(&server).await;
    run(
        &server,
        "ALTER DATABASE postgres SET timezone = 'Asia/Kathmandu';
        ALTER DATABASE postgres SET default_transaction_isolation = 'serializable';
        ALTER DATABASE postgres SET datestyle = 'SQL, DMY'",
    )
    .await;
    let other = client(&server).await;
    let held = claim("x", "holder");
    one.try_lock(&held).await.unwrap().unwrap();
    assert!(other.try_lock(&claim("x", "other")).await.unwrap().is_none());
    let waiting = in_background(&other, &claim("x", "other"));
    until("the waiter in line", async || in_line(&*one, "x").await == 1).await;
    one.unlock(&held).await.unwrap();
    granted(waiting).await;
}

/// A user without the right to make tables is told what to do; with them made, and no more than the rights that the
/// script names, all works. Tables of another shape or version are refused, wrong passwords as well, and none is shown.
#[tokio::test]
async fn rights_and_shapes() {
    let server = PostgresServer::start();
    run(&server, "CREATE ROLE app LOGIN PASSWORD 'hunter2'; CREATE SCHEMA locks; GRANT USAGE ON SCHEMA locks TO app")
        .await;
    let mut registry = Registry::new();
    registry.register(PostgresFactory);
    let url = format!("{}?table=locks.own", server.url().replace("postgres:s3cr3t", "app:hunter2"));
    let connect = async |url: &str| registry.connect(Config::from_url(url).unwrap()).await;
    let error = connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("oarlock schema"), "{error}");
    run(&server, &registry.schema(Config::from_url(&url).unwrap()).unwrap()).await;
    run(&server, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA locks TO app").await;
    let (one, other) = (connect(&url).await.unwrap(), connect(&url).await.unwrap());
    let guard = one.mutex("x").lock().await.unwrap();
    let waiting = tokio::spawn(async move { other.mutex("x").wait(BOUND).lock().await });
    until("one in line", async || one.inspect("x").await.unwrap().waiters.len() == 1).await;
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
    assert!(one.doctor().await.unwrap().iter().any(|finding| finding.setting == "fsync=off"));
    let leads = one.election("leader").campaign("first").await.unwrap();
    leads.proclaim("second").await.unwrap();
    leads.resign().await.unwrap();
    assert_eq!(one.once("job").at_least(LONG).run(async |_| 7).await.unwrap(), OnceRun::Ran(7));
    one.evict("job").await.unwrap().unwrap();

    let error = connect(&url.replace("hunter2", "hunter3")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!format!("{error:?}").contains("hunter"), "{error:?}");

    for (spoil, said) in [
        ("UPDATE locks.own_meta SET value = 1 WHERE key = 'version'", "version 1"),
        (
            "UPDATE locks.own_meta SET value = 7 WHERE key = 'version'; ALTER TABLE locks.own_lock RENAME lease_us TO l",
            "shape",
        ),
    ] {
        run(&server, spoil).await;
        let error = connect(&url).await.unwrap_err();
        let text = error.to_string();
        assert!(error.kind() == ErrorKind::Refused && text.contains(said) && text.contains("remove them"), "{text}");
    }
}

/// Many clients make the tables at once, and another takes its time: each waits for that, longer than a request may.
#[tokio::test]
async fn the_tables_are_made_once() {
    let server = PostgresServer::start();
    let mut raw = PgConnection::connect(&server.url()).await.unwrap();
    let mut another = raw.begin().await.unwrap();
    another.execute("SELECT pg_advisory_xact_lock(hashtextextended('oarlock', 1))").await.unwrap();
    let url = server.url();
    let connecting = (0..8).map(|_| PostgresLock::connect(&url, "oarlock"));
    let done = async {
        // Twice as long as a request waits for what another has locked.
        tokio::time::sleep(Duration::from_secs(2)).await;
        another.rollback().await.unwrap();
    };
    let (connected, ()) = tokio::join!(futures_util::future::join_all(connecting), done);
    for lock in connected {
        lock.unwrap();
    }
}

/// A runtime ends while somebody waits, and another client's futures are dropped where there is none: no panic.
#[test]
fn a_runtime_that_ends_while_somebody_waits() {
    let server = PostgresServer::start();
    for threads in [0, 2] {
        let runtime = match threads {
            0 => tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap(),
            _ => tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build().unwrap(),
        };
        let kept = runtime.block_on(async {
            let lock = client(&server).await;
            lock.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
            drop(in_background(&lock, &claim("x", "waiter")));
            until("the waiter in line", async || in_line(&*lock, "x").await == 1).await;
            let (again, behind) = (Arc::clone(&lock), claim("x", "behind"));
            let mut kept = Box::pin(async move { again.lock(&behind).await });
            let waits = tokio::time::timeout(Duration::from_millis(100), &mut kept).await;
            assert!(waits.is_err());
            (kept, lock)
        });
        drop(runtime);
        drop(kept);
    }
}

/// Without anybody else, a lock and its release are two transactions. In a line, each acquisition is three more at
/// most, one of which only notifies, and those who wait ask nothing but now and then.
#[tokio::test]
async fn waiting_costs_little() {
    const WAITERS: usize = 50;
    let server = PostgresServer::start_with(&["autovacuum=off"]);
    // Another database: what is asked there does not count.
    let elsewhere = server.url().strip_suffix("postgres").unwrap().to_owned() + "template1";
    let mut asked = PgConnection::connect(&elsewhere).await.unwrap();
    // A connection's transactions are counted when it has ended.
    let mut connections = async |whose: &str| {
        let count =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = 'postgres' AND backend_type = 'client backend'";
        let count = format!("{count} AND application_name {whose} 'oarlock'");
        sqlx::query_scalar::<_, i64>(AssertSqlSafe(count)).fetch_one(&mut asked).await.unwrap()
    };
    let commits = async || {
        let mut asked = PgConnection::connect(&elsewhere).await.unwrap();
        let count = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'";
        sqlx::query_scalar::<_, i64>(count).fetch_one(&mut asked).await.unwrap()
    };
    // Makes the tables.
    client(&server).await.close().await.unwrap();
    until("nobody", async || connections("=").await == 0).await;
    let base = commits().await;
    let cycles = client(&server).await;
    for round in 0..20 {
        cycles.lock(&claim("x", &round.to_string())).await.unwrap();
        cycles.unlock(&claim("x", &round.to_string())).await.unwrap();
    }
    cycles.close().await.unwrap();
    until("nobody", async || connections("=").await == 0).await;
    let sent = commits().await - base;
    assert!(sent <= 2 * 20 + 30, "{sent} transactions for 20 cycles, a connect and three sweeps");

    let (holder, counted) = (client(&server).await, client(&server).await);
    let held = claim("x", "holder");
    holder.try_lock(&held).await.unwrap().unwrap();
    let waiting: Vec<_> = (0..WAITERS)
        .map(|number| {
            let (counted, claim) = (Arc::clone(&counted), claim("x", &format!("waiter {number}")));
            tokio::spawn(async move {
                counted.lock(&claim).await.unwrap();
                counted.unlock(&claim).await.unwrap()
            })
        })
        .collect();
    // How often that has to be asked is not to count.
    let mut looks = raw(&server).await;
    let in_line = "SELECT count(*) FROM oarlock_waiter";
    until("all in line", async || {
        sqlx::query_scalar::<_, i64>(in_line).fetch_one(&mut looks).await.unwrap() == WAITERS as i64
    })
    .await;
    looks.close().await.unwrap();
    until("nobody looks any more", async || connections("<>").await == 0).await;
    assert!(connections("=").await <= 2 * 9);
    let base = commits().await;
    holder.unlock(&held).await.unwrap();
    for waiting in waiting {
        tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap();
    }
    for client in [holder, counted] {
        client.close().await.unwrap();
    }
    until("nobody", async || connections("=").await == 0).await;
    let sent = commits().await - base;
    // Besides: two clients with ten connections, and looks now and then.
    assert!(sent as usize <= 5 * WAITERS + 70, "{sent} transactions for {WAITERS} acquisitions");
}
