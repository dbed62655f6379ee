//! `cargo xtask torture BACKEND`: worker processes, random stops and kills, and the oracle over what they logged.

use std::time::Duration;

use clap::Args;
use conformance_tests::torture::{self, TortureOptions};
use test_servers::{EtcdCluster, RedisServer};

use crate::test::cargo;

/// What to torture, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backend, `sqlite`, `redis` or `etcd`, on a store made for this; or the URL of a store.
    backend: String,
    /// For how long.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// What the choices come from: the same seed makes the same ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many processes at a time.
    #[arg(long, default_value_t = 4)]
    workers: usize,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let (mut server, mut cluster) = (None, None);
    let url = match options.backend.as_str() {
        "sqlite" => format!("sqlite:{}", folder.path().join("locks.db").display()),
        "redis" => server.insert(RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"])).url(),
        "etcd" if cfg!(not(feature = "etcd")) => return with_etcd(options),
        "etcd" => cluster.insert(EtcdCluster::start(3)).url(),
        url if url.contains(':') => url.to_owned(),
        other => return Err(format!("{other:?} cannot be tortured: name sqlite, redis, etcd, or a URL")),
    };
    let minutes = Duration::try_from_secs_f64(options.minutes * 60.0).map_err(|error| format!("--minutes: {error}"))?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())?;
    let locks = runtime.block_on(oarlock::connect(&url)).map_err(|error| error.to_string())?;
    let mut torture = TortureOptions::new(url);
    torture.lease = torture.lease.max(locks.capabilities().min_lease);
    drop(locks);
    torture.duration = minutes;
    torture.seed = options.seed;
    torture.workers = options.workers;
    println!("torturing {} for {minutes:?} with seed {}", options.backend, options.seed);
    let report = runtime.block_on(torture::run(&torture)).map_err(|error| error.to_string())?;
    println!("{report}");
    if report.grants == 0 {
        return Err("nobody got a lock: nothing was shown".to_owned());
    }
    if report.violations.is_empty() { Ok(()) } else { Err("rules were broken".to_owned()) }
}

/// This program again, built with etcd.
fn with_etcd(options: &Options) -> Result<(), String> {
    let (minutes, seed, workers) = (options.minutes.to_string(), options.seed.to_string(), options.workers.to_string());
    let program = ["run", "--quiet", "--package", "xtask", "--features", "etcd", "--", "torture", &options.backend];
    let chosen = ["--minutes", &minutes, "--seed", &seed, "--workers", &workers];
    cargo(&[program.as_slice(), &chosen].concat())
}
