//! `cargo xtask torture BACKEND`: worker processes, random blows at them, their networks and the server, and the oracle
//! over what they logged. The locks protect files, or the resources of [`places`].

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValuesParser, RangedU64ValueParser, TypedValueParser};
use conformance_tests::protected::Elsewhere;
use conformance_tests::torture::{self, Blow, Report, Server, Site, TortureOptions};
use conformance_tests::uses::Writes;
use oarlock::Capabilities;
use test_servers::{Disk, EtcdCluster, MariaDbServer, MemcachedServer, PostgresServer, RedisServer, ZookeeperServers};

use crate::foreign;
use crate::guarantees;
use crate::places::{self, CHECKED, Place};
use crate::quorum;
use crate::record::Record;

/// The lease of the locks where none is named.
const LEASE: Duration = Duration::from_secs(1);

/// The shortest lease that etcd gives.
const ETCD_LEASE: Duration = Duration::from_secs(2);

/// For how many leases holders are killed alone: long enough for a good many.
const CRASHES: u32 = 60;

/// What to torture, and how.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The backend on a store made for this: `sqlite`, `postgres`, `postgres-session`, `mysql`, `mysql-session`, `redis`;
    /// `redis-forgetful` or `memcached`, which keep nothing on disk; `zookeeper`, `zookeeper-rw` (with the setting
    /// `curator=read-write`) or `etcd`, three servers each; a quorum of three, `quorum-redis`, `quorum-postgres` or
    /// `quorum-sqlite`; or the URL of a store, of which only the clients are struck.
    backend: String,
    /// For how long.
    #[arg(long, default_value_t = 1.0, value_parser = minutes, allow_negative_numbers = true)]
    minutes: f64,
    /// What the choices come from: the same seed makes the same ones.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many processes at a time.
    #[arg(long, default_value_t = 4, value_parser = RangedU64ValueParser::<usize>::new().range(1..))]
    workers: usize,
    /// Other libraries, whose locks half of the workers take instead of ours: of `zookeeper` `kazoo`, `kazoo-rw`, `curator`,
    /// `curator-revoker` and `curator-semaphore`, of `zookeeper-rw` `kazoo-rw` and `curator-rw`, of `etcd` `go`,
    /// `go-election` and `etcdctl`, of `redis` and `redis-forgetful` `redis-py`. Each has locks of its own among ours.
    #[arg(long, value_delimiter = ',')]
    with: Vec<String>,
    /// The lease of the locks, in milliseconds; of etcd's 2000 at least, of a quorum's 1000 at most. What is done to
    /// whom lasts for about as long. [default: 1000, and 2000 of etcd's]
    #[arg(long, value_parser = clap::value_parser!(u64).range(100..))]
    lease_ms: Option<u64>,
    /// What is done, such as `stop,kill,cut-answers,kill-server`; all by default. A store is spared what it cannot suffer.
    #[arg(long, value_delimiter = ',', value_parser = blow())]
    faults: Vec<Blow>,
    /// Has the locks protect counters in these places, where an application's checks of fencing tokens are: all that
    /// check if none is named. It fails unless each refused a write that came too late.
    #[arg(long, value_delimiter = ',', num_args = 0..=1, require_equals = true, default_missing_values = CHECKED)]
    resources: Option<Vec<Place>>,
    /// Keeps what came of it, and how soon locks of killed holders come free, for the page of guarantees: on a line of
    /// its own if others' locks are among ours.
    #[arg(long)]
    record: bool,
}

/// Reads how long something is to take.
pub(crate) fn minutes(text: &str) -> Result<f64, String> {
    let minutes = text.parse().ok().filter(|minutes| (0.0..1e6).contains(minutes));
    minutes.ok_or_else(|| "name so many minutes, such as 0.5 or 10".to_owned())
}

/// Reads the name of a fault, and knows them all for the help.
fn blow() -> impl TypedValueParser<Value = Blow> {
    let names = PossibleValuesParser::new(Blow::all().into_iter().map(Blow::name));
    names.map(|name| name.parse().expect("it is one of them"))
}

fn hosts(scheme: &str, addresses: &[SocketAddr]) -> String {
    let hosts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    format!("{scheme}://{}", hosts.join(","))
}

/// A single server, with the URL of whoever reaches it there.
fn one(server: Vec<Box<dyn Server>>, url: fn(SocketAddr) -> String) -> Site {
    Site::of(server, move |addresses| url(addresses[0]))
}

/// The same, of one that forgets all when it is killed.
fn by_sessions(server: Vec<Box<dyn Server>>, url: fn(SocketAddr) -> String) -> Site {
    let killed = server.into_iter().map(|server| Box::new(Killed { server, is_one_of_several: false }) as Box<_>);
    one(killed.collect(), url)
}

/// A server of which the store as a whole knows less or more after it was killed than the server says: nothing of what
/// stands in tables that are not logged; all, if it is one of several that may be emptied. It is ended by a kill alone:
/// after an end in good order it would know all.
pub(crate) struct Killed {
    pub(crate) server: Box<dyn Server>,
    pub(crate) is_one_of_several: bool,
}

impl Server for Killed {
    fn address(&self) -> SocketAddr {
        self.server.address()
    }

    fn keeps(&self) -> bool {
        self.is_one_of_several
    }

    fn is_emptied(&self) -> bool {
        self.is_one_of_several
    }

    fn pause(&mut self) {
        self.server.pause();
    }

    fn resume(&mut self) {
        self.server.resume();
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    fn shut_down(&mut self) {
        self.server.kill();
    }

    fn start(&mut self) {
        self.server.start();
    }
}

/// What there is of a backend, made anew.
pub(crate) fn site(backend: &str, folder: &Path) -> Result<Site, String> {
    let redis =
        |arguments: &[&str]| one(RedisServer::start_with(arguments).apart(), |address| format!("redis://{address}"));
    Ok(match backend {
        "sqlite" => {
            let file = folder.join("locks.db");
            Site::at(format!("sqlite:{}", file.display())).on_disk(file)
        }
        "postgres" => one(postgres().apart(), PostgresServer::url_at),
        "postgres-session" => {
            by_sessions(postgres().apart(), |address| format!("{}?mode=session", PostgresServer::url_at(address)))
        }
        "mysql-session" => by_sessions(mysql().apart(), |address| format!("mysql://root@{address}/mysql?mode=session")),
        "mysql" => one(mysql().apart(), |address| format!("mysql://root@{address}/mysql")),
        "redis" => redis(&["--appendonly", "yes", "--appendfsync", "always"]),
        "redis-forgetful" => redis(&[]),
        "memcached" => one(MemcachedServer::start().apart(), |address| format!("memcached://{address}")),
        "quorum-redis" => quorum::redis(),
        "quorum-postgres" => quorum::postgres(),
        "quorum-sqlite" => quorum::sqlite(folder),
        "zookeeper" => {
            Site::of(ZookeeperServers::start_with(3, &[]).apart(), |addresses| hosts("zookeeper", addresses)).balanced()
        }
        "zookeeper-rw" => Site::of(ZookeeperServers::start_with(3, &[]).apart(), |addresses| {
            format!("{}?curator=read-write", hosts("zookeeper", addresses))
        })
        .balanced(),
        "etcd" => {
            // Beside the blows, what is older than a second is dropped all the time.
            let servers = EtcdCluster::start_with(3, &["--auto-compaction-retention", "1s"]);
            Site::of(servers.apart(), |addresses| hosts("etcd", addresses)).balanced()
        }
        url if url.contains(':') => Site::at(url),
        other => {
            return Err(format!(
                "{other:?} cannot be tortured: name sqlite, postgres, postgres-session, mysql, \
                  mysql-session, redis, redis-forgetful, memcached, zookeeper, zookeeper-rw, etcd, quorum-redis, \
                  quorum-postgres, quorum-sqlite, or a URL"
            ));
        }
    })
}

/// With room for the connections of a thousand clients.
fn postgres() -> PostgresServer {
    PostgresServer::start_with(&["max_connections=2500"])
}

/// As [`postgres`].
fn mysql() -> MariaDbServer {
    MariaDbServer::start_with(&["--max-connections=2500"])
}

/// Does this on a runtime of its own.
pub(crate) fn on_a_runtime<T>(work: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(work)
}

/// This lease, or as short or long a one as the backend gives.
pub(crate) fn possible(backend: &str, lease: Duration) -> Duration {
    match backend {
        "etcd" => lease.max(ETCD_LEASE),
        quorum if quorum.starts_with("quorum-") => lease.min(quorum::REJOIN_AFTER),
        _ => lease,
    }
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    let backend = options.backend.as_str();
    if options.record && backend.contains(':') {
        return Err("--record: what happened at a URL of yours is not for everybody".to_owned());
    }
    let mut torture = TortureOptions::default();
    torture.duration = Duration::from_secs_f64(options.minutes * 60.0);
    torture.seed = options.seed;
    torture.workers = options.workers;
    torture.histories = test_servers::kept_as("torture");
    let lease = options.lease_ms.map(Duration::from_millis);
    torture.lease = possible(backend, lease.unwrap_or(LEASE));
    if let Some(lease) = lease.filter(|lease| *lease != torture.lease) {
        return Err(format!("--lease-ms: {backend} cannot have {lease:?} here; the nearest is {:?}", torture.lease));
    }
    if !options.faults.is_empty() {
        torture.blows = options.faults.clone();
    }
    check_duration(&torture)?;
    on_a_runtime(async {
        if backend.contains(':') {
            // Workers would try again and again.
            oarlock::connect(backend).await.map(drop).map_err(|error| error.to_string())?;
        }
        let report = suffer(options, &torture).await?;
        let mut broken = !report.violations.is_empty();
        if options.record {
            let (crashes, offers) = crashes(backend, &torture).await?;
            broken |= !crashes.violations.is_empty();
            Record::new(&torture, &report, &crashes, offers).keep(backend)?;
            guarantees::write()?;
        }
        if broken { Err("rules were broken".to_owned()) } else { Ok(()) }
    })
}

/// Is there time to strike anybody?
pub(crate) fn check_duration(torture: &TortureOptions) -> Result<(), String> {
    if torture.duration > torture.calm() {
        return Ok(());
    }
    Err(format!("--minutes: nobody is struck in the last {:?}, so it has to be longer", torture.calm()))
}

/// Tortures a store made for this.
async fn suffer(options: &Options, torture: &TortureOptions) -> Result<Report, String> {
    let backend = options.backend.as_str();
    let folder = test_servers::folder(Disk::Memory);
    let mut torture = torture.clone();
    let site = foreign::beside(site(backend, folder.path())?, backend, &options.with, &mut torture)?;
    let mut started = Vec::new();
    for place in options.resources.iter().flatten() {
        started.push(place.start(folder.path()).await?);
    }
    if !started.is_empty() {
        let urls = started.iter().map(|place| place.url.clone()).collect();
        torture.resources = Some(Elsewhere { urls, open: places::open });
    }
    println!("torturing {backend} for {:?} with seed {}", torture.duration, torture.seed);
    let report = torture::run(&torture, site).await.map_err(|error| error.to_string())?;
    println!("{report}");
    if torture.resources.is_some() {
        was_late(&report)?;
    }
    if report.blows.is_empty() {
        return Err("--minutes: nobody was struck in so short a time".to_owned());
    }
    match report.foreign.iter().find(|(_, its)| its.grants == 0) {
        Some((library, _)) => Err(format!("{library}'s lock was never granted")),
        None => Ok(report),
    }
}

/// A check at which nobody came too late has not been attacked.
fn was_late(report: &Report) -> Result<(), String> {
    let idle = |writes: &Writes| writes.woken == 0 || writes.late_refused == 0;
    match report.writes.iter().find(|(_, writes)| idle(writes)) {
        Some((place, writes)) => Err(format!("no writer came too late to {place} and was refused: {writes:?}")),
        None => Ok(()),
    }
}

/// How soon a lock comes free whose holder was killed, when nothing else is wrong: of two, one holds and one waits. And
/// what the store says that it can do.
async fn crashes(backend: &str, torture: &TortureOptions) -> Result<(Report, Capabilities), String> {
    let mut alone = torture.clone();
    (alone.workers, alone.names, alone.blows) = (2, 1, vec![Blow::Kill]);
    alone.duration = torture.lease * CRASHES + torture.calm();
    let folder = test_servers::folder(Disk::Memory);
    let site = site(backend, folder.path())?;
    let locks = oarlock::connect(&site.url()).await.map_err(|error| error.to_string())?;
    let offers = locks.capabilities().clone();
    drop(locks);
    println!("killing alone, for {:?}", alone.duration);
    let report = torture::run(&alone, site).await.map_err(|error| error.to_string())?;
    println!("{report}");
    Ok((report, offers))
}
