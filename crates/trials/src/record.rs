//! What came of a torture, kept in `docs/torture.json` by the backend's name, for the page of guarantees.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use conformance_tests::torture::{Report, TortureOptions};
use oarlock::{Capabilities, Scope};
use serde::{Deserialize, Serialize};

/// The root of the repository.
pub(crate) fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn path() -> PathBuf {
    root().join("docs/torture.json")
}

/// What is said behind a backend's name where other libraries took the locks too.
const BESIDE: &str = " beside others";

/// What came of a torture of one backend. Times are in seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Record {
    /// What the store says that it can do.
    pub(crate) reaches: String,
    pub(crate) fair: bool,
    pub(crate) prompt_loss: bool,
    pub(crate) shortest_lease: f64,
    /// What was done.
    pub(crate) minutes: f64,
    pub(crate) seed: u64,
    pub(crate) workers: usize,
    pub(crate) lease: f64,
    pub(crate) faults: BTreeMap<String, usize>,
    /// How often each of the other libraries was granted its locks.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) others: BTreeMap<String, usize>,
    /// What came of it.
    pub(crate) grants: usize,
    pub(crate) denials: usize,
    pub(crate) failures: usize,
    pub(crate) losses: usize,
    pub(crate) worst_notice: f64,
    pub(crate) forgotten: usize,
    pub(crate) worst_forgotten: f64,
    pub(crate) worst_recovery: f64,
    pub(crate) worst_recovery_after: String,
    /// Holders that were killed while another waited and nothing else was wrong.
    pub(crate) crashes: usize,
    pub(crate) worst_freed: f64,
    /// How often each rule was broken.
    pub(crate) broken: BTreeMap<String, usize>,
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).ceil() / 1000.0
}

impl Record {
    pub(crate) fn new(torture: &TortureOptions, report: &Report, crashes: &Report, offers: Capabilities) -> Self {
        let (recovery, after) =
            report.worst_recovery.clone().map_or((Duration::ZERO, String::new()), |(time, ordeal)| {
                (time, format!("{} of {}", ordeal.blow, ordeal.whose))
            });
        let mut broken = BTreeMap::new();
        for (rule, times) in report.broken().into_iter().chain(crashes.broken()) {
            *broken.entry(rule.to_owned()).or_default() += times;
        }
        let reaches = match offers.scope {
            Scope::Process => "one process",
            Scope::Host => "one host",
            _ => "hosts",
        };
        Self {
            reaches: reaches.to_owned(),
            fair: offers.fair,
            prompt_loss: offers.prompt_loss,
            shortest_lease: seconds(offers.min_lease),
            minutes: torture.duration.as_secs_f64() / 60.0,
            seed: report.seed,
            workers: torture.workers,
            lease: seconds(torture.lease),
            faults: report.blows.clone(),
            others: report.foreign.iter().map(|(library, its)| ((*library).to_owned(), its.grants)).collect(),
            grants: report.grants,
            denials: report.denials,
            failures: report.failures,
            losses: report.losses,
            worst_notice: seconds(report.worst_notice),
            forgotten: report.forgotten.0,
            worst_forgotten: seconds(report.worst_forgotten),
            worst_recovery: seconds(recovery),
            worst_recovery_after: after,
            crashes: crashes.freed.0,
            worst_freed: seconds(crashes.freed.1),
            broken,
        }
    }

    /// Puts it in the place of what was kept of this backend, with other libraries or without.
    pub(crate) fn keep(self, backend: &str) -> Result<(), String> {
        let mut all = all()?;
        let beside = if self.others.is_empty() { "" } else { BESIDE };
        all.insert(format!("{backend}{beside}"), self);
        let text = serde_json::to_string_pretty(&all).map_err(|error| error.to_string())? + "\n";
        std::fs::write(path(), text).map_err(|error| format!("docs/torture.json: {error}"))
    }
}

/// All that is kept.
pub(crate) fn all() -> Result<BTreeMap<String, Record>, String> {
    if !path().exists() {
        return Ok(BTreeMap::new());
    }
    let wrong = |error: &dyn std::fmt::Display| format!("docs/torture.json: {error}");
    let text = std::fs::read_to_string(path()).map_err(|error| wrong(&error))?;
    serde_json::from_str(&text).map_err(|error| wrong(&error))
}
