//! `cargo xtask slots BACKEND` and `cargo xtask fail-overs BACKEND`: jobs that run once and elections, with processes that
//! are killed, stopped and cut off.

use clap::Args;
use conformance_tests::family::{self, FamilyOptions};
use test_servers::Disk;

use crate::torture::{on_a_runtime, possible, site};

/// Which store, and how often.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backend on a store made for this, or the URL of one: as for `torture`.
    backend: String,
    /// How many slots, a second apart, or how many leaders are struck.
    #[arg(long)]
    rounds: Option<u64>,
    /// How many processes want to run the job, or to lead.
    #[arg(long)]
    processes: Option<usize>,
    /// What the choices come from: the same seed makes the same ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    Slots,
    FailOvers,
}

pub(crate) fn run(proof: Proof, options: &Options) -> Result<(), String> {
    let (rounds, processes) = if proof == Proof::Slots { (200, 20) } else { (100, 4) };
    let mut family = FamilyOptions::new(options.rounds.unwrap_or(rounds), options.processes.unwrap_or(processes));
    if family.processes == 0 {
        return Err("--processes: there has to be one".to_owned());
    }
    (family.seed, family.notes) = (options.seed, test_servers::kept_as("family"));
    family.lease = possible(&options.backend, family.lease);
    on_a_runtime(async {
        let folder = test_servers::folder(Disk::Memory);
        let site = site(&options.backend, folder.path())?;
        let report = match proof {
            Proof::Slots => family::slots(&family, site).await,
            Proof::FailOvers => {
                let locks = oarlock::connect(&site.url()).await.map_err(|error| error.to_string())?;
                family::fail_overs(&family, site, locks).await
            }
        };
        let report = report.map_err(|error| error.to_string())?;
        println!("{}\n{report}", options.backend);
        if report.violations.is_empty() { Ok(()) } else { Err("rules were broken".to_owned()) }
    })
}
