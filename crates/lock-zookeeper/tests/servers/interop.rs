//! Others who lock with the same nodes: Curator's `InterProcessMutex` and `LeaderSelector`, kazoo's `Lock` and `Election`.

use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{soon, until};
use crate::raw::{is_watched, raw};
use lock_core::{LockGuard, Locks, OnceRun};
use lock_zookeeper::ZookeeperLock;
use test_servers::{ZookeeperServers, curator};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use zookeeper_client::Client;

/// Longer than any step takes, shorter than the leases.
const BOUND: Duration = Duration::from_secs(60);

/// Another program that takes orders line by line.
pub(crate) struct Peer {
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
    _child: Child,
}

impl Peer {
    pub(crate) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().expect("java and python3 are installed");
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { orders, answers, _child: child }
    }

    fn curator(servers: &ZookeeperServers) -> Self {
        let mut java = Command::from(curator());
        java.arg("-XX:TieredStopAtLevel=1");
        java.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/CuratorPeer.java"));
        java.args([&servers.addresses()[0].to_string(), "/oarlock/job"]);
        Self::start(java)
    }

    pub(crate) fn kazoo(servers: &ZookeeperServers) -> Self {
        const KAZOO: &str = r#"
import sys
from threading import Event, Thread
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
client = KazooClient(sys.argv[1])
client.start()
lock = client.Lock("/oarlock/job", "theirs", extra_lock_patterns=["-lock-"])
election = client.Election("/oarlock/job", "theirs")
election.lock = lock
semaphore = client.Semaphore("/oarlock/job", "theirs", max_leases=2)
leads, resigns = Event(), Event()
def lead():
    leads.set()
    resigns.wait()
for line in sys.stdin:
    if line == "campaign\n":
        Thread(target=election.run, args=[lead], daemon=True).start()
        print(str(leads.wait(60)).lower(), flush=True)
        continue
    if line == "resign\n":
        resigns.set()
        print("resigned", flush=True)
        continue
    if line == "leader\n":
        print(election.contenders()[0].replace("\n", "|"), flush=True)
        continue
    if line == "permit\n":
        print(str(semaphore.acquire()).lower(), flush=True)
        continue
    if line in ("release\n", "give\n"):
        (lock if line == "release\n" else semaphore).release()
        print("released", flush=True)
        continue
    try:
        got = lock.acquire(timeout=0.3 if line == "try\n" else 60)
    except LockTimeout:
        got = False
    print(str(got).lower(), flush=True)
"#;
        // Debian's own, which has Debian's package python3-kazoo.
        let mut python = Command::new("/usr/bin/python3");
        python.args(["-c", KAZOO, &servers.addresses()[0].to_string()]);
        Self::start(python)
    }

    pub(crate) async fn tell(&mut self, order: &str) {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    pub(crate) async fn answer(&mut self) -> String {
        let answer = tokio::time::timeout(BOUND, self.answers.next_line()).await.unwrap();
        answer.unwrap().expect("libcurator-recipes-java and python3-kazoo are installed")
    }

    /// Waits until it has the lock that it asked for.
    pub(crate) async fn has_it(&mut self) {
        let answer = self.answer().await;
        assert!(answer.starts_with("locked"), "{answer}");
    }

    pub(crate) async fn ask(&mut self, order: &str) -> String {
        self.tell(order).await;
        self.answer().await
    }
}

async fn client(servers: &ZookeeperServers) -> Locks {
    let lock = Arc::new(ZookeeperLock::connect(&servers.url(), "oarlock").await.unwrap());
    Locks::builder(lock).lease(Duration::from_secs(300)).build().unwrap()
}

async fn excludes_and_is_excluded(servers: &ZookeeperServers, mut peer: Peer) {
    // Two, for the tasks of one client stand in a line of their own, and only the first of them in this.
    let (locks, others) = (client(servers).await, client(servers).await);
    let raw = raw(servers).await;
    let in_line = async |count: usize| nodes(&raw, count).await;
    let ours = locks.mutex("job").lock().await.unwrap();
    assert_eq!(peer.ask("try").await, "false");
    in_line(1).await;
    // It waits for us, and we for it, in one line.
    peer.tell("acquire").await;
    in_line(2).await;
    let waiting = tokio::spawn({
        let mutex = others.mutex("job");
        async move { mutex.lock().await.unwrap() }
    });
    in_line(3).await;
    let token = ours.fencing_token();
    ours.unlock().await.unwrap();
    assert_eq!(peer.answer().await, "true");
    assert!(locks.mutex("job").try_lock().await.unwrap().is_none());
    let status = locks.inspect("job").await.unwrap();
    assert!(status.holder().unwrap().owner.label().is_none() && status.waiters.len() == 1);
    assert!(!waiting.is_finished());
    assert_eq!(peer.ask("release").await, "released");
    let guard = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap();
    assert!(guard.fencing_token() > token);
    // One that waited hands on as one that did not.
    peer.tell("acquire").await;
    in_line(2).await;
    guard.unlock().await.unwrap();
    assert_eq!(peer.answer().await, "true");
    assert_eq!(peer.ask("release").await, "released");
    in_line(0).await;
}

/// Ends when so many stand in the line.
async fn nodes(raw: &Client, count: usize) {
    until("the line", async || raw.list_children("/oarlock/job").await.unwrap_or_default().len() == count).await;
}

/// A candidate of ours and one of another program lead one after the other. Each sees who leads, and the other sees our
/// value, too.
async fn leads_one_after_the_other(servers: &ZookeeperServers, mut peer: Peer) {
    let (locks, raw) = (client(servers).await, raw(servers).await);
    let election = locks.election("job").wait(BOUND);
    let ours = election.campaign("http://a:1").await.unwrap();
    ours.proclaim("http://b:2").await.unwrap();
    assert_eq!(peer.ask("leader").await, format!("{}|http://b:2", ours.owner().as_str()));
    peer.tell("campaign").await;
    nodes(&raw, 2).await;
    // A write to the leader's node makes nobody else lead.
    ours.proclaim("http://c:3").await.unwrap();
    assert_eq!(election.leader().await.unwrap().unwrap().value.unwrap().as_str(), "http://c:3");
    nodes(&raw, 2).await;
    assert!(ours.is_held());
    ours.resign().await.unwrap();
    assert_eq!(peer.answer().await, "true");
    let leader = election.leader().await.unwrap().unwrap();
    assert_eq!((leader.owner.as_str(), leader.value), ("theirs", None));
    let waiting = tokio::spawn(async move { election.campaign("http://d:4").await.unwrap() });
    nodes(&raw, 2).await;
    assert!(!waiting.is_finished());
    assert_eq!(peer.ask("leader").await, "theirs");
    assert_eq!(peer.ask("resign").await, "resigned");
    let ours = soon("the election", waiting).await.unwrap();
    assert!(peer.ask("leader").await.ends_with("|http://d:4"));
    ours.resign().await.unwrap();
}

/// What is kept excludes other programs, those that wait already as well, until its time is over.
async fn what_is_kept_excludes(servers: &ZookeeperServers, mut peer: Peer) {
    const REST: Duration = Duration::from_secs(3);
    let (locks, raw) = (client(servers).await, raw(servers).await);
    let job = locks.once("job").at_least(REST);
    let began = Instant::now();
    let ran = job
        .run(async |_| {
            peer.tell("acquire").await;
            nodes(&raw, 2).await;
        })
        .await;
    assert_eq!(ran.unwrap(), OnceRun::Ran(()));
    assert_eq!(peer.answer().await, "true");
    assert!(began.elapsed() >= REST, "after {:?}", began.elapsed());
    assert!(matches!(job.run(async |_| ()).await.unwrap(), OnceRun::Skipped(_)));
    assert_eq!(peer.ask("release").await, "released");
    nodes(&raw, 0).await;
    // As the manual says: with no client of ours there, it stands; and the next that comes ends it.
    assert_eq!(job.run(async |_| ()).await.unwrap(), OnceRun::Ran(()));
    let _ = locks.shutdown(BOUND).await;
    assert_eq!(peer.ask("try").await, "false");
    tokio::time::sleep(REST * 2).await;
    assert_eq!(peer.ask("try").await, "false");
    let locks = client(servers).await;
    assert_eq!(locks.inspect("job").await.unwrap().holder(), None);
    locks.mutex("job").try_lock().await.unwrap().unwrap().unlock().await.unwrap();
    assert_eq!(peer.ask("try").await, "true");
}

#[tokio::test]
async fn curator_is_excluded_and_excludes() {
    let servers = ZookeeperServers::start();
    excludes_and_is_excluded(&servers, Peer::curator(&servers)).await;
}

#[tokio::test]
async fn kazoo_is_excluded_and_excludes() {
    let servers = ZookeeperServers::start();
    excludes_and_is_excluded(&servers, Peer::kazoo(&servers)).await;
}

#[tokio::test]
async fn curators_candidates_and_ours_lead_one_after_the_other() {
    let servers = ZookeeperServers::start();
    leads_one_after_the_other(&servers, Peer::curator(&servers)).await;
}

#[tokio::test]
async fn kazoos_candidates_and_ours_lead_one_after_the_other() {
    let servers = ZookeeperServers::start();
    leads_one_after_the_other(&servers, Peer::kazoo(&servers)).await;
}

#[tokio::test]
async fn what_is_kept_excludes_curator() {
    let servers = ZookeeperServers::start();
    what_is_kept_excludes(&servers, Peer::curator(&servers)).await;
}

#[tokio::test]
async fn what_is_kept_excludes_kazoo() {
    let servers = ZookeeperServers::start();
    what_is_kept_excludes(&servers, Peer::kazoo(&servers)).await;
}

/// 133. Curator's `Revoker` asks all in the line to leave: Curator's hold stays Curator's, ours stays ours, and the line
/// goes on in its order.
#[tokio::test]
async fn curator_revokes_and_nothing_is_granted_by_it() {
    let servers = ZookeeperServers::start();
    let (mut curator, raw) = (Peer::curator(&servers), raw(&servers).await);
    let (first, second) = (client(&servers).await, client(&servers).await);
    let line = async || {
        let mut nodes = raw.list_children("/oarlock/job").await.unwrap_or_default();
        nodes.sort_by_key(|node| node.rsplit('-').next().unwrap().to_owned());
        nodes
    };
    let watched = async |node: &str, idle: &[&JoinHandle<LockGuard>]| {
        let watching = async {
            while !is_watched(&servers, &raw, &format!("/oarlock/job/{node}")).await {
                assert!(idle.iter().all(|waiter| !waiter.is_finished()), "another holds");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(BOUND, watching).await.unwrap();
    };
    let wait = |locks: &Locks| {
        let mutex = locks.mutex("job");
        tokio::spawn(async move { mutex.lock().await.unwrap() })
    };
    assert_eq!(curator.ask("acquire").await, "true");
    let held = line().await.pop().unwrap();
    let first = wait(&first);
    watched(&held, &[]).await;
    let waits = line().await.pop().unwrap();
    let second = wait(&second);
    watched(&waits, &[]).await;
    for _ in 0..3 {
        assert_eq!(curator.ask("revoke").await, "revoked");
        for node in [&held, &waits] {
            watched(node, &[&first, &second]).await;
        }
    }
    assert_eq!(curator.ask("release").await, "released");
    let first = tokio::time::timeout(BOUND, first).await.unwrap().unwrap();
    assert!(!second.is_finished());
    // Now the first node is ours.
    watched(&waits, &[]).await;
    assert_eq!(curator.ask("revoke").await, "revoked");
    watched(&waits, &[&second]).await;
    assert!(first.is_held() && !second.is_finished());
    first.unlock().await.unwrap();
    tokio::time::timeout(BOUND, second).await.unwrap().unwrap().unlock().await.unwrap();
    assert_eq!(line().await, [""; 0]);
}
