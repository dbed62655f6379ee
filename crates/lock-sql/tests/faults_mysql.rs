//! What the suite cannot see on MariaDB: sessions that are ended, rows that others keep, time zones, rights.

use std::time::Duration;

use lock_core::{Claim, Config, DistributedLock, ErrorKind, ListQuery, LockName, OwnerId, Registry, Renewal, Unlocked};
use lock_sql::{MySqlFactory, MySqlLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, Executor, MySqlConnection, Row};
use test_servers::MariaDbServer;

/// Never over while a test runs.
const LONG: Duration = Duration::from_secs(300);

/// For what needs no lease's end.
const BOUND: Duration = Duration::from_secs(20);

fn claim(name: &str, owner: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), LONG)
}

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
    let lock = client(&server).await;
    let mut fair = claim("x", "in line");
    fair.fair = true;
    lock.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
    lock.try_lock(&claim("y", "other")).await.unwrap().unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(200), lock.lock(&fair)).await.is_err());
    assert_eq!(lock.inspect(&LockName::new("x").unwrap()).await.unwrap().waiters, [fair.owner.clone()]);
    let listed = lock.list(&ListQuery::default()).await.unwrap();
    assert!(listed.locks.len() == 2 && listed.locks.iter().all(|status| status.holder.is_some()), "{listed:?}");
    for renewed in lock.renew(&[claim("x", "holder"), claim("y", "none")]).await {
        renewed.unwrap();
    }
    lock.doctor().await.unwrap();
    lock.unlock(&fair).await.unwrap();
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

/// Sessions in other time zones make no difference.
#[tokio::test]
async fn time_zones_make_no_difference() {
    let server = MariaDbServer::start();
    let one = client(&server).await;
    run(&server, "SET GLOBAL time_zone = '+05:45'").await;
    let other = client(&server).await;
    one.try_lock(&claim("x", "holder")).await.unwrap().unwrap();
    assert!(other.try_lock(&claim("x", "other")).await.unwrap().is_none());
    let holder = other.inspect(&LockName::new("x").unwrap()).await.unwrap().holder.unwrap();
    assert!(holder.remaining <= LONG && holder.remaining > LONG - BOUND);
}

/// A user without the right to make tables is told what to do; with them made, the rights that the script names suffice.
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
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("shape"), "{error}");
}
