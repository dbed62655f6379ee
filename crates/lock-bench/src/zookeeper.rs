//! ZooKeeper: a lock against a bare node, made and deleted by the same client crate; and eight processes on one name
//! against that crate's own recipe, Curator's, and `flock`.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lock_zookeeper::ZookeeperLock;
use test_servers::ZookeeperServers;
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix, OwnedLockClient};

use crate::contended::{self, Load, run};
use crate::peers::Peer;
use crate::{Figure, PAUSE, cycle, interleaved};

/// What the processes call the client crate's recipe, and Curator's.
pub(crate) const RECIPE: &str = "recipe";
pub(crate) const CURATOR: &str = "curator";

/// The lock that all want, as Curator sees it.
const FOLDER: &str = "/bench/job";

fn servers() -> ZookeeperServers {
    // As it comes: what is answered is on the disk.
    ZookeeperServers::start_durable()
}

/// Lock and unlock, nobody else there: the median cycle per that of a bare node.
pub async fn uncontended(rounds: usize, each: Duration) -> Figure {
    let servers = servers();
    let lock = ZookeeperLock::connect(&servers.url(), "bench").await.expect("a server");
    let bare = Client::connect(&servers.addresses()[0].to_string()).await.expect("a server");
    let container = CreateMode::Container.with_acls(Acls::anyone_all());
    bare.mkdir("/bare", &container).await.expect("a new server");
    let node = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let mut cycle = cycle(&lock);
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let base = async || {
            let (_, number) = bare.create("/bare/n-", b"bench@host:1#1", &node).await.expect("a node");
            bare.delete(&format!("/bare/n-{number}"), None).await.expect("the node");
        };
        let [base, ours] = interleaved(each, base, &mut cycle).await;
        println!("    zookeeper: {:.0} us, bare create + delete {:.0} us", ours * 1e6, base * 1e6);
        ratios.push(ours / base);
    }
    Figure::at_most("zookeeper: lock + unlock, median time / bare create + delete", ratios, 1.05)
}

/// Eight processes on one name: hand-offs without a pause per those of the client crate's recipe and of Curator, and
/// acquisitions with holds and pauses of 2 ms per those of `flock`.
pub fn contended(folder: &Path, rounds: usize, during: Duration) -> [Figure; 4] {
    let servers = servers();
    let (url, address) = (servers.url(), servers.addresses()[0].to_string());
    let [mut by_crate, mut by_curator, mut by_flock, mut fair] = [const { Vec::new() }; 4];
    for _ in 0..rounds {
        let load = Load::even(Duration::ZERO, during);
        let ours = run("zookeeper", &url, load);
        by_crate.push(ours.hand_off_rate / run(RECIPE, &address, load).hand_off_rate);
        by_curator.push(ours.hand_off_rate / run(CURATOR, &address, load).hand_off_rate);
        fair.push(ours.fairness);
        let load = Load::even(PAUSE, during);
        let flock = run("flock", folder, load).rate;
        by_flock.push(run("zookeeper", &url, load).rate / flock);
        let recipe = run(RECIPE, &address, load).rate / flock;
        println!("    the client crate's recipe / flock: {recipe:.3}");
    }
    [
        Figure::at_least("zookeeper: 8 processes, hand-offs / the client crate's recipe", by_crate, 1.4),
        Figure::at_least("zookeeper: 8 processes, hand-offs / Curator", by_curator, 4.0),
        Figure::at_least("zookeeper: 8 processes, Jain's index", fair, 0.99),
        Figure::at_least("zookeeper: 8 processes, 2 ms holds and pauses / flock", by_flock, 0.8),
    ]
}

/// A hundred processes on one name, per two of them.
pub fn crowded(rounds: usize, during: Duration) -> Figure {
    let servers = servers();
    contended::crowded(("zookeeper", "zookeeper"), rounds, during, || (), |()| servers.url())
}

/// A worker with Curator's lock, in Java.
pub(crate) fn curator() -> Command {
    let mut java = test_servers::curator();
    java.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/CuratorWorker.java"));
    java
}

/// The lock that the client crate brings along.
pub(crate) struct Recipe {
    client: Client,
    options: LockOptions<'static>,
    held: Option<OwnedLockClient>,
}

impl Recipe {
    pub(crate) async fn new(address: &str) -> Self {
        let client = Client::connect(address).await.expect("a server");
        let parents = CreateMode::Container.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents).expect("parents");
        Self { client, options, held: None }
    }
}

impl Peer for Recipe {
    async fn acquire(&mut self) {
        let prefix = LockPrefix::new_curator(FOLDER, "lock-").expect("a path");
        let held = self.client.lock(prefix, b"bench", self.options.clone()).await.expect("a lock");
        self.held = Some(held.into_owned());
    }

    /// It releases in the background.
    async fn release(&mut self) {
        self.held = None;
    }
}
