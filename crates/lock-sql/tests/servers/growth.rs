//! A hundred thousand names, each used once: their rows go while clients run, and nobody waits for that.

use std::time::{Duration, Instant};

use lock_core::DistributedLock;
use lock_sql::{MySqlLock, PostgresLock};
use sqlx::{Connection, Executor, MySqlConnection, PgConnection};
use test_servers::{MariaDbServer, PostgresServer};

use crate::common::claim;

/// For a sweep of all of them, on a machine however slow.
const PATIENCE: Duration = Duration::from_secs(500);

/// How many times what two bare statements take, a lock and its release may take while rows go.
const MOST: u32 = 20;

fn middle(mut took: Vec<Duration>) -> Duration {
    took.sort_unstable();
    took[took.len() / 2]
}

/// How long a lock and its release take, in the middle of a hundred, and two bare statements at the same time: whatever else
/// the machine has to do slows both.
async fn latency(lock: &dyn DistributedLock, mut bare: impl AsyncFnMut()) -> (Duration, Duration) {
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for number in 0..100 {
        let claim = claim("busy", &format!("{number} {:?}", Instant::now()));
        let began = Instant::now();
        lock.try_lock(&claim).await.unwrap().unwrap();
        lock.unlock(&claim).await.unwrap();
        ours.push(began.elapsed());
        let began = Instant::now();
        bare().await;
        bare().await;
        theirs.push(began.elapsed());
    }
    (middle(ours), middle(theirs))
}

/// This many rows go, of which so many are left, while a lock is taken and released all the time.
async fn all_go(
    lock: &dyn DistributedLock,
    rows: i64,
    mut left: impl AsyncFnMut() -> i64,
    mut bare: impl AsyncFnMut(),
) {
    let (began, mut swept_since, mut ours, mut theirs) = (Instant::now(), None, Vec::new(), Vec::new());
    loop {
        let left = left().await;
        let (our, their) = latency(lock, &mut bare).await;
        if left < rows {
            swept_since.get_or_insert(began.elapsed());
            ours.push(our);
            theirs.push(their);
        }
        if left == 0 {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "{left} rows are left");
    }
    let (ours, theirs, took) = (middle(ours), middle(theirs), began.elapsed() - swept_since.unwrap());
    println!("{rows} rows gone in {took:?}; a lock took {ours:?} meanwhile, bare statements {theirs:?}");
    assert!(ours < theirs * MOST, "a lock took {ours:?}, bare statements {theirs:?}");
}

/// A table that the locks know nothing of.
const BARE: &str = "CREATE TABLE bare (number bigint)";
const FIRST: &str = "INSERT INTO bare VALUES (0)";
const NEXT: &str = "UPDATE bare SET number = number + 1";

#[tokio::test]
async fn postgres() {
    let server = PostgresServer::start();
    let lock = PostgresLock::connect(&server.url(), "oarlock").await.unwrap();
    let mut raw = PgConnection::connect(&server.url()).await.unwrap();
    let mut beside = PgConnection::connect(&server.url()).await.unwrap();
    for statement in [BARE, FIRST] {
        beside.execute(statement).await.unwrap();
    }
    let fill = "INSERT INTO oarlock_lock (name, token, lease_us, since_us, expires_us)
            SELECT 'oarlock/used ' || number, number, 0, 0, 0 FROM generate_series(1, 100000) AS number;
        INSERT INTO oarlock_lock (name, token, lease_us, since_us, expires_us)
            VALUES ('oarlock/', 9223372036854775807, -1, -1, -1);
        INSERT INTO oarlock_waiter (name, owner, lease_us, client, place)
            SELECT 'oarlock/used ' || number, number, 0, number, 0 FROM generate_series(1, 20000) AS number;
        INSERT INTO oarlock_client SELECT number, 0, true FROM generate_series(1, 20000) AS number;
        INSERT INTO oarlock_gone SELECT number, 0 FROM generate_series(1, 20000) AS number";
    raw.execute(sqlx::raw_sql(fill)).await.unwrap();
    let left = "SELECT (SELECT count(*) FROM oarlock_lock WHERE expires_us = 0) + (SELECT count(*) FROM oarlock_waiter)
        + (SELECT count(*) FROM oarlock_client) + (SELECT count(*) FROM oarlock_gone)";
    let left = async || sqlx::query_scalar(left).fetch_one(&mut raw).await.unwrap();
    all_go(&lock, 160_000, left, async || assert_eq!(beside.execute(NEXT).await.unwrap().rows_affected(), 1)).await;
    let floor = "SELECT value FROM oarlock_meta WHERE key = 'floor'";
    assert_eq!(sqlx::query_scalar::<_, i64>(floor).fetch_one(&mut raw).await.unwrap(), 100_000);
}

#[tokio::test]
async fn mysql() {
    let server = MariaDbServer::start();
    let lock = MySqlLock::connect(&server.url(), "oarlock").await.unwrap();
    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    let mut beside = MySqlConnection::connect(&server.url()).await.unwrap();
    for statement in [BARE, FIRST] {
        beside.execute(statement).await.unwrap();
    }
    let fill = "INSERT INTO oarlock_lock (name, token, lease_us, since_us, expires_us)
            SELECT CONCAT('oarlock/used ', seq), seq, 0, 0, 0 FROM seq_1_to_100000;
        INSERT INTO oarlock_waiter (name, owner, ticket, lease_us, client) SELECT 'oarlock/used 1', seq, seq, 0, 'gone' FROM seq_1_to_20000;
        INSERT INTO oarlock_gone SELECT CONCAT('00', seq), 0 FROM seq_1_to_20000";
    raw.execute(sqlx::raw_sql(fill)).await.unwrap();
    let left = "SELECT (SELECT COUNT(*) FROM oarlock_lock WHERE expires_us = 0) + (SELECT COUNT(*) FROM oarlock_waiter)
        + (SELECT COUNT(*) FROM oarlock_gone WHERE LENGTH(mark) > 2)";
    let left = async || sqlx::query_scalar(left).fetch_one(&mut raw).await.unwrap();
    all_go(&lock, 140_000, left, async || assert_eq!(beside.execute(NEXT).await.unwrap().rows_affected(), 1)).await;
    let floor = "SELECT value FROM oarlock_meta WHERE name = 'floor'";
    assert_eq!(sqlx::query_scalar::<_, i64>(floor).fetch_one(&mut raw).await.unwrap(), 100_000);
}
