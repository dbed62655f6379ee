//! The engine without a store: `memory:` against `tokio::sync::Mutex`.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lock_core::memory::MemoryLock;
use lock_core::{Locks, Owner};
use tokio::task::JoinSet;

use crate::{Figure, rate};

/// Lock and unlock, nobody else there, in cycles per cycle of `tokio::sync::Mutex`.
pub async fn uncontended(rounds: usize, each: Duration) -> Figure {
    let locks = Locks::new(Arc::new(MemoryLock::new()));
    let ours = locks.mutex("bench");
    let theirs = tokio::sync::Mutex::new(());
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let base = rate(each, async || drop(theirs.lock().await)).await;
        let rate = rate(each, async || {
            ours.lock().await.expect("free").unlock().await.expect("held");
        });
        let rate = rate.await;
        println!("    memory: {rate:.0} cycles/s, tokio::sync::Mutex {base:.0} cycles/s");
        ratios.push(rate / base);
    }
    Figure::at_least("memory: lock + unlock / tokio::sync::Mutex", ratios, 0.06)
}

/// How long a hand-over takes where so many wait on one name, each with an owner of its own, over that with ten.
pub async fn many_owners(rounds: usize, many: usize) -> Figure {
    const FEW: usize = 10;
    let locks = Locks::new(Arc::new(MemoryLock::new()));
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let mut few = Duration::ZERO;
        for _ in 0..many / FEW {
            few += handed_over(&locks, FEW).await;
        }
        let many = handed_over(&locks, many).await;
        println!("    memory: all served in {many:?}, ten at a time in {few:?}");
        ratios.push(many.as_secs_f64() / few.as_secs_f64());
    }
    Figure::at_most(format!("memory: a hand-over with {many} owners waiting / with {FEW}"), ratios, 2.0)
}

/// How long it takes until all that wait have had the lock.
async fn handed_over(locks: &Locks, waiters: usize) -> Duration {
    let held = locks.mutex("owners").lock().await.expect("free");
    let (mut tasks, come) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
    for _ in 0..waiters {
        let mutex = locks.mutex("owners").owner(&Owner::new());
        let come = Arc::clone(&come);
        tasks.spawn(async move {
            come.fetch_add(1, Ordering::Relaxed);
            mutex.lock().await.expect("its turn").unlock().await
        });
    }
    // On this thread, so that who has come waits.
    while come.load(Ordering::Relaxed) < waiters {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    held.unlock().await.expect("held");
    while let Some(done) = tasks.join_next().await {
        done.expect("no panic").expect("held");
    }
    began.elapsed()
}
