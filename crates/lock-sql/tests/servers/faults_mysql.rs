//! What the suite cannot see on MariaDB: sessions that are ended, rows that others keep, time zones, rights.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{BOUND, LONG, claim, granted, in_background, lasting, renewed, soon, until};
use lock_core::{Config, DistributedLock, ErrorKind, ListQuery, LockName, LockValue, Registry, Renewal, Unlocked};
use lock_sql::{MySqlFactory, MySqlLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use test_servers::{MariaDbServer, Proxy};

async fn client(server: &MariaDbServer) -> MySqlLock {
    let options = ServerOptions::new(&server.url()).unwrap().timeout(Duration::from_secs(6));
    MySqlLock::with(options).await.unwrap()
}

async fn run(server: &MariaDbServer, script: &str) {
    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    raw.execute(sqlx::raw_sql(AssertSqlSafe(script))).await.unwrap();
}

/// No request has the server make a temporary file: on one that cannot, MariaDB crashes.
#[tokio::test]
async fn the_servers_disk_is_left_alone() {
    let server = MariaDbServer::start();
    let lock = Arc::new(client(&server).await);
    let waits = claim("x", "in line");
    lock.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
    lock.try_lock(&claim("y", "other")).await.unwrap().unwrap();
    let waiting = in_background(&lock, &waits);
    until("it is in line", async || {
        lock.inspect(&LockName::new("x").unwrap()).await.unwrap().waiters == [waits.owner.clone().into()]
    })
    .await;
    waiting.abort();
    let listed = lock.list(&ListQuery::default()).await.unwrap();
    assert!(listed.locks.len() == 2 && listed.locks.iter().all(|status| status.holder().is_some()), "{listed:?}");
    for renewed in lock.renew(&[claim("x", "holder"), claim("y", "none")]).await {
        renewed.unwrap();
    }
    let mut shows = claim("z", "shows");
    shows.value = Some(LockValue::new("x".repeat(4096)).unwrap());
    lock.try_lock(&shows).await.unwrap().unwrap();
    lock.proclaim(&shows, &LockValue::new("y".repeat(4096)).unwrap()).await.unwrap();
    assert_eq!(lock.list(&ListQuery::default()).await.unwrap().locks.len(), 3);
    lock.keep(&shows, LONG).await.unwrap();
    assert!(lock.holder(&shows.name).await.unwrap().is_some_and(|holder| holder.kept));
    lock.doctor().await.unwrap();
    lock.unlock(&waits).await.unwrap();
    lock.evict(&LockName::new("x").unwrap()).await.unwrap().unwrap();
    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    let made = raw.fetch_one("SHOW GLOBAL STATUS LIKE 'Created_tmp_disk_tables'").await.unwrap();
    assert_eq!(made.get::<&str, _>(1), "0");
}

/// The server is killed and restarted: the hold is what it was.
#[tokio::test]
async fn a_restart_is_no_loss() {
    let mut server = MariaDbServer::start();
    let lock = client(&server).await;
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    server.restart();
    let answer = lock.renew(std::slice::from_ref(&held)).await.pop().unwrap().unwrap();
    assert!(matches!(answer, Renewal::Held { .. }));
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}

/// Another transaction keeps a lock's row: an error in bounded time, which other locks do not feel.
#[tokio::test]
async fn a_row_that_another_transaction_keeps() {
    let server = MariaDbServer::start();
    let lock = client(&server).await;
    lock.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
    let mut other = MySqlConnection::connect(&server.url()).await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    transaction.execute("SELECT * FROM oarlock_lock WHERE name = 'oarlock/x' FOR UPDATE").await.unwrap();
    assert!(lock.try_lock(&claim("y", "other")).await.unwrap().is_some());
    let error = tokio::time::timeout(BOUND, lock.unlock(&claim("x", "holder"))).await.unwrap().unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
    transaction.rollback().await.unwrap();
    assert!(matches!(lock.unlock(&claim("x", "holder")).await, Ok(Unlocked::Released)));
}

/// 79. The server ends every session: what is asked next goes over new ones.
#[tokio::test]
async fn sessions_that_are_killed() {
    let server = MariaDbServer::start();
    let lock = Arc::new(client(&server).await);
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&lock, &claim("x", "next"));
    tokio::time::sleep(Duration::from_millis(50)).await;
    run(&server, "CREATE USER killer; GRANT ALL ON *.* TO killer").await;
    let killer = server.url().replace("root", "killer");
    MySqlConnection::connect(&killer).await.unwrap().execute("KILL USER root").await.unwrap();
    assert!(matches!(renewed(&*lock, &held).await, Renewal::Held { .. }));
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    granted(waiting).await;
}

/// 79. A renewal of two locks and another transaction wait for each other: the server undoes the renewal, which is
/// asked for again.
#[tokio::test]
async fn a_deadlock_is_asked_again() {
    let server = MariaDbServer::start();
    let lock = Arc::new(client(&server).await);
    let both = [claim("x", "holder"), claim("y", "holder of y")];
    for claim in &both {
        lock.try_lock(claim).await.unwrap().unwrap();
    }
    run(&server, "CREATE TABLE weight (number INT) ENGINE=InnoDB").await;
    let mut other = MySqlConnection::connect(&server.url()).await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    // The one that changed less is undone.
    transaction.execute("INSERT INTO weight SELECT seq FROM seq_1_to_1000").await.unwrap();
    transaction.execute("SELECT * FROM oarlock_lock WHERE name = 'oarlock/y' FOR UPDATE").await.unwrap();
    let renewing = tokio::spawn({
        let (lock, both) = (Arc::clone(&lock), both.clone());
        async move { lock.renew(&both).await }
    });
    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    until("the renewal waits", async || {
        let row = raw.fetch_one("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'").await.unwrap();
        row.get::<&str, _>(1) == "1"
    })
    .await;
    transaction.execute("SELECT * FROM oarlock_lock WHERE name = 'oarlock/x' FOR UPDATE").await.unwrap();
    transaction.commit().await.unwrap();
    let row = raw.fetch_one("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'").await.unwrap();
    assert_eq!(row.get::<&str, _>(1), "1");
    for renewal in soon("the renewals", renewing).await.unwrap() {
        assert!(matches!(renewal, Ok(Renewal::Held { .. })));
    }
}

/// 87. Another transaction keeps the row of a lock that is over for longer than the server lets a statement wait: once
/// it ends, the lock is granted, and is held for as long as was promised.
#[tokio::test]
async fn db_now_while_waiting() {
    let server = MariaDbServer::start();
    let lock = Arc::new(client(&server).await);
    let short = Duration::from_millis(500);
    lock.try_lock(&lasting("x", "first", short)).await.unwrap().unwrap();
    tokio::time::sleep(short).await;
    let mut other = MySqlConnection::connect(&server.url()).await.unwrap();
    let mut transaction = other.begin().await.unwrap();
    transaction.execute("SELECT * FROM oarlock_lock WHERE name = 'oarlock/x' FOR UPDATE").await.unwrap();
    let waiting = in_background(&lock, &claim("x", "second"));
    tokio::time::sleep(Duration::from_millis(1200)).await;
    transaction.rollback().await.unwrap();
    let granted = granted(waiting).await;
    let left = lock.inspect(&LockName::new("x").unwrap()).await.unwrap().into_holder().unwrap().remaining;
    assert!(granted.valid_until <= lock.clock().now() + left + Duration::from_millis(1));
    assert!(left > LONG * 9 / 10);
}

/// Others take locks without a pause, each of which looks whether its owner has given up: whoever does that does not wait
/// for them.
#[tokio::test]
async fn who_gives_up_waits_for_no_other() {
    let server = MariaDbServer::start();
    let lock = Arc::new(client(&server).await);
    lock.try_lock(&claim("x", "first")).await.unwrap().unwrap();
    lock.unlock(&claim("x", "first")).await.unwrap();
    let mut raw = [
        MySqlConnection::connect(&server.url()).await.unwrap(),
        MySqlConnection::connect(&server.url()).await.unwrap(),
    ];
    let [others, row] = &mut raw;
    let mut others = others.begin().await.unwrap();
    others.execute("SELECT * FROM oarlock_gone WHERE mark = '00another' LOCK IN SHARE MODE").await.unwrap();
    // A request that is dropped while it is on its way.
    let mut transaction = row.begin().await.unwrap();
    transaction.execute("SELECT * FROM oarlock_lock WHERE name = 'oarlock/x' FOR UPDATE").await.unwrap();
    let dropped = claim("x", "gives up");
    let asking = in_background(&lock, &dropped);
    let waits = "SELECT COUNT(*) FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'";
    until("it waits", async || {
        // Who asks more often than ten times a second is told the same again.
        tokio::time::sleep(Duration::from_millis(150)).await;
        let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
        sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut raw).await.unwrap() == 1
    })
    .await;
    asking.abort();
    transaction.rollback().await.unwrap();
    lock.unlock(&dropped).await.unwrap();
    assert!(lock.holder(&dropped.name).await.unwrap().is_none());
    others.rollback().await.unwrap();
}

/// 83. The server's clock is set forward by an hour: leases are over, their holders are told, and tokens rise. It is
/// set back: who holds and renews goes on to hold, and a hold whose holder is gone lasts a lease longer, not hours.
#[tokio::test]
async fn server_wall_plus_minus_1h() {
    const HOUR: Duration = Duration::from_secs(3600);
    let (server, clock) = MariaDbServer::start_with_clock();
    let lock = Arc::new(client(&server).await);
    let held = claim("x", "holder");
    let first = lock.try_lock(&held).await.unwrap().unwrap();
    clock.ahead(HOUR);
    assert_eq!(renewed(&*lock, &held).await, Renewal::NotHeld);
    let next = lock.try_lock(&claim("x", "next")).await.unwrap().unwrap();
    assert!(next.token > first.token);
    let gone = lock.try_lock(&lasting("y", "dead", Duration::from_secs(1))).await.unwrap().unwrap();
    clock.behind(HOUR);
    assert!(matches!(renewed(&*lock, &claim("x", "next")).await, Renewal::Held { .. }));
    assert!(lock.try_lock(&claim("y", "early")).await.unwrap().is_none(), "its holder may live");
    assert!(granted(in_background(&lock, &claim("y", "after"))).await.token > gone.token);
    assert_eq!(lock.unlock(&claim("x", "next")).await.unwrap(), Unlocked::Released);
    assert!(lock.try_lock(&claim("x", "last")).await.unwrap().unwrap().token > next.token);
}

/// A replica for which nobody waits is made the primary without the last grant: another holds the lock at once, as is
/// documented and as the doctor says. Its token is higher all the same, and the first holder is told at its next
/// renewal; what had reached the replica is held on.
#[tokio::test]
async fn mysql_async_promote() {
    let mut primary = MariaDbServer::start_with(&["--log-bin", "--server-id=1"]);
    let replication = Proxy::new(primary.address());
    let replica = MariaDbServer::start_with(&["--server-id=2"]);
    let (host, port) = (replication.address().ip(), replication.address().port());
    let follow = format!("CHANGE MASTER TO MASTER_HOST='{host}', MASTER_PORT={port}, MASTER_USER='root'; START SLAVE");
    run(&replica, &follow).await;
    let lock = client(&primary).await;
    let (kept, held) = (claim("kept", "holder"), claim("x", "holder"));
    lock.try_lock(&kept).await.unwrap().unwrap();
    let mut raw = MySqlConnection::connect(&replica.url()).await.unwrap();
    until("the grant on the replica", async || {
        let row = raw.fetch_one("SELECT COUNT(*) FROM oarlock_lock WHERE name = 'oarlock/kept'").await;
        row.is_ok_and(|row| row.get::<i64, _>(0) == 1)
    })
    .await;
    assert!(lock.doctor().await.unwrap().iter().any(|finding| finding.setting == "rpl_semi_sync_master_enabled=OFF"));

    replication.hold();
    let lost = lock.try_lock(&held).await.unwrap().unwrap();
    primary.kill();
    run(&replica, "STOP SLAVE; RESET SLAVE ALL").await;
    let promoted = client(&replica).await;
    let next = promoted.try_lock(&claim("x", "next")).await.unwrap().expect("what the replica lacks is documented");
    assert!(next.token > lost.token);
    assert_eq!(renewed(&promoted, &held).await, Renewal::NotHeld);
    assert_eq!(promoted.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    assert!(matches!(renewed(&promoted, &claim("x", "next")).await, Renewal::Held { .. }));
    assert!(matches!(renewed(&promoted, &kept).await, Renewal::Held { .. }));
}

/// Sessions in other time zones make no difference.
#[tokio::test]
async fn time_zones_make_no_difference() {
    let server = MariaDbServer::start();
    let one = client(&server).await;
    run(&server, "SET GLOBAL time_zone = '+05:45'").await;
    let other = client(&server).await;
    one.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
    assert!(other.try_lock(&claim("x", "other")).await.unwrap().is_none());
    let holder = other.inspect(&LockName::new("x").unwrap()).await.unwrap().into_holder().unwrap();
    assert!(holder.remaining <= LONG && holder.remaining > LONG - BOUND);
}

/// A user without the right to make tables is told what to do; with them made, the rights that the script names
/// suffice.
#[tokio::test]
async fn rights_and_shapes() {
    let server = MariaDbServer::start();
    run(&server, "CREATE DATABASE app; CREATE USER app IDENTIFIED BY 'hunter2'; GRANT SELECT ON app.* TO app").await;
    let mut registry = Registry::new();
    registry.register(MySqlFactory);
    let url = format!("mysql://app:hunter2@{}/app?table=own&timeout=6s", server.address());
    let connect = async |url: &str| registry.connect(Config::from_url(url).unwrap()).await;
    let error = connect(&url).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(error.to_string().contains("oarlock schema"), "{error}");
    run(&server, &format!("USE app; {}", registry.schema(Config::from_url(&url).unwrap()).unwrap())).await;
    run(&server, "GRANT SELECT, INSERT, UPDATE, DELETE ON app.* TO app").await;
    let locks = connect(&url).await.unwrap();
    locks.mutex("x").fair(true).lock().await.unwrap().unlock().await.unwrap();
    let error = connect(&url.replace("hunter2", "hunter3")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
    assert!(!format!("{error:?}").contains("hunter"), "{error:?}");
    run(&server, "ALTER TABLE app.own_lock CHANGE lease_us l BIGINT NOT NULL").await;
    let error = connect(&url).await.unwrap_err();
    let text = error.to_string();
    assert!(error.kind() == ErrorKind::Refused && text.contains("shape") && text.contains("remove them"), "{text}");
}
