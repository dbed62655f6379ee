//! MariaDB: holds that outlive their owner, and what holds show, as they stand in the tables.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::by_sessions;
use crate::common::{BOUND, LONG, claim, granted, in_background, in_line, lasting, renewed, showing, soon, until};
use lock_core::{DistributedLock, ErrorKind, Kept, LockName, LockValue, Proclaimed, Renewal, Unlocked};
use lock_sql::{MySqlLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use test_servers::{MariaDbServer, Proxy};

const SHORT: Duration = Duration::from_millis(500);

async fn client(url: &str) -> Arc<MySqlLock> {
    let options = ServerOptions::new(url).unwrap().timeout(Duration::from_secs(6));
    Arc::new(MySqlLock::with(options).await.unwrap())
}

/// All rows of this, each as one text.
async fn rows(server: &MariaDbServer, columns: &str, rest: &str) -> Vec<String> {
    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    let query = format!("SELECT CAST(CONCAT_WS(' ', {columns}) AS BINARY) FROM {rest}");
    let rows = raw.fetch_all(sqlx::raw_sql(AssertSqlSafe(query))).await.unwrap();
    rows.iter().map(|row| String::from_utf8(row.get_unchecked::<Vec<u8>, _>(0)).unwrap()).collect()
}

async fn run(server: &MariaDbServer, script: &'static str) {
    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    raw.execute(sqlx::raw_sql(script)).await.unwrap();
}

/// Owners and values.
async fn values(server: &MariaDbServer) -> Vec<String> {
    rows(server, "owner, value", "oarlock_value ORDER BY owner").await
}

fn value(text: &str) -> LockValue {
    LockValue::new(text).unwrap()
}

async fn shown(lock: &MySqlLock, name: &str) -> Option<String> {
    let holder = lock.holder(&LockName::new(name).unwrap()).await.unwrap()?;
    holder.value.map(|value| value.as_str().to_owned())
}

/// Requests of its owner that come late find the kept hold's row as it was.
#[tokio::test]
async fn nothing_that_comes_late_changes_a_kept_hold() {
    let server = MariaDbServer::start();
    let (lock, late) = (client(&server.url()).await, client(&server.url()).await);
    let held = showing(claim("x", "holder"), "shown");
    let grant = lock.try_lock(&held).await.unwrap().unwrap();
    let row = async |columns: &str| rows(&server, columns, "oarlock_lock").await.pop().unwrap();
    let before = row("token, since_us").await;
    assert_eq!(lock.keep(&held, LONG * 2).await.unwrap(), Kept::Kept);
    assert_eq!(row("token, since_us").await, before);
    let kept = row("owner, lease_us, expires_us - since_us >= lease_us, expires_us").await;
    assert!(kept.starts_with("kept#holder 600000000 1 "), "{kept}");
    for lock in [&lock, &late] {
        assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::Kept);
        assert_eq!(renewed(&**lock, &held).await, Renewal::NotHeld);
        assert_eq!(lock.proclaim(&held, &value("late")).await.unwrap(), Proclaimed::NotHeld);
        assert_eq!(lock.try_lock(&held).await.unwrap(), None);
        assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    }
    assert_eq!(row("owner, lease_us, expires_us - since_us >= lease_us, expires_us").await, kept);
    assert_eq!(shown(&late, "x").await.as_deref(), Some("shown"));
    let evicted = lock.evict(&held.name).await.unwrap().unwrap();
    assert_eq!((evicted.kept, &evicted.owner, evicted.token), (true, &held.owner, grant.token));
    assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::NotHeld);
}

/// A waiter's client sleeps until the lease would be over, and else looks every five seconds: it is told of an earlier end,
/// and the row by which it is told goes.
#[tokio::test]
async fn who_is_first_in_line_is_told_of_an_earlier_end() {
    let server = MariaDbServer::start();
    let (lock, other) = (client(&server.url()).await, client(&server.url()).await);
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&other, &claim("x", "waiter"));
    until("it is in line", async || in_line(&*lock, "x").await == 1).await;
    until("it has a bell", async || rows(&server, "rings", "oarlock_client WHERE rings > 0").await.len() == 1).await;
    // It has looked by then.
    tokio::time::sleep(Duration::from_millis(200)).await;
    let kept = Instant::now();
    assert_eq!(lock.keep(&held, SHORT).await.unwrap(), Kept::Kept);
    granted(waiting).await;
    let took = kept.elapsed();
    assert!(took >= SHORT && took < Duration::from_secs(4), "granted after {took:?}");
    until("no row is left", async || rows(&server, "owner", "oarlock_waiter").await.is_empty()).await;
    assert_eq!(other.unlock(&claim("x", "waiter")).await.unwrap(), Unlocked::Released);
}

/// The first copy of a request that was sent twice comes when the kept hold is over: it does not take the lock for an owner
/// that has gone.
#[tokio::test]
async fn an_acquisition_that_lands_after_a_kept_hold() {
    let server = MariaDbServer::start();
    let proxy = Proxy::new(server.address());
    let proxied = client(&format!("mysql://root@{}/mysql", proxy.address())).await;
    let other = client(&server.url()).await;
    let (warm, held) = (claim("x", "warm"), claim("x", "holder"));
    proxied.try_lock(&warm).await.unwrap().unwrap();
    proxied.unlock(&warm).await.unwrap();
    proxy.hold_c2s_of_present();
    proxy.end_for_clients();
    soon("a grant", proxied.try_lock(&held)).await.unwrap().unwrap();
    assert_eq!(proxied.keep(&held, SHORT).await.unwrap(), Kept::Kept);
    until("its end", async || other.holder(&held.name).await.unwrap().is_none()).await;
    proxy.forward();
    for _ in 0..20 {
        assert_eq!(other.holder(&held.name).await.unwrap(), None);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    other.try_lock(&claim("x", "next")).await.unwrap().unwrap();
}

/// The same of a value: what was said last stays.
#[tokio::test]
async fn a_value_that_lands_late_replaces_no_later_one() {
    let server = MariaDbServer::start();
    let proxy = Proxy::new(server.address());
    let lock = client(&format!("mysql://root@{}/mysql", proxy.address())).await;
    let held = showing(claim("x", "holder"), "first");
    lock.try_lock(&held).await.unwrap().unwrap();
    // The connection knows the statement from now on.
    assert_eq!(lock.proclaim(&held, &value("second")).await.unwrap(), Proclaimed::Shown);
    proxy.hold_c2s_of_present();
    proxy.end_for_clients();
    for text in ["early", "later"] {
        assert_eq!(soon("an answer", lock.proclaim(&held, &value(text))).await.unwrap(), Proclaimed::Shown);
    }
    proxy.forward();
    for _ in 0..20 {
        assert_eq!(shown(&lock, "x").await.as_deref(), Some("later"));
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn a_value_goes_with_its_hold() {
    let server = MariaDbServer::start();
    let (lock, other) = (client(&server.url()).await, client(&server.url()).await);
    let (a, b) = (showing(claim("x", "a"), "of a"), showing(claim("x", "b"), "of b"));
    lock.try_lock(&a).await.unwrap().unwrap();
    assert_eq!(lock.try_lock(&b).await.unwrap(), None);
    assert_eq!(values(&server).await, ["a of a"], "who is refused leaves nothing");
    let waiting = in_background(&other, &b);
    until("it is in line", async || in_line(&*lock, "x").await == 1).await;
    assert_eq!(shown(&lock, "x").await.as_deref(), Some("of a"));
    assert_eq!(lock.unlock(&a).await.unwrap(), Unlocked::Released);
    granted(waiting).await;
    assert_eq!(shown(&lock, "x").await.as_deref(), Some("of b"));
    assert_eq!(values(&server).await, ["b of b"]);
    let quits = showing(claim("x", "quits"), "never seen");
    let waiting = in_background(&lock, &quits);
    until("it is in line", async || in_line(&*lock, "x").await == 1).await;
    waiting.abort();
    let _ = waiting.await;
    assert_eq!(lock.unlock(&quits).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(values(&server).await, ["b of b"], "nor does who gives up");
    assert!(lock.evict(&a.name).await.unwrap().is_some_and(|holder| holder.value == b.value));
    assert!(values(&server).await.is_empty());
    assert_eq!(other.proclaim(&b, &value("late")).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(other.unlock(&b).await.unwrap(), Unlocked::NotHeld);
    assert!(values(&server).await.is_empty());
}

#[tokio::test]
async fn values_of_the_dead_are_swept() {
    let server = MariaDbServer::start();
    let lock = client(&server.url()).await;
    let (held, kept) = (showing(claim("held", "h"), "held"), showing(claim("kept", "k"), "kept"));
    for claim in [&held, &kept] {
        lock.try_lock(claim).await.unwrap().unwrap();
    }
    assert_eq!(lock.keep(&kept, LONG).await.unwrap(), Kept::Kept);
    let waiting = in_background(&lock, &showing(claim("held", "w"), "waits"));
    until("it is in line", async || in_line(&*lock, "held").await == 1).await;
    run(
        &server,
        "INSERT INTO oarlock_value SELECT CONCAT('dead', owner), name, value, 0, at_us FROM oarlock_value;
         UPDATE oarlock_value SET at_us = at_us - 61000000;
         INSERT INTO oarlock_value SELECT 'comes', name, value, 0, at_us + 61000000 FROM oarlock_value WHERE owner = 'h';
         UPDATE oarlock_meta SET value = 0 WHERE name = 'swept'",
    )
    .await;
    // It sweeps at once.
    let _other = client(&server.url()).await;
    let owners = async || rows(&server, "owner", "oarlock_value ORDER BY owner").await;
    until("what nobody sees goes", async || owners().await.len() <= 4).await;
    assert_eq!(owners().await, ["comes", "h", "k", "w"]);
    assert_eq!(shown(&lock, "kept").await.as_deref(), Some("kept"));
    waiting.abort();
}

/// The tables of an earlier release get that of values when a client connects that may make it; another is told what to do.
#[tokio::test]
async fn tables_of_an_earlier_release() {
    let server = MariaDbServer::start();
    let early = client(&server.url()).await;
    let held = claim("x", "holder");
    early.try_lock(&held).await.unwrap().unwrap();
    run(
        &server,
        "DROP TABLE oarlock_value; DELETE FROM oarlock_meta WHERE name = 'value';
         CREATE USER app; GRANT SELECT, INSERT, UPDATE, DELETE ON mysql.* TO app",
    )
    .await;
    let refused = MySqlLock::connect(&server.url().replace("root", "app"), "oarlock").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Refused, "{refused}");
    assert!(refused.to_string().contains("oarlock schema"), "{refused}");
    let lock = client(&server.url()).await;
    assert_eq!(lock.holder(&held.name).await.unwrap().unwrap().owner, held.owner);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    lock.try_lock(&showing(claim("x", "new"), "new")).await.unwrap().unwrap();
    assert_eq!(shown(&lock, "x").await.as_deref(), Some("new"));
    assert_eq!(rows(&server, "value", "oarlock_meta WHERE name = 'value'").await, ["0"]);
    MySqlLock::connect(&server.url().replace("root", "app"), "oarlock").await.unwrap();
}

/// The server is killed at once after it has answered: what was kept is kept, and ends when it should.
#[tokio::test]
async fn a_kept_hold_survives_a_crash_of_the_server() {
    let mut server = MariaDbServer::start();
    let lock = client(&server.url()).await;
    let held = lasting("x", "holder", LONG);
    lock.try_lock(&held).await.unwrap().unwrap();
    let rest = BOUND / 4;
    assert_eq!(lock.keep(&held, rest).await.unwrap(), Kept::Kept);
    let began = Instant::now();
    server.restart();
    until("it runs", async || lock.holder(&held.name).await.is_ok()).await;
    granted(in_background(&lock, &claim("x", "next"))).await;
    assert!(began.elapsed() + Duration::from_millis(500) >= rest, "granted after {:?}", began.elapsed());
}

/// 256. A release is done, or a hold is kept, and the answer is lost: nobody says that the lock was not held until then.
#[tokio::test]
async fn an_end_whose_answer_is_lost_is_unknown() {
    let server = MariaDbServer::start();
    let proxy = Proxy::new(server.address());
    let lock = client(&format!("mysql://root@{}/mysql", proxy.address())).await;
    by_sessions::ended_unheard(lock, &proxy, &*client(&server.url()).await).await;
}
