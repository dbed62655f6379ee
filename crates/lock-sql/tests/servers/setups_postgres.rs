//! PostgreSQL in other places than by itself: behind a pooler, before a standby, and with its clock set.

use std::sync::Arc;
use std::time::Duration;

use crate::by_hand::client;
use crate::common::{LONG, claim, connect, granted, in_background, in_line, lasting, renewed, soon, until};
use lock_core::{DistributedLock, ErrorKind, Renewal, Unlocked};
use lock_sql::{PostgresLock, ServerOptions};
use sqlx::{Connection, Executor, PgConnection};
use test_servers::{PgBouncer, PostgresServer, Proxy};

const HOUR: Duration = Duration::from_secs(3600);

/// Over connections that PgBouncer lends for a transaction, two for all, without anything that lasts on one.
#[tokio::test]
async fn nothing_is_kept_on_a_connection_of_a_pooler() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server);
    let pooled = async || {
        let options = ServerOptions::new(&pooler.url()).unwrap().pooler(true);
        Arc::new(PostgresLock::with(options).await.unwrap())
    };
    let (one, other) = (pooled().await, pooled().await);
    let held = claim("x", "holder");
    one.try_lock(&held).await.unwrap().unwrap();
    assert!(other.try_lock(&claim("x", "other")).await.unwrap().is_none());
    let waiting: Vec<_> = (0..6)
        .map(|number| {
            let (other, claim) = (Arc::clone(&other), claim("x", &format!("waiter {number}")));
            tokio::spawn(async move {
                other.lock(&claim).await.unwrap();
                other.unlock(&claim).await.unwrap()
            })
        })
        .collect();
    until("the waiters in line", async || in_line(&*one, "x").await == 6).await;
    let mut raw = PgConnection::connect(&server.url()).await.unwrap();
    let left = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&mut raw).await.unwrap();
    assert_eq!(left, 0);
    assert!(matches!(renewed(&*one, &held).await, Renewal::Held { .. }));
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::Released);
    for waiting in waiting {
        soon("its turn", waiting).await.unwrap();
    }
    assert!(one.doctor().await.unwrap().iter().any(|finding| finding.setting.contains("pooler")));
}

/// Who does not say that there is a pooler is told to.
#[tokio::test]
async fn a_pooler_that_nobody_spoke_of() {
    let server = PostgresServer::start();
    let error = connect(&PgBouncer::start(&server).url()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error:?}");
    assert!(error.to_string().contains("pooler=true"), "{error}");
}

/// 78. A standby for which nobody waits is promoted without the last grant: another holds the lock at once, as is
/// documented and as the doctor says. Its token is higher all the same, and the first holder is told at its next
/// renewal.
#[tokio::test]
async fn pg_async_promote() {
    let mut primary = PostgresServer::start();
    let replication = Proxy::new(primary.address());
    let standby = PostgresServer::start_standby(&primary, replication.address());
    let lock = client(&primary).await;
    let mut raw = PgConnection::connect(&standby.url()).await.unwrap();
    let arrived = "SELECT to_regclass('oarlock_gone') IS NOT NULL";
    until("the tables on the standby", async || sqlx::query_scalar(arrived).fetch_one(&mut raw).await.unwrap()).await;
    let refused = PostgresLock::connect(&standby.url(), "oarlock").await.unwrap_err();
    assert!(refused.kind() == ErrorKind::Unavailable && refused.to_string().contains("standby"), "{refused}");
    assert!(lock.doctor().await.unwrap().iter().any(|finding| finding.setting.contains("synchronous_standby_names")));

    replication.hold();
    let held = claim("x", "holder");
    let lost = lock.try_lock(&held).await.unwrap().unwrap();
    primary.kill();
    raw.execute("SELECT pg_promote()").await.unwrap();
    let promoted = client(&standby).await;
    let next = promoted.try_lock(&claim("x", "next")).await.unwrap().expect("what the standby lacks is documented");
    assert!(next.token > lost.token);
    assert_eq!(renewed(&*promoted, &held).await, Renewal::NotHeld);
    assert_eq!(promoted.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    assert!(matches!(renewed(&*promoted, &claim("x", "next")).await, Renewal::Held { .. }));
}

/// 83. The server's clock is set forward by an hour: leases are over, their holders are told, and tokens rise.
#[tokio::test]
async fn server_wall_plus_1h() {
    let (server, clock) = PostgresServer::start_with_clock();
    let lock = client(&server).await;
    let held = claim("x", "holder");
    let first = lock.try_lock(&held).await.unwrap().unwrap();
    clock.ahead(HOUR);
    assert_eq!(renewed(&*lock, &held).await, Renewal::NotHeld);
    let next = lock.try_lock(&claim("x", "next")).await.unwrap().unwrap();
    assert!(next.token > first.token);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
}

/// 83. It is set back by an hour: who holds and renews goes on to hold, who waits waits on, a hold whose holder is gone
/// lasts a lease longer and not an hour, and tokens rise.
#[tokio::test]
async fn server_wall_minus_1h() {
    const LEASE: Duration = Duration::from_secs(1);
    let (server, clock) = PostgresServer::start_with_clock();
    let lock = client(&server).await;
    let (held, dead) = (claim("x", "holder"), lasting("y", "dead", LEASE));
    let first = lock.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&lock, &claim("x", "next"));
    until("the next in line", async || in_line(&*lock, "x").await == 1).await;
    let gone = lock.try_lock(&dead).await.unwrap().unwrap();
    clock.behind(HOUR);
    assert!(matches!(renewed(&*lock, &held).await, Renewal::Held { .. }));
    assert!(lock.try_lock(&claim("y", "early")).await.unwrap().is_none(), "its holder may live");
    assert!(granted(in_background(&lock, &claim("y", "after"))).await.token > gone.token);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    let next = granted(waiting).await;
    assert!(next.token > first.token && next.valid_until <= lock.clock().now() + LONG);
    assert_eq!(lock.unlock(&claim("x", "next")).await.unwrap(), Unlocked::Released);
    assert!(lock.try_lock(&claim("x", "last")).await.unwrap().unwrap().token > next.token);
}

/// The tables stay those that were found at first, though the user gets a schema of its own with such tables; and a user
/// whose search path leads elsewhere is told.
#[tokio::test]
async fn a_search_path_that_leads_elsewhere() {
    let server = PostgresServer::start();
    let mut admin = PgConnection::connect(&server.url()).await.unwrap();
    let mut run = async |script: &'static str| admin.execute(sqlx::raw_sql(script)).await.map(drop).unwrap();
    run("CREATE ROLE app LOGIN PASSWORD 'x'; GRANT ALL ON SCHEMA public TO app").await;
    let url = server.url().replace("postgres:s3cr3t", "app:x");
    let options = || ServerOptions::new(&url).unwrap();
    let lock = PostgresLock::with(options()).await.unwrap();
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    let elsewhere = async |lock: &PostgresLock| {
        let found = lock.doctor().await.unwrap().into_iter().map(|finding| finding.setting);
        found.filter(|setting| setting.contains("the tables are in the schema")).collect::<Vec<_>>()
    };
    assert_eq!(elsewhere(&lock).await, Vec::<String>::new());

    run("CREATE SCHEMA app AUTHORIZATION app").await;
    let mut own = PgConnection::connect(&url).await.unwrap();
    own.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(options().postgres_schema()))).await.unwrap();
    assert!(matches!(renewed(&lock, &held).await, Renewal::Held { .. }));
    assert!(client(&server).await.try_lock(&claim("x", "other")).await.unwrap().is_none());
    assert!(elsewhere(&lock).await[0].contains("schema public, and there are such in app, public"));
    let led = PostgresLock::with(options()).await.unwrap();
    assert!(format!("{led:?}").contains("\"app\""), "{led:?}");
    assert_eq!(elsewhere(&led).await.len(), 1);

    let named = options().table("other").unwrap();
    assert!(elsewhere(&PostgresLock::with(named).await.unwrap()).await[0].contains("its user's own"));
    let named = options().table("app.other").unwrap();
    assert_eq!(elsewhere(&PostgresLock::with(named).await.unwrap()).await, Vec::<String>::new());
}
