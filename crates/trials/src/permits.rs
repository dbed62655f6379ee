//! `cargo xtask permits BACKEND`: a semaphore that many want, with processes that are killed.

use std::time::Duration;

use clap::Args;
use conformance_tests::family::{self, PermitsOptions};
use test_servers::Disk;

use crate::torture::{on_a_runtime, possible, site};

/// Which store, who wants how many permits, and for how long.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backend on a store made for this, or the URL of one: as for `torture`.
    backend: String,
    /// For how long.
    #[arg(long, default_value_t = 2.0)]
    minutes: f64,
    /// How many permits there are.
    #[arg(long, default_value_t = 5)]
    permits: u32,
    /// How many wait for one, beside those who hold.
    #[arg(long, default_value_t = 64)]
    waiters: usize,
    /// In how many processes.
    #[arg(long, default_value_t = 8)]
    processes: usize,
    /// The lease of the permits, in milliseconds; of etcd's 2000 at least.
    #[arg(long, default_value_t = 1000)]
    lease_ms: u64,
    /// What the choices come from: the same seed makes the same ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let minutes = Duration::try_from_secs_f64(options.minutes * 60.0).map_err(|error| format!("--minutes: {error}"))?;
    let mut permits = PermitsOptions::new(minutes);
    (permits.permits, permits.waiters, permits.processes) = (options.permits, options.waiters, options.processes);
    (permits.seed, permits.histories) = (options.seed, test_servers::kept_as("permits"));
    permits.lease = Duration::from_millis(options.lease_ms);
    if permits.processes == 0 {
        return Err("--processes: there has to be one".to_owned());
    }
    permits.lease = possible(&options.backend, permits.lease);
    on_a_runtime(async {
        let folder = test_servers::folder(Disk::Memory);
        let site = site(&options.backend, folder.path())?;
        let locks = oarlock::connect(&site.url()).await.map_err(|error| error.to_string())?;
        // A store without permits, or not so many, says so here and not in each process.
        drop(locks.semaphore("permits", permits.permits).map_err(|error| error.to_string())?);
        let _ = locks.shutdown(Duration::from_secs(5)).await;
        let report = family::permits(&permits, site).await.map_err(|error| error.to_string())?;
        println!("{}, leases of {:?}\n{report}", options.backend, permits.lease);
        if report.violations.is_empty() { Ok(()) } else { Err("rules were broken".to_owned()) }
    })
}
