//! Readers and permits, on every store that has them, beside the mutex of the same store: alone, eight processes that only
//! read, and what each acquisition costs where others are in the way.

use std::path::Path;
use std::time::Duration;

use lock_core::{LockGuard, Locks, Result};
use test_servers::{EtcdCluster, MariaDbServer, PostgresServer, RedisServer, ZookeeperServers};

use crate::contended::{Crowd, Load, connect, run, run_together};
use crate::peers::{NAME, OF, PERMITS, READ_WRITE, READING};
use crate::sqlite::OneCore;
use crate::{Figure, PAUSE, interleaved, redis};

/// All of them, as their figures begin.
pub const STORES: [&str; 6] = ["sqlite", "redis", "zookeeper", "etcd", "postgres", "mariadb"];

/// A store that saves what it grants before it answers.
pub(crate) enum Store {
    Sqlite(String),
    Redis(RedisServer),
    Zookeeper(ZookeeperServers),
    Etcd(EtcdCluster),
    Postgres(PostgresServer),
    Mariadb(MariaDbServer),
}

impl Store {
    pub(crate) fn start(name: &str, folder: &Path) -> Self {
        match name {
            "sqlite" => Self::Sqlite(folder.join("modes.db").display().to_string()),
            "redis" => Self::Redis(RedisServer::start_durable()),
            "zookeeper" => Self::Zookeeper(ZookeeperServers::start_durable()),
            "etcd" => Self::Etcd(EtcdCluster::start_durable()),
            "postgres" => Self::Postgres(PostgresServer::start_durable(&[])),
            "mariadb" => Self::Mariadb(MariaDbServer::start_durable()),
            other => panic!("no store is called {other}"),
        }
    }

    /// How workers know its kind, and where it is.
    pub(crate) fn place(&self) -> (&'static str, String) {
        match self {
            Self::Sqlite(file) => ("sqlite", file.clone()),
            Self::Redis(server) => ("redis", server.url()),
            Self::Zookeeper(servers) => ("zookeeper", servers.url()),
            Self::Etcd(cluster) => ("etcd", cluster.url()),
            Self::Postgres(server) => ("postgres", server.url()),
            Self::Mariadb(server) => ("mysql", server.url()),
        }
    }

    /// How many requests it was sent so far; nothing where those who send them count.
    async fn requests(&self) -> f64 {
        match self {
            Self::Redis(server) => redis::requests(&server.url()).await,
            Self::Etcd(cluster) => cluster.requests(&[]) as f64,
            Self::Zookeeper(servers) => packets(servers),
            Self::Sqlite(_) | Self::Postgres(_) | Self::Mariadb(_) => 0.0,
        }
    }
}

/// How many packets a ZooKeeper server got. One of 8 clients pings seldom enough.
fn packets(servers: &ZookeeperServers) -> f64 {
    let told = servers.ask(0, "srvr").expect("it runs");
    let received = told.lines().find_map(|line| line.strip_prefix("Received: ")).expect("what it got");
    received.trim().parse().expect("a number")
}

/// What can be measured of these in a store. What takes place alone is a ratio of medians, each of the rounds a time of
/// `each`; the processes take turns for twice as long.
pub async fn beside_the_mutex(store: &str, folder: &Path, rounds: usize, each: Duration) -> Vec<Figure> {
    let server = Store::start(store, folder);
    let (kind, place) = server.place();
    let locks = Locks::new(connect(kind, &place).await);
    let modes = locks.capabilities().modes;
    let mut figures = Vec::new();
    if modes.shared {
        let rw_lock = locks.rw_lock("bench/read").expect("it has readers");
        let ratios = alone(&locks, store, rounds, each, async || rw_lock.read().await).await;
        figures.push(Figure::at_most(format!("{store}: read + release, median time / lock + unlock"), ratios, 1.15));
    }
    if modes.permits {
        let semaphore = locks.semaphore("bench/many", OF).expect("it has permits");
        let ratios = alone(&locks, store, rounds, each, async || semaphore.acquire().await).await;
        figures.push(Figure::reported(format!("{store}: a permit + release, median time / lock + unlock"), ratios));
    }
    drop(locks.shutdown(Duration::from_secs(1)).await);
    let load = Load::sections(PAUSE, each * 2);
    let [mut rates, mut read_write, mut permits] = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let before = server.requests().await;
        let mutex = run(kind, &place, load);
        let asked = mutex.statements as f64 + server.requests().await - before;
        let mutex_costs = asked / (mutex.rate * load.during.as_secs_f64());
        if modes.shared {
            let readers = run_together(&format!("{kind}/{READING}"), &place, load);
            assert!(readers.at_once > 1, "nobody read beside another");
            rates.push(readers.rate / mutex.rate);
            let (_, costs) = counted(&server, READ_WRITE, load).await;
            read_write.push(costs - mutex_costs);
        }
        if modes.permits {
            let (holders, costs) = counted(&server, PERMITS, load).await;
            assert!((2..=OF as usize).contains(&holders.at_once), "{} held {OF} permits", holders.at_once);
            permits.push(costs - mutex_costs);
        }
        println!("    {store}: {mutex_costs:.2} requests per acquisition of the mutex");
    }
    if modes.shared {
        let what = |what: &str| format!("{store}: 8 processes, 2 ms sections, {what}");
        figures.push(Figure::at_least(what("rate of readers / mutex"), rates, 3.0));
        figures.push(Figure::at_most(what("requests to read or write − mutex"), read_write, 1.0));
    }
    if modes.permits {
        let what = format!("{store}: 8 processes, 2 ms sections, requests for one of {OF} permits − mutex");
        figures.push(Figure::at_most(what, permits, 1.0));
    }
    figures
}

/// What `take` and its release take, nobody else there, per what the mutex does: median times.
async fn alone(
    locks: &Locks,
    store: &str,
    rounds: usize,
    each: Duration,
    take: impl AsyncFn() -> Result<LockGuard>,
) -> Vec<f64> {
    // As for the bars of SQLite: both run in one thread, so neither is luckier, but the waking of it would hide them.
    let _one_core = (store == "sqlite").then(OneCore::take);
    let mutex = locks.mutex(NAME);
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let base = async || mutex.lock().await.expect("free").unlock().await.expect("held");
        let ours = async || take().await.expect("free").unlock().await.expect("held");
        let [base, ours] = interleaved(each, base, ours).await;
        println!("    {store}: {:.0} us, the mutex {:.0} us", ours * 1e6, base * 1e6);
        ratios.push(ours / base);
    }
    ratios
}

/// What eight processes did in this mode, and requests per acquisition.
async fn counted(server: &Store, mode: &str, load: Load) -> (Crowd, f64) {
    let (kind, place) = server.place();
    let before = server.requests().await;
    let crowd = run_together(&format!("{kind}/{mode}"), &place, load);
    let asked = crowd.statements as f64 + server.requests().await - before;
    let costs = asked / crowd.acquisitions;
    println!("    {kind}/{mode}: {costs:.2} requests per acquisition");
    (crowd, costs)
}
