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
