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
    /// The least it should be, or with `at_most` the most; none if it is only reported.
    pub bar: Option<f64>,
    /// Is the bar an upper one?
    pub at_most: bool,
}

impl Figure {
    /// The figure of several rounds, which should be `bar` at least.
    pub fn at_least(what: impl Into<String>, rounds: Vec<f64>, bar: f64) -> Self {
        Self { bar: Some(bar), ..Self::reported(what, rounds) }
    }

    /// The figure of several rounds, which should be `bar` at most.
    pub fn at_most(what: impl Into<String>, rounds: Vec<f64>, bar: f64) -> Self {
        Self { at_most: true, ..Self::at_least(what, rounds, bar) }
    }

    /// The figure of several rounds, which has no bar.
    pub fn reported(what: impl Into<String>, rounds: Vec<f64>) -> Self {
        let (value, spread) = median(rounds);
        Self { what: what.into(), value, spread, bar: None, at_most: false }
    }

    /// Is it as good as it should be?
    pub fn is_met(&self) -> bool {
        self.bar.is_none_or(|bar| if self.at_most { self.value <= bar } else { self.value >= bar })
    }

    /// Prints it on one line.
    pub fn print(&self) {
        let sign = if self.at_most { "<=" } else { ">=" };
        let verdict = if self.is_met() { "met" } else { "MISSED" };
        let (low, high) = self.spread;
        let judged = self.bar.map_or(String::new(), |bar| format!(", bar {sign} {bar}: {verdict}"));
        println!("  {:<62} {:>8.3} ({low:.3}–{high:.3}){judged}", self.what, self.value);
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
