//! Which keys locks have, and that they are used again: etcd passes over every deleted key of a line, until it is
//! compacted, whenever it looks at that line.

mod line;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Client, EventType, PutOptions, WatchOptions};
use line::key_of;
use lock_core::{Claim, DistributedLock, LockName, Mode, OwnerId, Unlocked};
use lock_etcd::{EtcdLock, EtcdOptions};
use test_servers::{EtcdCluster, Proxy};

/// Never over while a test runs.
const LONG: Duration = Duration::from_secs(300);

/// For what needs no lease's end.
const BOUND: Duration = Duration::from_secs(20);

fn claim(owner: &str) -> Claim {
    Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LONG)
}

async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

async fn connect(cluster: &EtcdCluster) -> Arc<EtcdLock> {
    Arc::new(EtcdLock::connect(&cluster.url(), "oarlock").await.unwrap())
}

async fn raw(cluster: &EtcdCluster) -> Client {
    Client::connect(cluster.addresses().iter().map(ToString::to_string).collect::<Vec<_>>(), None).await.unwrap()
}

/// The keys that were ever put in the line, without its name.
async fn all_keys(cluster: &EtcdCluster) -> BTreeSet<String> {
    let mut raw = raw(cluster).await;
    let present = raw.put("z", "", None).await.unwrap().header().unwrap().revision();
    let from_the_start = WatchOptions::new().with_range("z\0").with_start_revision(1);
    let mut stream = raw.watch("oarlock/x/", Some(from_the_start)).await.unwrap();
    let (mut keys, mut at) = (BTreeSet::new(), 0);
    while at < present {
        let message = soon("the past", stream.message()).await.unwrap().unwrap();
        for event in message.events() {
            let key = event.kv().unwrap();
            at = key.mod_revision();
            if let Some(key) = key.key_str().unwrap().strip_prefix("oarlock/x/")
                && event.event_type() == EventType::Put
            {
                keys.insert(key.to_owned());
            }
        }
    }
    keys
}

async fn lease_of(raw: &Client, owner: &str) -> String {
    format!("{:x}", key_of(raw, "x", owner).await.expect("it has a key").lease())
}

type Waiting = tokio::task::JoinHandle<()>;

/// Stands in line, in the background, for as long as somebody else holds.
async fn in_line(lock: &Arc<EtcdLock>, owner: &str, waiters: usize) -> Waiting {
    let waiting = tokio::spawn({
        let (lock, claim) = (Arc::clone(lock), claim(owner));
        async move { lock.lock(&claim).await.map(drop).unwrap() }
    });
    let name = LockName::new("x").unwrap();
    let in_line = async {
        while lock.inspect(&name).await.unwrap().waiters.len() < waiters {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("it is in line", in_line).await;
    waiting
}

#[tokio::test(flavor = "multi_thread")]
async fn a_free_lock_is_one_key_for_all() {
    let cluster = EtcdCluster::start(1);
    for client in 0..3 {
        let lock = connect(&cluster).await;
        for turn in 0..10 {
            let claim = claim(&format!("{client}-{turn}"));
            if turn % 2 == 0 { lock.lock(&claim).await.map(drop) } else { lock.try_lock(&claim).await.map(drop) }
                .unwrap();
            assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
        }
    }
    assert_eq!(all_keys(&cluster).await, BTreeSet::from(["write/0".to_owned()]));
}

/// A client has as many places as it has claims in the line at a time.
#[tokio::test(flavor = "multi_thread")]
async fn places_are_named_by_leases_and_used_again() {
    const TURNS: usize = 10;
    let cluster = EtcdCluster::start(1);
    let (one, other, raw) = (connect(&cluster).await, connect(&cluster).await, raw(&cluster).await);
    let mut keys = BTreeSet::from(["write/0".to_owned()]);
    one.lock(&claim("first")).await.unwrap();
    let mut holder = (Arc::clone(&one), claim("first"));
    for turn in 0..TURNS {
        let owners = ["a", "b", "c"].map(|owner| format!("{owner}-{turn}"));
        let mut waiting = Vec::new();
        for (lock, owner) in [&other, &other, &one].into_iter().zip(&owners) {
            waiting.push(in_line(lock, owner, waiting.len() + 1).await);
        }
        let [theirs, ours] = [lease_of(&raw, &owners[0]).await, lease_of(&raw, &owners[2]).await];
        let places = [format!("{theirs}.1"), format!("{theirs}.2"), theirs, format!("{ours}.1"), ours];
        keys.extend(places.map(|place| format!("write/{place}")));
        for ((lock, owner), waiting) in [&other, &other, &one].into_iter().zip(&owners).zip(waiting) {
            assert_eq!(holder.0.unlock(&holder.1).await.unwrap(), Unlocked::Released);
            soon("its turn", waiting).await.unwrap();
            holder = (Arc::clone(lock), claim(owner));
        }
    }
    let had = all_keys(&cluster).await;
    assert!(had.is_subset(&keys) && had.len() <= 5, "{had:?}");
}

/// Somebody else has put a key with the name of our place: we wait at another one, also for that key.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_that_is_occupied_is_not_ours() {
    let cluster = EtcdCluster::start(1);
    let (lock, mut raw) = (connect(&cluster).await, raw(&cluster).await);
    lock.lock(&claim("first")).await.unwrap();
    let place = format!("oarlock/x/write/{}", lease_of(&raw, "first").await);
    let lease = raw.lease_grant(300, None).await.unwrap().id();
    raw.put(place.as_str(), "stranger", Some(PutOptions::new().with_lease(lease))).await.unwrap();
    let waiting = in_line(&lock, "second", 2).await;
    assert_eq!(lock.unlock(&claim("first")).await.unwrap(), Unlocked::Released);
    assert!(lock.try_lock(&claim("third")).await.unwrap().is_none());
    assert!(!waiting.is_finished());
    raw.delete(place.as_str(), None).await.unwrap();
    soon("its turn", waiting).await.unwrap();
}

/// The answer to a request is lost, and it is sent to another member, too: it is in line once.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_asked_twice_is_in_line_once() {
    let cluster = EtcdCluster::start(3);
    let members: Vec<_> = cluster.addresses().iter().map(ToString::to_string).collect();
    let proxy = Proxy::new(cluster.addresses()[0]);
    let url = format!("etcd://{},{},{}", proxy.address(), members[1], members[2]);
    let lock =
        EtcdOptions::new(&url).unwrap().in_order(true).timeout(Duration::from_millis(500)).connect().await.unwrap();
    let (near, raw) = (connect(&cluster).await, raw(&cluster).await);
    // It has a session.
    let other = Claim::new(LockName::new("y").unwrap(), OwnerId::from_store("other"), LONG);
    soon("a session", async { while !lock.try_lock(&other).await.is_ok_and(|grant| grant.is_some()) {} }).await;
    proxy.hold_s2c();
    let twice = claim("twice");
    let grant = soon("the grant", lock.lock(&twice)).await.unwrap();
    assert!(key_of(&raw, "x", "twice").await.is_some());
    let waiting = in_line(&near, "next", 1).await;
    assert_eq!(soon("the release", lock.unlock(&twice)).await.unwrap(), Unlocked::Released);
    soon("the next one's turn", waiting).await.unwrap();
    assert!(near.inspect(&twice.name).await.unwrap().into_holder().unwrap().token > grant.token);
}

/// A key that no lock puts there is named, if it ends with a lease, too.
#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_keys_of_another_kind() {
    let cluster = EtcdCluster::start(1);
    let (lock, mut raw) = (connect(&cluster).await, raw(&cluster).await);
    lock.lock(&claim("first")).await.unwrap();
    let waiting = in_line(&lock, "second", 1).await;
    let go = raw.lease_grant(300, None).await.unwrap().id();
    raw.put(format!("oarlock/x/{go:x}"), "", Some(PutOptions::new().with_lease(go))).await.unwrap();
    let strange = async || -> Vec<String> {
        let findings = lock.doctor().await.unwrap().into_iter().map(|finding| finding.setting);
        findings.filter(|setting| setting.contains("oarlock/x/")).collect()
    };
    assert_eq!(strange().await, [""; 0]);
    raw.put("oarlock/x/leader", "", Some(PutOptions::new().with_lease(go))).await.unwrap();
    let found = strange().await;
    assert!(found.len() == 1 && found[0].contains("oarlock/x/leader"), "{found:?}");
    waiting.abort();
}

/// A client is not told of the end of its own keys while it waits behind itself alone.
#[tokio::test(flavor = "multi_thread")]
async fn who_waits_behind_its_own_client_and_is_deleted_by_hand_is_not_granted() {
    let cluster = EtcdCluster::start(1);
    let (one, other, mut raw) = (connect(&cluster).await, connect(&cluster).await, raw(&cluster).await);
    one.lock(&claim("first")).await.unwrap();
    let second = in_line(&one, "second", 1).await;
    let third = in_line(&other, "third", 2).await;
    let key = key_of(&raw, "x", "second").await.expect("it has a key");
    raw.delete(key.key(), None).await.unwrap();
    assert_eq!(one.unlock(&claim("first")).await.unwrap(), Unlocked::Released);
    soon("the third", third).await.unwrap();
    let name = LockName::new("x").unwrap();
    let in_line_again = async {
        while one.inspect(&name).await.unwrap().waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    soon("the second in line again", in_line_again).await;
    assert_eq!(one.inspect(&name).await.unwrap().into_holder().unwrap().owner.as_str(), "third");
    assert!(!second.is_finished());
    assert_eq!(other.unlock(&claim("third")).await.unwrap(), Unlocked::Released);
    soon("the second", second).await.unwrap();
}

/// Who had to wait says, when it gives the lock back, that it held: the next one holds without a question.
#[tokio::test(flavor = "multi_thread")]
async fn who_gives_a_lock_back_tells_that_it_held() {
    const CLIENTS: usize = 12;
    let cluster = EtcdCluster::start(1);
    let (mut clients, mut waiting) = (Vec::new(), Vec::new());
    for number in 0..CLIENTS {
        let client = connect(&cluster).await;
        match number {
            0 => drop(client.lock(&claim("0")).await.unwrap()),
            _ => waiting.push(in_line(&client, &number.to_string(), number).await),
        }
        clients.push(client);
    }
    // Each but the first waiter watches the one ahead, its mark, and its own key, over a stream with a watch of its own.
    while cluster.requests(&["Watch"]) < 4 * CLIENTS as u64 - 4 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (before, began) = (cluster.requests(&["Txn"]), std::time::Instant::now());
    clients[0].unlock(&claim("0")).await.unwrap();
    for (number, waiting) in (1..).zip(waiting) {
        soon("its turn", waiting).await.unwrap();
        clients[number].unlock(&claim(&number.to_string())).await.unwrap();
    }
    let asked = cluster.requests(&["Txn"]) - before - CLIENTS as u64;
    // Now and then those who wait look, and who holds for a while has its key looked at. A question each would be more.
    let looks = began.elapsed().as_secs() * CLIENTS as u64 + 5;
    assert!(asked <= looks, "{asked} questions");
}

/// Who gives up says nothing, and whoever is behind it has to wait for those who were before.
#[tokio::test(flavor = "multi_thread")]
async fn who_gives_up_passes_nothing_on() {
    let cluster = EtcdCluster::start(1);
    let clients = [connect(&cluster).await, connect(&cluster).await, connect(&cluster).await];
    for round in 0..5 {
        let [first, second, third] = ["first", "second", "third"].map(|owner| format!("{owner}-{round}"));
        clients[0].lock(&claim(&first)).await.unwrap();
        let waiting = in_line(&clients[1], &second, 1).await;
        let third_waits = in_line(&clients[2], &third, 2).await;
        waiting.abort();
        let _ = waiting.await;
        clients[1].unlock(&claim(&second)).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!third_waits.is_finished(), "two hold");
        clients[0].unlock(&claim(&first)).await.unwrap();
        soon("the third is granted", third_waits).await.unwrap();
        clients[2].unlock(&claim(&third)).await.unwrap();
    }
}

/// Who has which permits is forgotten with the last that is given back, and a holder that died has none.
#[tokio::test(flavor = "multi_thread")]
async fn a_semaphore_that_nobody_uses_leaves_nothing() {
    let cluster = EtcdCluster::start(1);
    let (one, other, mut raw) = (connect(&cluster).await, connect(&cluster).await, raw(&cluster).await);
    let takes = |owner: &str| {
        let mut claim = claim(owner);
        claim.mode = Mode::Permits { take: 1, of: 2 };
        claim
    };
    let kept = async |raw: &mut Client| {
        let kept = raw.get("oarlock/%permits/x", None).await.unwrap();
        kept.kvs().first().map(|kept| kept.value_str().unwrap().lines().count() - 1)
    };
    one.lock(&takes("a")).await.unwrap();
    other.lock(&takes("b")).await.unwrap();
    assert_eq!(kept(&mut raw).await, Some(2));
    // Somebody ends it from outside.
    let key = key_of(&raw, "x", "1 a").await.expect("it has a key");
    raw.delete(key.key(), None).await.unwrap();
    let grant = one.try_lock(&takes("c")).await.unwrap().unwrap();
    assert_eq!((grant.slots.as_slice(), kept(&mut raw).await), (&[0][..], Some(2)));
    assert_eq!(one.unlock(&takes("c")).await.unwrap(), Unlocked::Released);
    assert_eq!(kept(&mut raw).await, Some(2));
    assert_eq!(other.unlock(&takes("b")).await.unwrap(), Unlocked::Released);
    assert_eq!(kept(&mut raw).await, None);
}
