//! What PostgreSQL's and MySQL's locks by sessions have in common, of what the suite cannot see.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{Claim, DistributedLock, ErrorKind, Kept, Locks, OnceRun, Renewal, Result, Unlocked};
use test_servers::{Proxy, ServerClock};

use crate::common::{BOUND, LONG, claim, granted, in_background, lasting, renewed, soon, until};

const HOUR: Duration = Duration::from_secs(3600);

/// Something ends a holder's session while its process lives: nobody else has the lock before its lease is over, it is
/// renewed and released over other connections, and who waits has it then.
pub(crate) async fn outlives_its_session<L: DistributedLock + 'static>(
    one: &dyn DistributedLock,
    other: &Arc<L>,
    how: &str,
    end: impl AsyncFnOnce(),
    has_ended: impl AsyncFn() -> bool,
    waits: impl AsyncFn() -> bool,
) {
    let held = claim("x", &format!("holder {how}"));
    let first = one.try_lock(&held).await.unwrap().unwrap();
    end().await;
    until("the end of the session", has_ended).await;
    assert!(other.try_lock(&claim("x", "early")).await.unwrap().is_none());
    let next = claim("x", &format!("next {how}"));
    let waiting = in_background(other, &next);
    until("the next has its turn", waits).await;
    assert!(matches!(renewed(one, &held).await, Renewal::Held { .. }));
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiting.is_finished());
    assert_eq!(one.inspect(&held.name).await.unwrap().into_holder().unwrap().owner, held.owner);
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::Released);
    assert!(granted(waiting).await.token > first.token);
}

/// A release is done, or a hold is kept for a moment, and the answer is lost: nobody says that the lock was not held until
/// then.
pub(crate) async fn ended_unheard<L: DistributedLock + 'static>(
    lock: Arc<L>,
    proxy: &Proxy,
    direct: &impl DistributedLock,
) {
    let is_over = async || direct.inspect(&claim("x", "any").name).await.unwrap().holder().is_none();
    for is_kept in [false, true] {
        let held = claim("x", &format!("holder, kept: {is_kept}"));
        lock.try_lock(&held).await.unwrap().unwrap();
        // Not others: over a new connection something is asked before, and the tables are swept in the background.
        let owner = held.owner.as_str();
        let digits = owner.bytes().map(|byte| format!("{byte:02x}")).collect();
        proxy.hold_answers_to([owner.to_owned(), digits]);
        let ending = tokio::spawn({
            let (lock, held) = (Arc::clone(&lock), held.clone());
            async move { end(&*lock, &held, is_kept).await }
        });
        until("its end", &is_over).await;
        proxy.reset();
        proxy.forward();
        let error = soon("an answer", ending).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        // Other connections of the client were cut, too, and each may be found so by a call.
        until("a release that is answered", async || matches!(lock.unlock(&held).await, Ok(Unlocked::NotHeld))).await;
        let next = claim("x", &format!("next, kept: {is_kept}"));
        lock.try_lock(&next).await.unwrap().expect("it is free");
        assert_eq!(lock.unlock(&next).await.unwrap(), Unlocked::Released);
    }
}

/// A hold is ended by somebody else, and its owner gives it back, or lets it go on, before it could hear of that: it is told
/// that it did not hold the lock, also when its session is gone and another has the lock.
pub(crate) async fn evicted_before_its_release(one: &dyn DistributedLock, other: &dyn DistributedLock) {
    for is_kept in [false, true] {
        let held = claim("x", &format!("evicted, kept: {is_kept}"));
        let first = one.try_lock(&held).await.unwrap().unwrap();
        assert!(other.evict(&held.name).await.unwrap().is_some());
        let next = claim("x", &format!("next, kept: {is_kept}"));
        assert!(other.try_lock(&next).await.unwrap().expect("it is free").token > first.token);
        match is_kept {
            true => assert_eq!(one.keep(&held, Duration::from_secs(1)).await.unwrap(), Kept::NotHeld),
            false => assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::NotHeld),
        }
        assert_eq!(other.unlock(&next).await.unwrap(), Unlocked::Released);
    }
}

async fn end<L: DistributedLock>(lock: &L, held: &Claim, is_kept: bool) -> Result<()> {
    match is_kept {
        true => lock.keep(held, Duration::from_millis(1)).await.map(drop),
        false => lock.unlock(held).await.map(drop),
    }
}

/// A client falls silent: the server ends its session when its lease is over, and who waits has the lock then, not
/// sooner. The session of who waits is never idle.
pub(crate) async fn ends_with_its_lease<L: DistributedLock + 'static>(
    one: &dyn DistributedLock,
    other: &Arc<L>,
    lease: Duration,
    shorter: Duration,
) {
    let held = lasting("x", "holder", lease);
    let sent = Instant::now();
    one.try_lock(&held).await.unwrap().unwrap();
    // Its lease is shorter than its wait is, and begins with the grant.
    let next = lasting("x", "next", shorter);
    let asked = other.clock().now();
    let waiting = in_background(other, &next);
    let grant = granted(waiting).await;
    assert!(sent.elapsed() >= lease && sent.elapsed() < lease * 2, "after {:?}", sent.elapsed());
    assert!(grant.valid_until > asked + lease);
    assert_eq!(renewed(one, &held).await, Renewal::NotHeld);
    assert_eq!(one.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    assert!(matches!(renewed(&**other, &next).await, Renewal::Held { .. }));
}

/// The server's clock is set forward by an hour: who holds goes on to hold, as long as its session lives.
pub(crate) async fn holds_on_ahead(lock: &dyn DistributedLock, clock: &ServerClock, meanwhile: impl Future) {
    let held = claim("x", "holder");
    let first = lock.try_lock(&held).await.unwrap().unwrap();
    clock.ahead(HOUR);
    assert!(lock.try_lock(&claim("x", "next")).await.unwrap().is_none());
    meanwhile.await;
    assert!(matches!(renewed(lock, &held).await, Renewal::Held { .. }));
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    assert!(lock.try_lock(&claim("x", "next")).await.unwrap().unwrap().token > first.token);
}

/// It is set back by an hour: who holds goes on to hold, a hold whose session is gone ends within so many leases, and tokens
/// rise.
pub(crate) async fn ends_behind<L: DistributedLock + 'static>(
    lock: &Arc<L>,
    dead: Arc<L>,
    clock: &ServerClock,
    leases: u32,
) {
    const LEASE: Duration = Duration::from_secs(1);
    let (held, gone) = (claim("x", "holder"), lasting("y", "gone", LEASE));
    lock.try_lock(&held).await.unwrap().unwrap();
    let last = dead.try_lock(&gone).await.unwrap().unwrap();
    clock.behind(HOUR);
    drop(dead);
    assert!(matches!(renewed(&**lock, &held).await, Renewal::Held { .. }));
    assert!(lock.try_lock(&claim("x", "other")).await.unwrap().is_none());
    let began = Instant::now();
    let next = granted(in_background(lock, &claim("y", "next"))).await;
    assert!(next.token > last.token && began.elapsed() < LEASE * leases, "after {:?}", began.elapsed());
}

/// A user with the rights that the manual names can lock, wait, give up, lead, and run once.
pub(crate) async fn rights_are_enough(one: Locks, other: Locks) {
    let guard = one.mutex("x").lock().await.unwrap();
    let error = other.mutex("x").wait(Duration::from_millis(100)).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
    let waiting = tokio::spawn(async move { other.mutex("x").wait(BOUND).lock().await });
    until("one in line", async || one.inspect("x").await.unwrap().waiters.len() == 1).await;
    guard.unlock().await.unwrap();
    waiting.await.unwrap().unwrap().unlock().await.unwrap();
    one.doctor().await.unwrap();
    let leads = one.election("leader").campaign("first").await.unwrap();
    leads.proclaim("second").await.unwrap();
    leads.resign().await.unwrap();
    assert_eq!(one.once("job").at_least(LONG).run(async |_| 7).await.unwrap(), OnceRun::Ran(7));
    one.evict("job").await.unwrap().unwrap();
}
