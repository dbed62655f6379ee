//! PostgreSQL's locks by sessions: what is left of a session that has gone, where its hold goes on.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::by_hand::{run, session_client as client, text};
use crate::common::{LONG, claim, granted, in_background, in_line, renewed, showing, until};
use lock_core::{DistributedLock, ErrorKind, Kept, LockValue, Proclaimed, Renewal, Unlocked};
use lock_sql::{PostgresSessionLock, ServerOptions};
use test_servers::{PostgresServer, Proxy};

const HOUR: Duration = Duration::from_secs(3600);

/// How many sessions have an advisory lock, or wait for one.
const LOCKS: &str = "SELECT count(*)::text FROM pg_locks WHERE locktype = 'advisory'";

/// The note of the lock `x`.
const NOTE: &str =
    "SELECT owner || ' ' || token || ' ' || pid || ' ' || lease_us FROM oarlock_hold WHERE name = 'oarlock/x'";

/// It is a note that names no session, and the one that it had serves others: who evicts the hold does not end that.
#[tokio::test]
async fn a_kept_hold_has_no_session() {
    let server = PostgresServer::start();
    let (one, two) = (client(&server).await, client(&server).await);
    let held = showing(claim("x", "holder"), "shown");
    let grant = one.try_lock(&held).await.unwrap().unwrap();
    assert_eq!(one.keep(&held, HOUR).await.unwrap(), Kept::Kept);
    assert_eq!(text(&server, LOCKS).await, "0");
    let note = format!("kept#holder {} 0 {}", grant.token.get(), HOUR.as_micros());
    assert_eq!(text(&server, NOTE).await, note);
    // In the same session.
    let another = claim("y", "holder of y");
    one.try_lock(&another).await.unwrap().unwrap();
    assert_eq!(text(&server, "SELECT count(DISTINCT pid)::text FROM oarlock_hold WHERE pid <> 0").await, "1");

    assert_eq!(two.try_lock(&claim("x", "other")).await.unwrap(), None);
    assert_eq!(renewed(&*one, &held).await, Renewal::NotHeld);
    assert_eq!(one.proclaim(&held, &LockValue::new("late").unwrap()).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(one.keep(&held, LONG).await.unwrap(), Kept::Kept);
    assert_eq!(text(&server, NOTE).await, note);

    // Who is the first to wait is seen, as all others are.
    let waiting = ["first", "second"].map(|owner| {
        let claim = claim("x", owner);
        let waiting = in_background(&two, &claim);
        (claim, waiting)
    });
    until("both are seen", async || in_line(&*one, "x").await == 2).await;
    let evicted = two.evict(&held.name).await.unwrap().unwrap();
    assert!(evicted.kept && evicted.owner == held.owner && evicted.value.unwrap().as_str() == "shown");
    assert_eq!(text(&server, "SELECT count(*)::text FROM oarlock_value").await, "0");
    assert!(matches!(renewed(&*one, &another).await, Renewal::Held { .. }));
    let [(one_claim, one_waits), (other_claim, other_waits)] = waiting;
    until("one is granted", async || one_waits.is_finished() || other_waits.is_finished()).await;
    let first = if one_waits.is_finished() { &one_claim } else { &other_claim };
    let status = one.inspect(&held.name).await.unwrap();
    assert_eq!((status.waiters.len(), &status.into_holder().unwrap().owner), (1, &first.owner));
    assert_eq!(two.unlock(first).await.unwrap(), Unlocked::Released);
    assert!(granted(one_waits).await.token > grant.token);
    granted(other_waits).await;
}

/// The session has ended before, or its answer is lost: the hold is kept over another connection, and nothing of the session
/// is left.
#[tokio::test]
async fn a_hold_is_kept_without_its_session() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let options = ServerOptions::new(&PostgresServer::url_at(proxy.address())).unwrap();
    let one = Arc::new(PostgresSessionLock::with(options.timeout(Duration::from_secs(6))).await.unwrap());
    let two = client(&server).await;
    for how in ["ended", "reset", "given up", "elsewhere"] {
        let held = claim("x", how);
        let first = one.try_lock(&held).await.unwrap().unwrap();
        let by = match how {
            "ended" => {
                run(&server, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'").await;
                &one
            }
            "reset" => {
                proxy.reset();
                &one
            }
            "given up" => {
                proxy.hold_s2c();
                let keeping = one.keep(&held, HOUR);
                tokio::time::timeout(Duration::from_millis(500), keeping).await.unwrap_err();
                proxy.forward();
                &one
            }
            _ => &two,
        };
        assert_eq!(by.keep(&held, HOUR).await.unwrap(), Kept::Kept, "{how}");
        until("no session has it", async || text(&server, LOCKS).await == "0").await;
        assert_eq!(two.try_lock(&claim("x", "early")).await.unwrap(), None);
        let holder = two.evict(&held.name).await.unwrap().unwrap();
        assert!(holder.kept && holder.token == first.token && holder.owner == held.owner, "{how}");
        if how == "elsewhere" {
            // Its session is gone with the answer: had it kept the hold itself, which then was evicted?
            assert_eq!(one.keep(&held, HOUR).await.unwrap_err().kind(), ErrorKind::Unknown);
        }
        assert_eq!(one.keep(&held, HOUR).await.unwrap(), Kept::NotHeld);
        assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    }
}

/// Some wait in line, and others come all the time, while holds are kept: nobody is granted the lock sooner than its time is
/// over.
#[tokio::test]
async fn nobody_slips_in_while_a_hold_is_kept() {
    const REST: Duration = Duration::from_millis(250);
    let server = PostgresServer::start();
    let (one, two, three) = (client(&server).await, client(&server).await, client(&server).await);
    for round in 0..8 {
        let held = claim("x", &format!("holder {round}"));
        one.lock(&held).await.unwrap();
        let next = claim("x", &format!("next {round}"));
        let waiting = in_background(&two, &next);
        until("it waits", async || in_line(&*one, "x").await == 1).await;
        let began = Instant::now();
        let trying = async {
            let mut granted = Vec::new();
            for number in 0.. {
                let claim = claim("x", &format!("tries {round} {number}"));
                if three.try_lock(&claim).await.unwrap().is_some() {
                    granted.push(began.elapsed());
                    three.unlock(&claim).await.unwrap();
                }
                if waiting.is_finished() {
                    break;
                }
            }
            granted
        };
        let (kept, tried) = tokio::join!(one.keep(&held, REST), trying);
        assert_eq!(kept.unwrap(), Kept::Kept);
        assert!(began.elapsed() >= REST && tried.iter().all(|after| *after >= REST), "{tried:?}");
        granted(waiting).await;
        assert_eq!(two.unlock(&next).await.unwrap(), Unlocked::Released);
    }
}

/// A value whose owner has gone is swept, and one that is shown is not; a release leaves none.
#[tokio::test]
async fn values_go_with_their_owners() {
    const VALUES: &str = "SELECT coalesce(string_agg(owner, ' ' ORDER BY owner), '') FROM oarlock_value";
    let server = PostgresServer::start();
    let one = client(&server).await;
    let (held, kept) = (showing(claim("x", "holder"), "1"), showing(claim("y", "kept"), "2"));
    one.try_lock(&held).await.unwrap().unwrap();
    one.try_lock(&kept).await.unwrap().unwrap();
    assert_eq!(one.keep(&kept, HOUR).await.unwrap(), Kept::Kept);
    run(&server, "INSERT INTO oarlock_value VALUES ('gone', 'oarlock/x', '3', 0); UPDATE oarlock_value SET at_us = 0")
        .await;
    until("the sweep", async || {
        let sweeper = client(&server).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        sweeper.close().await.unwrap();
        text(&server, VALUES).await == "holder kept"
    })
    .await;
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::Released);
    assert_eq!(text(&server, VALUES).await, "kept");
}
