//! Holds that go on without their owners, and what other programs see of them: the keys, past our own code.

use std::sync::Arc;
use std::time::{Duration, Instant};

use etcd_client::{Client, GetOptions, KeyValue, PutOptions, SortOrder, SortTarget, Txn, TxnOp};
use lock_core::{Claim, DistributedLock, ErrorKind, Kept, LockName, LockValue, OwnerId, Proclaimed, Renewal, Unlocked};
use lock_etcd::{EtcdLock, EtcdOptions};
use test_servers::{EtcdCluster, Proxy};

/// Never over while a test runs.
const LONG: Duration = Duration::from_secs(300);

/// The shortest that etcd knows.
const SHORT: Duration = Duration::from_secs(2);

const BOUND: Duration = Duration::from_secs(20);

fn claim(owner: &str) -> Claim {
    Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LONG)
}

fn showing(owner: &str, value: &str) -> Claim {
    let mut claim = claim(owner);
    claim.value = Some(LockValue::new(value).unwrap());
    claim
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

async fn connect(url: &str) -> Arc<EtcdLock> {
    Arc::new(EtcdLock::connect(url, "oarlock").await.unwrap())
}

async fn raw(cluster: &EtcdCluster) -> Client {
    Client::connect(cluster.addresses().iter().map(ToString::to_string).collect::<Vec<_>>(), None).await.unwrap()
}

/// The key of whoever holds.
async fn first(raw: &Client) -> Option<KeyValue> {
    let first = GetOptions::new().with_prefix().with_sort(SortTarget::Create, SortOrder::Ascend).with_limit(1);
    raw.clone().get("oarlock/x/", Some(first)).await.unwrap().take_kvs().pop()
}

async fn held(raw: &Client) -> KeyValue {
    first(raw).await.expect("somebody holds")
}

/// How many leases the store has.
async fn leases(raw: &Client) -> usize {
    raw.clone().leases().await.unwrap().leases().len()
}

async fn in_line(lock: &EtcdLock, waiters: usize) {
    let name = LockName::new("x").unwrap();
    let waiting = async {
        while lock.inspect(&name).await.unwrap().waiters.len() < waiters {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("all in line", waiting).await;
}

fn waits(lock: &Arc<EtcdLock>, claim: &Claim) -> tokio::task::JoinHandle<Duration> {
    let (lock, claim, began) = (Arc::clone(lock), claim.clone(), Instant::now());
    tokio::spawn(async move {
        lock.lock(&claim).await.unwrap();
        began.elapsed()
    })
}

/// The key is the same one, with another owner and another lease, and none is left over.
#[tokio::test(flavor = "multi_thread")]
async fn a_kept_hold_is_the_same_key_on_a_lease_of_its_own() {
    let cluster = EtcdCluster::start(1);
    let (lock, raw) = (connect(&cluster.url()).await, raw(&cluster).await);
    for ours in [claim("me"), showing("me too", "here")] {
        lock.try_lock(&ours).await.unwrap().unwrap();
        let before = held(&raw).await;
        let had = leases(&raw).await;
        for _ in 0..3 {
            assert_eq!(lock.keep(&ours, LONG).await.unwrap(), Kept::Kept);
        }
        let after = held(&raw).await;
        assert_eq!((after.key(), after.create_revision()), (before.key(), before.create_revision()));
        assert_ne!(after.lease(), before.lease());
        match &ours.value {
            None => assert_eq!(after.value(), b"kept#me"),
            Some(value) => assert_eq!(after.value(), value.as_str().as_bytes()),
        }
        assert_eq!(leases(&raw).await, had + 1);
        let holder = lock.holder(&ours.name).await.unwrap().unwrap();
        assert!(holder.kept && holder.owner == ours.owner && holder.value == ours.value, "{holder:?}");
        let findings = lock.doctor().await.unwrap();
        assert!(!findings.iter().any(|finding| finding.setting.contains("oarlock/x/")), "{findings:?}");
        assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::NotHeld);
        if ours.value.is_some() {
            assert_eq!(lock.proclaim(&ours, &LockValue::new("late").unwrap()).await.unwrap(), Proclaimed::NotHeld);
        }
        assert_eq!(held(&raw).await.mod_revision(), after.mod_revision());
        assert!(lock.evict(&ours.name).await.unwrap().unwrap().kept);
    }
}

/// Those of the same client who wait for it, too, who are told of their own client's keys by no watch.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_in_line_is_granted_it_when_its_time_is_over() {
    let cluster = EtcdCluster::start(1);
    let (one, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for keeper in [claim("seat"), claim("place"), showing("showing", "here")] {
        if keeper.owner.as_str() == "place" {
            let first = claim("first");
            one.try_lock(&first).await.unwrap().unwrap();
            let waiting = waits(&one, &keeper);
            in_line(&other, 1).await;
            one.unlock(&first).await.unwrap();
            waiting.await.unwrap();
        } else {
            one.lock(&keeper).await.unwrap();
        }
        let (second, third) = (claim("second"), claim("third"));
        let of_its_client = waits(&one, &second);
        in_line(&other, 1).await;
        let of_another = waits(&other, &third);
        in_line(&other, 2).await;
        let began = Instant::now();
        assert_eq!(one.keep(&keeper, SHORT).await.unwrap(), Kept::Kept);
        tokio::time::sleep(SHORT.saturating_sub(began.elapsed() + Duration::from_millis(200))).await;
        assert!(!of_its_client.is_finished());
        soon("the grant", of_its_client).await.unwrap();
        assert!(began.elapsed() >= SHORT, "after {:?}", began.elapsed());
        assert!(!of_another.is_finished());
        assert_eq!(one.unlock(&second).await.unwrap(), Unlocked::Released);
        soon("the grant", of_another).await.unwrap();
        assert_eq!(other.unlock(&third).await.unwrap(), Unlocked::Released);
        assert_eq!(one.keep(&keeper, SHORT).await.unwrap(), Kept::NotHeld);
    }
}

/// It is dropped at any point and said again: it is done once, and one lease is left. Or it is not said again, and the
/// release ends what was not kept.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_dropped_is_said_again() {
    /// The way to the store, and back.
    const WAY: Duration = Duration::from_millis(40);
    let cluster = EtcdCluster::start(1);
    let proxy = Proxy::new(cluster.addresses()[0]);
    let (lock, raw) = (connect(&format!("etcd://{}", proxy.address())).await, raw(&cluster).await);
    for (number, dropped) in (1..).map(|part| WAY * part / 2).enumerate().take(14) {
        let ours = if number % 3 == 0 { showing(&number.to_string(), "here") } else { claim(&number.to_string()) };
        lock.try_lock(&ours).await.unwrap().unwrap();
        let (had, before) = (leases(&raw).await, held(&raw).await);
        proxy.delay(WAY);
        let is_done = tokio::time::timeout(dropped, lock.keep(&ours, LONG)).await.is_ok();
        proxy.delay(Duration::ZERO);
        if number % 2 == 0 {
            assert_eq!(lock.keep(&ours, LONG).await.unwrap(), Kept::Kept, "{dropped:?}");
            assert_eq!(leases(&raw).await, had + 1, "{dropped:?}, {is_done}");
            assert_eq!(held(&raw).await.create_revision(), before.create_revision());
        } else {
            let unlocked = lock.unlock(&ours).await.unwrap();
            // Nothing of it lands later.
            tokio::time::sleep(WAY * 3).await;
            let is_kept = first(&raw).await.is_some();
            assert_eq!(unlocked == Unlocked::NotHeld, is_kept, "{dropped:?}");
        }
        lock.evict(&ours.name).await.unwrap();
        assert!(first(&raw).await.is_none());
    }
}

/// 256. It is done, the answer is lost, and it is over before it is asked for again: nobody says that the lock was not held
/// until then.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_whose_answer_is_lost_is_unknown() {
    let cluster = EtcdCluster::start(1);
    let proxy = Proxy::new(cluster.addresses()[0]);
    let options = EtcdOptions::new(&format!("etcd://{}", proxy.address())).unwrap().prefix("oarlock").timeout(BOUND);
    let (lock, raw) = (Arc::new(options.connect().await.unwrap()), raw(&cluster).await);
    let ours = claim("holder");
    lock.try_lock(&ours).await.unwrap().unwrap();
    proxy.hold_answers_to([ours.owner.kept().as_str().to_owned()]);
    let keeping = {
        let (lock, ours) = (Arc::clone(&lock), ours.clone());
        tokio::spawn(async move { lock.keep(&ours, SHORT).await })
    };
    let is_kept = async || first(&raw).await.is_some_and(|key| key.value() == ours.owner.kept().as_str().as_bytes());
    soon("it is kept", async { while !is_kept().await {} }).await;
    // Also where the client comes anew.
    proxy.hold_s2c();
    soon("its end", async { while first(&raw).await.is_some() {} }).await;
    proxy.reset();
    proxy.forward();
    assert_eq!(soon("the answer", keeping).await.unwrap().unwrap_err().kind(), ErrorKind::Unknown);
    assert_eq!(lock.keep(&ours, LONG).await.unwrap(), Kept::NotHeld);
}

/// Its owner's client does not know that it is kept, and hears that the owner's lease is over: who waits in the same client
/// waits on.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_its_owners_lease_is_not_its_end() {
    const WAY: Duration = Duration::from_millis(40);
    let cluster = EtcdCluster::start(1);
    let proxy = Proxy::new(cluster.addresses()[0]);
    let (lock, mut raw) = (connect(&format!("etcd://{}", proxy.address())).await, raw(&cluster).await);
    let mut waiter = claim("waiter");
    waiter.lease = LONG * 2;
    for round in 0.. {
        let ours = claim(&round.to_string());
        lock.try_lock(&ours).await.unwrap().unwrap();
        let session = held(&raw).await.lease();
        let waiting = waits(&lock, &waiter);
        in_line(&lock, 1).await;
        // About when it is done and not answered yet.
        proxy.delay(WAY);
        let _ = tokio::time::timeout(WAY * 3 + Duration::from_millis(5) * round, lock.keep(&ours, LONG)).await;
        proxy.delay(Duration::ZERO);
        tokio::time::sleep(WAY * 3).await;
        let renewed = lock.renew(std::slice::from_ref(&ours)).await.pop().unwrap();
        if held(&raw).await.lease() == session || renewed.is_ok() {
            assert!(round < 20, "never in between");
            lock.evict(&ours.name).await.unwrap();
            soon("the grant", waiting).await.unwrap();
            lock.unlock(&waiter).await.unwrap();
            lock.unlock(&ours).await.unwrap();
            continue;
        }
        raw.lease_revoke(session).await.unwrap();
        let mut other = claim("other");
        other.name = LockName::new("y").unwrap();
        lock.try_lock(&other).await.unwrap().unwrap();
        // Longer than it takes to see that it missed something.
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(!waiting.is_finished(), "two hold");
        assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::NotHeld);
        assert!(lock.evict(&ours.name).await.unwrap().unwrap().kept);
        soon("the grant", waiting).await.unwrap();
        return;
    }
}

/// The leader is killed, and its leases with it: the others know of the kept hold's, and end it in its time, or one more.
#[tokio::test(flavor = "multi_thread")]
async fn a_kept_hold_outlives_the_leader() {
    const REST: Duration = Duration::from_secs(4);
    let mut cluster = EtcdCluster::start(3);
    let lock = connect(&cluster.url()).await;
    let (ours, next) = (showing("me", "here"), claim("next"));
    lock.try_lock(&ours).await.unwrap().unwrap();
    let began = Instant::now();
    assert_eq!(lock.keep(&ours, REST).await.unwrap(), Kept::Kept);
    tokio::task::block_in_place(|| cluster.kill(cluster.leader()));
    let holder = async {
        loop {
            match lock.holder(&ours.name).await {
                Ok(holder) => return holder,
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    };
    let holder = soon("another leader", holder).await.expect("it is kept");
    assert!(holder.kept && holder.value == ours.value, "{holder:?}");
    assert_eq!(lock.keep(&ours, LONG).await.unwrap(), Kept::Kept);
    soon("its end", lock.lock(&next)).await.unwrap();
    assert!(began.elapsed() >= REST, "after {:?}", began.elapsed());
}

/// What it costs: a claim with a value no more than any other, and a hold that is kept a lease and a write, and that the
/// lease is begun anew.
#[tokio::test(flavor = "multi_thread")]
async fn values_cost_no_requests_of_their_own() {
    let cluster = EtcdCluster::start(1);
    let lock = EtcdOptions::new(&cluster.url()).unwrap().prefix("oarlock").timeout(BOUND).connect().await.unwrap();
    let asked = || cluster.requests(&["Txn", "Range", "LeaseGrant", "LeaseKeepAlive", "LeaseRevoke"]);
    // The session.
    lock.try_lock(&claim("first")).await.unwrap().unwrap();
    lock.unlock(&claim("first")).await.unwrap();
    for value in [None, Some("here")] {
        // What a client does now and then besides does not fall into the same place each time.
        let mut least: Vec<(&str, u64)> = Vec::new();
        for round in 0..5 {
            let ours =
                value.map_or_else(|| claim(&format!("plain {round}")), |value| showing(&format!("{round}"), value));
            let (mut before, mut step) = (asked(), 0);
            let mut costs = |what: &'static str| {
                let cost = asked() - before;
                match least.get_mut(step) {
                    Some((_, least)) => *least = cost.min(*least),
                    None => least.push((what, cost)),
                }
                (before, step) = (asked(), step + 1);
            };
            lock.try_lock(&ours).await.unwrap().unwrap();
            costs("a grant");
            if value.is_some() {
                for value in ["there", "elsewhere"] {
                    let shown = lock.proclaim(&ours, &LockValue::new(value).unwrap()).await.unwrap();
                    assert_eq!(shown, Proclaimed::Shown);
                    costs("a value");
                }
            }
            assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
            costs("a release");
            lock.lock(&ours).await.unwrap();
            costs("a grant");
            assert_eq!(lock.keep(&ours, LONG).await.unwrap(), Kept::Kept);
            costs("a kept hold");
            lock.evict(&ours.name).await.unwrap();
        }
        for (what, cost) in least {
            let most = if what == "a kept hold" { 3 } else { 1 };
            assert!((1..=most).contains(&cost), "{what} of {value:?}: {cost} requests");
        }
    }
}

/// Whatever was sent before it and lands after it finds another key than it was sent for.
#[tokio::test(flavor = "multi_thread")]
async fn what_lands_late_changes_nothing() {
    let cluster = EtcdCluster::start(1);
    let proxy = Proxy::new(cluster.addresses()[0]);
    let options = EtcdOptions::new(&format!("etcd://{}", proxy.address())).unwrap();
    let lock = Arc::new(options.prefix("oarlock").timeout(Duration::from_secs(1)).connect().await.unwrap());
    let raw = raw(&cluster).await;
    for (number, what) in ["try_lock", "lock", "unlock", "proclaim", "unlock again"].into_iter().enumerate() {
        let ours = if number % 2 == 1 { showing(what, "here") } else { claim(what) };
        soon("the lock", async { while lock.try_lock(&ours).await.ok().flatten().is_none() {} }).await;
        let before = held(&raw).await;
        // This stays on its way for now.
        proxy.hold_c2s_of_present();
        let late = LockValue::new("late").unwrap();
        let failed = match what {
            "try_lock" => lock.try_lock(&ours).await.map(drop),
            "lock" => soon("an end", lock.lock(&ours)).await.map(drop),
            "proclaim" => lock.proclaim(&ours, &late).await.map(drop),
            _ => lock.unlock(&ours).await.map(drop),
        };
        let kept = async {
            loop {
                match lock.keep(&ours, LONG).await {
                    Ok(kept) => return kept,
                    Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                }
            }
        };
        let kept = soon("an answer", kept).await;
        let key = first(&raw).await;
        let put = |key: &KeyValue| (key.create_revision(), key.mod_revision());
        proxy.forward();
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(first(&raw).await.as_ref().map(put), key.as_ref().map(put), "{what}");
        // Or the release was done.
        if kept == Kept::Kept {
            assert_eq!(
                key.as_ref().map(KeyValue::create_revision),
                Some(before.create_revision()),
                "{what} {failed:?}"
            );
        }
        lock.evict(&ours.name).await.unwrap();
        let left = lock.inspect(&ours.name).await.unwrap();
        assert!(left.holders.is_empty() && left.waiters.is_empty(), "{what}: {left:?}");
        // Whatever is ours and lands now puts nothing into the empty line, either.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(first(&raw).await.is_none(), "{what}");
    }
}

/// A client that has gone with all that it knew: the answer comes from the store.
#[tokio::test(flavor = "multi_thread")]
async fn another_client_is_told_of_a_kept_hold() {
    let cluster = EtcdCluster::start(1);
    let (one, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    for ours in [claim("me"), showing("me too", "here")] {
        one.try_lock(&ours).await.unwrap().unwrap();
        assert_eq!(other.keep(&ours, LONG).await.unwrap(), Kept::NotHeld);
        assert_eq!(one.keep(&ours, LONG).await.unwrap(), Kept::Kept);
        assert_eq!(other.keep(&ours, SHORT).await.unwrap(), Kept::Kept);
        assert_eq!(other.unlock(&ours).await.unwrap(), Unlocked::NotHeld);
        assert_eq!(other.try_lock(&ours).await.unwrap(), None);
        let renewed = one.renew(std::slice::from_ref(&ours)).await.pop().unwrap().unwrap();
        assert_eq!(renewed, Renewal::NotHeld);
        assert!(one.evict(&ours.name).await.unwrap().unwrap().kept);
    }
}

/// Somebody writes to our key, and leaves it to us: a release deletes it all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_somebody_wrote_to_is_released() {
    let cluster = EtcdCluster::start(1);
    let (lock, mut raw) = (connect(&cluster.url()).await, raw(&cluster).await);
    for ours in [claim("me"), showing("me too", "here")] {
        for options in [None, Some(PutOptions::new().with_ignore_lease())] {
            lock.lock(&ours).await.unwrap();
            let key = held(&raw).await;
            raw.put(key.key(), "something else", options).await.unwrap();
            assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
            assert!(first(&raw).await.is_none());
        }
    }
}

/// A value is all that its key has; the owner is in its name.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_all_that_its_key_has() {
    let cluster = EtcdCluster::start(1);
    let (lock, raw) = (connect(&cluster.url()).await, raw(&cluster).await);
    let ours = showing("a/%~b@host:1#2", "here");
    lock.try_lock(&ours).await.unwrap().unwrap();
    let key = held(&raw).await;
    assert_eq!(key.value(), b"here");
    assert_eq!(key.key_str().unwrap(), format!("oarlock/x/{:x}~a%2F%25~b@host:1#2", key.lease()));
    assert_eq!(lock.proclaim(&ours, &LockValue::new("there").unwrap()).await.unwrap(), Proclaimed::Shown);
    assert_eq!(held(&raw).await.value(), b"there");
    assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
    // A claim without a value is what it always was.
    lock.try_lock(&claim("plain")).await.unwrap().unwrap();
    let key = held(&raw).await;
    assert_eq!((key.key(), key.value()), (&b"oarlock/x/write/0"[..], &b"plain"[..]));
}

/// The answer to a value was lost: the same one and others are shown after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_value_is_proclaimed_after_one_that_was_not_answered() {
    let cluster = EtcdCluster::start(1);
    let (lock, mut raw) = (connect(&cluster.url()).await, raw(&cluster).await);
    let ours = showing("me", "first");
    lock.try_lock(&ours).await.unwrap().unwrap();
    let key = held(&raw).await;
    // As if it was ours, and its answer was lost.
    let unanswered = TxnOp::put(key.key(), "second", Some(PutOptions::new().with_ignore_lease()));
    raw.txn(Txn::new().and_then([unanswered])).await.unwrap();
    for value in ["second", "third", "fourth"] {
        assert_eq!(lock.proclaim(&ours, &LockValue::new(value).unwrap()).await.unwrap(), Proclaimed::Shown);
        assert_eq!(held(&raw).await.value(), value.as_bytes());
        assert_eq!(held(&raw).await.lease(), key.lease());
    }
    assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
    assert_eq!(lock.proclaim(&ours, &LockValue::new("late").unwrap()).await.unwrap(), Proclaimed::NotHeld);
}
