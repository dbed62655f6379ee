//! `cargo xtask slots BACKEND`, `fail-overs` and `several`: jobs that run once and elections, with processes that are
//! killed, stopped and cut off; and processes that take several locks at once.

use clap::Args;
use conformance_tests::family::{self, FamilyOptions};
use test_servers::Disk;

use crate::torture::{on_a_runtime, possible, site};

/// Which store, and how often.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backend on a store made for this, or the URL of one: as for `torture`.
    backend: String,
    /// How many slots, a second apart; how many leaders are struck; or how many stretches of five seconds there are.
    #[arg(long)]
    rounds: Option<u64>,
    /// How many processes want to run the job, to lead, or to have the locks.
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
    Several,
}

pub(crate) fn run(proof: Proof, options: &Options) -> Result<(), String> {
    let (rounds, processes) = match proof {
        Proof::Slots => (200, 20),
        Proof::FailOvers => (100, 4),
        Proof::Several => (12, 8),
    };
    let mut family = FamilyOptions::new(options.rounds.unwrap_or(rounds), options.processes.unwrap_or(processes));
    if family.processes == 0 {
        return Err("--processes: there has to be one".to_owned());
    }
    (family.seed, family.notes) = (options.seed, test_servers::kept_as("family"));
    if proof == Proof::Several {
        // Nobody is killed, and no lease is to end.
        family.lease *= 10;
    }
    family.lease = possible(&options.backend, family.lease);
    on_a_runtime(async {
        let folder = test_servers::folder(Disk::Memory);
        let site = site(&options.backend, folder.path())?;
        let report = match proof {
            Proof::Slots => family::slots(&family, site).await,
            Proof::Several => family::several(&family, site).await,
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
