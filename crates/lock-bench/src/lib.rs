//! Oarlock's benchmarks: each figure is a ratio against a bare operation or a peer, measured in turns within one run,
//! so that a machine that is slow, or slower for a while, is slow for both.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod beside;
pub mod contended;
pub mod disk;
pub mod etcd;
pub mod fence;
mod figure;
pub mod http;
pub mod kept;
pub mod memory;
pub mod modes;
pub mod mysql;
mod page;
mod peers;
pub mod postgres;
pub mod queue;
pub mod quorum;
mod reasons;
pub mod record;
pub mod redis;
pub mod several;
pub mod sqlite;
mod tasks;
pub mod zookeeper;

use std::time::{Duration, Instant};

use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use tokio::task::JoinSet;

pub use figure::Figure;

use crate::peers::{LEASE, NAME};

/// Of holds, and of what lies between them, where a run has any.
const PAUSE: Duration = Duration::from_millis(2);

/// How often a second `cycle` can be run, one after the other, for this long.
async fn rate(during: Duration, mut cycle: impl AsyncFnMut()) -> f64 {
    let start = Instant::now();
    let mut cycles = 0_u32;
    while start.elapsed() < during {
        // The clock is asked once for several cycles: the fastest of them take less time than the asking.
        for _ in 0..16 {
            cycle().await;
        }
        cycles += 16;
    }
    f64::from(cycles) / start.elapsed().as_secs_f64()
}

/// The median time in seconds of `cycle`, run one after the other for this long.
async fn middle(during: Duration, mut cycle: impl AsyncFnMut()) -> f64 {
    let start = Instant::now();
    let mut times = Vec::new();
    while start.elapsed() < during {
        let begun = Instant::now();
        cycle().await;
        times.push(begun.elapsed());
    }
    let at = times.len() / 2;
    times.select_nth_unstable(at).1.as_secs_f64()
}

/// The median times in seconds of two cycles that take turns for this long, one of each at a time, so that both meet
/// the same disk: its speed changes from one second to the next. Both are warmed up first.
pub async fn interleaved(during: Duration, mut a: impl AsyncFnMut(), mut b: impl AsyncFnMut()) -> [f64; 2] {
    for _ in 0..20 {
        a().await;
        b().await;
    }
    let mut times = [Vec::new(), Vec::new()];
    let start = Instant::now();
    while start.elapsed() < during {
        let begun = Instant::now();
        a().await;
        let between = Instant::now();
        b().await;
        times[0].push((between - begun).as_secs_f64());
        times[1].push(between.elapsed().as_secs_f64());
    }
    times.map(|times| figure::median(times).0)
}

/// Lock and unlock, nobody else there: each time for another owner, as with guards.
fn cycle(lock: &impl DistributedLock) -> impl AsyncFnMut() {
    let name = LockName::new(NAME).expect("a name");
    let mut number = 0;
    async move || {
        number += 1;
        let claim = Claim::new(name.clone(), OwnerId::from_store(&format!("bench@host:1#{number}")), LEASE);
        lock.lock(&claim).await.expect("free");
        lock.unlock(&claim).await.expect("held");
    }
}

/// What each of `count` clients asks in a second, as `asked` counts it, while all wait for a lock that nobody releases.
async fn idle<L: DistributedLock>(
    count: usize,
    during: Duration,
    connect: impl AsyncFn() -> L,
    asked: impl AsyncFn() -> f64,
) -> f64 {
    /// Until all wait, and no sooner than others may ask.
    const SETTLED: Duration = Duration::from_secs(10);
    let claim = |number: usize| {
        let owner = OwnerId::from_store(&format!("bench@host:1#{number}"));
        Claim::new(LockName::new("bench").expect("a name"), owner, Duration::from_secs(3600))
    };
    let holder = connect().await;
    holder.try_lock(&claim(count)).await.expect("an answer").expect("free");
    let mut waiting = JoinSet::new();
    for number in 0..count {
        let (client, claim) = (connect().await, claim(number));
        waiting.spawn(async move { client.lock(&claim).await });
    }
    tokio::time::sleep(SETTLED).await;
    let (before, start) = (asked().await, Instant::now());
    tokio::time::sleep(during).await;
    let rate = (asked().await - before) / start.elapsed().as_secs_f64();
    assert!(waiting.try_join_next().is_none(), "all of them wait");
    rate / count as f64
}
