//! Leases are renewed while held, never believed for longer than the store keeps them, and end by themselves.

use std::pin::pin;
use std::time::Duration;

use lock_core::{Claim, DistributedLock, ErrorKind, Instant, LeaseState, LockGuard, Locks, Renewal};
use tokio::task::JoinSet;

use crate::ctx::{BOUND, Ctx, LONG, claim, name, soon, take, until};
use crate::harness::Fault;
use crate::polls::polls;
use lock_core::testing::{Effect, Verb};

/// A lease to be renewed many times in a case that must not lose it: longer than a busy machine pauses.
fn kept(ctx: &Ctx) -> Duration {
    Duration::from_secs(6).max(ctx.lease() * 2)
}

/// The lease runs out, by our clock at the latest: nobody else had to tell.
async fn lost_by_itself(guard: &LockGuard, lease: Duration) {
    tokio::time::timeout(lease + BOUND, guard.lost()).await.expect("the loss is told");
    assert!(!guard.is_held());
    assert_eq!(guard.state(), LeaseState::Lost);
    assert_eq!(guard.remaining(), Duration::ZERO);
}

/// Stays held for so long.
async fn kept_for(guard: &LockGuard, time: Duration) {
    assert!(tokio::time::timeout(time, guard.lost()).await.is_err(), "lost");
    assert!(guard.is_held());
}

/// 22. Held for two leases, and six renewals: never lost.
pub(crate) async fn renew_keeps(ctx: Ctx) {
    let lease = kept(&ctx);
    let (locks, other) = (ctx.locks(lease).await, ctx.backend().await);
    let guard = take(&locks, "x").await;
    let token = guard.fencing_token();
    kept_for(&guard, lease * 2).await;
    assert_eq!(guard.fencing_token(), token);
    assert_eq!(other.try_lock(&claim("x", LONG)).await.unwrap(), None);
    guard.unlock().await.unwrap();
}

/// 23. 1000 releases, about when a renewal is due: nothing is renewed afterwards, the lock is gone and stays gone.
pub(crate) async fn renew_stops_on_unlock(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    // A client whose lease is its session's gives up a connection that is silent for less than that: a busy machine
    // pauses for the shortest one.
    let lease = Duration::from_millis(300).max(locks.capabilities().min_lease * 3);
    // The longer it takes until a renewal is due, the more releases at once.
    let (names, rounds) = if lease < Duration::from_secs(1) { (20, 50) } else { (100, 10) };
    let mut tasks = JoinSet::new();
    for task in 0..names {
        let locks = locks.clone();
        tasks.spawn(async move {
            let mutex = locks.mutex(task.to_string()).lease(lease);
            let mut is_settled = true;
            for round in 0..rounds {
                // A busy machine may pause for longer than so short a lease, again and again, and the store with it.
                let guard = match mutex.lock().await {
                    Ok(guard) => guard,
                    Err(error) if error.kind() == ErrorKind::Unavailable => continue,
                    Err(error) if error.kind() == ErrorKind::Unknown => {
                        is_settled = false;
                        continue;
                    }
                    Err(error) => panic!("{error}"),
                };
                // A renewal is due after a third.
                tokio::time::sleep(lease / 3 * (90 + (task + round) % 20) / 100).await;
                match guard.unlock().await.map_err(|error| error.kind()) {
                    Ok(()) | Err(ErrorKind::Lost) => {}
                    Err(kind) => {
                        assert_eq!(kind, ErrorKind::Unknown);
                        is_settled = false;
                    }
                }
            }
            (task, is_settled)
        });
    }
    for (task, _) in tasks.join_all().await.into_iter().filter(|(_, is_settled)| !is_settled) {
        // What has no answer is asked for again, until it has one.
        until("it is free", async || ctx.store().raw_holder(&name(&task.to_string())).await.is_none()).await;
    }
    let renewals = faulty.calls(Verb::Renew);
    for wait in [Duration::ZERO, lease] {
        tokio::time::sleep(wait).await;
        for task in 0..names {
            assert_eq!(ctx.store().raw_holder(&name(&task.to_string())).await, None);
        }
    }
    assert_eq!(faulty.calls(Verb::Renew), renewals);
}

/// 24. After renewals that failed, and a loss, the next lock is renewed.
pub(crate) async fn renew_after_error(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease()).await;
    faulty.always(Verb::Renew, Effect::AWAY);
    let guard = take(&locks, "x").await;
    lost_by_itself(&guard, ctx.lease()).await;
    faulty.always(Verb::Renew, Effect::Pass);
    let guard = locks.mutex("y").lease(kept(&ctx)).lock().await.unwrap();
    kept_for(&guard, kept(&ctx) * 3 / 2).await;
}

/// 25. A backend panics in a renewal: the holder is told of the loss when its lease is over, not left in the dark.
pub(crate) async fn renew_panics(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease()).await;
    faulty.once(Verb::Renew, Effect::Panic);
    faulty.always(Verb::Renew, Effect::AWAY);
    let guard = take(&locks, "x").await;
    lost_by_itself(&guard, ctx.lease()).await;
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    // And the panic is not for ever.
    faulty.always(Verb::Renew, Effect::Pass);
    let guard = locks.mutex("y").lease(kept(&ctx)).lock().await.unwrap();
    kept_for(&guard, kept(&ctx) * 3 / 2).await;
}

/// 26. The answer to an acquisition is late: the lease counts from the question.
pub(crate) async fn acquire_reply_late(ctx: Ctx) {
    let late = Duration::from_secs(2);
    let (faulty, locks) = ctx.faulty(LONG).await;
    for verb in [Verb::Lock, Verb::TryLock] {
        faulty.once(verb, Effect::DelayReply(late));
        let mutex = locks.mutex("x");
        let guard = match verb {
            Verb::Lock => mutex.lock().await.unwrap(),
            _ => mutex.try_lock().await.unwrap().unwrap(),
        };
        let left = guard.remaining();
        assert!(left <= LONG - late, "{left:?} left of {LONG:?} that were asked for {late:?} ago");
        guard.unlock().await.unwrap();
    }
}

/// 26. The request itself is late in the store: what the backend promises still counts from when it was sent.
pub(crate) async fn request_held_back(ctx: Ctx) {
    held_back(ctx, Fault::HoldRequests, Fault::ReleaseRequests).await;
}

/// 26. The answer is late on its way back, to a grant and to a renewal: the same.
pub(crate) async fn answer_held_back(ctx: Ctx) {
    held_back(ctx, Fault::HoldAnswers, Fault::ReleaseAnswers).await;
}

async fn held_back(ctx: Ctx, hold: Fault, release: Fault) {
    let backend = ctx.backend().await;
    // Connected before it counts.
    let warm = claim("warm", LONG);
    backend.try_lock(&warm).await.unwrap().unwrap();
    for renewed in [false, true] {
        let held = claim(if renewed { "renewed" } else { "new" }, LONG);
        if renewed {
            backend.try_lock(&held).await.unwrap().unwrap();
        }
        ctx.inject(hold.clone()).await;
        let asking = promised(&*backend, &held, renewed);
        let healing = async {
            tokio::time::sleep(Duration::from_millis(500)).await;
            let before = backend.clock().now();
            tokio::time::sleep(Duration::from_millis(500)).await;
            ctx.inject(release.clone()).await;
            before
        };
        let (valid_until, before) = soon("the answer", async { tokio::join!(asking, healing) }).await;
        assert!(valid_until <= before + LONG, "counted from later than it was sent (renewed: {renewed})");
    }
}

/// 26. The answer has come, and whoever asked is not run for half a second: the same.
pub(crate) async fn answer_read_late(ctx: Ctx) {
    let (backend, other) = (ctx.backend().await, ctx.backend().await);
    // Whoever asks for the first time may have more to ask.
    let first = claim("x", LONG);
    for renewed in [false, true] {
        promised(&*backend, &first, renewed).await;
    }
    backend.unlock(&first).await.unwrap();
    for renewed in [false, true] {
        let (mut read_late, mut at_once, mut most) = (false, false, 1);
        // An answer may be there when it is first looked for, if the machine is busy: then it was not read late.
        for _ in 0..50 {
            let mut held = claim("x", LONG / 2);
            if renewed {
                backend.try_lock(&held).await.unwrap().unwrap();
            }
            held.lease = LONG;
            let mut asking = pin!(promised(&*backend, &held, renewed));
            let ended = polls(most, asking.as_mut()).await.is_some();
            if !ended {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let holder = other.inspect(&held.name).await.unwrap().into_holder();
                let done = holder.is_some_and(|holder| !renewed || holder.remaining > LONG / 2);
                let before = backend.clock().now();
                tokio::time::sleep(Duration::from_millis(500)).await;
                let until = asking.await;
                assert!(!done || until <= before + LONG, "counted from the answer (renewed: {renewed})");
                read_late |= done;
            }
            backend.unlock(&held).await.unwrap();
            // There is no answer that could be read late. Others of its kind may have had to wait for their turn.
            at_once |= ended && most == 1;
            if ended && read_late {
                break;
            }
            most = if ended { 1 } else { most + 1 };
        }
        assert!(read_late || renewed || at_once, "nothing was done before its answer was read");
    }
}

/// What is held back is held back for one.
const PATIENT: &str = "an answer: in this suite, requests have to be given two seconds";

/// Until when the lock is granted, or renewed.
async fn promised(backend: &dyn DistributedLock, claim: &Claim, renewed: bool) -> Instant {
    if !renewed {
        return backend.try_lock(claim).await.expect(PATIENT).unwrap().valid_until;
    }
    match backend.renew(std::slice::from_ref(claim)).await.pop().unwrap().expect(PATIENT) {
        Renewal::Held { valid_until } => valid_until,
        lost => panic!("{lost:?}"),
    }
}

/// 26. What the backend promises, at a grant and at renewals, the store keeps: by the store's clock it holds at least
///     as long.
pub(crate) async fn promise_covered(ctx: Ctx) {
    let backend = ctx.backend().await;
    let covered = async |held: &Claim, promised: Instant| {
        let left = backend.inspect(&held.name).await.unwrap().into_holder().unwrap().remaining;
        // The answer may be rounded to a millisecond.
        let end = backend.clock().now() + left + Duration::from_millis(1);
        assert!(promised <= end, "promised {:?} too much", promised.saturating_duration_since(end));
    };
    for lease in [kept(&ctx), LONG] {
        for _ in 0..50 {
            let held = claim("x", lease);
            covered(&held, promised(&*backend, &held, false).await).await;
            covered(&held, promised(&*backend, &held, true).await).await;
            backend.unlock(&held).await.unwrap();
        }
    }
}

/// 26. Every answer to a renewal is late, by eight tenths of the lease: whenever the guard says that it holds, it does.
pub(crate) async fn renew_reply_late(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease()).await;
    faulty.always(Verb::Renew, Effect::DelayReply(ctx.lease() * 8 / 10));
    held_when_it_says_so(&ctx, locks).await;
}

/// 26. The answer to the last renewal is late, by little enough to be waited for: the same.
pub(crate) async fn last_renew_reply_late(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease()).await;
    // Three tenths: more than the margin, and less than the third for which an answer is waited for.
    faulty.once(Verb::Renew, Effect::DelayReply(ctx.lease() * 3 / 10));
    faulty.always(Verb::Renew, Effect::AWAY);
    held_when_it_says_so(&ctx, locks).await;
}

/// Whenever the guard says that it holds, the store agrees, though another waits.
async fn held_when_it_says_so(ctx: &Ctx, locks: Locks) {
    let lease = ctx.lease();
    let guard = take(&locks, "x").await;
    let waiter = ctx.locks(LONG).await;
    let waiting = tokio::spawn(async move { take(&waiter, "x").await });
    let sampling = async {
        loop {
            let holder = ctx.store().raw_holder(guard.name()).await;
            // Asked later than the store was.
            if guard.is_held() {
                assert_eq!(
                    holder.as_deref(),
                    Some(guard.owner().as_str()),
                    "believed for longer than the store grants"
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let _ = tokio::time::timeout(lease * 3, sampling).await;
    drop(guard);
    waiting.await.unwrap().unlock().await.unwrap();
}

/// 27. A renewal that failed is repeated within the lease.
pub(crate) async fn renew_refused_once(ctx: Ctx) {
    let lease = kept(&ctx);
    let (faulty, locks) = ctx.faulty(lease).await;
    faulty.once(Verb::Renew, Effect::AWAY);
    let guard = take(&locks, "x").await;
    kept_for(&guard, lease * 2).await;
    assert!(faulty.calls(Verb::Renew) >= 3);
}

/// 28. A lease of a millisecond is refused, or is what is counted by.
pub(crate) async fn lease_floor(ctx: Ctx) {
    let locks = ctx.locks(LONG).await;
    let shortest = locks.capabilities().min_lease;
    assert!(!shortest.is_zero());
    if shortest > Duration::from_millis(1) {
        let error = locks.mutex("x").lease(Duration::from_millis(1)).lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("lease"), "{error}");
    }
    let backend = ctx.backend().await;
    let short = claim("x", shortest);
    let before = backend.clock().now();
    let grant = backend.try_lock(&short).await.unwrap().unwrap();
    assert!(grant.valid_until <= backend.clock().now() + shortest);
    assert!(grant.valid_until >= before);
    soon("its end", ctx.backend().await.lock(&claim("x", LONG))).await.unwrap();
}

/// 29. A fixed hold is never renewed and ends by itself, before another can have the lock.
pub(crate) async fn fixed_hold_ends(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let guard = locks.mutex("x").hold_for(ctx.lease()).lock().await.unwrap();
    let next = soon("its end", ctx.backend().await.lock(&claim("x", LONG))).await;
    assert!(!guard.is_held());
    next.unwrap();
    lost_by_itself(&guard, ctx.lease()).await;
    assert_eq!(faulty.calls(Verb::Renew), 0);
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// A hold that is capped is renewed up to the cap and no longer.
pub(crate) async fn max_hold_ends(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease()).await;
    let guard = locks.mutex("x").max_hold(ctx.lease() * 2).lock().await.unwrap();
    lost_by_itself(&guard, ctx.lease() * 2).await;
    assert!(faulty.calls(Verb::Renew) >= 1);
    soon("its end", ctx.backend().await.lock(&claim("x", LONG))).await.unwrap();
}

/// 30. A renewal by a shorter lease never ends the hold before the time that it answers.
pub(crate) async fn extend_shorter(ctx: Ctx) {
    let backend = ctx.backend().await;
    let mut held = claim("x", LONG);
    let granted = backend.try_lock(&held).await.unwrap().unwrap().valid_until;
    held.lease = LONG / 2;
    let valid_until = promised(&*backend, &held, true).await;
    let status = backend.inspect(&held.name).await.unwrap();
    let left = status.into_holder().unwrap().remaining + Duration::from_millis(1);
    assert!(backend.clock().now() + left >= valid_until);
    // Shortened, it says so; else it keeps what was promised before.
    assert!(valid_until < granted || backend.clock().now() + left >= granted);
}

/// 31. The executor is blocked for two leases: the first question afterwards is answered "not held", and no late
///     renewal takes the lock from the next.
pub(crate) async fn starved_runtime(ctx: Ctx) {
    let lease = ctx.lease();
    let starving = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let guard = take(&ctx.locks(lease).await, "x").await;
            std::thread::sleep(lease * 2);
            assert!(!guard.is_held());
            let (faulty, other) = ctx.faulty(LONG).await;
            let next = take(&other, "x").await;
            tokio::time::sleep(lease).await;
            assert!(next.is_held());
            assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
            assert_eq!(ctx.store().raw_holder(next.name()).await.as_deref(), Some(next.owner().as_str()));
            drop(faulty);
        });
    });
    starving.await.unwrap();
}

/// 32. Only renewals are lost on the way: told of the loss by our own clock, and then others get the lock.
pub(crate) async fn renew_drops_only(ctx: Ctx) {
    let lease = ctx.lease();
    let (faulty, locks) = ctx.faulty(lease).await;
    faulty.always(Verb::Renew, Effect::Cut);
    let guard = take(&locks, "x").await;
    let other = ctx.locks(LONG).await;
    let next = take(&other, "x").await;
    assert!(!guard.is_held());
    lost_by_itself(&guard, lease).await;
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(next.is_held());
    held_in_store(&other, &next).await;
}

async fn held_in_store(locks: &Locks, guard: &LockGuard) {
    until("the store to agree", async || {
        let status = locks.inspect(guard.name().as_str()).await.unwrap();
        status.into_holder().is_some_and(|holder| &holder.owner == guard.owner())
    })
    .await;
}
