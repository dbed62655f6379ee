//! What turns at a lock say: rates, times, fairness; and figures over several rounds. No I/O.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::worker::Span;

/// One taker's way through the lock once, in nanoseconds of one clock for all processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Turn {
    /// It asked for the lock.
    pub(crate) asked: u64,
    /// It had it.
    pub(crate) had: u64,
    /// It began to give it back.
    pub(crate) gave: u64,
    /// The store confirmed that.
    pub(crate) done: u64,
}

/// What all takers of a round did together. A taker is a task of a process.
#[derive(Debug)]
pub(crate) struct Study {
    /// Acquisitions per second.
    pub(crate) rate: f64,
    /// From asking to the confirmed release, each turn.
    pub(crate) cycles: Times,
    /// From a release to the next taker's return, where that one was waiting already.
    pub(crate) hand_offs: Times,
    /// The same per second.
    pub(crate) hand_off_rate: f64,
    /// Jain's index over the takers: 1 if all had the lock equally often, 1/n if one alone had it.
    pub(crate) fairness: f64,
    /// The longest that anybody waited.
    pub(crate) longest_wait: Duration,
    /// How often it was granted while as many held it as may.
    pub(crate) overlaps: u64,
}

impl Study {
    /// Of takers that began new turns in this span. `at_once`: so many may hold what they all wanted; without it, any
    /// number may, or they did not all want the same.
    pub(crate) fn of(takers: &[Vec<Turn>], span: Span, at_once: Option<u32>) -> Self {
        let longest = takers.iter().flatten().map(|turn| turn.had.saturating_sub(turn.asked)).max().unwrap_or(0);
        // Who waits at the end of the span still gets a turn, which is none of the span's.
        let within = |turns: &[Turn]| turns.partition_point(|turn| turn.had <= span.end);
        let takers: Vec<_> = takers.iter().map(|turns| &turns[..within(turns)]).collect();
        let counts: Vec<f64> = takers.iter().map(|turns| turns.len() as f64).collect();
        let mut all = takers.concat();
        all.sort_unstable_by_key(|turn| turn.had);
        let mut cycles = Times::new();
        all.iter().for_each(|turn| cycles.add_nanos(turn.done.saturating_sub(turn.asked)));
        let mut hand_offs = Times::new();
        for pair in all.windows(2).filter(|_| at_once == Some(1)) {
            let [former, next] = pair else { continue };
            if next.had >= former.gave && next.asked < former.gave {
                hand_offs.add_nanos(next.had - former.gave);
            }
        }
        let seconds = (span.end - span.start) as f64 / 1e9;
        Self {
            rate: all.len() as f64 / seconds,
            cycles,
            hand_off_rate: hand_offs.count() as f64 / seconds,
            hand_offs,
            fairness: jain(&counts),
            longest_wait: Duration::from_nanos(longest),
            overlaps: at_once.map_or(0, |most| overlaps(&all, most)),
        }
    }
}

/// How many turns began while as many others lasted as may at once; the turns in the order of their begin.
fn overlaps(turns: &[Turn], most: u32) -> u64 {
    let mut lasting = BinaryHeap::new();
    let mut overlaps = 0;
    for turn in turns {
        while lasting.peek().is_some_and(|Reverse(gave)| *gave <= turn.had) {
            lasting.pop();
        }
        overlaps += u64::from(lasting.len() >= most as usize);
        lasting.push(Reverse(turn.gave));
    }
    overlaps
}

/// Jain's index.
fn jain(counts: &[f64]) -> f64 {
    let sum: f64 = counts.iter().sum();
    let squares: f64 = counts.iter().map(|count| count * count).sum();
    if squares == 0.0 { f64::NAN } else { sum * sum / (counts.len() as f64 * squares) }
}

/// In nanoseconds, more than any wait here; what is longer counts as this.
const LONGEST: u64 = 3_600_000_000_000;

/// Many times, in bounded memory, each good to a thousandth.
#[derive(Clone, Debug)]
pub(crate) struct Times(Histogram<u64>);

impl Times {
    pub(crate) fn new() -> Self {
        Self(Histogram::new_with_max(LONGEST, 3).expect("three digits of this are allowed"))
    }

    fn add_nanos(&mut self, nanos: u64) {
        self.0.saturating_record(nanos);
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// In microseconds, what this share of the times was no longer than; nothing if there are none.
    pub(crate) fn at(&self, share: f64) -> Option<f64> {
        (self.count() > 0).then(|| self.0.value_at_quantile(share) as f64 / 1e3)
    }

    /// How the times are spread: for steps of a tenth of a decade each that has any, its lower end in microseconds and
    /// how many are in it.
    pub(crate) fn distribution(&self) -> Vec<Bin> {
        let mut bins = BTreeMap::new();
        for value in self.0.iter_recorded() {
            let micros = (value.value_iterated_to() as f64 / 1e3).max(0.01);
            *bins.entry((micros.log10() * BINS).floor() as i32).or_insert(0) += value.count_since_last_iteration();
        }
        bins.into_iter().map(|(bin, count)| Bin { from_us: round(10_f64.powf(f64::from(bin) / BINS)), count }).collect()
    }
}

/// How many bins a decade has.
pub(crate) const BINS: f64 = 10.0;

/// Times of about the same length: up to a tenth of a decade longer than `from_us`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Bin {
    pub(crate) from_us: f64,
    pub(crate) count: u64,
}

/// A figure over several rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figure {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    pub(crate) rounds: usize,
}

impl Figure {
    /// Of what the rounds gave; nothing if they gave nothing.
    pub(crate) fn of(rounds: &[f64]) -> Option<Self> {
        let mut sorted: Vec<f64> = rounds.iter().copied().filter(|value| value.is_finite()).map(round).collect();
        sorted.sort_by(f64::total_cmp);
        let (&low, &high) = (sorted.first()?, sorted.last()?);
        let middle = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
        Some(Self { median, low, high, rounds: sorted.len() })
    }
}

/// To four digits: more would claim a precision that nothing here has.
fn round(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { start: 0, end: 2_000_000_000 };

    fn turn(asked: u64, had: u64, gave: u64) -> Turn {
        Turn { asked, had, gave, done: gave + 1_000 }
    }

    #[test]
    fn a_hand_off_counts_where_somebody_waited() {
        // The second asks while the first holds; the first asks again after the second gave back.
        let takers = [vec![turn(0, 1_000, 5_000), turn(30_000, 31_000, 32_000)], vec![turn(2_000, 9_000, 20_000)]];
        let study = Study::of(&takers, SPAN, Some(1));
        assert_eq!((study.cycles.count(), study.overlaps, study.hand_offs.count()), (3, 0, 1));
        assert_eq!((study.rate, study.hand_off_rate), (1.5, 0.5));
        assert!((study.hand_offs.at(0.5).unwrap() - 4.0).abs() < 0.01);
        assert_eq!(study.longest_wait, Duration::from_nanos(7_000));
        assert!((study.fairness - 0.9).abs() < 1e-9);
    }

    #[test]
    fn who_gets_it_after_the_end_has_waited_but_does_not_count() {
        let takers = [vec![turn(0, 1_000, 5_000)], vec![turn(0, SPAN.end + 1, SPAN.end + 2)]];
        let study = Study::of(&takers, SPAN, Some(1));
        assert_eq!((study.cycles.count(), study.longest_wait), (1, Duration::from_nanos(SPAN.end + 1)));
        assert!((study.fairness - 0.5).abs() < 1e-9);
    }

    #[test]
    fn a_grant_before_the_release_is_an_overlap_on_one_name_alone() {
        let takers = [vec![turn(0, 1, 10)], vec![turn(0, 9, 20)]];
        assert_eq!(Study::of(&takers, SPAN, Some(1)).overlaps, 1);
        assert_eq!(Study::of(&takers, SPAN, None).overlaps, 0);
    }

    #[test]
    fn more_at_once_than_there_are_permits_is_an_overlap() {
        let takers = |third| [vec![turn(0, 1, 10)], vec![turn(0, 5, 20)], vec![turn(0, third, 30)]];
        assert_eq!(Study::of(&takers(10), SPAN, Some(2)).overlaps, 0);
        assert_eq!(Study::of(&takers(9), SPAN, Some(2)).overlaps, 1);
        assert_eq!(Study::of(&takers(9), SPAN, Some(3)).overlaps, 0);
    }

    #[test]
    fn nothing_done_is_no_figure() {
        let study = Study::of(&[vec![]], SPAN, Some(1));
        assert_eq!((study.rate, study.cycles.at(0.5)), (0.0, None));
        assert_eq!(Figure::of(&[study.fairness]), None);
    }

    #[test]
    fn a_figure_is_the_middle_and_the_ends() {
        let figure = |median, low, high, rounds| Some(Figure { median, low, high, rounds });
        assert_eq!(Figure::of(&[3.0, 1.0, 2.0]), figure(2.0, 1.0, 3.0, 3));
        assert_eq!(Figure::of(&[1.0, 4.0]), figure(2.5, 1.0, 4.0, 2));
        assert_eq!(Figure::of(&[123_456.0]), figure(123_500.0, 123_500.0, 123_500.0, 1));
    }

    #[test]
    fn the_distribution_has_all_times() {
        let mut times = Times::new();
        for micros in [1, 1, 100, 4_900_000] {
            times.add_nanos(micros * 1_000);
        }
        let bins = times.distribution();
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), times.count());
        assert!(bins.iter().all(|bin| bin.from_us <= 5_000_000.0) && bins.len() == 3, "{bins:?}");
    }
}
