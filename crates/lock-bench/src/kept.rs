//! What it costs to keep many locks.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::{LockGuard, Locks};
use lock_redis::RedisLock;
use rustix::time::{ClockId, clock_gettime};
use test_servers::RedisServer;

use crate::Figure;
use crate::redis::requests;

/// A renewal is due each third of the default lease.
const RENEWAL: Duration = Duration::from_secs(10);

/// The share of one core that renewing `count` locks in `memory:` takes.
pub async fn memory(count: usize, rounds: usize) -> Figure {
    let locks = Locks::new(Arc::new(MemoryLock::new()));
    let guards = take(&locks, count).await;
    let mut shares = Vec::new();
    for _ in 0..rounds {
        shares.push(share().await);
    }
    assert!(guards.iter().all(|guard| guard.is_held()), "all of them were renewed");
    Figure::at_most(format!("memory: share of a core that keeps {count} locks"), shares, 0.05)
}

/// The same on Redis, and the most requests within 100 ms.
pub async fn redis(count: usize, rounds: usize) -> [Figure; 2] {
    let server = RedisServer::start();
    let locks = Locks::new(Arc::new(RedisLock::connect(&server.url(), "bench").await.expect("a server")));
    let guards = take(&locks, count).await;
    let (mut shares, mut bursts) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        shares.push(share().await);
        // Asking costs as well, so these are other renewals.
        let (mut before, mut most) = (requests(&server.url()).await, 0.0_f64);
        let mut ticks = tokio::time::interval(Duration::from_millis(100));
        ticks.tick().await;
        for _ in 0..RENEWAL.as_millis() / 100 {
            ticks.tick().await;
            let now = requests(&server.url()).await;
            most = most.max(now - before);
            before = now;
        }
        bursts.push(most);
    }
    assert!(guards.iter().all(|guard| guard.is_held()), "all of them were renewed");
    [
        Figure::at_most(format!("redis: share of a core that keeps {count} locks"), shares, 0.02),
        Figure::at_most(format!("redis: requests within 100 ms for {count} locks"), bursts, 1000.0),
    ]
}

async fn take(locks: &Locks, count: usize) -> Vec<LockGuard> {
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(locks.mutex(format!("kept/{number}")).lock().await.expect("free"));
    }
    guards
}

/// How much of a core this process uses while each lock is renewed once.
async fn share() -> f64 {
    let [wall, processor] = [ClockId::Monotonic, ClockId::ProcessCPUTime];
    let (began, used) = (now(wall), now(processor));
    tokio::time::sleep(RENEWAL).await;
    (now(processor) - used).as_secs_f64() / (now(wall) - began).as_secs_f64()
}

fn now(clock: ClockId) -> Duration {
    let now = clock_gettime(clock);
    Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
}
