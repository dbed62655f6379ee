//! Oarlock's benchmarks: each figure is a ratio against a bare operation or a peer, measured in turns within one run, so
//! that a machine that is slow, or slower for a while, is slow for both.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod contended;
pub mod etcd;
pub mod kept;
pub mod memory;
pub mod mysql;
mod peers;
pub mod postgres;
pub mod queue;
pub mod redis;
pub mod sqlite;
mod tasks;
pub mod zookeeper;

use std::time::{Duration, Instant};

use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use tokio::task::JoinSet;

/// Of holds, and of what lies between them, where a run has any.
const PAUSE: Duration = Duration::from_millis(2);

/// A figure beside the bar that it should meet.
#[derive(Debug)]
pub struct Figure {
    /// What was measured against what.
    pub what: String,
    /// The median over the rounds.
    pub value: f64,
    /// The lowest and the highest round.
    pub spread: (f64, f64),
    /// The least it should be, or with `at_most` the most.
    pub bar: f64,
    /// Is the bar an upper one?
    pub at_most: bool,
}

impl Figure {
    /// The figure of several rounds, which should be `bar` at least.
    pub fn at_least(what: impl Into<String>, rounds: Vec<f64>, bar: f64) -> Self {
        let (value, spread) = median(rounds);
        Self { what: what.into(), value, spread, bar, at_most: false }
    }

    /// The figure of several rounds, which should be `bar` at most.
    pub fn at_most(what: impl Into<String>, rounds: Vec<f64>, bar: f64) -> Self {
        Self { at_most: true, ..Self::at_least(what, rounds, bar) }
    }

    /// Is it as good as it should be?
    pub fn is_met(&self) -> bool {
        if self.at_most { self.value <= self.bar } else { self.value >= self.bar }
    }

    /// Prints it on one line.
    pub fn print(&self) {
        let sign = if self.at_most { "<=" } else { ">=" };
        let verdict = if self.is_met() { "met" } else { "MISSED" };
        let (low, high) = self.spread;
        println!("  {:<62} {:>8.3} ({low:.3}–{high:.3}), bar {sign} {}: {verdict}", self.what, self.value, self.bar);
    }
}

/// The middle one, and the lowest and highest.
fn median(mut rounds: Vec<f64>) -> (f64, (f64, f64)) {
    rounds.sort_by(f64::total_cmp);
    match (rounds.first(), rounds.last()) {
        (Some(&low), Some(&high)) => (rounds[rounds.len() / 2], (low, high)),
        _ => (f64::NAN, (f64::NAN, f64::NAN)),
    }
}

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

/// The median times in seconds of two cycles that alternate for this long, so that a disk whose speed changes from second to
/// second is as fast for both. A quarter more goes before, unmeasured, to warm both up.
async fn interleaved(during: Duration, mut a: impl AsyncFnMut(), mut b: impl AsyncFnMut()) -> [f64; 2] {
    let start = Instant::now();
    let mut times = [const { Vec::new() }; 2];
    while start.elapsed() < during + during / 4 {
        let begun = Instant::now();
        a().await;
        let between = Instant::now();
        b().await;
        let end = Instant::now();
        if begun - start >= during / 4 {
            times[0].push(between - begun);
            times[1].push(end - between);
        }
    }
    times.map(|mut times| {
        let at = times.len() / 2;
        times.select_nth_unstable(at).1.as_secs_f64()
    })
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
