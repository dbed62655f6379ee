//! Holds that outlive their owner, and what holds show, as they stand in the file.

use lock_core::{Kept, LockValue, Proclaimed};

use super::*;

/// The lock's row, but for its name: owner, lease, start and end, token.
type Row = (Option<String>, i64, i64, i64, i64);

async fn row(file: &File, key: &str) -> Row {
    let query = "SELECT owner, lease_us, since_us, expires_us, token FROM oarlock_lock WHERE name = ?1";
    sqlx::query_as(query).bind(key).fetch_one(&mut file.raw().await).await.unwrap()
}

fn showing(name: &str, owner: &str, value: &str) -> Claim {
    let mut claim = claim(name, owner, LEASE);
    claim.value = Some(LockValue::new(value).unwrap());
    claim
}

/// Owners and values.
async fn values(file: &File) -> Vec<(String, String)> {
    let query = "SELECT owner, value FROM oarlock_value ORDER BY owner";
    sqlx::query_as(query).fetch_all(&mut file.raw().await).await.unwrap()
}

async fn shown(lock: &SqliteLock, name: &LockName) -> Option<String> {
    let holder = lock.holder(name).await.unwrap()?;
    holder.value.map(|value| value.as_str().to_owned())
}

#[tokio::test]
async fn nothing_that_comes_late_changes_a_kept_hold() {
    let file = File::new();
    let lock = file.open().await;
    let a = showing("job", "a", "shown");
    let grant = taken(&lock, &a).await;
    let before = row(&file, "t/job").await;
    let rest = LEASE * 2;
    assert_eq!(lock.keep(&a, rest).await.unwrap(), Kept::Kept);
    let kept = row(&file, "t/job").await;
    assert_eq!((kept.0.as_deref(), kept.1), (Some("kept#a"), rest.as_micros() as i64));
    assert_eq!((kept.2, kept.4), (before.2, before.4), "its start and token stay");
    assert!(kept.3 > before.3);
    // Another client has the requests that come late, as a process has that was forked.
    let late = file.open().await;
    assert_eq!(late.keep(&a, LEASE * 9).await.unwrap(), Kept::Kept);
    assert_eq!(late.try_lock(&a).await.unwrap(), None);
    assert!(matches!(late.renew(std::slice::from_ref(&a)).await[..], [Ok(Renewal::NotHeld)]));
    assert_eq!(late.proclaim(&a, &LockValue::new("late").unwrap()).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(late.unlock(&a).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(row(&file, "t/job").await, kept);
    assert_eq!(shown(&late, &a.name).await.as_deref(), Some("shown"));
    let evicted = lock.evict(&a.name).await.unwrap().unwrap();
    assert_eq!((evicted.kept, &evicted.owner, evicted.token), (true, &a.owner, grant.token));
    assert_eq!(lock.keep(&a, LEASE).await.unwrap(), Kept::NotHeld);
    assert_eq!(late.holder(&a.name).await.unwrap(), None);
}

#[tokio::test]
async fn who_is_first_in_line_is_told_of_an_earlier_end() {
    let file = File::new();
    let (lock, other) = (file.open().await, file.open().await);
    let held = claim("job", "holder", LEASE);
    taken(&lock, &held).await;
    let waiting = tokio::spawn(async move { other.lock(&claim("job", "waiter", LEASE)).await.map(|_| Real::now()) });
    in_line(&lock, &held.name, 1).await;
    // Until then it sleeps for a tick.
    tokio::time::sleep(Duration::from_millis(50)).await;
    let kept = Real::now();
    assert_eq!(lock.keep(&held, SHORT).await.unwrap(), Kept::Kept);
    let took = waiting.await.unwrap().unwrap().duration_since(kept);
    assert!(took >= SHORT && took < Duration::from_millis(900), "granted after {took:?}");
}

#[tokio::test]
async fn a_hold_whose_lease_is_over_cannot_be_kept() {
    let file = File::new();
    let a = claim("job", "a", SHORT);
    taken(&file.open_at(1, Duration::ZERO, Duration::ZERO).await, &a).await;
    for (boot, later) in [(1, LEASE), (2, Duration::ZERO)] {
        let lock = file.open_at(boot, later, Duration::ZERO).await;
        assert_eq!(lock.keep(&a, LEASE).await.unwrap(), Kept::NotHeld);
    }
    assert_eq!(row(&file, "t/job").await.0.as_deref(), Some("a"));
}

#[tokio::test]
async fn a_kept_hold_goes_on_by_the_wall_clock_after_a_reboot() {
    let file = File::new();
    let hour = Duration::from_secs(3600);
    let (a, b) = (claim("job", "a", SHORT), claim("job", "b", LEASE));
    // An hour ago.
    let lock = file.open_at(1, Duration::from_secs(900_000), hour).await;
    taken(&lock, &a).await;
    assert_eq!(lock.keep(&a, hour + LEASE).await.unwrap(), Kept::Kept);
    let rebooted = file.open_at(2, Duration::ZERO, Duration::ZERO).await;
    assert_eq!(rebooted.try_lock(&b).await.unwrap(), None);
    let holder = rebooted.holder(&a.name).await.unwrap().unwrap();
    assert!(holder.kept && holder.remaining <= LEASE && holder.held_for >= hour, "{holder:?}");
    assert!(rebooted.evict(&a.name).await.unwrap().is_some_and(|evicted| evicted.kept));

    let a = claim("over", "a", SHORT);
    taken(&lock, &a).await;
    assert_eq!(lock.keep(&a, hour).await.unwrap(), Kept::Kept);
    assert_eq!(rebooted.holder(&a.name).await.unwrap(), None);
    taken(&rebooted, &claim("over", "b", LEASE)).await;
}

/// As on a host whose clock begins in 1970 and is set later: a job must not be run again meanwhile.
#[tokio::test]
async fn a_kept_hold_does_not_end_because_the_wall_clock_went_back() {
    let file = File::new();
    let hour = Duration::from_secs(3600);
    let up = Duration::from_micros(HostClock::shifted(1, 0, 0).now().host_us as u64);
    let (a, b) = (claim("job", "a", LEASE), claim("job", "b", LEASE));
    let lock = file.open_at(1, Duration::ZERO, Duration::ZERO).await;
    taken(&lock, &a).await;
    assert_eq!(lock.keep(&a, up + LEASE).await.unwrap(), Kept::Kept);
    let back = file.open_at(2, Duration::ZERO, hour).await;
    assert_eq!(back.try_lock(&b).await.unwrap(), None);
    let holder = back.holder(&a.name).await.unwrap().unwrap();
    assert!(holder.kept && holder.remaining <= LEASE, "its time from the start of the host: {holder:?}");
    // And not for ever, though that clock may have been far ahead before.
    let later = file.open_at(2, LEASE, hour).await;
    assert_eq!(later.evict(&a.name).await.unwrap(), None);
    taken(&later, &b).await;
}

#[tokio::test]
async fn a_value_goes_with_its_hold() {
    let file = File::new();
    let (lock, other) = (file.open().await, file.open().await);
    let (a, b) = (showing("job", "a", "of a"), showing("job", "b", "of b"));
    let row = |owner: &str, value: &str| (owner.to_owned(), value.to_owned());
    taken(&lock, &a).await;
    assert_eq!(values(&file).await, [row("a", "of a")]);
    assert_eq!(lock.try_lock(&b).await.unwrap(), None);
    assert_eq!(values(&file).await, [row("a", "of a")], "who is refused leaves nothing");
    let waiter = b.clone();
    let waiting = tokio::spawn(async move {
        other.lock(&waiter).await.unwrap();
        other
    });
    in_line(&lock, &a.name, 1).await;
    assert_eq!(shown(&lock, &a.name).await.as_deref(), Some("of a"));
    assert_eq!(lock.unlock(&a).await.unwrap(), Unlocked::Released);
    let other = waiting.await.unwrap();
    assert_eq!(shown(&lock, &a.name).await.as_deref(), Some("of b"));
    assert_eq!(values(&file).await, [row("b", "of b")]);
    assert!(lock.evict(&a.name).await.unwrap().is_some_and(|holder| holder.value == b.value));
    assert_eq!(values(&file).await, []);
    assert_eq!(other.proclaim(&b, &LockValue::new("late").unwrap()).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(other.unlock(&b).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(values(&file).await, []);
}

#[tokio::test]
async fn a_waiter_that_gives_up_leaves_no_value() {
    let file = File::new();
    let lock = file.open().await;
    taken(&lock, &claim("job", "holder", LEASE)).await;
    for polls in 0..20 {
        let quitter = showing("job", &format!("q{polls}"), "never seen");
        {
            let mut wait = Box::pin(lock.lock(&quitter));
            for _ in 0..polls {
                let _ = timeout(Duration::ZERO, &mut wait).await;
            }
        }
        assert_eq!(lock.unlock(&quitter).await.unwrap(), Unlocked::NotHeld);
        assert_eq!(values(&file).await, []);
    }
}

#[tokio::test]
async fn values_of_the_dead_are_swept() {
    let file = File::new();
    let lock = file.open().await;
    let (held, kept) = (showing("held", "h", "held"), showing("kept", "k", "kept"));
    for claim in [&held, &kept] {
        taken(&lock, claim).await;
    }
    assert_eq!(lock.keep(&kept, LEASE).await.unwrap(), Kept::Kept);
    let mut raw = file.raw().await;
    sqlx::raw_sql(
        "INSERT INTO oarlock_value SELECT name, 'dead', 'x', at_us FROM oarlock_value;
         UPDATE oarlock_value SET at_us = at_us - 61000000;
         INSERT INTO oarlock_value SELECT name, 'comes', 'x', at_us + 61000000 FROM oarlock_value WHERE owner = 'h';
         UPDATE oarlock_meta SET value = 0 WHERE key = 'swept'",
    )
    .execute(&mut raw)
    .await
    .unwrap();
    // Another client sweeps with its first grant.
    let other = file.open().await;
    taken(&other, &claim("other", "o", LEASE)).await;
    timeout(Duration::from_secs(20), async {
        while values(&file).await.len() != 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("what nobody sees goes");
    let left: Vec<_> = values(&file).await.into_iter().map(|(owner, _)| owner).collect();
    assert_eq!(left, ["comes", "h", "k"]);
    assert_eq!(shown(&lock, &kept.name).await.as_deref(), Some("kept"));
}

#[tokio::test]
async fn a_file_of_an_earlier_release_gets_values() {
    let file = File::new();
    sqlx::raw_sql(SCHEMA).execute(&mut file.raw().await).await.unwrap();
    let lock = file.open().await;
    assert_eq!(lock.holder(&LockName::new("job").unwrap()).await.unwrap(), None);
    taken(&lock, &showing("job", "a", "new")).await;
    assert_eq!(shown(&lock, &LockName::new("job").unwrap()).await.as_deref(), Some("new"));
}

#[tokio::test]
async fn a_waiter_shows_its_value_in_the_file_that_replaced_its_own() {
    let file = File::new();
    let (lock, waiting) = (file.open().await, file.open().await);
    let (held, waits) = (claim("job", "a", LEASE), showing("job", "w", "moved"));
    taken(&lock, &held).await;
    let waiter = tokio::spawn(async move { waiting.lock(&waits).await });
    in_line(&lock, &held.name, 1).await;
    std::fs::rename(file.path(), file.folder.path().join("away.db")).unwrap();
    timeout(Duration::from_secs(5), waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(shown(&file.open().await, &held.name).await.as_deref(), Some("moved"));
    assert_eq!(lock.keep(&held, LEASE).await.unwrap(), Kept::NotHeld, "it was lost with its file");
}
