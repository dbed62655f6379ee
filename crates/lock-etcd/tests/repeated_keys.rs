//! Keys whose names come again, as Go's `concurrency.Mutex` puts the same one for each lock of its session, and events
//! that come late or never.

mod go;
mod late;
mod line;

use std::sync::Arc;
use std::time::Duration;

use etcd_client::Client;
use futures_util::StreamExt;
use go::GoSession;
use late::WatchProxy;
use line::key_of;
use lock_core::{Claim, DistributedLock, LockName, Notice, OwnerId, Renewal, Unlocked};
use lock_etcd::EtcdLock;
use test_servers::{EtcdCluster, Proxy};

/// Never over while a test runs.
const LONG: Duration = Duration::from_secs(300);

/// For what needs no lease's end: a few times as long as a lost event may cost.
const BOUND: Duration = Duration::from_secs(20);

fn claim(name: &str, owner: &str, lease: Duration) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), lease)
}

async fn connect(url: &str) -> Arc<EtcdLock> {
    Arc::new(EtcdLock::connect(url, "oarlock").await.unwrap())
}

async fn raw(cluster: &EtcdCluster) -> Client {
    Client::connect(cluster.addresses().iter().map(ToString::to_string).collect::<Vec<_>>(), None).await.unwrap()
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

/// With its create revision.
async fn created(raw: &mut Client, key: &str) -> Option<i64> {
    raw.get(key, None).await.unwrap().kvs().first().map(|key| key.create_revision())
}

async fn in_line(lock: &EtcdLock, name: &str, waiters: usize) {
    let name = LockName::new(name).unwrap();
    let waiting = async {
        while lock.inspect(&name).await.unwrap().waiters.len() < waiters {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("all in line", waiting).await;
}

/// Deletes the key that an owner has.
async fn delete_key_of(raw: &Client, name: &str, owner: &str) -> String {
    let key = key_of(raw, name, owner).await.expect("it has one").key_str().unwrap().to_owned();
    raw.clone().delete(key.as_str(), None).await.unwrap();
    key
}

/// A lock, in the background, which is granted only when what holds under this name is gone: else two would hold.
async fn lock_after(lock: &Arc<EtcdLock>, claim: &Claim, raw: &Client, key: String) -> tokio::task::JoinHandle<()> {
    let (lock, claim, mut raw) = (Arc::clone(lock), claim.clone(), raw.clone());
    let holder = created(&mut raw, &key).await;
    assert!(holder.is_some());
    tokio::spawn(async move {
        lock.lock(&claim).await.unwrap();
        assert_ne!(created(&mut raw, &key).await, holder, "two hold");
    })
}

async fn holds(lock: &EtcdLock, claim: &Claim) -> bool {
    let answer = lock.renew(std::slice::from_ref(claim)).await.pop().unwrap().unwrap();
    matches!(answer, Renewal::Held { .. })
}

/// Go unlocks and locks again, and we stand in line behind the second key. Then we hear of the end of the first, which
/// is watched still, since another of ours has waited for it.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_an_earlier_key_of_that_name_lets_nobody_in() {
    let cluster = EtcdCluster::start(1);
    let proxy = WatchProxy::new(cluster.addresses()[0]).await;
    let (lock, raw, mut go) = (connect(&proxy.url()).await, raw(&cluster).await, GoSession::open(&cluster));
    let other = claim("y", "other", LONG);
    lock.try_lock(&other).await.unwrap().unwrap();
    let mut notices = lock.notices();
    go.lock("oarlock/x").await;
    let former = claim("x", "former", LONG);
    let waiting = tokio::spawn({
        let (lock, former) = (Arc::clone(&lock), former.clone());
        async move { lock.lock(&former).await }
    });
    in_line(&lock, "x", 1).await;
    // The stream's own, and those of the key that is held, of Go's, and of the waiter's.
    let watched = async {
        while cluster.requests(&["Watch"]) < 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("all watches", watched).await;
    waiting.abort();
    let _ = waiting.await;
    assert_eq!(lock.unlock(&former).await.unwrap(), Unlocked::NotHeld);
    proxy.hold();
    go.unlock().await;
    let key = go.lock("oarlock/x").await.key;
    let waiting = lock_after(&lock, &claim("x", "ours", LONG), &raw, key).await;
    in_line(&lock, "x", 1).await;
    // What comes after it over the same stream shows that it was heard of.
    delete_key_of(&raw, "y", "other").await;
    soon("both deletions", proxy.withheld(2)).await;
    proxy.forward();
    assert_eq!(soon("the loss", notices.next()).await, Some(Notice::NotHeld(other.owner)));
    // Several times what a look takes.
    for _ in 0..20 {
        assert!(lock.inspect(&LockName::new("x").unwrap()).await.unwrap().waiters.len() == 1);
    }
    go.unlock().await;
    soon("its turn", waiting).await.unwrap();
}

/// Our watch breaks, Go unlocks and locks again under the same name: it waits for us, and we do not wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn who_locks_again_while_we_cannot_hear_waits_for_us() {
    let cluster = EtcdCluster::start(1);
    let proxy = Proxy::new(cluster.addresses()[0]);
    let lock = connect(&format!("etcd://{}", proxy.address())).await;
    let (near, mut raw, mut go) = (connect(&cluster.url()).await, raw(&cluster).await, GoSession::open(&cluster));
    let key = go.lock("oarlock/x").await.key;
    let ours = claim("x", "ours", LONG);
    let waiting = tokio::spawn({
        let (lock, ours) = (Arc::clone(&lock), ours.clone());
        async move { lock.lock(&ours).await }
    });
    in_line(&near, "x", 1).await;
    let first = created(&mut raw, &key).await;
    proxy.hold();
    go.unlock().await;
    go.ask("oarlock/x").await;
    in_line(&near, "x", 1).await;
    soon("Go's second key", async {
        while created(&mut raw, &key).await.is_none_or(|again| Some(again) == first) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    proxy.reset();
    proxy.forward();
    soon("our turn", waiting).await.unwrap().unwrap();
    assert!(holds(&lock, &ours).await);
    assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
    soon("Go's turn", go.has_it()).await;
}

/// Our lease is over while we wait, and we stand in line anew with the same name. What is told of the first key later
/// does not end our hold.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_our_own_earlier_key_ends_no_hold() {
    let cluster = EtcdCluster::start(1);
    let proxy = WatchProxy::new(cluster.addresses()[0]).await;
    let (lock, near, mut raw) = (connect(&proxy.url()).await, connect(&cluster.url()).await, raw(&cluster).await);
    let (other, holder) = (claim("y", "other", LONG), claim("x", "holder", LONG));
    lock.try_lock(&other).await.unwrap().unwrap();
    near.try_lock(&holder).await.unwrap().unwrap();
    let mut notices = lock.notices();
    let ours = claim("x", "ours", Duration::from_secs(3));
    let waiting = tokio::spawn({
        let (lock, ours) = (Arc::clone(&lock), ours.clone());
        async move { lock.lock(&ours).await }
    });
    in_line(&near, "x", 1).await;
    let first = key_of(&raw, "x", "ours").await.unwrap();
    proxy.hold();
    near.unlock(&holder).await.unwrap();
    raw.lease_revoke(first.lease()).await.unwrap();
    // That its lease is over it learns when it renews it.
    soon("our turn", waiting).await.unwrap().unwrap();
    assert!(key_of(&raw, "x", "ours").await.unwrap().create_revision() > first.create_revision());
    delete_key_of(&raw, "y", "other").await;
    soon("the deletions", proxy.withheld(2)).await;
    proxy.forward();
    assert_eq!(soon("the loss", notices.next()).await, Some(Notice::NotHeld(other.owner)));
    assert!(holds(&lock, &ours).await);
    assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
    assert!(key_of(&raw, "x", "ours").await.is_none());
}

/// An event is lost, and nothing shows it: the waiter is served all the same, and the next one at once.
#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_is_lost_costs_seconds() {
    let cluster = EtcdCluster::start(1);
    let proxy = WatchProxy::new(cluster.addresses()[0]).await;
    let (lock, near) = (connect(&proxy.url()).await, connect(&cluster.url()).await);
    let (holder, ours) = (claim("x", "holder", LONG), claim("x", "ours", LONG));
    near.try_lock(&holder).await.unwrap().unwrap();
    let waiting = tokio::spawn({
        let (lock, ours) = (Arc::clone(&lock), ours.clone());
        async move { lock.lock(&ours).await }
    });
    in_line(&near, "x", 1).await;
    proxy.lose();
    near.unlock(&holder).await.unwrap();
    soon("the deletion", proxy.withheld(1)).await;
    proxy.forward();
    soon("its turn", waiting).await.unwrap().unwrap();
    assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
}

/// Somebody deletes the key and puts another one under its name: a release does not touch that one.
#[tokio::test(flavor = "multi_thread")]
async fn a_release_ends_only_what_was_granted() {
    let cluster = EtcdCluster::start(1);
    let proxy = WatchProxy::new(cluster.addresses()[0]).await;
    let (lock, mut raw) = (connect(&proxy.url()).await, raw(&cluster).await);
    let ours = claim("x", "ours", LONG);
    lock.try_lock(&ours).await.unwrap().unwrap();
    // It does not hear of it.
    proxy.hold();
    let key = delete_key_of(&raw, "x", "ours").await;
    raw.put(key.as_str(), "another", None).await.unwrap();
    assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::NotHeld);
    assert!(created(&mut raw, &key).await.is_some());
}

/// We and Go, in turns, many times: nobody is left waiting, and no two hold.
#[tokio::test(flavor = "multi_thread")]
async fn many_turns_beside_go() {
    const TURNS: usize = 100;
    let cluster = EtcdCluster::start(1);
    let (lock, raw, mut go) = (connect(&cluster.url()).await, raw(&cluster).await, GoSession::open(&cluster));
    let mut key = go.lock("oarlock/x").await.key;
    for turn in 0..TURNS {
        let ours = claim("x", &turn.to_string(), LONG);
        let waiting = lock_after(&lock, &ours, &raw, key).await;
        in_line(&lock, "x", 1).await;
        go.unlock().await;
        go.ask("oarlock/x").await;
        soon("our turn", waiting).await.unwrap();
        lock.unlock(&ours).await.unwrap();
        key = go.has_it().await.key;
    }
}
