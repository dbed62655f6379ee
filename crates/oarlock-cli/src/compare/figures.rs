//! What is measured, in which steps, and what the figures are called.

use serde::{Deserialize, Serialize};

/// One thing that is done with one backend in each round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Step {
    /// One task takes a lock and gives it back.
    Alone,
    /// 64 tasks of a process, each with a lock of its own.
    Names,
    /// 64 tasks of a process on one lock.
    Tasks,
    /// 2 processes on one lock.
    Pair,
    /// 8 processes on one lock.
    Eight,
    /// 2 processes that hold for long, so that the waiter is asleep when it is told.
    Wake,
    /// The holder's process is killed while another waits.
    Recovery,
    /// One task reads and lets go, where the store has readers.
    Reading,
    /// 8 processes that only read, with sections of 2 ms, where the store has readers.
    Readers,
    /// One task takes a permit and gives it back, where the store has permits.
    Permit,
    /// 8 processes that want one of 2 permits, where the store has permits.
    Permits,
    /// 100 waiters that get nothing.
    Idle,
    /// 1,000 leases are renewed.
    Renewals,
    /// Alone and 8 processes once more, through a relay that counts.
    Messages,
}

impl Step {
    pub(crate) const ALL: [Self; 14] = [
        Self::Alone,
        Self::Names,
        Self::Tasks,
        Self::Pair,
        Self::Eight,
        Self::Wake,
        Self::Recovery,
        Self::Reading,
        Self::Readers,
        Self::Permit,
        Self::Permits,
        Self::Idle,
        Self::Renewals,
        Self::Messages,
    ];

    /// For the reader of a progress bar or a plot.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Alone => "lock and unlock, nobody else there",
            Self::Names => "64 tasks, 64 locks",
            Self::Tasks => "hand-off between 64 tasks of a process",
            Self::Pair => "hand-off between 2 processes",
            Self::Eight => "hand-off between 8 processes",
            Self::Wake => "wake-up of a process that has waited for 50 ms",
            Self::Recovery => "the holder is killed",
            Self::Reading => "read and release, nobody else there",
            Self::Readers => "8 processes that read",
            Self::Permit => "a permit and its release, nobody else there",
            Self::Permits => "8 processes, 2 permits",
            Self::Idle => "100 idle waiters",
            Self::Renewals => "1,000 renewals",
            Self::Messages => "messages to the server",
        }
    }
}

/// A figure of the report. Its name in JSON is a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Measure {
    AloneP50Us,
    AloneP99Us,
    NamesPerS,
    TasksPerS,
    TasksP50Us,
    TasksP99Us,
    PairPerS,
    PairP50Us,
    PairP99Us,
    EightPerS,
    EightP50Us,
    EightP99Us,
    EightFairness,
    EightLongestWaitUs,
    WakeP50Us,
    WakeP99Us,
    RecoveryUs,
    ReadP50Us,
    ReadP99Us,
    ReadersPerS,
    PermitP50Us,
    PermitP99Us,
    PermitsPerS,
    PermitsLongestWaitUs,
    IdleCoreShare,
    RenewalsUs,
    AloneMessages,
    EightMessages,
}

/// What a figure counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Microseconds.
    Time,
    PerSecond,
    Share,
    Plain,
}

/// A figure, what it is called, and its unit.
pub(crate) type Row = (Measure, &'static str, Unit);

/// The figures as the report has them, under their headings.
pub(crate) const ROWS: [(&str, &[Row]); 9] = [
    (
        "Nobody else there",
        &[
            (Measure::AloneP50Us, "lock and unlock, median", Unit::Time),
            (Measure::AloneP99Us, "lock and unlock, p99", Unit::Time),
            (Measure::NamesPerS, "64 tasks on 64 locks, acquisitions", Unit::PerSecond),
        ],
    ),
    (
        "2 processes, one lock",
        &[
            (Measure::PairPerS, "hand-offs", Unit::PerSecond),
            (Measure::PairP50Us, "hand-off, median", Unit::Time),
            (Measure::PairP99Us, "hand-off, p99", Unit::Time),
        ],
    ),
    (
        "8 processes, one lock",
        &[
            (Measure::EightPerS, "hand-offs", Unit::PerSecond),
            (Measure::EightP50Us, "hand-off, median", Unit::Time),
            (Measure::EightP99Us, "hand-off, p99", Unit::Time),
            (Measure::EightFairness, "fairness (Jain's index, 1 is best)", Unit::Plain),
            (Measure::EightLongestWaitUs, "longest wait", Unit::Time),
        ],
    ),
    (
        "64 tasks of a process, one lock",
        &[
            (Measure::TasksPerS, "hand-offs", Unit::PerSecond),
            (Measure::TasksP50Us, "hand-off, median", Unit::Time),
            (Measure::TasksP99Us, "hand-off, p99", Unit::Time),
        ],
    ),
    (
        "A release after 50 ms",
        &[
            (Measure::WakeP50Us, "the waiter has the lock after, median", Unit::Time),
            (Measure::WakeP99Us, "the same, p99", Unit::Time),
        ],
    ),
    ("The holder is killed", &[(Measure::RecoveryUs, "the waiter has the lock after", Unit::Time)]),
    (
        "Readers",
        &[
            (Measure::ReadP50Us, "read and release, nobody else there, median", Unit::Time),
            (Measure::ReadP99Us, "the same, p99", Unit::Time),
            (Measure::ReadersPerS, "8 processes that read for 2 ms, acquisitions", Unit::PerSecond),
        ],
    ),
    (
        "Permits",
        &[
            (Measure::PermitP50Us, "a permit and its release, nobody else there, median", Unit::Time),
            (Measure::PermitP99Us, "the same, p99", Unit::Time),
            (Measure::PermitsPerS, "8 processes, 2 permits, acquisitions", Unit::PerSecond),
            (Measure::PermitsLongestWaitUs, "the same, longest wait", Unit::Time),
        ],
    ),
    (
        "What it costs",
        &[
            (Measure::IdleCoreShare, "100 idle waiters, share of a core", Unit::Share),
            (Measure::RenewalsUs, "renewing 1,000 leases", Unit::Time),
            (Measure::AloneMessages, "messages per acquisition, alone", Unit::Plain),
            (Measure::EightMessages, "messages per acquisition, 8 processes", Unit::Plain),
        ],
    ),
];

impl Unit {
    /// A value as people read it.
    pub(crate) fn show(self, value: f64) -> String {
        match self {
            Self::Time if value < 1e3 => format!("{} µs", digits(value)),
            Self::Time if value < 1e6 => format!("{} ms", digits(value / 1e3)),
            Self::Time => format!("{} s", digits(value / 1e6)),
            Self::PerSecond if value < 1e4 => format!("{}/s", digits(value)),
            Self::PerSecond if value < 1e6 => format!("{}k/s", digits(value / 1e3)),
            Self::PerSecond => format!("{}M/s", digits(value / 1e6)),
            Self::Share => format!("{} %", digits(value * 100.0)),
            Self::Plain => format!("{value:.2}"),
        }
    }
}

/// Three digits are more than the figures are good for, and what fits.
fn digits(value: f64) -> String {
    match value.abs() {
        size if size >= 99.95 => format!("{value:.0}"),
        size if size >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_readable() {
        for (unit, value, shown) in [
            (Unit::Time, 57.25, "57.2 µs"),
            (Unit::Time, 1_234.0, "1.23 ms"),
            (Unit::Time, 2_010_000.0, "2.01 s"),
            (Unit::PerSecond, 9_871.0, "9871/s"),
            (Unit::PerSecond, 105_400.0, "105k/s"),
            (Unit::Share, 0.0123, "1.23 %"),
            (Unit::Plain, 0.987_6, "0.99"),
        ] {
            assert_eq!(unit.show(value), shown);
        }
    }
}
