//! A figure, and the bar that it should meet.

use serde::{Deserialize, Serialize};

/// A figure beside the bar that it should meet.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
pub(crate) fn median(mut rounds: Vec<f64>) -> (f64, (f64, f64)) {
    rounds.sort_by(f64::total_cmp);
    match (rounds.first(), rounds.last()) {
        (Some(&low), Some(&high)) => (rounds[rounds.len() / 2], (low, high)),
        _ => (f64::NAN, (f64::NAN, f64::NAN)),
    }
}
