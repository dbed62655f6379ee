//! etcd: a lock's two requests against a bare create-transaction and delete-transaction by the same client crate; and eight
//! processes on one name against the server's own lock service, and against `flock`.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, KvClient, LockOptions, PutOptions, Txn, TxnOp};
use lock_core::{Claim, DistributedLock, LockName, Locks, OwnerId};
use lock_etcd::EtcdLock;
use test_servers::EtcdCluster;

use crate::Figure;
use crate::contended::{self, Turn, now, wait_for};

/// Long enough for any run.
const LEASE: Duration = Duration::from_secs(600);

/// The first word of the kinds of worker that are ours.
pub(crate) const KIND: &str = "etcd";

/// One task: the median cycle per bare one.
pub async fn uncontended(rounds: usize, each: Duration) -> Figure {
    let cluster = EtcdCluster::start(1);
    let lock = EtcdLock::connect(&cluster.url(), "bench").await.expect("a server");
    let mut client = client(&cluster.hosts()).await;
    let lease = client.lease_grant(LEASE.as_secs() as i64, None).await.expect("a lease").id();
    let kv = client.kv_client();
    let mut times = Vec::new();
    for _ in 0..rounds {
        let base = median(each, async || bare_cycle(kv.clone(), lease).await).await;
        let ours = median(each, async || our_cycle(&lock).await).await;
        println!("    etcd: {ours:.0?}, bare pair {base:.0?}");
        times.push(ours.as_secs_f64() / base.as_secs_f64());
    }
    Figure::at_most("etcd: lock + unlock, median time / bare pair", times, 1.1)
}

/// Eight processes on one name: hand-offs a second per those of the server's lock service; the slowest hand-off but one in a hundred,
/// in milliseconds; and with 2 ms holds and pauses, acquisitions per those of `flock`.
pub fn eight_processes(folder: &Path, rounds: usize, each: Duration) -> [Figure; 3] {
    let (mut gains, mut slowest, mut shares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        // A server of its own for each, since its lock service leaves something behind.
        let run = |kind: &str| {
            let cluster = EtcdCluster::start(1);
            let round = contended::run(Path::new(&cluster.hosts()), kind, 8, each);
            println!("    {kind} {round}");
            round
        };
        let (theirs, ours) = (run("etcd-service"), run("etcd-queue"));
        let paused = run("etcd-paused");
        let base = contended::run(folder, "flock", 8, each);
        println!("    flock {base}");
        gains.push(ours.hand_offs.len() as f64 / theirs.hand_offs.len() as f64);
        slowest.push(ours.at(0.99).as_secs_f64() * 1000.0);
        shares.push(paused.rate / base.rate);
    }
    [
        Figure::at_least("etcd: 8 processes, hand-offs / the server's lock service", gains, 8.0),
        Figure::at_most("etcd: 8 processes, hand-off p99, ms", slowest, 10.0),
        Figure::at_least("etcd: 8 processes, 2 ms holds and pauses / flock", shares, 0.68),
    ]
}

/// What a worker process does until `end`.
pub(crate) async fn work(kind: &str, hosts: &str, start: u64, end: u64, pause: Duration) -> Vec<Turn> {
    let mut turns = Vec::new();
    if kind == "etcd-service" {
        let mut client = client(hosts).await;
        let lease = client.lease_grant(LEASE.as_secs() as i64, None).await.expect("a lease").id();
        wait_for(start).await;
        while now() < end {
            let asked = now();
            let lock = client.lock("bench", Some(LockOptions::new().with_lease(lease))).await.expect("a lock");
            turns.push([asked, now(), now()]);
            client.unlock(lock.key()).await.expect("held");
        }
        return turns;
    }
    let pause = if kind == "etcd-paused" { pause } else { Duration::ZERO };
    let backend = EtcdLock::connect(&format!("etcd://{hosts}"), "bench").await.expect("a server");
    let locks = Locks::new(Arc::new(backend));
    let mutex = locks.mutex("bench");
    wait_for(start).await;
    while now() < end {
        let asked = now();
        let guard = mutex.lock().await.expect("a lock");
        let had = now();
        rest(pause).await;
        turns.push([asked, had, now()]);
        guard.unlock().await.expect("held");
        rest(pause).await;
    }
    drop(locks.shutdown(Duration::from_secs(1)).await);
    turns
}

async fn rest(pause: Duration) {
    if !pause.is_zero() {
        tokio::time::sleep(pause).await;
    }
}

async fn client(hosts: &str) -> Client {
    let hosts: Vec<_> = hosts.split(',').collect();
    Client::connect(hosts, None).await.expect("a server")
}

async fn our_cycle(lock: &EtcdLock) {
    let claim = Claim::new(LockName::new("x").expect("a name"), OwnerId::from_store("bench@host:1#x"), LEASE);
    lock.lock(&claim).await.expect("free");
    lock.unlock(&claim).await.expect("held");
}

async fn bare_cycle(mut kv: KvClient, lease: i64) {
    let put = TxnOp::put("bare/x", "bench@host:1#x", Some(PutOptions::new().with_lease(lease)));
    let created = Txn::new().when([Compare::create_revision("bare/x", CompareOp::Equal, 0)]).and_then([put]);
    assert!(kv.txn(created).await.expect("an answer").succeeded());
    let there = Compare::create_revision("bare/x", CompareOp::Greater, 0);
    let deleted = Txn::new().when([there]).and_then([TxnOp::delete("bare/x", None)]);
    assert!(kv.txn(deleted).await.expect("an answer").succeeded());
}

/// The median time of a cycle.
async fn median(during: Duration, mut cycle: impl AsyncFnMut()) -> Duration {
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < during {
        let begun = Instant::now();
        cycle().await;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}
