//! The engine without a store: `memory:` against `tokio::sync::Mutex`, and what it costs to keep many locks.

use std::sync::Arc;
use std::time::Duration;

use lock_core::Locks;
use lock_core::memory::MemoryLock;
use rustix::time::{ClockId, clock_gettime};

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

/// The share of one core that renewing `count` locks with the default lease takes. A round is as long as a renewal.
pub async fn kept(count: usize, rounds: usize) -> Figure {
    let locks = Locks::new(Arc::new(MemoryLock::new()));
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(locks.mutex(&format!("kept/{number}")).lock().await.expect("free"));
    }
    let mut shares = Vec::new();
    for _ in 0..rounds {
        let (wall, cpu) = (now(ClockId::Monotonic), now(ClockId::ProcessCPUTime));
        tokio::time::sleep(Duration::from_secs(10)).await;
        shares
            .push((now(ClockId::ProcessCPUTime) - cpu).as_secs_f64() / (now(ClockId::Monotonic) - wall).as_secs_f64());
    }
    assert!(guards.iter().all(|guard| guard.is_held()), "all of them were renewed");
    Figure::at_most(format!("memory: share of a core that keeps {count} locks"), shares, 0.05)
}

fn now(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
