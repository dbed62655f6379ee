//! No two hold at once, and nobody ends another's hold.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Claim, DistributedLock, ErrorKind, Unlocked};
use tokio::task::JoinSet;

use crate::ctx::{BOUND, Ctx, LONG, claim, holds, judge, name, soon, take, waiters};
use crate::harness::Fault;
use crate::history::Log;
use crate::recorder::Recorder;
use lock_core::testing::{Effect, Verb};

/// 1. Eight tasks of four clients, 512 rounds on a counter that nothing else protects: no update is lost, and the
///    history has no fault.
pub(crate) async fn excl_tasks(ctx: Ctx) {
    const ROUNDS: u64 = 64;
    let log = Log::in_memory("suite");
    let counter = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for client in 0..4 {
        let locks = ctx.locks(LONG).await;
        for task in 0..2 {
            let recorder = Recorder::new(log.client(&format!("{client}.{task}")));
            let (mutex, counter) = (locks.mutex("x"), Arc::clone(&counter));
            tasks.spawn(async move {
                for _ in 0..ROUNDS {
                    let held = recorder.lock(&mutex, LONG).await.unwrap().unwrap();
                    let seen = counter.load(Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    counter.store(seen + 1, Ordering::SeqCst);
                    assert!(held.check());
                    held.unlock().await.unwrap();
                }
            });
        }
    }
    tasks.join_all().await;
    assert_eq!(counter.load(Ordering::SeqCst), 8 * ROUNDS);
    assert_eq!(judge(&log).grants as u64, 8 * ROUNDS);
}

/// 3. A held lock denies nobody another one.
pub(crate) async fn excl_two_names(ctx: Ctx) {
    let (one, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let _a = take(&one, "a").await;
    assert!(other.mutex("b").try_lock().await.unwrap().is_some());
    assert!(other.mutex("a").try_lock().await.unwrap().is_none());
}

/// 4. 2000 grants of eight locks to two clients: each lock's tokens rise and none comes twice (rules T1, T2).
pub(crate) async fn tokens_rise(ctx: Ctx) {
    let clients = [ctx.backend().await, ctx.backend().await];
    let of_one = async |lock: &str| {
        let mut last = None;
        for round in 0..250 {
            let claim = claim(lock, LONG);
            let client = &clients[round % 2];
            let token = client.try_lock(&claim).await.unwrap().unwrap().token;
            assert!(Some(token) > last, "{token:?} after {last:?} in round {round}");
            last = Some(token);
            assert_eq!(client.unlock(&claim).await.unwrap(), Unlocked::Released);
        }
    };
    // Together, for each alone mostly waits.
    join_all(["a", "b", "c", "d", "e", "f", "g", "h"].map(of_one)).await;
}

/// 5. A lock that nobody used for three leases, and whose remains somebody removed, gets a higher token all the same.
pub(crate) async fn token_survives_idle(ctx: Ctx) {
    let backend = ctx.backend().await;
    let first = claim("x", ctx.lease());
    let before = backend.try_lock(&first).await.unwrap().unwrap().token;
    backend.unlock(&first).await.unwrap();
    tokio::time::sleep(ctx.lease() * 3).await;
    let second = claim("x", ctx.lease());
    let idle = backend.try_lock(&second).await.unwrap().unwrap().token;
    assert!(idle > before);
    ctx.inject(Fault::DeleteHold(name("x"))).await;
    let removed = ctx.backend().await.try_lock(&claim("x", LONG)).await.unwrap().unwrap().token;
    assert!(removed > idle, "{removed:?} after {idle:?}");
}

/// 6. Who does not hold releases nothing: `NotHeld`, and the holder holds.
pub(crate) async fn unlock_foreign(ctx: Ctx) {
    let (one, other) = (ctx.backend().await, ctx.backend().await);
    let holder = claim("x", LONG);
    one.try_lock(&holder).await.unwrap().unwrap();
    for client in [&one, &other] {
        assert_eq!(client.unlock(&claim("x", LONG)).await.unwrap(), Unlocked::NotHeld);
    }
    assert!(holds(&*one, &holder).await);
}

/// 7. A release after the lease is over says so and does not touch the successor.
pub(crate) async fn unlock_after_expiry(ctx: Ctx) {
    let (one, other) = (ctx.backend().await, ctx.backend().await);
    let (late, successor) = (claim("x", ctx.lease()), claim("x", LONG));
    one.try_lock(&late).await.unwrap().unwrap();
    soon("the lease's end", other.lock(&successor)).await.unwrap();
    assert_eq!(one.unlock(&late).await.unwrap(), Unlocked::NotHeld);
    assert!(holds(&*other, &successor).await);
}

/// 8. The answer to a release is lost, a successor is granted, the release is repeated: the successor holds.
pub(crate) async fn unlock_retry(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let other = ctx.backend().await;
    let guard = take(&locks, "x").await;
    faulty.once(Verb::Unlock, Effect::LoseReply);
    // No repetition gets through before there is a successor to harm.
    faulty.always(Verb::Unlock, Effect::AWAY);
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Unknown);
    let successor = claim("x", LONG);
    soon("the released lock", other.lock(&successor)).await.unwrap();
    let refused = faulty.calls(Verb::Unlock);
    faulty.always(Verb::Unlock, Effect::Pass);
    // It waits until the repetition is answered.
    assert!(locks.shutdown(BOUND).await.unreleased.is_empty());
    assert!(faulty.calls(Verb::Unlock) > refused);
    assert!(holds(&*other, &successor).await);
}

/// 9. A request is held up on its way, its caller gives up and releases: once that is answered, nothing of it is left,
///    and nothing comes later.
pub(crate) async fn late_acquire_lands(ctx: Ctx) {
    let (backend, other) = (ctx.backend().await, ctx.backend().await);
    for waits in [false, true] {
        let late = claim("x", LONG);
        ctx.inject(Fault::HoldRequests).await;
        let attempt = tokio::spawn({
            let (backend, late) = (Arc::clone(&backend), late.clone());
            async move {
                if waits {
                    drop(backend.lock(&late).await);
                } else {
                    drop(backend.try_lock(&late).await);
                }
            }
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        attempt.abort();
        let _ = attempt.await;
        let release = tokio::spawn({
            let (backend, late) = (Arc::clone(&backend), late.clone());
            async move { release(&*backend, &late).await }
        });
        tokio::time::sleep(Duration::from_millis(200)).await;
        ctx.inject(Fault::ReleaseRequests).await;
        soon("the release", release).await.unwrap();
        nothing_lands(&ctx, &late).await;
        let next = claim("x", LONG);
        other.try_lock(&next).await.unwrap().unwrap();
        other.unlock(&next).await.unwrap();
    }
}

/// It may be told that there is no answer, as often as it takes to connect anew.
async fn release(backend: &dyn DistributedLock, claim: &Claim) {
    while let Err(error) = backend.unlock(claim).await {
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
    }
}

/// 9. The same where only the connections of that time hold requests up, so that the release may come over another one.
pub(crate) async fn late_acquire_lands_after_reconnect(ctx: Ctx) {
    let other = ctx.backend().await;
    for waits in [false, true] {
        let (backend, late) = (ctx.backend().await, claim("x", LONG));
        // Connected, and known to the store, before it counts.
        backend.try_lock(&claim("warm", LONG)).await.unwrap();
        ctx.inject(Fault::HoldRequestsOfPresent).await;
        let attempt =
            async { if waits { drop(backend.lock(&late).await) } else { drop(backend.try_lock(&late).await) } };
        let _ = tokio::time::timeout(Duration::from_millis(200), attempt).await;
        soon("the release", release(&*backend, &late)).await;
        ctx.inject(Fault::ReleaseRequests).await;
        nothing_lands(&ctx, &late).await;
        let next = claim("x", LONG);
        soon("the lock", other.lock(&next)).await.unwrap();
        other.unlock(&next).await.unwrap();
    }
}

/// What was given up and released does not come after that.
async fn nothing_lands(ctx: &Ctx, given_up: &Claim) {
    for _ in 0..20 {
        let holder = ctx.store().raw_holder(&given_up.name).await;
        assert_eq!(holder, None, "an acquisition that was given up was done after its release");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// 10. The answer to an acquisition is lost: that is `Unknown`, and the lock is free again long before its lease's end.
pub(crate) async fn acquire_answer_lost(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let other = ctx.locks(LONG).await;
    faulty.once(Verb::TryLock, Effect::LoseReply);
    assert_eq!(locks.mutex("x").try_lock().await.unwrap_err().kind(), ErrorKind::Unknown);
    take(&other, "x").await.unlock().await.unwrap();
    let mutex = locks.mutex("x").outage(Duration::ZERO);
    faulty.once(Verb::Lock, Effect::LoseReply);
    assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::Unknown);
    take(&other, "x").await.unlock().await.unwrap();
    // And when the clean-up's first tries are lost as well.
    faulty.once(Verb::Lock, Effect::LoseReply);
    faulty.once(Verb::Unlock, Effect::AWAY);
    faulty.once(Verb::Unlock, Effect::AWAY);
    assert_eq!(mutex.lock().await.unwrap_err().kind(), ErrorKind::Unknown);
    take(&other, "x").await.unlock().await.unwrap();
    // Who waits asks again by itself.
    faulty.once(Verb::Lock, Effect::LoseReply);
    take(&locks, "x").await.unlock().await.unwrap();
}

/// 11. A request that comes twice is one grant: the same token, and one release ends it.
pub(crate) async fn dup_request(ctx: Ctx) {
    let (one, other) = (ctx.backend().await, ctx.backend().await);
    let twice = claim("x", LONG);
    let first = one.try_lock(&twice).await.unwrap().unwrap();
    let again = one.try_lock(&twice).await.unwrap().unwrap();
    let waited = soon("a lock that is held already", one.lock(&twice)).await.unwrap();
    assert_eq!([first.token; 2], [again.token, waited.token]);
    assert!(again.valid_until <= one.clock().now() + LONG);
    assert_eq!(one.unlock(&twice).await.unwrap(), Unlocked::Released);
    assert_eq!(one.unlock(&twice).await.unwrap(), Unlocked::NotHeld);
    assert!(other.try_lock(&claim("x", LONG)).await.unwrap().is_some());
}

/// 12. A try for a held lock is denied, does not wait, and leaves nothing behind.
pub(crate) async fn try_lock_denied(ctx: Ctx) {
    let (one, other) = (ctx.backend().await, ctx.backend().await);
    let holder = claim("x", LONG);
    one.try_lock(&holder).await.unwrap().unwrap();
    for _ in 0..20 {
        assert_eq!(soon("the denial", other.try_lock(&claim("x", LONG))).await.unwrap(), None);
    }
    assert_eq!(waiters(&*one, "x").await, 0);
    assert!(holds(&*one, &holder).await);
    one.unlock(&holder).await.unwrap();
    assert!(one.try_lock(&claim("x", LONG)).await.unwrap().is_some());
}
