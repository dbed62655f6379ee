//! Several locks at once: all of them or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use lock_core::{ErrorKind, Locks};

use crate::ctx::{BOUND, Ctx, LONG, soon, take, until};

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
