//! Jobs that run once, elections, permits and several locks at once, put to the proof: many processes, some of which are
//! killed, stopped or cut off, and what they noted.

mod crew;
mod leaders;
mod permits;
mod several;
mod slots;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use crew::{Task, work};
pub use leaders::fail_overs;
pub use permits::{PermitsOptions, permits};
pub use several::several;
pub use slots::slots;

/// How many there are, and how long leases last.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FamilyOptions {
    /// So many slots, fail-overs, or stretches.
    pub rounds: u64,
    /// How many processes want to run the job, to lead, or to have several locks.
    pub processes: usize,
    /// The lease. What is done to whom lasts for twice as long.
    pub lease: Duration,
    /// What all choices come from. (The times at which they take effect are the machine's.)
    pub seed: u64,
    /// Where the notes are written, and kept if a rule was broken. It has to be there.
    pub notes: PathBuf,
}

impl FamilyOptions {
    /// So many rounds with so many processes, with leases of a second, and notes in the folder for temporary files.
    pub fn new(rounds: u64, processes: usize) -> Self {
        Self { rounds, processes, lease: Duration::from_secs(1), seed: 1, notes: std::env::temp_dir() }
    }
}

/// What came of it.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct FamilyReport {
    /// What was counted, each with a number.
    pub counts: Vec<(&'static str, usize)>,
    /// The longest times, each of something.
    pub longest: Vec<(&'static str, Duration)>,
    /// The rules that were broken.
    pub violations: Vec<String>,
    /// Where the notes are, if any were broken.
    pub folder: Option<PathBuf>,
}

impl fmt::Display for FamilyReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, number) in &self.counts {
            writeln!(f, "{number:>7} {what}")?;
        }
        for (what, time) in &self.longest {
            writeln!(f, "{:>5} ms {what}, at the most", time.as_millis())?;
        }
        for violation in self.violations.iter().take(20) {
            writeln!(f, "BROKEN: {violation}")?;
        }
        write!(f, "{} rules broken", self.violations.len())?;
        match &self.folder {
            Some(folder) => write!(f, "; the notes are in {}", folder.display()),
            None => Ok(()),
        }
    }
}
