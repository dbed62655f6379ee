//! On real files, with clients that share nothing but the file.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant as Real};

use lock_core::{
    Claim, DistributedLock, ErrorKind, Grant, ListQuery, LockName, OwnerId, Renewal, SystemClock, Unlocked,
};
use sqlx::{ConnectOptions, Connection, SqliteConnection};
use tempfile::TempDir;
use tokio::time::timeout;

use super::host_clock::HostClock;
use super::statements::{Ask, SCHEMA};
use super::{SqliteLock, SqliteOptions};

mod files;
mod growth;
mod keeping;
mod together;

const LEASE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);

struct File {
    folder: TempDir,
}

impl File {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    async fn open(&self) -> SqliteLock {
        SqliteLock::open(self.path(), "t").await.unwrap()
    }

    /// The same, with the tables made.
    async fn made(&self) -> SqliteLock {
        let (lock, first) = (self.open().await, claim("first", "first", LEASE));
        taken(&lock, &first).await;
        lock.unlock(&first).await.unwrap();
        lock
    }

    async fn open_at(&self, boot: i64, host: Duration, wall_back: Duration) -> SqliteLock {
        let mut options = SqliteOptions::new(self.path()).prefix("t");
        options.host = HostClock::shifted(boot, host.as_micros() as i64, -(wall_back.as_micros() as i64));
        options.open().await.unwrap()
    }

    /// A connection that is not ours, as the `sqlite3` shell would have.
    async fn raw(&self) -> SqliteConnection {
        raw(&self.path()).await
    }
}

async fn raw(path: &Path) -> SqliteConnection {
    sqlx::sqlite::SqliteConnectOptions::new().filename(path).create_if_missing(true).connect().await.unwrap()
}

fn claim(name: &str, owner: &str, lease: Duration) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), lease)
}

async fn taken(lock: &SqliteLock, claim: &Claim) -> Grant {
    lock.try_lock(claim).await.unwrap().expect("the lock is free")
}

async fn rows(file: &File, table: &'static str) -> i64 {
    let sql = match table {
        "lock" => "SELECT count(*) FROM oarlock_lock WHERE owner IS NOT NULL",
        _ => "SELECT count(*) FROM oarlock_waiter",
    };
    sqlx::query_scalar(sql).fetch_one(&mut file.raw().await).await.unwrap()
}

/// Waits until so many are in line.
async fn in_line(lock: &SqliteLock, name: &LockName, count: usize) {
    timeout(Duration::from_secs(10), async {
        while lock.inspect(name).await.unwrap().waiters.len() != count {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the waiters get in line");
}

#[tokio::test]
async fn prefixes_and_names_never_share_a_lock() {
    let file = File::new();
    let mut locks = Vec::new();
    for prefix in ["a", "a/b", "a%2Fb", "A", ""] {
        locks.push(SqliteLock::open(file.path(), prefix).await.unwrap());
    }
    for (number, lock) in locks.iter().enumerate() {
        for name in ["b/c", "c", "C", "c ", "' OR 1=1 --", "1", "%", "_", "a/b/c"] {
            taken(lock, &claim(name, &format!("{number}{name}"), LEASE)).await;
        }
    }
}

#[tokio::test]
async fn waiters_are_served_in_order_and_woken_at_once() {
    let file = File::new();
    let holder = file.open().await;
    let held = claim("job", "holder", LEASE);
    taken(&holder, &held).await;
    let mut waiting = Vec::new();
    for number in 0..5 {
        let lock = file.open().await;
        let claim = claim("job", &format!("w{number}"), LEASE);
        waiting.push(tokio::spawn(async move {
            let grant = lock.lock(&claim).await.unwrap();
            let at = Real::now();
            assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
            (grant.token, at)
        }));
        in_line(&holder, &held.name, number + 1).await;
    }
    let released = Real::now();
    holder.unlock(&held).await.unwrap();
    let mut last = None;
    for waiter in waiting {
        let (token, at) = waiter.await.unwrap();
        assert!(last < Some(token), "first come, first served");
        assert!(at.duration_since(released) < Duration::from_secs(1), "woken, and not by the tick");
        last = Some(token);
    }
    assert_eq!(rows(&file, "waiter").await, 0);
}

#[tokio::test]
async fn try_lock_does_not_jump_the_line() {
    let file = File::new();
    let lock = file.open().await;
    let (held, waiter) = (claim("job", "holder", LEASE), claim("job", "waiter", LEASE));
    taken(&lock, &held).await;
    let waiting = file.open().await;
    let mut wait = Box::pin(waiting.lock(&waiter));
    assert!(timeout(Duration::from_millis(50), &mut wait).await.is_err());
    in_line(&lock, &held.name, 1).await;
    // The waiter is not polled now, so it cannot take its turn.
    lock.unlock(&held).await.unwrap();
    assert_eq!(lock.try_lock(&claim("job", "third", LEASE)).await.unwrap(), None);
    wait.await.unwrap();
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_nothing() {
    let file = File::new();
    let lock = file.open().await;
    let held = claim("job", "holder", LEASE);
    taken(&lock, &held).await;
    // Dropped at each await that it reaches, one after the other.
    for polls in 0..40 {
        let quitter = claim("job", &format!("q{polls}"), LEASE);
        {
            let mut wait = Box::pin(lock.lock(&quitter));
            for _ in 0..polls {
                let _ = timeout(Duration::ZERO, &mut wait).await;
            }
        }
        assert_eq!(lock.unlock(&quitter).await.unwrap(), Unlocked::NotHeld);
        assert_eq!(lock.wake.places(), 0);
        assert_eq!(lock.inspect(&held.name).await.unwrap().waiters, []);
    }
}

#[tokio::test]
async fn a_wake_up_that_is_given_up_goes_to_the_next() {
    let file = File::new();
    let (lock, other) = (file.open().await, file.open().await);
    let held = claim("job", "holder", LEASE);
    taken(&lock, &held).await;
    let quitter = claim("job", "quitter", LEASE);
    let mut quits = Box::pin(lock.lock(&quitter));
    // Polled until it asks for nothing any more: a request that nobody polls has the file to itself.
    let waits = async {
        in_line(&lock, &held.name, 1).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    tokio::select! {
        biased;
        granted = &mut quits => panic!("{granted:?}"),
        () = waits => {}
    }
    let patient = tokio::spawn(async move { other.lock(&claim("job", "patient", LEASE)).await.map(|_| Real::now()) });
    in_line(&lock, &held.name, 2).await;
    lock.unlock(&held).await.unwrap();
    drop(quits);
    let left = Real::now();
    lock.unlock(&quitter).await.unwrap();
    let at = patient.await.unwrap().unwrap();
    assert!(at.duration_since(left) < Duration::from_millis(900), "told, and not by the tick");
}

#[tokio::test]
async fn a_dead_waiter_is_passed_over() {
    let file = File::new();
    let lock = file.open().await;
    let held = claim("job", "holder", LEASE);
    taken(&lock, &held).await;
    // What a waiter leaves behind that was killed just now.
    let mut raw = file.raw().await;
    sqlx::query(
        "INSERT INTO oarlock_waiter SELECT name, 1, 'dead', 'oarlock-nobody/1', since_us, boot, '' FROM oarlock_lock",
    )
    .execute(&mut raw)
    .await
    .unwrap();
    let other = file.open().await;
    let living = tokio::spawn(async move { other.lock(&claim("job", "living", LEASE)).await.map(|_| Real::now()) });
    in_line(&lock, &held.name, 2).await;
    let released = Real::now();
    lock.unlock(&held).await.unwrap();
    let at = living.await.unwrap().unwrap();
    assert!(at.duration_since(released) < Duration::from_millis(900), "told, and not by the tick");
}

#[tokio::test]
async fn a_lease_ends_and_so_does_the_hold() {
    let file = File::new();
    let (lock, other) = (file.open().await, file.open().await);
    let (a, b) = (claim("job", "a", SHORT), claim("job", "b", LEASE));
    let before = lock.clock().now();
    let first = taken(&lock, &a).await;
    assert!(first.valid_until >= before + SHORT && first.valid_until <= lock.clock().now() + SHORT);
    let second = other.lock(&b).await.unwrap();
    assert!(lock.clock().now() >= first.valid_until, "not before the lease was over");
    assert!(second.token > first.token);
    assert!(matches!(lock.renew(std::slice::from_ref(&a)).await[..], [Ok(Renewal::NotHeld)]));
    assert_eq!(lock.unlock(&a).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(other.unlock(&b).await.unwrap(), Unlocked::Released);
}

#[tokio::test]
async fn an_expired_lease_is_not_renewed_even_if_nobody_took_it() {
    let file = File::new();
    let lock = file.open_at(1, Duration::ZERO, Duration::ZERO).await;
    let claims: Vec<_> = (0..600).map(|number| claim(&format!("n\"{number}"), &format!("o{number}"), LEASE)).collect();
    for claim in &claims {
        taken(&lock, claim).await;
    }
    lock.unlock(&claims[300]).await.unwrap();
    let renewed = lock.renew(&claims).await;
    let held = |answer: &lock_core::Result<Renewal>| matches!(answer, Ok(Renewal::Held { .. }));
    assert_eq!(renewed.iter().filter(|answer| held(answer)).count(), 599);
    assert!(!held(&renewed[300]));
    let later = file.open_at(1, LEASE + LEASE, Duration::ZERO).await;
    assert!(later.renew(&claims).await.iter().all(|answer| matches!(answer, Ok(Renewal::NotHeld))));
}

#[tokio::test]
async fn a_step_of_the_wall_clock_changes_nothing() {
    let file = File::new();
    let hour = Duration::from_secs(3600);
    let lock = file.open_at(1, Duration::ZERO, Duration::ZERO).await;
    let stepped = file.open_at(1, Duration::ZERO, hour).await;
    let (a, b) = (claim("job", "a", LEASE), claim("job", "b", LEASE));
    let first = taken(&lock, &a).await;
    assert_eq!(stepped.try_lock(&b).await.unwrap(), None);
    lock.unlock(&a).await.unwrap();
    assert!(taken(&stepped, &b).await.token > first.token, "tokens rise though the clock went back");
    assert_eq!(lock.try_lock(&a).await.unwrap(), None);
}

#[tokio::test]
async fn a_hold_of_an_earlier_boot_ends_by_the_wall_clock() {
    let file = File::new();
    let (a, b) = (claim("job", "a", SHORT), claim("job", "b", SHORT));
    taken(&file.open_at(1, Duration::from_secs(900_000), Duration::ZERO).await, &a).await;
    let lock = file.open_at(2, Duration::ZERO, Duration::ZERO).await;
    assert_eq!(lock.try_lock(&b).await.unwrap(), None);
    let status = lock.inspect(&a.name).await.unwrap().into_holder().unwrap();
    assert!(status.remaining <= SHORT && status.held_for <= SHORT);
    timeout(Duration::from_secs(5), lock.lock(&b)).await.unwrap().unwrap();
    // More left than the lease is long: the wall clock went back since, and nobody may wait for it to catch up.
    let back = file.open_at(3, Duration::ZERO, Duration::from_secs(3600)).await;
    taken(&back, &claim("job", "c", SHORT)).await;
}

#[tokio::test]
async fn tokens_rise_over_clean_up() {
    let file = File::new();
    let lock = file.open().await;
    let a = claim("job", "a", LEASE);
    let first = taken(&lock, &a).await;
    lock.unlock(&a).await.unwrap();
    let mut raw = file.raw().await;
    sqlx::raw_sql(
        "UPDATE oarlock_lock SET expires_wall_us = expires_wall_us - 2 * 86400000000;
         UPDATE oarlock_meta SET value = 0 WHERE key = 'swept'",
    )
    .execute(&mut raw)
    .await
    .unwrap();
    taken(&lock, &claim("kept", "k", LEASE)).await;
    let back = file.open_at(1, Duration::ZERO, Duration::from_secs(3600)).await;
    timeout(Duration::from_secs(20), async {
        let left = "SELECT name FROM oarlock_lock";
        while sqlx::query_scalar::<_, String>(left).fetch_all(&mut raw).await.unwrap() != ["t/kept"] {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("what was free for a day goes");
    assert!(taken(&back, &a).await.token > first.token, "though the row is gone and the clock went back");
}

#[tokio::test]
async fn what_is_held_can_be_listed_and_evicted() {
    let file = File::new();
    let lock = file.open().await;
    let names = ["a%1", "a%2", "a_1", "ab", "b"];
    for name in names {
        taken(&lock, &claim(name, &format!("owner of {name}"), LEASE)).await;
    }
    taken(&SqliteLock::open(file.path(), "tt").await.unwrap(), &claim("a%3", "x", LEASE)).await;
    taken(&lock, &claim("free", "f", LEASE)).await;
    lock.unlock(&claim("free", "f", LEASE)).await.unwrap();
    let waiter = claim("b", "waiter", LEASE);
    let other = file.open().await;
    let evicted = tokio::spawn(async move { other.lock(&waiter).await });
    in_line(&lock, &LockName::new("b").unwrap(), 1).await;

    let list = async |prefix: &str, limit| {
        let (mut found, mut pages, mut after) = (Vec::new(), 0, None);
        loop {
            let query = ListQuery::new(prefix).after(after).limit(limit);
            let page = lock.list(&query).await.unwrap();
            assert!(page.locks.len() <= limit);
            found.extend(page.locks.iter().map(|status| status.name.to_string()));
            pages += 1;
            after = page.next;
            if after.is_none() {
                return (found, pages);
            }
        }
    };
    assert_eq!(list("", 1000).await, (names.map(String::from).to_vec(), 1));
    assert_eq!(list("", 2).await, (names.map(String::from).to_vec(), 3));
    assert_eq!(list("a%", 1).await, (vec!["a%1".to_owned(), "a%2".to_owned()], 2));
    assert_eq!(list("a_", 5).await.0, ["a_1"]);
    assert_eq!(list("c", 5).await.0, Vec::<String>::new());

    let holder = lock.evict(&LockName::new("b").unwrap()).await.unwrap().unwrap();
    assert_eq!(holder.owner.as_str(), "owner of b");
    assert!(holder.remaining <= LEASE && holder.held_for < LEASE);
    timeout(Duration::from_millis(900), evicted).await.expect("told, and not by the tick").unwrap().unwrap();
    assert!(matches!(lock.renew(&[claim("b", "owner of b", LEASE)]).await[..], [Ok(Renewal::NotHeld)]));
    assert_eq!(lock.evict(&LockName::new("free").unwrap()).await.unwrap(), None);
}

#[tokio::test]
async fn many_clients_that_open_at_once_all_do() {
    let file = File::new();
    let opening: Vec<_> = (0..16)
        .map(|_| {
            let path = file.path();
            tokio::spawn(async move { SqliteLock::open(path, "t").await })
        })
        .collect();
    let mut locks = Vec::new();
    for lock in opening {
        locks.push(lock.await.unwrap().unwrap());
    }
    let mut granted = 0;
    for (number, lock) in locks.iter().enumerate() {
        granted += usize::from(lock.try_lock(&claim("job", &number.to_string(), LEASE)).await.unwrap().is_some());
    }
    assert_eq!(granted, 1);
    assert!(locks[0].doctor().await.unwrap().is_empty());
}

#[test]
fn a_client_may_be_dropped_without_a_runtime_and_used_on_another() {
    let file = File::new();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (a, b) = (claim("job", "a", SHORT), claim("job", "b", LEASE));
    let lock = runtime().block_on(async {
        let lock = file.open().await;
        taken(&lock, &a).await;
        lock
    });
    runtime().block_on(async { lock.lock(&b).await.unwrap() });
    drop(lock);
}

#[tokio::test]
async fn a_closed_client_says_so() {
    let file = File::new();
    let lock = file.open().await;
    lock.close().await.unwrap();
    lock.close().await.unwrap();
    assert_eq!(lock.try_lock(&claim("job", "a", LEASE)).await.unwrap_err().kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn options_are_checked_and_debug_is_short() {
    let file = File::new();
    for options in [
        SqliteOptions::new(file.path()).prefix("a\n"),
        SqliteOptions::new(file.path()).busy(Duration::from_secs(7200)),
        SqliteOptions::new(""),
    ] {
        assert_eq!(options.open().await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    let lock = SqliteOptions::new(file.path()).with_clock(std::sync::Arc::new(SystemClock)).open().await.unwrap();
    taken(&lock, &claim("job", "secret-owner", LEASE)).await;
    let shown = format!("{lock:?}");
    assert!(shown.contains("locks.db") && !shown.contains("secret"), "{shown}");
}
