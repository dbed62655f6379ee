//! Several locks at once: all of them or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use lock_core::testing::{Effect, Verb};
use lock_core::{ErrorKind, Locks};

use crate::ctx::{BOUND, Ctx, LONG, claim, holds, soon, take, until};

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

/// What each task names, in an order that some other names the other way round.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [2, 1, 0], [1, 3, 0], [4, 2, 1], [3, 4, 2], [0, 4, 3]];

/// How often each of them does so.
const ROUNDS: usize = 4;

async fn is_free(locks: &Locks, name: &str) -> bool {
    locks.inspect(name).await.unwrap().holder().is_none()
}

/// 195. Nobody waits for another in a circle, no two hold one lock, and each lock's tokens rise.
pub(crate) async fn opposite_orders(ctx: Ctx) {
    let clients = [ctx.locks(LONG).await, ctx.locks(LONG).await, ctx.locks(LONG).await];
    let inside: Arc<[AtomicU32; 5]> = Arc::default();
    let tokens: Arc<[AtomicU64; 5]> = Arc::default();
    let tasks = ORDERS.into_iter().zip(clients.iter().cycle()).map(|(order, locks)| {
        let (locks, inside, tokens) = (locks.clone(), Arc::clone(&inside), Arc::clone(&tokens));
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let all = locks.all(order.map(|lock| NAMES[lock])).wait(6 * BOUND);
                let guard = all.lock().await.unwrap();
                for lock in order {
                    assert_eq!(inside[lock].fetch_add(1, Ordering::SeqCst), 0, "{}", NAMES[lock]);
                    let token = guard.get(NAMES[lock]).unwrap().fencing_token().get();
                    assert!(tokens[lock].swap(token, Ordering::SeqCst) < token);
                }
                tokio::task::yield_now().await;
                for lock in order {
                    inside[lock].fetch_sub(1, Ordering::SeqCst);
                }
                guard.unlock().await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// 196. Where one is not free the others are given back, and with the loss of one all are lost.
pub(crate) async fn all_or_none(ctx: Ctx) {
    let (ours, others) = (ctx.locks(ctx.lease()).await, ctx.locks(LONG).await);
    let held = take(&others, "b").await;
    let all = ours.all(["c", "b", "a"]);
    assert!(all.try_lock().await.unwrap().is_none());
    assert!(is_free(&others, "a").await && is_free(&others, "c").await);
    let waiting = tokio::spawn({
        let all = all.clone();
        async move { all.lock().await }
    });
    until("the first is held", async || !is_free(&others, "a").await).await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    until("the first is free", async || is_free(&others, "a").await).await;
    held.unlock().await.unwrap();

    let guard = soon("all three", all.lock()).await.unwrap();
    assert_eq!(guard.iter().count(), 3);
    others.evict("b").await.unwrap().unwrap();
    soon("the loss", guard.lost()).await;
    assert!(!guard.is_held());
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(is_free(&others, "a").await && is_free(&others, "c").await);
}

/// 240. Of several locks one is read and of one some permits are taken, beside others who do the same.
pub(crate) async fn modes_together(ctx: Ctx) {
    let (ours, others) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let reads = others.rw_lock("catalog").unwrap().read().await.unwrap();
    let exports = others.semaphore("exports", 3).unwrap().acquire().await.unwrap();
    let all = ours.all(["accounts"]).and_read("catalog").and_permits("exports", 2, 3);
    let guard = soon("beside others", all.clone().wait(BOUND).lock()).await.unwrap();
    let slots: Vec<_> = guard.get("exports").unwrap().slots().to_vec();
    assert!(slots.len() == 2 && !slots.contains(&exports.slot().unwrap()), "{slots:?}");
    assert!(others.mutex("accounts").try_lock().await.unwrap().is_none());
    assert!(others.semaphore("exports", 3).unwrap().try_acquire().await.unwrap().is_none());
    reads.unlock().await.unwrap();
    assert!(others.rw_lock("catalog").unwrap().try_write().await.unwrap().is_none());
    // None is taken where one of the permits is missing.
    guard.unlock().await.unwrap();
    let two = others.semaphore("exports", 3).unwrap().try_acquire().await.unwrap().unwrap();
    assert!(all.try_lock().await.unwrap().is_none());
    assert!(is_free(&others, "accounts").await && is_free(&others, "catalog").await);
    two.unlock().await.unwrap();
    exports.unlock().await.unwrap();
}

/// In a cluster of Redis, these are in one slot.
const TAGGED: [&str; 3] = ["{s}a", "{s}b", "{s}c"];

/// 241. While all are free, one request takes them, and each has its token, which rises.
pub(crate) async fn taken_in_one_request(ctx: Ctx) {
    let (faulty, ours) = ctx.faulty(LONG).await;
    let others = ctx.locks(LONG).await;
    let mut tokens = [0; 3];
    // Stores that keep a row for each name make these by and by.
    for name in TAGGED {
        take(&others, name).await.unlock().await.unwrap();
    }
    for round in 0..3 {
        let guard = ours.all(["{s}c", "{s}a", "{s}b"]).lock().await.unwrap();
        assert_eq!((faulty.calls(Verb::TryLockAll), faulty.calls(Verb::Lock)), (round + 1, 0));
        for (token, lease) in tokens.iter_mut().zip(guard.iter()) {
            let next = lease.fencing_token().get();
            assert!(next > std::mem::replace(token, next));
            assert!(others.mutex(lease.name().as_str()).try_lock().await.unwrap().is_none());
        }
        guard.unlock().await.unwrap();
        for (token, name) in tokens.iter_mut().zip(TAGGED) {
            let next = take(&others, name).await;
            assert!(next.fencing_token().get() > *token);
            next.unlock().await.unwrap();
        }
    }
    // What nobody knows the outcome of is undone, and then they are taken one by one.
    for effect in [Effect::LoseReply, Effect::Cut, Effect::AWAY] {
        faulty.once(Verb::TryLockAll, effect);
        let guard = soon("one after the other", ours.all(["{s}c", "{s}a", "{s}b"]).lock()).await.unwrap();
        guard.unlock().await.unwrap();
    }
    // Of one that is dropped on its way nothing is left.
    faulty.once(Verb::TryLockAll, Effect::DelayReply(LONG));
    let all = ours.all(["{s}c", "{s}a", "{s}b"]);
    let dropped = tokio::spawn(async move { all.lock().await.map(drop) });
    until("it is done", async || !is_free(&others, "{s}b").await).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    until("all are free", async || {
        is_free(&others, "{s}a").await && is_free(&others, "{s}b").await && is_free(&others, "{s}c").await
    })
    .await;
}

/// 242. One of several locks is held: one request takes none of them.
pub(crate) async fn not_all_are_free(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.locks(LONG).await);
    for name in TAGGED {
        take(&others, name).await.unlock().await.unwrap();
    }
    let wanted = TAGGED.map(|name| claim(name, LONG));
    let held = take(&others, "{s}b").await;
    assert!(ours.try_lock_all(&wanted).await.unwrap().is_none());
    assert!(is_free(&others, "{s}a").await && is_free(&others, "{s}c").await);
    held.unlock().await.unwrap();
    let grants = ours.try_lock_all(&wanted).await.unwrap().unwrap();
    assert_eq!(grants.len(), 3);
    for claim in &wanted {
        assert!(holds(&*ours, claim).await);
        ours.unlock(claim).await.unwrap();
    }
}
