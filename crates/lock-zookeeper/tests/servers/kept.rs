//! Holds that outlive their owners, as the nodes show them; values; what observers are told.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{LONG, soon, until};
use crate::raw::{is_watched, raw};
use futures_util::future::{join, join_all};
use futures_util::{FutureExt, StreamExt};
use lock_core::{
    Claim, DistributedLock, ErrorKind, Grant, Kept, ListQuery, LockName, LockValue, OwnerId, Proclaimed, Renewal,
    Result, Unlocked,
};
use lock_zookeeper::{ZookeeperLock, ZookeeperOptions};
use test_servers::{Proxy, ZookeeperServers};
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, CreateMode};

/// Short enough to wait for its end.
const SHORT: Duration = Duration::from_secs(2);

const HOUR: Duration = Duration::from_secs(3600);

fn claim(name: &str, owner: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), LONG)
}

fn value(text: &str) -> LockValue {
    LockValue::new(text).unwrap()
}

fn showing(name: &str, owner: &str, text: &str) -> Claim {
    let mut claim = claim(name, owner);
    claim.value = Some(value(text));
    claim
}

async fn connect(url: &str) -> Arc<ZookeeperLock> {
    Arc::new(ZookeeperOptions::new(url).unwrap().timeout(Duration::from_secs(10)).connect().await.unwrap())
}

fn waits(lock: &Arc<ZookeeperLock>, claim: &Claim) -> JoinHandle<Result<Grant>> {
    let (lock, claim) = (Arc::clone(lock), claim.clone());
    tokio::spawn(async move { lock.lock(&claim).await })
}

struct Store {
    servers: ZookeeperServers,
    raw: Client,
}

impl Store {
    async fn new() -> Self {
        let servers = ZookeeperServers::start();
        Self { raw: raw(&servers).await, servers }
    }

    async fn client(&self) -> Arc<ZookeeperLock> {
        connect(&self.servers.url()).await
    }

    /// The paths of a lock's nodes, in their order.
    async fn nodes(&self, lock: &str) -> Vec<String> {
        let mut nodes = self.raw.list_children(&format!("/oarlock/{lock}")).await.unwrap_or_default();
        nodes.sort_by_key(|node| node.rsplit('-').next().unwrap().to_owned());
        nodes.into_iter().map(|node| format!("/oarlock/{lock}/{node}")).collect()
    }

    async fn first(&self) -> String {
        self.nodes("x").await.remove(0)
    }

    async fn data(&self, node: &str) -> String {
        String::from_utf8(self.raw.get_data(node).await.unwrap().0).unwrap()
    }

    async fn in_line(&self, count: usize) {
        until("the line", async || self.nodes("x").await.len() == count).await;
    }

    async fn is_free(&self, lock: &str) {
        until("its end", async || self.nodes(lock).await.is_empty()).await;
    }
}

fn number(node: &str) -> &str {
    node.rsplit('-').next().unwrap()
}

/// The layout: a claim without a value is what it always was; a value stands behind its owner; a kept hold has the place,
/// and its own word for the rest.
#[tokio::test]
async fn nodes_are_as_documented() {
    let store = Store::new().await;
    let (lock, other) = (store.client().await, store.client().await);
    let plain = claim("x", "plain");
    let grant = lock.try_lock(&plain).await.unwrap().unwrap();
    let held = store.first().await;
    assert_eq!(store.data(&held).await, "plain");
    let showing = showing("x", "shows", "a\nb");
    let waiting = waits(&other, &showing);
    store.in_line(2).await;
    assert_eq!(store.data(&store.nodes("x").await[1]).await, "shows\na\nb");
    let holder = lock.holder(&plain.name).await.unwrap().unwrap();
    assert_eq!((holder.owner.as_str(), holder.value), ("plain", None));
    assert_eq!(other.proclaim(&showing, &value("early")).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(store.data(&store.nodes("x").await[1]).await, "shows\na\nb");

    let began = Instant::now();
    assert_eq!(lock.keep(&plain, SHORT).await.unwrap(), Kept::Kept);
    let kept = store.first().await;
    assert!(kept.contains(&format!("-kept-{}-{}-lock-", grant.token.get(), SHORT.as_millis())), "{kept}");
    assert_eq!((number(&kept), store.data(&kept).await.as_str()), (number(&held), "kept#plain"));
    assert_eq!(store.raw.check_stat(&kept).await.unwrap().unwrap().ephemeral_owner, 0);
    assert!(soon("the grant", waiting).await.unwrap().unwrap().token > grant.token);
    assert!(began.elapsed() >= SHORT);

    // With its value as it was proclaimed last.
    assert_eq!(other.proclaim(&showing, &value("c")).await.unwrap(), Proclaimed::Shown);
    assert_eq!(other.keep(&showing, LONG).await.unwrap(), Kept::Kept);
    assert_eq!(store.data(&store.first().await).await, "kept#shows\nc");
    let holder = lock.holder(&plain.name).await.unwrap().unwrap();
    assert_eq!((holder.kept, holder.owner.as_str(), holder.value), (true, "shows", Some(value("c"))));
    assert_eq!(other.proclaim(&showing, &value("late")).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(store.data(&store.first().await).await, "kept#shows\nc");
}

/// What its owner had sent before, or another client sends for it, changes nothing any more.
#[tokio::test]
async fn nobody_renews_or_releases_what_is_kept() {
    let store = Store::new().await;
    let (lock, other) = (store.client().await, store.client().await);
    let claim = claim("x", "holder");
    lock.try_lock(&claim).await.unwrap().unwrap();
    assert_eq!(lock.keep(&claim, LONG).await.unwrap(), Kept::Kept);
    let kept = store.first().await;
    let state = store.raw.check_stat(&kept).await.unwrap().unwrap();
    for client in [&lock, &other] {
        assert_eq!(client.unlock(&claim).await.unwrap(), Unlocked::NotHeld);
        let renewed = client.renew(std::slice::from_ref(&claim)).await.pop().unwrap();
        assert_eq!(renewed.unwrap(), Renewal::NotHeld);
        assert_eq!(client.try_lock(&claim).await.unwrap(), None);
        assert_eq!(client.keep(&claim, SHORT).await.unwrap(), Kept::Kept);
        assert_eq!(store.nodes("x").await, [kept.as_str()]);
    }
    assert_eq!(store.raw.check_stat(&kept).await.unwrap().unwrap(), state);
    let findings = other.doctor().await.unwrap();
    assert!(findings.iter().all(|finding| !finding.setting.contains(&kept)), "{findings:?}");
    let listed = other.list(&ListQuery::new("")).await.unwrap().locks;
    assert!(listed[0].holder().unwrap().kept);
    assert_eq!(other.evict(&claim.name).await.unwrap().unwrap().owner, claim.owner);
    assert_eq!(lock.keep(&claim, LONG).await.unwrap(), Kept::NotHeld);
    assert_eq!(store.nodes("x").await, [""; 0]);
}

/// The answer is lost with its connection: it was done all the same, and is answered so.
#[tokio::test]
async fn what_was_kept_without_an_answer_is_kept() {
    let store = Store::new().await;
    let proxy = Proxy::new(store.servers.addresses()[0]);
    let lock = connect(&format!("zookeeper://{}", proxy.address())).await;
    for text in [None, Some("shown")] {
        let mut claim = claim("x", "holder");
        claim.value = text.map(value);
        lock.try_lock(&claim).await.unwrap().unwrap();
        proxy.hold_s2c();
        let keeping = tokio::spawn({
            let (lock, claim) = (Arc::clone(&lock), claim.clone());
            async move { lock.keep(&claim, LONG).await }
        });
        if text.is_none() {
            until("it is kept", async || store.first().await.contains("-kept-")).await;
        }
        proxy.reset();
        proxy.forward();
        assert_eq!(soon("the answer", keeping).await.unwrap().unwrap(), Kept::Kept);
        assert!(store.nodes("x").await.len() == 1 && store.first().await.contains("-kept-"));
        assert!(store.client().await.evict(&claim.name).await.unwrap().is_some());
    }
}

/// The same, and what was kept is over by then: nobody says that the lock was not held until it was to be kept.
#[tokio::test]
async fn what_was_kept_without_an_answer_and_is_over_is_unknown() {
    let store = Store::new().await;
    let proxy = Proxy::new(store.servers.addresses()[0]);
    let (lock, other) = (connect(&format!("zookeeper://{}", proxy.address())).await, store.client().await);
    let claim = claim("x", "holder");
    lock.try_lock(&claim).await.unwrap().unwrap();
    proxy.hold_s2c();
    let keeping = tokio::spawn({
        let (lock, claim) = (Arc::clone(&lock), claim.clone());
        async move { lock.keep(&claim, Duration::from_millis(100)).await }
    });
    // As soon as its time is over.
    let next = self::claim("x", "next");
    soon("the next grant", other.lock(&next)).await.unwrap();
    other.unlock(&next).await.unwrap();
    proxy.reset();
    proxy.forward();
    assert_eq!(soon("the answer", keeping).await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(lock.keep(&claim, LONG).await.unwrap(), Kept::NotHeld, "and this was not sent before");
}

/// The request is on its way when the servers end the session: it does nothing, however late it comes.
#[tokio::test]
async fn what_comes_after_the_end_of_its_session_keeps_nothing() {
    let store = Store::new().await;
    let proxy = Proxy::new(store.servers.addresses()[0]);
    let lock = connect(&format!("zookeeper://{}", proxy.address())).await;
    let mut claim = claim("x", "holder");
    claim.lease = SHORT;
    lock.try_lock(&claim).await.unwrap().unwrap();
    proxy.hold_c2s();
    let keeping = tokio::spawn({
        let (lock, claim) = (Arc::clone(&lock), claim.clone());
        async move { lock.keep(&claim, LONG).await }
    });
    store.is_free("x").await;
    proxy.forward();
    let kept = soon("the answer", keeping).await.unwrap();
    assert!(!matches!(kept, Ok(Kept::Kept)), "{kept:?}");
    assert_eq!(soon("the answer", lock.keep(&claim, LONG)).await.unwrap(), Kept::NotHeld);
    assert_eq!(store.nodes("x").await, [""; 0]);
}

/// Curator's `Revoker` writes to all nodes: what is kept stays so, and ends in time.
#[tokio::test]
async fn what_is_written_over_ends_in_time() {
    let store = Store::new().await;
    let (lock, other) = (store.client().await, store.client().await);
    let claim = claim("x", "holder");
    let token = lock.try_lock(&claim).await.unwrap().unwrap().token;
    let began = Instant::now();
    assert_eq!(lock.keep(&claim, SHORT).await.unwrap(), Kept::Kept);
    lock.close().await.unwrap();
    let waiting = waits(&other, &self::claim("x", "waits"));
    let kept = store.first().await;
    until("a watch", async || is_watched(&store.servers, &store.raw, &kept).await).await;
    store.raw.set_data(&kept, b"__REVOKE__", None).await.unwrap();
    let holder = other.holder(&claim.name).await.unwrap().unwrap();
    assert!(holder.kept && holder.token == token && holder.remaining <= SHORT, "{holder:?}");
    soon("the grant", waiting).await.unwrap().unwrap();
    assert!(began.elapsed() >= SHORT);
}

/// Another program waits right behind the holder, and one of ours behind that: the holder keeps its hold and goes, which
/// is nothing that the other program would tell.
#[tokio::test]
async fn who_waits_behind_another_program_ends_what_is_kept() {
    let store = Store::new().await;
    let (lock, other) = (store.client().await, store.client().await);
    let claim = claim("x", "holder");
    lock.try_lock(&claim).await.unwrap().unwrap();
    let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let path = "/oarlock/x/_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-";
    let (_, number) = store.raw.create(path, b"theirs", &ephemeral).await.unwrap();
    let theirs = format!("{path}{number}");
    let waiting = waits(&other, &self::claim("x", "waits"));
    until("a watch", async || is_watched(&store.servers, &store.raw, &theirs).await).await;
    assert_eq!(lock.keep(&claim, SHORT).await.unwrap(), Kept::Kept);
    lock.close().await.unwrap();
    until("their turn", async || store.first().await == theirs).await;
    assert!(!waiting.is_finished());
    store.raw.delete(&theirs, None).await.unwrap();
    soon("the grant", waiting).await.unwrap().unwrap();
}

/// Of several that wait, the first ends what is kept; it gives up, and the next does.
#[tokio::test]
async fn whoever_comes_first_ends_what_is_kept() {
    let store = Store::new().await;
    let (lock, first, second) = (store.client().await, store.client().await, store.client().await);
    let claim = claim("x", "holder");
    lock.try_lock(&claim).await.unwrap().unwrap();
    let left = self::claim("x", "first");
    let leaving = waits(&first, &left);
    store.in_line(2).await;
    let waiting = waits(&second, &self::claim("x", "second"));
    store.in_line(3).await;
    let began = Instant::now();
    assert_eq!(lock.keep(&claim, SHORT).await.unwrap(), Kept::Kept);
    lock.close().await.unwrap();
    leaving.abort();
    let _ = leaving.await;
    assert_eq!(first.unlock(&left).await.unwrap(), Unlocked::NotHeld);
    soon("the grant", waiting).await.unwrap().unwrap();
    assert!(began.elapsed() >= SHORT && store.nodes("x").await.len() == 1);
}

/// The client that kept a hold ends it while it is there; what others have left, whoever keeps one later.
#[tokio::test]
async fn what_is_over_goes() {
    let store = Store::new().await;
    let left = store.client().await;
    for job in ["job@1", "job@2"] {
        let claim = claim(job, job);
        left.try_lock(&claim).await.unwrap().unwrap();
        assert_eq!(left.keep(&claim, SHORT).await.unwrap(), Kept::Kept);
    }
    left.close().await.unwrap();
    tokio::time::sleep(SHORT + Duration::from_millis(100)).await;
    let lock = store.client().await;
    // Nobody is shown there.
    assert_eq!(lock.list(&ListQuery::new("")).await.unwrap().locks, []);
    assert_eq!(lock.evict(&LockName::new("job@1").unwrap()).await.unwrap(), None);
    assert!(store.nodes("job@1").await.is_empty() && store.nodes("job@2").await.len() == 1);
    let claim = claim("job@3", "job@3");
    lock.try_lock(&claim).await.unwrap().unwrap();
    assert_eq!(lock.keep(&claim, SHORT).await.unwrap(), Kept::Kept);
    assert!(store.nodes("job@2").await.is_empty() && store.nodes("job@3").await.len() == 1);
    store.is_free("job@3").await;
}

/// The servers' clock decides: it is set an hour ahead, and what was kept for less is over; an hour behind, and it goes
/// on.
#[tokio::test(flavor = "multi_thread")]
async fn the_servers_clock_decides() {
    let (servers, clock) = ZookeeperServers::start_with_clock();
    let lock = connect(&servers.url()).await;
    let claim = claim("x", "holder");
    lock.try_lock(&claim).await.unwrap().unwrap();
    assert_eq!(lock.keep(&claim, HOUR / 2).await.unwrap(), Kept::Kept);
    assert_eq!(lock.try_lock(&self::claim("x", "early")).await.unwrap(), None);
    clock.ahead(HOUR);
    let next = self::claim("x", "next");
    lock.try_lock(&next).await.unwrap().unwrap();
    assert_eq!(lock.keep(&next, SHORT).await.unwrap(), Kept::Kept);
    clock.behind(HOUR);
    tokio::time::sleep(SHORT * 2).await;
    assert_eq!(lock.try_lock(&self::claim("x", "early")).await.unwrap(), None);
    assert!(lock.evict(&next.name).await.unwrap().unwrap().kept);
}

/// An observer hears of each holder and each value, also of the end of what is kept where nobody ends it, and of nobody
/// who only waits.
#[tokio::test]
async fn observers_are_told() {
    let store = Store::new().await;
    let (lock, other, watching) = (store.client().await, store.client().await, store.client().await);
    let mut changes = watching.changes(&LockName::new("x").unwrap());
    let mut told = async |what: &str| assert_eq!(soon(what, changes.next()).await, Some(()));
    told("the beginning").await;
    let first = showing("x", "first", "a");
    lock.try_lock(&first).await.unwrap().unwrap();
    told("a holder").await;
    lock.proclaim(&first, &value("b")).await.unwrap();
    told("a value").await;
    let second = claim("x", "second");
    let waiting = waits(&other, &second);
    store.in_line(2).await;
    assert_eq!(lock.unlock(&first).await.unwrap(), Unlocked::Released);
    told("the next holder").await;
    soon("the grant", waiting).await.unwrap().unwrap();
    assert_eq!(other.keep(&second, SHORT).await.unwrap(), Kept::Kept);
    other.close().await.unwrap();
    told("it is kept").await;
    assert!(watching.holder(&first.name).await.unwrap().unwrap().kept);
    told("it is over").await;
    assert_eq!(watching.holder(&first.name).await.unwrap(), None);
    assert_eq!(changes.next().now_or_never(), None);
    watching.close().await.unwrap();
    store.raw.delete(&store.first().await, None).await.unwrap();
    assert_eq!(soon("the end", changes.next()).await, None);
}

/// Many clients take the lock, and give it back, keep it for a moment, or give up waiting; their connections break: nobody
/// has it while another has or kept it, and the line goes on.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_holds_what_is_kept() {
    const REST: Duration = Duration::from_millis(60);
    let store = Store::new().await;
    let proxy = Proxy::new(store.servers.addresses()[0]);
    let urls = [format!("zookeeper://{}", proxy.address()), store.servers.url()];
    let end = Instant::now() + Duration::from_secs(10);
    // Until when nobody may be granted the lock.
    let free_at = Mutex::new(Instant::now());
    let (kept, granted) = (AtomicU32::new(0), AtomicU32::new(0));
    let turn = async |lock: &ZookeeperLock, claim: &Claim, patience: Duration, keeps: bool| {
        if !matches!(tokio::time::timeout(patience, lock.lock(claim)).await, Ok(Ok(_))) {
            return until("it is given up", async || lock.unlock(claim).await.is_ok()).await;
        }
        let now = Instant::now();
        let before = std::mem::replace(&mut *free_at.lock().unwrap(), now + HOUR);
        assert!(now >= before, "{:?} too early", before - now);
        granted.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(2)).await;
        *free_at.lock().unwrap() = Instant::now() + if keeps { REST } else { Duration::ZERO };
        until("it is given back", async || {
            if keeps { lock.keep(claim, REST).await.is_ok() } else { lock.unlock(claim).await.is_ok() }
        })
        .await;
        kept.fetch_add(keeps.into(), Ordering::Relaxed);
    };
    let client = async |number: usize| {
        let lock = connect(&urls[number % 2]).await;
        let mut round = 0;
        while Instant::now() < end {
            let patience = if (round + number).is_multiple_of(5) { REST / 2 } else { LONG };
            let claim = claim("x", &format!("{number}-{round}"));
            turn(&lock, &claim, patience, (round * 7 + number).is_multiple_of(3)).await;
            round += 1;
        }
    };
    let breaking = async {
        while Instant::now() < end {
            tokio::time::sleep(Duration::from_millis(700)).await;
            proxy.reset();
        }
    };
    soon("their end", join(join_all((0..6).map(client)), breaking)).await;
    let (kept, granted) = (kept.into_inner(), granted.into_inner());
    assert!(kept > 10 && granted > kept, "{granted} grants, {kept} of them kept");
    // The last of them may have kept it, and is gone.
    let (lock, last) = (store.client().await, claim("x", "last"));
    soon("the grant", lock.lock(&last)).await.unwrap();
    assert_eq!(store.nodes("x").await.len(), 1);
}
