//! etcd: a lock's two requests against a bare create-transaction and delete-transaction by the same client crate; and
//! processes on one name against the server's own lock service, against `flock`, and many against few.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use etcd_client::{Client, Compare, CompareOp, KvClient, LockOptions, PutOptions, Txn, TxnOp};
use futures_util::future::join_all;
use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use lock_etcd::EtcdLock;
use test_servers::{Disk, EtcdCluster};

use crate::contended::{self, Load};
use crate::peers::{LEASE, NAME, Peer};
use crate::{Figure, PAUSE, cycle, interleaved};

/// So many locks are taken and given back between the first measurement and the last.
const MANY: usize = 50_000;

/// One task, each time with a new owner: the median cycle per bare one; and what that comes to after many of them, without
/// a compaction, per what it was before.
pub async fn uncontended(rounds: usize, each: Duration) -> [Figure; 2] {
    let cluster = EtcdCluster::start_durable();
    let lock = EtcdLock::connect(&cluster.url(), "bench").await.expect("a server");
    let (mut client, lease) = client(&cluster.url()).await;
    let kv = client.kv_client();
    let mut cycle = cycle(&lock);
    let [mut before, mut after] = [const { Vec::new() }; 2];
    for (times, first) in [(&mut before, 0), (&mut after, MANY)] {
        for _ in 0..first {
            cycle().await;
        }
        for _ in 0..rounds {
            let [ours, base] = interleaved(each, &mut cycle, async || bare_cycle(kv.clone(), lease).await).await;
            println!("    etcd: {:.0} us, bare pair {:.0} us", ours * 1e6, base * 1e6);
            times.push(ours / base);
        }
    }
    client.lease_revoke(lease).await.expect("it is ours");
    let grown = after.iter().zip(&before).map(|(after, before)| after / before).collect();
    [
        Figure::at_most("etcd: lock + unlock, median time / bare pair", before, 1.15),
        Figure::at_most("etcd: the same after 50,000 locks / before", grown, 1.05),
    ]
}

/// 8 processes on one name, with sections of nothing, and with holds and pauses of 2 ms; and for a minute.
pub fn contended(rounds: usize, during: Duration) -> [Figure; 5] {
    let folder = test_servers::folder(Disk::Real);
    let [mut gains, mut hand_offs, mut tails, mut flocks] = [const { Vec::new() }; 4];
    let load = Load::even(Duration::ZERO, during);
    for _ in 0..rounds {
        // A server of its own for each, since the service leaves something behind.
        let service = contended::run("etcd-service", EtcdCluster::start_durable().url(), load);
        let (bare, cluster) = (bare_pair(during), EtcdCluster::start_durable());
        let ours = contended::run("etcd", cluster.url(), load);
        gains.push(ours.hand_off_rate / service.hand_off_rate);
        hand_offs.push(ours.at(0.5).as_secs_f64() / bare);
        tails.push(ours.at(0.99).as_secs_f64() * 1000.0);
        let load = Load::even(PAUSE, during);
        let flock = contended::run("flock", folder.path(), load);
        flocks.push(contended::run("etcd", EtcdCluster::start_durable().url(), load).rate / flock.rate);
    }
    let load = Load::even(Duration::ZERO, Duration::from_secs(60));
    let minute = contended::run("etcd", EtcdCluster::start_durable().url(), load);
    [
        Figure::at_least("etcd: 8 processes, hand-offs / the server's lock service", gains, 8.0),
        Figure::at_most("etcd: 8 processes, median hand-off / bare pair", hand_offs, 1.7),
        Figure::at_most("etcd: 8 processes, hand-off p99 in ms", tails, 10.0),
        Figure::at_least("etcd: 8 processes, 2 ms holds and pauses / flock", flocks, 0.68),
        Figure::at_least(
            "etcd: 8 processes, hand-offs in the last 10 s of a minute / in the first",
            vec![minute.last_per_first(Duration::from_secs(10))],
            0.9,
        ),
    ]
}

/// The median time of a bare pair, by one task that is alone with a server.
fn bare_pair(during: Duration) -> f64 {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let cluster = EtcdCluster::start_durable();
        let (client, lease) = client(&cluster.url()).await;
        let kv = client.kv_client();
        let [time, _] = interleaved(during, async || bare_cycle(kv.clone(), lease).await, async || {}).await;
        time
    })
}

/// A hundred processes on one name, per two of them.
pub fn crowded(rounds: usize, during: Duration) -> Figure {
    contended::crowded(("etcd", "etcd"), rounds, during, EtcdCluster::start_durable, EtcdCluster::url)
}

/// How many messages the server sends for each release, to a thousand clients that want a hundred locks.
pub async fn messages(rounds: usize, during: Duration) -> Figure {
    let cluster = EtcdCluster::start_durable();
    let clients = (0..1000).map(async |_| EtcdLock::connect(&cluster.url(), "bench").await.expect("a server"));
    let clients = join_all(clients).await;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let (end, releases) = (Instant::now() + during, AtomicU64::new(0));
        let sent = cluster.messages_sent();
        let turns = clients.iter().enumerate().map(async |(number, lock)| {
            let name = LockName::new(&format!("{}", number % 100)).expect("a name");
            for turn in 0.. {
                let owner = OwnerId::from_store(&format!("bench@host:1#{number}-{round}-{turn}"));
                let claim = Claim::new(name.clone(), owner, LEASE);
                lock.lock(&claim).await.expect("a lock");
                lock.unlock(&claim).await.expect("held");
                releases.fetch_add(1, Ordering::Relaxed);
                if Instant::now() > end {
                    break;
                }
            }
        });
        join_all(turns).await;
        let (sent, releases) = (cluster.messages_sent() - sent, releases.into_inner());
        println!("    etcd: {:.0} releases/s", releases as f64 / during.as_secs_f64());
        ratios.push(sent as f64 / releases as f64);
    }
    Figure::at_most("etcd: 1,000 clients, messages of the server / release", ratios, 10.0)
}

/// The server's own lock service.
pub(crate) struct Service {
    client: Client,
    lease: i64,
    key: Vec<u8>,
}

impl Service {
    pub(crate) async fn new(url: &str) -> Self {
        let (client, lease) = client(url).await;
        Self { client, lease, key: Vec::new() }
    }
}

impl Peer for Service {
    async fn acquire(&mut self) {
        let on_lease = LockOptions::new().with_lease(self.lease);
        self.key = self.client.lock(NAME, Some(on_lease)).await.expect("a lock").key().to_owned();
    }

    async fn release(&mut self) {
        self.client.unlock(self.key.as_slice()).await.expect("held");
    }
}

/// A client, and a lease of its own that lasts for any run.
async fn client(url: &str) -> (Client, i64) {
    let hosts = url.strip_prefix("etcd://").expect("etcd's URL");
    let mut client = Client::connect([hosts], None).await.expect("a server");
    let lease = client.lease_grant(10 * LEASE.as_secs() as i64, None).await.expect("a lease").id();
    (client, lease)
}

async fn bare_cycle(mut kv: KvClient, lease: i64) {
    let put = TxnOp::put("bare/x", "bench@host:1#x", Some(PutOptions::new().with_lease(lease)));
    let created = Txn::new().when([Compare::create_revision("bare/x", CompareOp::Equal, 0)]).and_then([put]);
    assert!(kv.txn(created).await.expect("an answer").succeeded());
    let there = Compare::create_revision("bare/x", CompareOp::Greater, 0);
    let deleted = Txn::new().when([there]).and_then([TxnOp::delete("bare/x", None)]);
    assert!(kv.txn(deleted).await.expect("an answer").succeeded());
}
