//! The life of a process: runtimes that end while others go on, backends that panic, shutdowns beside requests, and
//! stores that are away for a while.

use std::time::{Duration, Instant};

use lock_core::{ErrorKind, LockGuard, Locks};
use tokio::runtime::{Builder, Runtime};

use crate::ctx::{BOUND, Ctx, LONG, soon, take, until, waiters};
use crate::harness::Fault;
use lock_core::testing::{Effect, Verb};

/// Something else has time to happen.
const MOMENT: Duration = Duration::from_millis(200);

/// Nobody has it, long before any lease could be over.
async fn soon_free(other: &Locks, name: &str) {
    take(other, name).await.unlock().await.unwrap();
}

/// Ends `runtime` with all its tasks, wherever they are.
async fn end(runtime: Runtime) {
    tokio::task::spawn_blocking(move || runtime.shutdown_timeout(BOUND)).await.unwrap();
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// 102. A shutdown waits for a release that is under way, and both say so.
pub(crate) async fn shutdown_beside_unlock(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let other = ctx.locks(LONG).await;
    let guard = take(&locks, "x").await;
    faulty.once(Verb::Unlock, Effect::DelayRequest(MOMENT));
    let unlocking = tokio::spawn(guard.unlock());
    until("the release", async || faulty.calls(Verb::Unlock) >= 1).await;
    let report = locks.shutdown(BOUND).await;
    assert_eq!(report.unreleased, []);
    unlocking.await.unwrap().unwrap();
    soon_free(&other, "x").await;
}

/// 103. A shutdown names what it could not release in time, also what a guard is about to.
pub(crate) async fn shutdown_before_an_answer(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease()).await;
    let guard = take(&locks, "x").await;
    faulty.always(Verb::Unlock, Effect::Cut);
    let unlocking = tokio::spawn(guard.unlock());
    until("the release", async || faulty.calls(Verb::Unlock) >= 1).await;
    let report = locks.shutdown(MOMENT).await;
    assert_eq!(report.unreleased.iter().map(|name| name.as_str()).collect::<Vec<_>>(), ["x"]);
    unlocking.await.unwrap().unwrap_err();
}

/// 104. Shutdowns beside acquisitions and tries: each ends, and nothing stays behind.
pub(crate) async fn shutdown_beside_requests(ctx: Ctx) {
    let other = ctx.locks(LONG).await;
    for verb in [Verb::Lock, Verb::TryLock] {
        for delay in [Duration::ZERO, MOMENT] {
            let (faulty, locks) = ctx.faulty(LONG).await;
            faulty.always(verb, Effect::DelayReply(delay));
            let mutex = locks.mutex("x");
            let asking = tokio::spawn(async move {
                match verb {
                    Verb::TryLock => mutex.try_lock().await.map(drop),
                    _ => mutex.lock().await.map(drop),
                }
            });
            until("the request", async || faulty.calls(verb) >= 1).await;
            let report = locks.shutdown(BOUND).await;
            assert_eq!(report.unreleased, []);
            // It may have been granted just before.
            if let Err(error) = soon("its end", asking).await.unwrap() {
                assert_eq!(error.kind(), ErrorKind::Closed);
            }
            soon_free(&other, "x").await;
        }
    }
}

/// 105. A runtime ends with a release under way: another runtime of the process finishes it.
pub(crate) async fn releases_outlive_a_runtime(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let other = ctx.locks(LONG).await;
    let ending = runtime();
    let guard = on(&ending, &locks, "x").await;
    faulty.once(Verb::Unlock, Effect::DelayRequest(LONG));
    let before = faulty.calls(Verb::Unlock);
    drop(guard);
    until("the release", async || faulty.calls(Verb::Unlock) > before).await;
    end(ending).await;
    // Whatever is acquired next starts it anew.
    take(&locks, "y").await.unlock().await.unwrap();
    soon_free(&other, "x").await;
    assert_eq!(locks.shutdown(BOUND).await.unreleased, []);
}

/// 106. A runtime ends with a renewal under way: another runtime of the process renews the lock.
pub(crate) async fn renewals_outlive_a_runtime(ctx: Ctx) {
    // Long enough for what happens before it is renewed elsewhere.
    let lease = ctx.lease() * 4;
    let (faulty, locks) = ctx.faulty(lease).await;
    let ending = runtime();
    let guard = on(&ending, &locks, "x").await;
    faulty.once(Verb::Renew, Effect::DelayRequest(LONG));
    until("the renewal", async || faulty.calls(Verb::Renew) >= 1).await;
    end(ending).await;
    let another = take(&locks, "y").await;
    tokio::time::sleep(lease + MOMENT).await;
    assert!(guard.is_held() && another.is_held());
    guard.unlock().await.unwrap();
}

/// 107. A runtime ends whose task held the lock, and with it whoever would notice: a task of another runtime that waits
///      in the process has the lock when its lease is over.
pub(crate) async fn waiters_outlive_a_runtime(ctx: Ctx) {
    let locks = ctx.locks(ctx.lease()).await;
    let ending = runtime();
    let held = on(&ending, &locks, "x").await;
    let holder = locks.inspect("x").await.unwrap().into_holder().unwrap().owner;
    let waiting = tokio::spawn({
        let locks = locks.clone();
        async move { take(&locks, "x").await }
    });
    tokio::time::sleep(MOMENT).await;
    std::mem::forget(held);
    end(ending).await;
    // And not the next, should its lease be over by now.
    locks.evict_owner("x", &holder).await.unwrap();
    let guard = soon("the next holder", waiting).await.unwrap();
    guard.unlock().await.unwrap();
}

/// Takes the lock on a thread of that runtime, on which its keeper and its janitor then run.
async fn on(runtime: &Runtime, locks: &Locks, name: &'static str) -> LockGuard {
    let locks = locks.clone();
    runtime.spawn(async move { take(&locks, name).await }).await.unwrap()
}

/// 108. The backend panics in one verb after the other: that is the end of one task, and of no other's lock.
pub(crate) async fn a_panic_harms_one(ctx: Ctx) {
    let other = ctx.locks(LONG).await;
    let (faulty, locks) = ctx.faulty(LONG).await;
    let kept = take(&locks, "kept").await;
    faulty.once(Verb::Lock, Effect::PanicLater(MOMENT));
    let asking = {
        let locks = locks.clone();
        tokio::spawn(async move { take(&locks, "x").await })
    };
    until("a request", async || faulty.calls(Verb::Lock) >= 2).await;
    // It waits in the process for the answer.
    take(&locks, "x").await.unlock().await.unwrap();
    assert!(asking.await.is_err_and(|ended| ended.is_panic()), "the panic is nobody's");

    faulty.once(Verb::TryLock, Effect::Panic);
    let mutex = locks.mutex("x");
    tokio::spawn(async move { mutex.try_lock().await.map(drop) }).await.unwrap_err();
    soon_free(&other, "x").await;

    let (faulty, locks) = ctx.faulty(LONG).await;
    let guard = take(&locks, "x").await;
    faulty.once(Verb::Unlock, Effect::Panic);
    tokio::spawn(guard.unlock()).await.unwrap_err();
    soon_free(&other, "x").await;
    // In the janitor's hands, too.
    let guards = (take(&locks, "x").await, take(&locks, "y").await);
    faulty.once(Verb::Unlock, Effect::Panic);
    drop(guards);
    soon_free(&other, "x").await;
    soon_free(&other, "y").await;
    assert_eq!(locks.shutdown(BOUND).await.unreleased, []);
    kept.unlock().await.unwrap();
}

/// 109. The store is away for a second, and for five, while some wait in line: they have the lock in the end, and who
///      only tries is told.
pub(crate) async fn outage_while_waiting(ctx: Ctx) {
    for away in [1, 5].map(Duration::from_secs) {
        let holder = ctx.locks(LONG).await;
        let held = take(&holder, "x").await;
        let fair = holder.capabilities().fair;
        let waiting: Vec<_> = [ctx.locks(LONG).await, ctx.locks(LONG).await]
            .into_iter()
            .map(|locks| {
                tokio::spawn(async move {
                    let guard = locks.mutex("x").fair(fair).wait(BOUND).lock().await.unwrap();
                    let token = guard.fencing_token();
                    guard.unlock().await.unwrap();
                    token
                })
            })
            .collect();
        until("both in line", async || !fair || waiters(&**holder.backend(), "x").await == 2).await;
        ctx.inject(Fault::CutOff).await;
        tokio::time::sleep(away).await;
        ctx.inject(Fault::ReleaseRequests).await;
        let token = held.fencing_token();
        // If its answer is lost, the background repeats it.
        let _ = held.unlock().await;
        for waiting in waiting {
            assert!(soon("the lock", waiting).await.unwrap() > token);
        }
    }
}

/// 110. A store that stays away fails a waiter when its outage is over, and says since when.
pub(crate) async fn outage_without_end(ctx: Ctx) {
    const OUTAGE: Duration = Duration::from_secs(2);
    let (faulty, locks) = ctx.faulty(LONG).await;
    faulty.always(Verb::Lock, Effect::AWAY);
    let begun = Instant::now();
    let error = soon("an error", locks.mutex("x").outage(OUTAGE).lock()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(begun.elapsed() >= OUTAGE, "after {:?}", begun.elapsed());
    assert!(error.to_string().contains("for 2s now"), "{error}");
    // A wait bounds it, too; and who does not wait is told at once.
    let error = locks.mutex("x").wait(MOMENT).lock().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    faulty.always(Verb::TryLock, Effect::AWAY);
    let calls = faulty.calls(Verb::TryLock);
    locks.mutex("x").try_lock().await.unwrap_err();
    assert_eq!(faulty.calls(Verb::TryLock), calls + 1);
}

/// 111. The store fails whoever asks for many: they are told the same, and it is not asked for each.
pub(crate) async fn one_failure_for_all(ctx: Ctx) {
    const MANY: usize = 100;
    let (faulty, locks) = ctx.faulty(LONG).await;
    faulty.always(Verb::Lock, Effect::Cut);
    let tasks: Vec<_> = (0..MANY)
        .map(|_| {
            let mutex = locks.mutex("x").outage(Duration::ZERO);
            tokio::spawn(async move { mutex.lock().await.map(drop) })
        })
        .collect();
    for task in tasks {
        assert_eq!(soon("the failure", task).await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
    }
    // Those who came after it asked again.
    assert!(faulty.calls(Verb::Lock) <= 3, "{} requests", faulty.calls(Verb::Lock));
}

/// 112. A lock that was passed to a task that never looks comes free when its lease is over.
pub(crate) async fn passed_to_nobody(ctx: Ctx) {
    let lease = ctx.lease();
    let (locks, other) = (ctx.locks(lease).await, ctx.locks(lease).await);
    let held = take(&locks, "x").await;
    let mutex = locks.mutex("x");
    let mut never = Box::pin(mutex.lock());
    assert!(tokio::time::timeout(MOMENT, &mut never).await.is_err());
    held.unlock().await.unwrap();
    let guard = soon("the lock", other.mutex("x").lock()).await.unwrap();
    guard.unlock().await.unwrap();
    // It looks at last.
    let guard = soon("the lock", never).await.unwrap();
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
}

/// 113. The store grants the lock to another task of the process: whoever was believed to hold it is told first.
pub(crate) async fn replaced_in_the_process(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let other = ctx.locks(LONG).await;
    // What the store says of it is not heard.
    faulty.always(Verb::Renew, Effect::AWAY);
    let held = take(&locks, "x").await;
    other.evict("x").await.unwrap().unwrap();
    let next = locks.mutex("x").fair(locks.capabilities().fair);
    // Where it is not the store's turn to say who is next, it waits in vain.
    let next = soon("the next", next.wait(BOUND / 4).lock()).await;
    if let Ok(next) = next {
        assert!(!held.is_held() && next.is_held());
        assert_eq!(held.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
        next.unlock().await.unwrap();
    }
}
