//! Redis: a lock without contention against a bare `SET NX PX` and a compare-and-delete script by the same client crate,
//! on the same server, and against `rslock`; and eight processes against a baton, `rslock` and `flock`. The servers save
//! nothing, where a lock costs most beside the bare pair, and one saves each write.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use lock_redis::RedisLock;
use redis::Script;
use redis::aio::MultiplexedConnection;
use rslock::LockManager;
use test_servers::{Disk, RedisServer};

use crate::contended::{self, Load};
use crate::peers::{Baton, LEASE, bare_connection};
use crate::tasks::run;
use crate::{Figure, PAUSE};

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// One task, the median cycle per bare one; and 64 tasks on 64 names, in cycles per bare one and per one of `rslock`. And
/// the first two where each write is saved.
pub async fn uncontended(rounds: usize, each: Duration) -> [Figure; 5] {
    let [times, rates, rslocks] = beside_bare(&RedisServer::start(), rounds, each).await;
    let [saved_times, saved_rates, _] = beside_bare(&RedisServer::start_durable(), rounds, each).await;
    [
        Figure::at_most("redis: lock + unlock, median time / bare pair", times, 1.15),
        Figure::at_least("redis: 64 tasks on 64 names, rate / bare pair", rates, 0.65),
        Figure::at_least("redis: 64 tasks on 64 names, rate / rslock", rslocks, 1.0),
        Figure::at_most("redis: each write saved, lock + unlock, median time / bare pair", saved_times, 1.15),
        Figure::at_least("redis: each write saved, 64 tasks on 64 names, rate / bare pair", saved_rates, 0.65),
    ]
}

/// The times and the rates per bare ones, and the rates per those of `rslock`.
async fn beside_bare(server: &RedisServer, rounds: usize, each: Duration) -> [Vec<f64>; 3] {
    let lock = Arc::new(RedisLock::connect(&server.url(), "bench").await.expect("a server"));
    let bare = bare_connection(&server.url()).await;
    let manager = LockManager::new(vec![server.url()]);
    let release = Arc::new(Script::new(RELEASE));
    let (mut times, mut rates, mut rslocks) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        for tasks in [1, 64] {
            let (bare, release, lock) = (bare.clone(), Arc::clone(&release), Arc::clone(&lock));
            let base = run(tasks, each, move |task| bare_cycle(bare.clone(), Arc::clone(&release), task)).await;
            let ours = run(tasks, each, move |task| our_cycle(Arc::clone(&lock), task)).await;
            println!("    redis, {tasks} tasks: {:.0} cycles/s, bare pair {:.0} cycles/s", ours.rate, base.rate);
            match tasks {
                1 => times.push(ours.at(0.5).as_secs_f64() / base.at(0.5).as_secs_f64()),
                _ => {
                    let manager = manager.clone();
                    let rslock = run(tasks, each, move |task| rslock_cycle(manager.clone(), task)).await;
                    println!("    rslock: {:.0} cycles/s", rslock.rate);
                    rates.push(ours.rate / base.rate);
                    rslocks.push(ours.rate / rslock.rate);
                }
            }
        }
    }
    [times, rates, rslocks]
}

/// 8 processes on one name, with sections of nothing, and with holds and pauses of 2 ms.
pub async fn contended(rounds: usize, during: Duration) -> [Figure; 6] {
    let folder = test_servers::folder(Disk::Real);
    let server = RedisServer::start();
    let url = server.url();
    let [mut batons, mut rslocks, mut tails, mut fair, mut costs, mut flocks] = [const { Vec::new() }; 6];
    for _ in 0..rounds {
        let load = Load::even(Duration::ZERO, during);
        Baton::set_down(&url).await;
        let baton = contended::run("baton", &url, load);
        let before = requests(&url).await;
        let ours = contended::run("redis", &url, load);
        costs.push((requests(&url).await - before) / (ours.rate * during.as_secs_f64()));
        let rslock = contended::run("rslock", &url, load);
        batons.push(ours.hand_off_rate / baton.hand_off_rate);
        rslocks.push(ours.hand_off_rate / rslock.hand_off_rate);
        tails.push(ours.at(0.99).as_secs_f64() / ours.at(0.5).as_secs_f64());
        fair.push(ours.fairness);
        let load = Load::even(PAUSE, during);
        let flock = contended::run("flock", folder.path(), load);
        flocks.push(contended::run("redis", &url, load).rate / flock.rate);
    }
    [
        Figure::at_least("redis: 8 processes, hand-offs / BLPOP and RPUSH of a baton", batons, 0.45),
        Figure::at_least("redis: 8 processes, hand-offs / rslock", rslocks, 100.0),
        Figure::at_most("redis: 8 processes, hand-off p99 / p50", tails, 4.0),
        Figure::at_least("redis: 8 processes, Jain's index", fair, 0.99),
        Figure::at_most("redis: 8 processes, requests per acquisition", costs, 3.0),
        Figure::at_least("redis: 8 processes, 2 ms holds and pauses / flock", flocks, 0.9),
    ]
}

/// How many scripts the server has run, and flights of plain commands.
pub(crate) async fn requests(url: &str) -> f64 {
    let mut bare = bare_connection(url).await;
    let stats: String = redis::cmd("INFO").arg("commandstats").query_async(&mut bare).await.expect("a server");
    let ours = |line: &&str| line.starts_with("cmdstat_eval") || line.starts_with("cmdstat_incr:");
    let calls = stats.lines().filter(ours).filter_map(|line| line.split_once("calls=")?.1.split(',').next());
    calls.map(|calls| calls.parse::<f64>().expect("a number")).sum()
}

pub(crate) async fn our_cycle(lock: Arc<impl DistributedLock + ?Sized>, task: usize) -> Instant {
    let name = LockName::new(&task.to_string()).expect("a name");
    let claim = Claim::new(name, OwnerId::from_store(&format!("bench@host:1#{task}")), LEASE);
    lock.lock(&claim).await.expect("free");
    lock.unlock(&claim).await.expect("held");
    Instant::now()
}

async fn rslock_cycle(manager: LockManager, task: usize) -> Instant {
    let name = format!("rslock:{task}");
    let guard = manager.acquire(name.as_str(), LEASE).await.expect("free");
    guard.release().await;
    Instant::now()
}

async fn bare_cycle(mut bare: MultiplexedConnection, release: Arc<Script>, task: usize) -> Instant {
    let (key, owner) = (format!("bare:{task}"), format!("bench@host:1#{task}"));
    let mut set = redis::cmd("SET");
    set.arg(&key).arg(&owner).arg("NX").arg("PX").arg(60_000).exec_async(&mut bare).await.expect("free");
    let released: i64 = release.key(&key).arg(&owner).invoke_async(&mut bare).await.expect("held");
    assert_eq!(released, 1);
    Instant::now()
}

/// A hundred processes on one name, per two of them.
pub fn crowded(rounds: usize, during: Duration) -> Figure {
    contended::crowded(("redis", "redis"), rounds, during, RedisServer::start_durable, RedisServer::url)
}
