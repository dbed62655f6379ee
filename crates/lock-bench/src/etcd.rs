//! etcd: a lock's two requests against a bare create-transaction and delete-transaction by the same client crate; and
//! eight processes on one name against the server's own lock service, and against `flock`.

use std::time::Duration;

use etcd_client::{Client, Compare, CompareOp, KvClient, LockOptions, PutOptions, Txn, TxnOp};
use lock_etcd::EtcdLock;
use test_servers::{Disk, EtcdCluster};

use crate::contended::{self, Load};
use crate::peers::{LEASE, NAME, Peer};
use crate::{Figure, PAUSE, cycle, interleaved};

/// One task: the median cycle per bare one.
pub async fn uncontended(rounds: usize, each: Duration) -> Figure {
    let cluster = EtcdCluster::start_durable();
    let lock = EtcdLock::connect(&cluster.url(), "bench").await.expect("a server");
    let (mut client, lease) = client(&cluster.url()).await;
    let kv = client.kv_client();
    let mut cycle = cycle(&lock);
    let mut times = Vec::new();
    for _ in 0..rounds {
        let [ours, base] = interleaved(each, &mut cycle, async || bare_cycle(kv.clone(), lease).await).await;
        println!("    etcd: {:.0} us, bare pair {:.0} us", ours * 1e6, base * 1e6);
        times.push(ours / base);
    }
    client.lease_revoke(lease).await.expect("it is ours");
    Figure::at_most("etcd: lock + unlock, median time / bare pair", times, 1.1)
}

/// 8 processes on one name, with sections of nothing, and with holds and pauses of 2 ms.
pub fn contended(rounds: usize, during: Duration) -> [Figure; 3] {
    let folder = test_servers::folder(Disk::Real);
    let [mut gains, mut tails, mut flocks] = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let load = Load { pause: Duration::ZERO, during };
        // A server of its own for each, since the service leaves something behind.
        let service = contended::run("etcd-service", EtcdCluster::start_durable().url(), load);
        let ours = contended::run("etcd", EtcdCluster::start_durable().url(), load);
        gains.push(ours.hand_off_rate / service.hand_off_rate);
        tails.push(ours.at(0.99).as_secs_f64() * 1000.0);
        let load = Load { pause: PAUSE, during };
        let flock = contended::run("flock", folder.path(), load);
        flocks.push(contended::run("etcd", EtcdCluster::start_durable().url(), load).rate / flock.rate);
    }
    [
        Figure::at_least("etcd: 8 processes, hand-offs / the server's lock service", gains, 8.0),
        Figure::at_most("etcd: 8 processes, hand-off p99 in ms", tails, 10.0),
        Figure::at_least("etcd: 8 processes, 2 ms holds and pauses / flock", flocks, 0.68),
    ]
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
    let lease = client.lease_grant(LEASE.as_secs() as i64, None).await.expect("a lease").id();
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
