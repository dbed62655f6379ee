//! What a comparison found, in the form of its JSON.

use std::collections::BTreeMap;
use std::time::SystemTime;

use oarlock::{Capabilities, Finding, Scope};
use serde::{Deserialize, Serialize};

use super::figures::{Measure, Step};
use super::statistics::{Bin, Figure, Times};
use super::steps::Found;
use super::subject::Subject;

/// All of it. The names of the fields are a promise.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Of this program.
    pub(crate) version: String,
    pub(crate) started: String,
    /// Under which the locks were, drawn for this run.
    pub(crate) prefix: String,
    pub(crate) seconds: f64,
    /// How many rounds were planned; each figure says how many it is of.
    pub(crate) rounds: usize,
    /// False if it was interrupted.
    pub(crate) complete: bool,
    pub(crate) machine: Machine,
    pub(crate) backends: Vec<Backend>,
}

/// What it ran on. The servers may be elsewhere.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) system: String,
    pub(crate) processor: String,
    pub(crate) cores: usize,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Backend {
    pub(crate) name: String,
    /// Without what is secret.
    pub(crate) url: String,
    pub(crate) kind: String,
    pub(crate) reaches: String,
    pub(crate) fair: bool,
    pub(crate) read_write_locks: bool,
    pub(crate) semaphores: bool,
    pub(crate) prompt_loss: bool,
    pub(crate) min_lease_ms: u64,
    /// What `doctor` says; nothing if it could not.
    pub(crate) findings: Option<Vec<Remark>>,
    pub(crate) figures: BTreeMap<Measure, Figure>,
    /// By step, how its times are spread over all rounds.
    pub(crate) distributions: BTreeMap<Step, Vec<Bin>>,
    /// How often more held a lock at once than may, or a semaphore. Anything but zero is a defect.
    pub(crate) overlaps: u64,
    /// What could not be measured, and why.
    pub(crate) failures: Vec<String>,
}

/// A setting of the store that voids a promise.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Remark {
    pub(crate) setting: String,
    pub(crate) voids: String,
    pub(crate) advice: String,
}

impl Backend {
    /// Does it need anybody's attention before its figures do?
    pub(crate) fn is_sound(&self) -> bool {
        self.overlaps == 0
    }
}

/// What one backend has shown so far.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    findings: Option<Vec<Finding>>,
    figures: BTreeMap<Measure, Vec<f64>>,
    times: BTreeMap<Step, Times>,
    overlaps: u64,
    failures: BTreeMap<Step, String>,
}

impl Notes {
    pub(crate) fn of(findings: Option<Vec<Finding>>) -> Self {
        Self { findings, ..Self::default() }
    }

    /// What a step came to in one round.
    pub(crate) fn add(&mut self, step: Step, found: Result<Found, String>) {
        match found {
            Ok(found) => {
                found.figures.into_iter().for_each(|(measure, value)| {
                    self.figures.entry(measure).or_default().push(value);
                });
                if let Some(times) = found.times {
                    self.times.entry(step).or_insert_with(Times::new).merge(&times);
                }
                self.overlaps += found.overlaps;
            }
            Err(why) => drop(self.failures.insert(step, why)),
        }
    }

    pub(crate) fn report(self, subject: &Subject) -> Backend {
        let Capabilities { backend, scope, fair, modes, prompt_loss, min_lease, .. } =
            subject.locks.capabilities().clone();
        let remark =
            |finding: Finding| Remark { setting: finding.setting, voids: finding.voids, advice: finding.advice };
        Backend {
            name: subject.name.clone(),
            url: subject.shown.clone(),
            kind: backend.to_owned(),
            reaches: match scope {
                Scope::Process => "one process",
                Scope::Host => "one host",
                _ => "every host",
            }
            .to_owned(),
            fair,
            read_write_locks: modes.shared,
            semaphores: modes.permits,
            prompt_loss,
            min_lease_ms: min_lease.as_millis() as u64,
            findings: self.findings.map(|findings| findings.into_iter().map(remark).collect()),
            figures: self.figures.iter().filter_map(|(&key, rounds)| Some((key, Figure::of(rounds)?))).collect(),
            distributions: self.times.iter().map(|(&step, times)| (step, times.distribution())).collect(),
            overlaps: self.overlaps,
            failures: self.failures.into_iter().map(|(step, why)| format!("{}: {why}", step.title())).collect(),
        }
    }
}

impl Machine {
    pub(crate) fn this() -> Self {
        let system = nix::sys::utsname::uname();
        let system = system.map(|name| format!("{} {}", name.sysname().display(), name.release().display()));
        let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        Self {
            system: system.unwrap_or_else(|_| std::env::consts::OS.to_owned()),
            processor: model.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, model)| model.trim().to_owned()),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
        }
    }
}

/// Now, as a report has it.
pub(crate) fn date() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}
