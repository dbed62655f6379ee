//! Every lock beside every other one: ours over each store, and those of other crates and programs over the same
//! servers. No bars, since it shows what each costs; the bars are ratios within one store.

use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use test_servers::{EtcdCluster, MariaDbServer, PostgresServer, RedisServer, ZookeeperServers};

use crate::PAUSE;
use crate::contended::{Load, alone, run};
use crate::figure::median;
use crate::peers::{ADVISORY, POLLED, RSLOCK};
use crate::zookeeper::{CURATOR, RECIPE};

/// What one lock does. Medians over the rounds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Row {
    /// On which store.
    pub store: String,
    /// Whose lock.
    pub lock: String,
    /// Lock and unlock by one process alone, in microseconds.
    pub alone_us: f64,
    /// 8 processes with nothing between: hand-offs per second.
    pub hand_offs: f64,
    /// The median hand-off, in microseconds.
    pub p50_us: f64,
    /// That which 99 of 100 are no slower than.
    pub p99_us: f64,
    /// 8 processes with holds and pauses of 2 ms: acquisitions per second.
    pub turns: f64,
    /// Their fairness, Jain's index.
    pub fairness: f64,
    /// The longest that one of them waited, in milliseconds.
    pub longest_ms: f64,
}

/// All of them in turns, each on a server that saves what it grants before it answers, and on a Redis that does not.
pub fn every_lock(folder: &Path, rounds: usize, during: Duration) -> Vec<Row> {
    let (redis, forgetful) = (RedisServer::start_durable(), RedisServer::start());
    let zookeeper = ZookeeperServers::start_durable();
    let (etcd, service) = (EtcdCluster::start_durable(), EtcdCluster::start_durable());
    let (postgres, mariadb) = (PostgresServer::start_durable(&[]), MariaDbServer::start_durable());
    let (host, file) = (folder.display().to_string(), folder.join("beside.db").display().to_string());
    let ensemble = zookeeper.addresses()[0].to_string();
    let locks = [
        ("the host", "`flock`", "flock", host),
        ("SQLite", "Oarlock", "sqlite", file),
        ("Redis", "Oarlock", "redis", redis.url()),
        ("Redis", "`rslock`", RSLOCK, redis.url()),
        ("Redis", "`distributed-lock`, every 10 ms", POLLED, redis.url()),
        ("Redis, nothing saved", "Oarlock", "redis", forgetful.url()),
        ("Redis, nothing saved", "`rslock`", RSLOCK, forgetful.url()),
        ("Redis, nothing saved", "`distributed-lock`, every 10 ms", POLLED, forgetful.url()),
        ("ZooKeeper", "Oarlock", "zookeeper", zookeeper.url()),
        ("ZooKeeper", "`zookeeper-client`'s recipe", RECIPE, ensemble.clone()),
        ("ZooKeeper", "Curator", CURATOR, ensemble),
        ("etcd", "Oarlock", "etcd", etcd.url()),
        // A server of its own, since it leaves something behind.
        ("etcd", "its own lock service", "etcd-service", service.url()),
        ("PostgreSQL", "Oarlock", "postgres", postgres.url()),
        ("PostgreSQL", "`sqlx`'s advisory lock", ADVISORY, postgres.url()),
        ("MariaDB", "Oarlock", "mysql", mariadb.url()),
    ];
    let mut seen = vec![Vec::new(); locks.len()];
    for _ in 0..rounds {
        for ((_, _, kind, place), seen) in locks.iter().zip(&mut seen) {
            let alone = alone(kind, place, during);
            let busy = run(kind, place, Load::even(Duration::ZERO, during));
            let calm = run(kind, place, Load::even(PAUSE, during));
            let micros = |time: Duration| time.as_secs_f64() * 1e6;
            let [p50, p99] = [0.5, 0.99].map(|share| micros(busy.at(share)));
            let longest = micros(calm.longest_wait) / 1e3;
            seen.push([micros(alone), busy.hand_off_rate, p50, p99, calm.rate, calm.fairness, longest]);
        }
    }
    let row = |((store, lock, ..), rounds): ((&str, &str, &str, String), Vec<[f64; 7]>)| {
        let middle = |column: usize| median(rounds.iter().map(|round| round[column]).collect()).0;
        Row {
            store: store.to_owned(),
            lock: lock.to_owned(),
            alone_us: middle(0),
            hand_offs: middle(1),
            p50_us: middle(2),
            p99_us: middle(3),
            turns: middle(4),
            fairness: middle(5),
            longest_ms: middle(6),
        }
    };
    locks.into_iter().zip(seen).map(row).collect()
}
