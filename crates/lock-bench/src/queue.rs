//! The queue in the process, over Redis: tasks that want one name, against `tokio::sync::Mutex` and against a bare
//! baton that passes from task to task while one lock in the store is kept.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_core::{DistributedLock, Locks};
use lock_etcd::EtcdLock;
use lock_redis::RedisLock;
use lock_sql::{MySqlLock, PostgresLock, SqliteLock};
use lock_zookeeper::ZookeeperLock;
use test_servers::{EtcdCluster, MariaDbServer, PostgresServer, RedisServer, ZookeeperServers};
use tokio::sync::oneshot;

use crate::Figure;
use crate::contended::{Another, Load};
use crate::peers::NAME;
use crate::tasks::{Run, run};

const TASKS: usize = 64;

/// 64 tasks on one name, with an empty section.
pub async fn one_name(rounds: usize, each: Duration) -> [Figure; 3] {
    let server = RedisServer::start();
    let locks = connect(&server).await;
    let (mut to_tokio, mut to_baton, mut jain) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mutex = Arc::new(tokio::sync::Mutex::new(()));
        let tokio = run(TASKS, each, move |_| {
            let mutex = Arc::clone(&mutex);
            async move {
                let _held = mutex.lock().await;
                Instant::now()
            }
        });
        let tokio = tokio.await;
        let kept = locks.mutex("kept").lock().await.expect("free");
        let baton = Arc::new(Baton::default());
        let baton = run(TASKS, each, move |_| {
            let baton = Arc::clone(&baton);
            async move {
                baton.take().await;
                let taken = Instant::now();
                baton.pass();
                taken
            }
        });
        let baton = baton.await;
        kept.unlock().await.expect("held");
        let ours = contend(&locks, "one", each).await;
        for (what, run) in [("tokio::sync::Mutex", &tokio), ("bare baton", &baton), ("ours", &ours)] {
            println!(
                "    {TASKS} tasks, one name: {:.0}/s, waits {:.0} us, p99 {:.0} us ({what})",
                run.rate,
                run.at(0.5).as_secs_f64() * 1e6,
                run.at(0.99).as_secs_f64() * 1e6
            );
        }
        to_tokio.push(ours.rate / tokio.rate);
        to_baton.push(ours.rate / baton.rate);
        jain.push(ours.fairness);
    }
    [
        Figure::at_least("redis: 64 tasks on one name, rate / tokio::sync::Mutex", to_tokio, 0.2),
        Figure::at_least("redis: 64 tasks on one name, rate / bare baton in the process", to_baton, 0.6),
        Figure::at_least("redis: 64 tasks on one name, Jain's index", jain, 0.99),
    ]
}

/// 64 tasks on 64 names, against the same without the queue: a `fair` acquisition goes past it.
pub async fn many_names(rounds: usize, each: Duration) -> Figure {
    let server = RedisServer::start();
    let locks = connect(&server).await;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let mut rates = [0.0; 2];
        // In turns, so that neither is always the first.
        for fair in [round % 2 == 0, round % 2 != 0] {
            let locks = locks.clone();
            let run = run(TASKS, each, move |task| {
                let mutex = locks.mutex(task.to_string()).fair(fair);
                async move {
                    let held = mutex.lock().await.expect("free");
                    let taken = Instant::now();
                    held.unlock().await.expect("answered");
                    taken
                }
            });
            rates[usize::from(fair)] = run.await.rate;
        }
        println!("    {TASKS} names: {:.0}/s, without the queue {:.0}/s", rates[0], rates[1]);
        ratios.push(rates[0] / rates[1]);
    }
    Figure::at_least("redis: 64 names, rate / without the queue", ratios, 0.97)
}

/// How long another process waits for the lock while 64 tasks of this one pass it round: by default 10 ms for each
/// grant.
pub async fn another_process(rounds: usize, each: Duration) -> Figure {
    let server = RedisServer::start();
    let locks = connect(&server).await;
    let mut bounds = Vec::new();
    for _ in 0..rounds {
        let other = Another::start("redis", server.url(), Load::even(Duration::ZERO, each));
        // Longer than that, by the time that a process takes to start.
        let ours = contend(&locks, NAME, each + each / 4).await;
        let waits = other.waits();
        let p99 = waits[waits.len() * 99 / 100];
        println!("    {TASKS} tasks: {:.0}/s; another process: {} turns, p99 {p99:?}", ours.rate, waits.len());
        bounds.push(p99.as_secs_f64() / 0.010);
    }
    Figure::at_most("redis: 64 tasks and another process, p99 of its wait / 10 ms", bounds, 3.0)
}

/// 64 tasks on one name, over each other store against Redis: the queue is the same.
pub async fn every_store(folder: &Path, rounds: usize, each: Duration) -> Vec<Figure> {
    let server = RedisServer::start();
    let redis = connect(&server).await;
    let file = folder.join("queue.db");
    let (postgres, mariadb) = (PostgresServer::start_durable(&[]), MariaDbServer::start_durable());
    let (zookeeper, etcd) = (ZookeeperServers::start(), EtcdCluster::start_durable());
    let stores: [(&str, Arc<dyn DistributedLock>); 5] = [
        ("sqlite", Arc::new(SqliteLock::open(&file, "bench").await.expect("a file"))),
        ("postgres", Arc::new(PostgresLock::connect(&postgres.url(), "bench").await.expect("a server"))),
        ("mariadb", Arc::new(MySqlLock::connect(&mariadb.url(), "bench").await.expect("a server"))),
        ("etcd", Arc::new(EtcdLock::connect(&etcd.url(), "bench").await.expect("a server"))),
        ("zookeeper", Arc::new(ZookeeperLock::connect(&zookeeper.url(), "bench").await.expect("a server"))),
    ];
    let mut figures = Vec::new();
    for (store, backend) in stores {
        let locks = Locks::new(backend);
        let mut ratios = Vec::new();
        for _ in 0..rounds {
            let base = contend(&redis, "one", each).await.rate;
            let ours = contend(&locks, "one", each).await.rate;
            println!("    {TASKS} tasks, one name: {store} {ours:.0}/s, redis {base:.0}/s");
            ratios.push(ours / base);
        }
        figures.push(Figure::at_least(format!("{store}: {TASKS} tasks on one name, rate / redis"), ratios, 0.1));
    }
    figures
}

/// 64 tasks on one name, with an empty section.
async fn contend(locks: &Locks, name: &str, during: Duration) -> Run {
    let mutex = locks.mutex(name);
    let run = run(TASKS, during, move |_| {
        let mutex = mutex.clone();
        async move {
            let held = mutex.lock().await.expect("free at times");
            let taken = Instant::now();
            held.unlock().await.expect("answered");
            taken
        }
    });
    run.await
}

async fn connect(server: &RedisServer) -> Locks {
    Locks::new(Arc::new(RedisLock::connect(&server.url(), "bench").await.expect("a server")))
}

/// First come, first served, and nothing else.
#[derive(Default)]
struct Baton(Mutex<(bool, VecDeque<oneshot::Sender<()>>)>);

impl Baton {
    async fn take(&self) {
        let turn = {
            let mut state = self.0.lock().expect("no panic");
            if !state.0 {
                state.0 = true;
                return;
            }
            let (sender, turn) = oneshot::channel();
            state.1.push_back(sender);
            turn
        };
        turn.await.expect("everybody gets a turn");
    }

    fn pass(&self) {
        let mut state = self.0.lock().expect("no panic");
        match state.1.pop_front() {
            Some(next) => next.send(()).expect("nobody is cancelled"),
            None => state.0 = false,
        }
    }
}
