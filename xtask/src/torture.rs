//! `cargo xtask torture BACKEND`: worker processes, random blows at them, their networks and the server, and the oracle over
//! what they logged.

use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use conformance_tests::torture::{self, Blow, Server, Site, TortureOptions};
use test_servers::{EtcdCluster, MariaDbServer, PostgresServer, RedisServer, ZookeeperServers};

use crate::test::cargo;

/// The shortest lease that etcd gives.
const ETCD_LEASE: Duration = Duration::from_secs(2);

/// What to torture, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backend on a store made for this: `sqlite`, `postgres`, `mysql`, `redis`, `redis-forgetful`, which keeps nothing on disk, or
    /// `zookeeper` or `etcd`, three of them; or the URL of a store, of which only the clients are struck.
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
    /// The lease of the locks, in milliseconds; of etcd's 2000 at least. What is done to whom lasts for about as long.
    #[arg(long, default_value_t = 1000)]
    lease_ms: u64,
    /// What is done, such as `stop,kill,cut-answers,kill-server`; all by default.
    #[arg(long, value_delimiter = ',')]
    faults: Vec<Blow>,
}

fn hosts(scheme: &str, addresses: &[SocketAddr]) -> String {
    let hosts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    format!("{scheme}://{}", hosts.join(","))
}

/// A single server, with the URL of whoever reaches it there.
fn one(server: Vec<Box<dyn Server>>, url: fn(SocketAddr) -> String) -> Site {
    Site::of(server, move |addresses| url(addresses[0]))
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|error| format!("no temporary folder: {error}"))?;
    let redis =
        |arguments: &[&str]| one(RedisServer::start_with(arguments).apart(), |address| format!("redis://{address}"));
    let site = match options.backend.as_str() {
        "sqlite" => Site::at(format!("sqlite:{}", folder.path().join("locks.db").display())),
        "postgres" => one(PostgresServer::start().apart(), PostgresServer::url_at),
        "mysql" => one(MariaDbServer::start().apart(), |address| format!("mysql://root@{address}/mysql")),
        "redis" => redis(&["--appendonly", "yes", "--appendfsync", "always"]),
        "redis-forgetful" => redis(&[]),
        "zookeeper" => {
            Site::of(ZookeeperServers::start_with(3, &[]).apart(), |addresses| hosts("zookeeper", addresses))
        }
        "etcd" if cfg!(not(feature = "etcd")) => return with_etcd(),
        "etcd" => Site::of(EtcdCluster::start(3).apart(), |addresses| hosts("etcd", addresses)),
        url if url.contains(':') => Site::at(url),
        other => {
            return Err(format!(
                "{other:?} cannot be tortured: name sqlite, postgres, mysql, redis, redis-forgetful, zookeeper, etcd, or a URL"
            ));
        }
    };
    let minutes = Duration::try_from_secs_f64(options.minutes * 60.0).map_err(|error| format!("--minutes: {error}"))?;
    let mut torture = TortureOptions::default();
    torture.duration = minutes;
    torture.seed = options.seed;
    torture.workers = options.workers;
    torture.lease = Duration::from_millis(options.lease_ms);
    if options.backend == "etcd" {
        torture.lease = torture.lease.max(ETCD_LEASE);
    }
    if !options.faults.is_empty() {
        torture.blows = options.faults.clone();
    }
    if torture.duration <= torture.calm() {
        return Err(format!("--minutes: nobody is struck in the last {:?}, so it has to be longer", torture.calm()));
    }
    println!("torturing {} for {minutes:?} with seed {}", options.backend, options.seed);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(|error| error.to_string())?;
    let report = runtime.block_on(torture::run(&torture, site)).map_err(|error| error.to_string())?;
    println!("{report}");
    if report.violations.is_empty() { Ok(()) } else { Err("rules were broken".to_owned()) }
}

/// This program again, built with etcd.
fn with_etcd() -> Result<(), String> {
    let again: Vec<_> = std::env::args().skip(1).collect();
    let program = ["run", "--locked", "--quiet", "--package", "xtask", "--features", "etcd", "--"];
    cargo(&program.into_iter().chain(again.iter().map(String::as_str)).collect::<Vec<_>>())
}
