//! Whatever is dropped, wherever it waits, leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, Locks};
use tokio::task::JoinSet;

use crate::ctx::{BOUND, Ctx, LONG, claim, name, soon, take, until, waiters};
use crate::harness::Fault;
use crate::polls::{POLLS, no_task_but, polls, tasks};
use lock_core::testing::{Effect, Faulty};

/// Nobody holds or waits, and another gets the lock without waiting for a lease's end.
async fn nothing_left(other: &Locks) {
    take(other, "x").await.unlock().await.unwrap();
    until("nothing left", async || {
        let status = other.inspect("x").await.unwrap();
        status.holder().is_none() && status.waiters.is_empty()
    })
    .await;
}

/// What may happen to each answer.
const ANSWERS: [Effect; 2] = [Effect::Pass, Effect::DelayReply(Duration::from_millis(1))];

/// Two clients' locks, dropped when all is done: then no task of theirs is left. The first client can be made to
/// misbehave.
async fn with_two(ctx: &Ctx, then: impl AsyncFnOnce(Faulty, &Locks, &Locks)) {
    let before = tasks();
    let (faulty, locks) = ctx.faulty(LONG).await;
    let other = ctx.locks(LONG).await;
    then(faulty, &locks, &other).await;
    for locks in [locks, other] {
        assert!(locks.shutdown(BOUND).await.unreleased.is_empty());
    }
    no_task_but(before).await;
}

/// 57. An acquisition of a free lock is dropped after k polls, for all k; with answers that come at once, and late.
pub(crate) async fn drop_at_every_await(ctx: Ctx) {
    with_two(&ctx, async |faulty, locks, other| {
        for (effect, waits) in ANSWERS.into_iter().flat_map(|effect| [(effect, false), (effect, true)]) {
            faulty.everything(effect);
            for most in 0.. {
                assert!(most < POLLS, "it never ends");
                let mutex = locks.mutex("x");
                let ended = polls(most, async {
                    if waits { mutex.lock().await.map(drop) } else { mutex.try_lock().await.map(drop) }
                });
                let ended = ended.await;
                nothing_left(other).await;
                if let Some(answer) = ended {
                    answer.unwrap();
                    break;
                }
            }
        }
    })
    .await;
}

/// 57. The same for a lock that is held and then released.
pub(crate) async fn drop_at_every_await_contended(ctx: Ctx) {
    with_two(&ctx, async |faulty, locks, other| {
        for effect in ANSWERS {
            faulty.everything(effect);
            for most in 0.. {
                assert!(most < POLLS, "it never ends");
                let holder = take(other, "x").await;
                let mutex = locks.mutex("x");
                let acquire = polls(most, async { mutex.lock().await.map(drop) });
                let release = async {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    holder.unlock().await.unwrap();
                };
                let (ended, ()) = soon("the release", async { tokio::join!(acquire, release) }).await;
                nothing_left(other).await;
                if let Some(answer) = ended {
                    answer.unwrap();
                    break;
                }
            }
        }
    })
    .await;
}

/// 58. A release is dropped after k polls, for all k: it is finished in the background.
pub(crate) async fn drop_during_unlock(ctx: Ctx) {
    with_two(&ctx, async |faulty, locks, other| {
        for effect in ANSWERS {
            faulty.everything(effect);
            for most in 0.. {
                assert!(most < POLLS, "it never ends");
                let guard = take(locks, "x").await;
                let ended = polls(most, guard.unlock()).await;
                nothing_left(other).await;
                if let Some(answer) = ended {
                    answer.unwrap();
                    break;
                }
            }
        }
    })
    .await;
}

/// 60. Dropping a guard releases the lock, without waiting for its lease's end.
pub(crate) async fn guard_drop_releases(ctx: Ctx) {
    let (locks, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let guard = take(&locks, "x").await;
    let token = guard.fencing_token();
    drop(guard);
    assert!(take(&other, "x").await.fencing_token() > token);
    // Of the `Locks` nothing is left but the guard, and it is dropped where there is no runtime.
    let guard = take(&locks, "y").await;
    drop(locks);
    tokio::task::spawn_blocking(|| std::thread::spawn(|| drop(guard)).join().unwrap()).await.unwrap();
    take(&other, "y").await.unlock().await.unwrap();
}

/// 61. The runtime is shut down while the lock is held: no panic, not then and not when the guard is dropped on a
///     thread without one; the lock is free when its lease is over.
pub(crate) async fn runtime_shutdown_held(ctx: Ctx) {
    let (lease, here) = (ctx.lease(), ctx.clone());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let guard = runtime.block_on(async { take(&here.locks(lease).await, "x").await });
        runtime.shutdown_timeout(BOUND);
        std::thread::sleep(lease);
        assert!(!guard.is_held());
        drop(guard);
    });
    tokio::task::spawn_blocking(|| thread.join().unwrap()).await.unwrap();
    take(&ctx.locks(LONG).await, "x").await.unlock().await.unwrap();
}

/// 62. The wait is over just when the lock is granted, 1000 times: granted or timed out, never both.
pub(crate) async fn timeout_races_grant(ctx: Ctx) {
    let (locks, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    // What a store only makes for its first lock takes longer than these waits.
    for first in [&locks, &other] {
        take(first, "first").await.unlock().await.unwrap();
    }
    let mut tasks = JoinSet::new();
    for task in 0..20_u64 {
        let (locks, other) = (locks.clone(), other.clone());
        tasks.spawn(async move {
            let lock = task.to_string();
            for round in 0..50 {
                let holder = take(&other, &lock).await;
                let wait = Duration::from_millis(5) + Duration::from_micros(round * 40);
                let waiting = locks.mutex(&lock).wait(wait);
                let release = async {
                    tokio::time::sleep(Duration::from_millis(6)).await;
                    holder.unlock().await.unwrap();
                };
                let (answer, ()) = tokio::join!(waiting.lock(), release);
                match answer {
                    Ok(guard) => guard.unlock().await.unwrap(),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Timeout, "{error}"),
                }
                take(&other, &lock).await.unlock().await.unwrap();
            }
        });
    }
    tasks.join_all().await;
}

/// 63. The section panics: the lock is released, and the next token is higher.
pub(crate) async fn panic_in_section(ctx: Ctx) {
    let (locks, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let guard = take(&locks, "x").await;
    let token = guard.fencing_token();
    let section = tokio::spawn(async move {
        let _guard = guard;
        // Not `panic!`, which would print.
        std::panic::resume_unwind(Box::new("the section fails"));
    });
    assert!(section.await.unwrap_err().is_panic());
    assert!(take(&other, "x").await.fencing_token() > token);
}

/// 64. A try is given up while the store does not answer: when it answers again, no trace of the try is left.
pub(crate) async fn cancel_try_lock(ctx: Ctx) {
    let (locks, other) = (ctx.locks(LONG).await, ctx.backend().await);
    // Connected before it counts.
    take(&locks, "x").await.unlock().await.unwrap();
    ctx.inject(Fault::HoldRequests).await;
    let attempt = tokio::spawn(async move { locks.mutex("x").try_lock().await.map(drop) });
    tokio::time::sleep(Duration::from_millis(300)).await;
    attempt.abort();
    let _ = attempt.await;
    ctx.inject(Fault::ReleaseRequests).await;
    let next = claim("x", LONG);
    soon("the lock", other.lock(&next)).await.unwrap();
    assert_eq!(ctx.store().raw_holder(&name("x")).await.as_deref(), Some(next.owner.as_str()));
    until("an empty line", async || waiters(&*Arc::clone(&other), "x").await == 0).await;
    other.unlock(&next).await.unwrap();
}
