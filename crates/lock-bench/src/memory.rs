//! The engine without a store: `memory:` against `tokio::sync::Mutex`.

use std::sync::Arc;
use std::time::Duration;

use lock_core::Locks;
use lock_core::memory::MemoryLock;

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
    Figure::at_least("memory: lock + unlock / tokio::sync::Mutex", ratios, 1.0 / 20.0)
}
