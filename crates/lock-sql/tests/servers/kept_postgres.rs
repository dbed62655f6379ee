//! PostgreSQL: what the tables say of holds that go on without their owners, and of values.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::by_hand::{client, number, raw, run, text};
use crate::by_sessions;
use crate::common::{LONG, claim, granted, in_background, in_line, lasting, renewed, showing, until};
use futures_util::future::join_all;
use lock_core::{Claim, DistributedLock, ErrorKind, Kept, LockName, LockValue, Proclaimed, Renewal, Unlocked};
use lock_sql::{PostgresLock, PostgresSessionLock, ServerOptions};
use sqlx::{Connection, Executor};
use test_servers::{PgBouncer, PostgresServer, Proxy};

const HOUR: Duration = Duration::from_secs(3600);

/// All of the row of the lock `x`.
const ROW: &str = "SELECT l::text FROM oarlock_lock AS l WHERE name = 'oarlock/x'";

/// The row has another owner from then on, the same token, and the new end; the value stays its first owner's. What the first
/// owner asks late changes nothing, and whoever evicts the hold leaves nothing of it.
#[tokio::test]
async fn a_kept_hold_is_a_row_of_another_owner() {
    let server = PostgresServer::start();
    let lock = client(&server).await;
    let held = showing(claim("x", "a@b:1#c"), "first");
    let grant = lock.try_lock(&held).await.unwrap().unwrap();
    assert_eq!(lock.proclaim(&held, &LockValue::new("second").unwrap()).await.unwrap(), Proclaimed::Shown);
    let since = number(&server, "SELECT since_us FROM oarlock_lock").await;
    assert_eq!(lock.keep(&held, HOUR).await.unwrap(), Kept::Kept);
    let row = text(&server, ROW).await;
    let said = "SELECT owner || ' ' || token || ' ' || since_us || ' ' || lease_us FROM oarlock_lock";
    let expected = format!("kept#a@b:1#c {} {since} {}", grant.token.get(), HOUR.as_micros());
    assert_eq!(text(&server, said).await, expected);
    let left = number(&server, "SELECT expires_us - oarlock_now() FROM oarlock_lock").await;
    assert!(left > i64::try_from((HOUR - LONG).as_micros()).unwrap() && left <= 3_600_000_000, "{left}");
    let values = "SELECT string_agg(owner || ' ' || name || ' ' || value, ', ') FROM oarlock_value";
    assert_eq!(text(&server, values).await, "a@b:1#c oarlock/x second");

    // Requests of the first owner that come late, over every way there is.
    assert_eq!(renewed(&*lock, &held).await, Renewal::NotHeld);
    assert_eq!(lock.proclaim(&held, &LockValue::new("late").unwrap()).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(lock.try_lock(&held).await.unwrap(), None);
    assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::Kept);
    for late in [
        "SELECT oarlock_acquire('oarlock/x', 'a@b:1#c', 1, NULL, 0)",
        "SELECT oarlock_acquire_free(ARRAY['oarlock/x'], ARRAY['a@b:1#c'], ARRAY[1])",
        "CALL oarlock_release('oarlock/x', 'a@b:1#c', false, true, NULL)",
        "CALL oarlock_release('oarlock/x', 'a@b:1#c', true, true, NULL)",
        "CALL oarlock_release_showing('oarlock/x', 'a@b:1#c', true, true, NULL)",
    ] {
        run(&server, late).await;
    }
    assert_eq!(text(&server, ROW).await, row);
    assert_eq!(text(&server, values).await, "a@b:1#c oarlock/x second");

    let evicted = lock.evict(&held.name).await.unwrap().unwrap();
    assert!(evicted.kept && evicted.owner == held.owner && evicted.value.unwrap().as_str() == "second");
    assert_eq!(number(&server, "SELECT count(*) FROM oarlock_value").await, 0);
    assert_eq!(lock.keep(&held, HOUR).await.unwrap(), Kept::NotHeld);
    assert!(lock.try_lock(&claim("x", "next")).await.unwrap().unwrap().token > grant.token);
}

/// An acquisition of an owner that kept its hold is still on its way: it leaves no waiter.
#[tokio::test]
async fn what_comes_after_its_owner_has_gone_is_refused() {
    let server = PostgresServer::start();
    let lock = client(&server).await;
    let held = claim("x", "holder");
    // Given up, before anybody knows what became of it: it waits for the row.
    lock.try_lock(&claim("x", "first")).await.unwrap().unwrap();
    lock.unlock(&claim("x", "first")).await.unwrap();
    let mut another = raw(&server).await;
    let mut transaction = another.begin().await.unwrap();
    transaction.execute("SELECT FROM oarlock_lock FOR UPDATE").await.unwrap();
    tokio::time::timeout(Duration::from_millis(200), lock.try_lock(&held)).await.unwrap_err();
    transaction.rollback().await.unwrap();
    lock.try_lock(&held).await.unwrap().unwrap();
    assert_eq!(lock.keep(&held, HOUR).await.unwrap(), Kept::Kept);
    let late = "SELECT (oarlock_acquire('oarlock/x', 'holder', 1000, 1, 1))[2] IS NULL";
    assert!(sqlx::query_scalar::<_, bool>(late).fetch_one(&mut raw(&server).await).await.unwrap());
    assert_eq!(in_line(&*lock, "x").await, 0);
    assert_eq!(number(&server, "SELECT count(*) FROM oarlock_waiter").await, 0);
    // Nothing of that is left for others.
    assert_eq!(lock.keep(&claim("x", "other"), HOUR).await.unwrap(), Kept::NotHeld);
    assert_eq!(number(&server, "SELECT count(*) FROM oarlock_gone").await, 1);
}

/// Requests that are sent together find kept holds to be another's, and free none of them.
#[tokio::test]
async fn requests_sent_together_leave_kept_holds() {
    const NAMES: usize = 24;
    let server = PostgresServer::start();
    // Few connections, so that most requests are sent with others.
    let options = ServerOptions::new(&server.url()).unwrap().connections(2);
    let lock = Arc::new(PostgresLock::with(options).await.unwrap());
    let claims: Vec<_> = (0..NAMES).map(|at| claim(&format!("n{at}"), &format!("o{at}"))).collect();
    let tries = async |claims: &[Claim]| {
        let tried = join_all(claims.iter().map(|claim| lock.try_lock(claim))).await;
        tried.into_iter().map(|granted| granted.unwrap().is_some()).collect::<Vec<_>>()
    };
    assert_eq!(tries(&claims).await, [true; NAMES]);
    let (kept, released) = claims.split_at(NAMES / 2);
    let keeping = join_all(kept.iter().map(|claim| lock.keep(claim, HOUR))).await;
    assert!(keeping.into_iter().all(|kept| kept.unwrap() == Kept::Kept));
    let unlocked = join_all(claims.iter().map(|claim| lock.unlock(claim))).await;
    let unlocked: Vec<_> = unlocked.into_iter().map(|unlocked| unlocked.unwrap() == Unlocked::Released).collect();
    let halves: Vec<_> = (0..NAMES).map(|at| at >= NAMES / 2).collect();
    assert_eq!(unlocked, halves);
    let others: Vec<_> = claims.iter().map(|held| claim(held.name.as_str(), &format!("other {}", held.name))).collect();
    assert_eq!(tries(&others).await, halves);
    let of =
        async |whose| number(&server, &format!("SELECT count(*) FROM oarlock_lock WHERE owner LIKE '{whose}%'")).await;
    assert_eq!([of("kept#o").await, of("other ").await], [kept.len() as i64, released.len() as i64]);
}

/// Over connections that a pooler lends, where each request is in a transaction that another begins and ends.
#[tokio::test]
async fn behind_a_pooler() {
    let server = PostgresServer::start();
    let pooler = PgBouncer::start(&server);
    let options = ServerOptions::new(&pooler.url()).unwrap().pooler(true);
    let lock = Arc::new(PostgresLock::with(options).await.unwrap());
    let held = showing(claim("x", "holder"), "first");
    lock.try_lock(&held).await.unwrap().unwrap();
    let next = showing(claim("x", "next"), "next");
    let waiting = in_background(&lock, &next);
    until("one in line", async || in_line(&*lock, "x").await == 1).await;
    assert_eq!(lock.proclaim(&held, &LockValue::new("second").unwrap()).await.unwrap(), Proclaimed::Shown);
    // Long enough to be seen.
    assert_eq!(lock.keep(&held, Duration::from_secs(3)).await.unwrap(), Kept::Kept);
    let kept = lock.holder(&held.name).await.unwrap().unwrap();
    assert!(kept.kept && kept.value.unwrap().as_str() == "second");
    granted(waiting).await;
    assert_eq!(lock.holder(&held.name).await.unwrap().unwrap().value, next.value);
    let last = in_background(&lock, &claim("x", "last"));
    until("one in line", async || in_line(&*lock, "x").await == 1).await;
    assert_eq!(lock.unlock(&next).await.unwrap(), Unlocked::Released);
    granted(last).await;
    assert_eq!(lock.holder(&held.name).await.unwrap().unwrap().value, None);
}

/// The end comes sooner than that of the lease, and the first in line hears of it: it would look only seconds later.
#[tokio::test]
async fn who_waits_is_told_of_an_earlier_end() {
    let server = PostgresServer::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let held = claim("x", "holder");
    one.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&two, &claim("x", "next"));
    until("one in line", async || in_line(&*one, "x").await == 1).await;
    let began = Instant::now();
    assert_eq!(one.keep(&held, Duration::from_millis(300)).await.unwrap(), Kept::Kept);
    granted(waiting).await;
    let took = began.elapsed();
    assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(4), "after {took:?}");
}

/// 83. The server's clock is set back by an hour: what is kept for a second is kept for a second from then on, and not for
/// an hour.
#[tokio::test]
async fn a_clock_that_is_set_back_keeps_nothing_for_longer() {
    let (server, clock) = PostgresServer::start_with_clock();
    let lock = client(&server).await;
    let held = claim("x", "holder");
    let first = lock.try_lock(&held).await.unwrap().unwrap();
    assert_eq!(lock.keep(&held, Duration::from_secs(1)).await.unwrap(), Kept::Kept);
    clock.behind(HOUR);
    assert!(lock.try_lock(&claim("x", "early")).await.unwrap().is_none());
    assert!(granted(in_background(&lock, &claim("x", "next"))).await.token > first.token);
}

/// A value goes when nobody holds or waits with it any more, and not as long as somebody does. A release leaves none, nor does
/// whoever leaves the line, nor an attempt that was denied.
#[tokio::test]
async fn values_go_with_their_owners() {
    const VALUES: &str = "SELECT coalesce(string_agg(owner, ' ' ORDER BY owner), '') FROM oarlock_value";
    let server = PostgresServer::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let (held, kept) = (showing(claim("x", "holder"), "1"), showing(claim("y", "kept"), "2"));
    let (waits, denied) = (showing(claim("x", "waiter"), "3"), showing(claim("x", "denied"), "4"));
    one.try_lock(&held).await.unwrap().unwrap();
    one.try_lock(&kept).await.unwrap().unwrap();
    assert_eq!(one.keep(&kept, HOUR).await.unwrap(), Kept::Kept);
    let waiting = in_background(&two, &waits);
    until("one in line", async || in_line(&*one, "x").await == 1).await;
    assert_eq!(one.try_lock(&denied).await.unwrap(), None);
    // Its lease is over, and another has the lock.
    let lost = showing(lasting("z", "lost", Duration::from_millis(10)), "5");
    one.try_lock(&lost).await.unwrap().unwrap();
    granted(in_background(&one, &claim("z", "next"))).await;
    assert_eq!(text(&server, VALUES).await, "holder kept lost waiter");
    run(&server, "UPDATE oarlock_value SET at_us = 0").await;
    // It sweeps when it connects.
    until("the sweep", async || {
        let sweeper = client(&server).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        sweeper.close().await.unwrap();
        text(&server, VALUES).await == "holder kept waiter"
    })
    .await;
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::Released);
    granted(waiting).await;
    assert_eq!(text(&server, VALUES).await, "kept waiter");
    let leaves = showing(claim("x", "leaves"), "6");
    let leaving = in_background(&one, &leaves);
    until("one in line", async || in_line(&*two, "x").await == 1).await;
    leaving.abort();
    let _ = leaving.await;
    assert_eq!(one.unlock(&leaves).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(two.unlock(&waits).await.unwrap(), Unlocked::Released);
    assert_eq!(text(&server, VALUES).await, "kept");
    assert!(one.holder(&LockName::new("y").unwrap()).await.unwrap().unwrap().value.is_some());
}

/// Holders show one thing after the other, and somebody evicts them all the time: nobody waits in a circle for somebody else,
/// each sees what its holder showed, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_show_values_while_they_are_evicted() {
    const TASKS: usize = 6;
    const ROUNDS: usize = 15;
    let server = PostgresServer::start();
    let sessions = ServerOptions::new(&server.url()).unwrap().table("sessions").unwrap();
    let stores: [(&str, Arc<dyn DistributedLock>); 2] = [
        ("oarlock", client(&server).await),
        ("sessions", Arc::new(PostgresSessionLock::with(sessions).await.unwrap())),
    ];
    for (table, lock) in stores {
        let name = LockName::new("x").unwrap();
        let task = |number: usize| {
            let lock = Arc::clone(&lock);
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let held = showing(claim("x", &format!("o-{number}-{round}")), &format!("o-{number}-{round}"));
                    lock.lock(&held).await.unwrap();
                    let other = LockValue::new(format!("o-{number}-{round} again")).unwrap();
                    let (shown, unlocked) = tokio::join!(lock.proclaim(&held, &other), async {
                        if round % 2 == 0 { lock.unlock(&held).await.map(Some) } else { Ok(None) }
                    });
                    shown.unwrap();
                    // Whose session was ended with its hold may not learn from the first release what ended it.
                    if let Err(error) = unlocked {
                        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
                    }
                    if lock.unlock(&held).await.is_err() {
                        lock.unlock(&held).await.unwrap();
                    }
                }
            })
        };
        let tasks = join_all((0..TASKS).map(task));
        let evicting = async {
            loop {
                if let Some(holder) = lock.evict(&name).await.unwrap() {
                    let shown = holder.value.expect("whoever holds it shows something");
                    assert!(shown.as_str().starts_with(holder.owner.as_str()), "{shown}");
                }
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        };
        tokio::select! {
            ended = tasks => ended.into_iter().for_each(|ended| ended.unwrap()),
            () = evicting => {}
        }
        assert_eq!(lock.holder(&name).await.unwrap(), None);
        // But for the marks of who was evicted, which are swept.
        let left = format!("SELECT count(*) FROM {table}_value WHERE owner NOT LIKE 'evicted#%'");
        assert_eq!(number(&server, &left).await, 0, "{table}");
        lock.close().await.unwrap();
    }
    // The server counts them when a session ends.
    assert_eq!(number(&server, "SELECT sum(deadlocks)::bigint FROM pg_stat_database").await, 0);
}

/// Tables that were made before there were values are refused, and told from broken ones.
#[tokio::test]
async fn tables_of_the_version_before() {
    let server = PostgresServer::start();
    client(&server).await;
    let sessions = || ServerOptions::new(&server.url()).unwrap().table("sessions").unwrap();
    PostgresSessionLock::with(sessions()).await.unwrap();
    for table in ["oarlock", "sessions"] {
        let before =
            format!("UPDATE {table}_meta SET value = 4 WHERE key = 'version'; DROP TABLE {table}_value CASCADE");
        run(&server, &before).await;
    }
    let rows = PostgresLock::connect(&server.url(), "oarlock").await.unwrap_err();
    let sessions = PostgresSessionLock::with(sessions()).await.unwrap_err();
    for (error, known) in [(rows, "version 7"), (sessions, "version 8")] {
        assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        assert!(error.to_string().contains("version 4") && error.to_string().contains(known), "{error}");
    }
}

/// 256. A release is done, or a hold is kept, and the answer is lost: nobody says that the lock was not held until then.
#[tokio::test]
async fn an_end_whose_answer_is_lost_is_unknown() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let lock = PostgresLock::connect(&PostgresServer::url_at(proxy.address()), "oarlock").await.unwrap();
    by_sessions::ended_unheard(Arc::new(lock), &proxy, &*client(&server).await).await;
}
