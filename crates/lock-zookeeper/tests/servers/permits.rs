//! Permits: beside programs without Oarlock, when nodes are deleted by hand and answers are lost, and what they cost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{
    Claim, DistributedLock, ErrorKind, Grant, LeaseState, LockGuard, LockName, Locks, Mode, OwnerId, Result, Unlocked,
};
use lock_zookeeper::{ZookeeperLock, ZookeeperOptions};
use test_servers::{Proxy, ZookeeperServers, curator_mutex};
use tokio::process::Command;
use tokio::task::{JoinHandle, JoinSet};
use zookeeper_client::{Client, Error as ZkError};

use crate::common::{BOUND, LONG, soon, until};
use crate::interop::Peer;
use crate::raw::{PERSISTENT, raw};

/// Curator's semaphore, in a program of its own.
fn curator(servers: &ZookeeperServers) -> Peer {
    let mut java = Command::from(curator_mutex());
    java.arg(servers.addresses()[0].to_string());
    Peer::start(java)
}

async fn client(servers: &ZookeeperServers) -> Arc<ZookeeperLock> {
    Arc::new(ZookeeperOptions::new(&servers.url()).unwrap().timeout(BOUND).connect().await.unwrap())
}

async fn locks(servers: &ZookeeperServers) -> Locks {
    Locks::builder(client(servers).await).lease(LONG).build().unwrap()
}

fn waits(locks: &Locks, take: u32, of: u32) -> JoinHandle<LockGuard> {
    let semaphore = locks.semaphore("job", of).unwrap();
    tokio::spawn(async move { semaphore.acquire_many(take).await.unwrap() })
}

/// So many permits are held, and so many wait.
async fn in_line(locks: &Locks, permits: u32, waiters: usize) {
    until("the line", async || {
        let seen = locks.inspect("job").await.unwrap();
        let held: u32 = seen.holders.iter().map(|holder| holder.mode.weight()).sum();
        (held, seen.waiters.len()) == (permits, waiters)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn curators_permits_and_ours_are_counted_together() {
    let servers = ZookeeperServers::start();
    let (locks, others) = (locks(&servers).await, locks(&servers).await);
    let semaphore = locks.semaphore("job", 3).unwrap();
    let (mut one, mut other) = (curator(&servers), curator(&servers));
    assert_eq!(one.ask("permits /oarlock/job 1 3").await, "locked");
    let two = semaphore.try_acquire_many(2).await.unwrap().expect("two of three");
    assert_eq!(two.slots().len(), 2);
    in_line(&others, 3, 0).await;
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    // Theirs waits for ours, and ours, which comes later, for theirs.
    other.tell("permits /oarlock/job 1 3").await;
    in_line(&others, 3, 1).await;
    let late = waits(&others, 1, 3);
    in_line(&others, 3, 2).await;
    assert_eq!(one.ask("give").await, "unlocked");
    assert_eq!(other.answer().await, "locked");
    in_line(&others, 3, 1).await;
    assert!(!late.is_finished() && two.is_held());
    two.unlock().await.unwrap();
    let late = soon("the turn of ours", late).await.unwrap();
    in_line(&others, 2, 0).await;
    // Theirs takes several one after the other, and ours, which comes then, waits for all of them. Between its two it
    // stands nowhere, and whoever comes then is ahead of the second: so its second node is what counts, the fourth.
    one.tell("permits /oarlock/job 2 3").await;
    let raw = raw(&servers).await;
    until("its second", async || raw.list_children("/oarlock/job/leases").await.unwrap().len() == 4).await;
    let all = waits(&others, 3, 3);
    in_line(&others, 3, 2).await;
    late.unlock().await.unwrap();
    assert_eq!(one.answer().await, "locked");
    assert_eq!(one.ask("give").await, "unlocked");
    in_line(&others, 1, 1).await;
    assert!(!all.is_finished() && semaphore.try_acquire().await.unwrap().is_none());
    assert_eq!(other.ask("give").await, "unlocked");
    let all = soon("the turn of who wants all", all).await.unwrap();
    assert_eq!(all.slots(), [0, 1, 2]);
    other.tell("permits /oarlock/job 1 3").await;
    in_line(&others, 3, 1).await;
    all.unlock().await.unwrap();
    assert_eq!(other.answer().await, "locked");
    // A lock of that name is none of theirs.
    let error = locks.mutex("job").try_lock().await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("semaphore of Curator's"), "{error}");
}

/// Whoever is killed has its permits taken from it by the end of its session, theirs and ours.
#[tokio::test(flavor = "multi_thread")]
async fn a_crash_frees_curators_permits_and_ours() {
    let servers = ZookeeperServers::start();
    let locks = locks(&servers).await;
    let (mut one, mut other) = (curator(&servers), curator(&servers));
    assert_eq!(one.ask("permits /oarlock/job 2 2").await, "locked");
    let next = waits(&locks, 1, 2);
    in_line(&locks, 2, 1).await;
    drop(one);
    let next = soon("the permit of the dead", next).await.unwrap();
    in_line(&locks, 1, 0).await;
    next.unlock().await.unwrap();
    let ours = client(&servers).await;
    let mut claim = Claim::new(LockName::new("job").unwrap(), OwnerId::from_store("dead"), Duration::from_secs(4));
    claim.mode = Mode::Permits { take: 2, of: 2 };
    assert_eq!(ours.lock(&claim).await.unwrap().slots.as_slice(), [0, 1]);
    other.tell("permits /oarlock/job 1 2").await;
    in_line(&locks, 2, 1).await;
    // Nobody renews it.
    assert_eq!(other.answer().await, "locked");
    in_line(&locks, 1, 0).await;
}

/// Two of Curator's and six of ours take one of three, over and over: there are never more than three.
#[tokio::test(flavor = "multi_thread")]
async fn there_are_never_more_holders_than_permits() {
    const ROUNDS: usize = 12;
    // Long enough for others to come meanwhile.
    const SECTION: Duration = Duration::from_millis(20);
    let servers = ZookeeperServers::start();
    let holding = Arc::new(std::sync::Mutex::new(0));
    let enter = |holding: &std::sync::Mutex<u32>| {
        let mut holding = holding.lock().unwrap();
        *holding += 1;
        assert!(*holding <= 3, "{holding} hold");
    };
    let slots = Arc::new(std::sync::Mutex::new(BTreeSet::new()));
    let mut all = JoinSet::new();
    for _ in 0..2 {
        let (mut peer, holding) = (curator(&servers), Arc::clone(&holding));
        all.spawn(async move {
            for _ in 0..ROUNDS {
                assert_eq!(peer.ask("permits /oarlock/job 1 3").await, "locked");
                enter(&holding);
                tokio::time::sleep(SECTION).await;
                *holding.lock().unwrap() -= 1;
                assert_eq!(peer.ask("give").await, "unlocked");
            }
        });
    }
    for _ in 0..3 {
        let locks = locks(&servers).await;
        for _ in 0..2 {
            let semaphore = locks.semaphore("job", 3).unwrap().wait(BOUND);
            let (holding, slots) = (Arc::clone(&holding), Arc::clone(&slots));
            all.spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = semaphore.acquire().await.unwrap();
                    enter(&holding);
                    assert!(slots.lock().unwrap().insert(guard.slots()[0]), "a slot is two holders'");
                    tokio::time::sleep(SECTION).await;
                    slots.lock().unwrap().remove(&guard.slots()[0]);
                    *holding.lock().unwrap() -= 1;
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
    all.join_all().await;
    assert_eq!(*holding.lock().unwrap(), 0);
}

fn claim(owner: &str, take: u32, of: u32) -> Claim {
    let mut claim = Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LONG);
    claim.mode = Mode::Permits { take, of };
    claim
}

fn waiting(lock: &Arc<ZookeeperLock>, claim: &Claim) -> JoinHandle<Result<Grant>> {
    let (lock, claim) = (Arc::clone(lock), claim.clone());
    tokio::spawn(async move { lock.lock(&claim).await })
}

/// The paths in one of the folders, in the order of their numbers.
async fn nodes(raw: &Client, folder: &str) -> Vec<String> {
    let folder = format!("/oarlock/x/{folder}");
    let mut nodes = match raw.list_children(&folder).await {
        Err(ZkError::NoNode) => Vec::new(),
        nodes => nodes.unwrap(),
    };
    nodes.sort_by_key(|node| node.rsplit('-').next().unwrap().to_owned());
    nodes.into_iter().map(|node| format!("{folder}/{node}")).collect()
}

/// So many stand in line, and the last of them watches what it waits for: the one ahead, or the folder of the permits.
async fn stands(servers: &ZookeeperServers, raw: &Client, count: usize) {
    until("the line", async || nodes(raw, "locks").await.len() == count).await;
    let line = nodes(raw, "locks").await;
    until("its watch", async || match count.checked_sub(2) {
        Some(ahead) => is_watched(servers, &line[ahead]),
        None => watches_of_folders(servers) == 1,
    })
    .await;
}

/// Does anybody watch this node?
fn is_watched(servers: &ZookeeperServers, node: &str) -> bool {
    servers.ask(0, "wchp").unwrap().lines().any(|line| line == node)
}

/// How many watches there are for what is made and deleted in a folder: all but those on nodes.
fn watches_of_folders(servers: &ZookeeperServers) -> usize {
    let number = |command: &str, before: &str| {
        let text = servers.ask(0, command).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(before)).unwrap();
        line.trim().parse::<usize>().unwrap()
    };
    number("mntr", "zk_watch_count").saturating_sub(number("wchs", "Total watches:"))
}

/// A holder of three permits loses one of them, whichever it is: it has lost them all, is told, and others have them.
#[tokio::test]
async fn who_loses_one_permit_has_lost_all() {
    let servers = ZookeeperServers::start();
    let (raw, locks, other) = (raw(&servers).await, locks(&servers).await, client(&servers).await);
    for lost in 0..3 {
        let guard = locks.semaphore("x", 3).unwrap().acquire_many(3).await.unwrap();
        let held = nodes(&raw, "leases").await;
        assert_eq!(held.len(), 3);
        until("its watches", async || held.iter().all(|node| is_watched(&servers, node))).await;
        raw.delete(&held[lost], None).await.unwrap();
        soon("the loss", guard.lost()).await;
        assert!(!guard.is_held());
        let next = claim("next", 3, 3);
        soon("all permits", other.lock(&next)).await.unwrap();
        assert_eq!(other.unlock(&next).await.unwrap(), Unlocked::Released);
        assert_eq!(guard.state(), LeaseState::Lost);
    }
}

/// The answer to a release of several permits is lost: they are given back, and nobody is told that they had not been
/// held.
#[tokio::test]
async fn a_release_whose_answer_is_lost_is_done() {
    let servers = ZookeeperServers::start();
    let (proxy, raw) = (Proxy::new(servers.addresses()[0]), raw(&servers).await);
    let lock = ZookeeperOptions::new(&format!("zookeeper://{}", proxy.address())).unwrap();
    let lock = Arc::new(lock.timeout(BOUND).connect().await.unwrap());
    for take in [1, 2] {
        let held = claim("holder", take, 2);
        lock.lock(&held).await.unwrap();
        assert_eq!(nodes(&raw, "leases").await.len(), take as usize);
        proxy.hold_s2c();
        let releasing = tokio::spawn({
            let (lock, held) = (Arc::clone(&lock), held.clone());
            async move { lock.unlock(&held).await }
        });
        until("it is done", async || nodes(&raw, "leases").await.is_empty()).await;
        proxy.reset();
        proxy.forward();
        // Whether it was held to the end, nobody can say any more.
        let error = soon("the answer", releasing).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    }
}

/// Somebody deletes the node of a waiter: the first one, or another. It is told, within seconds, and the others go on.
#[tokio::test]
async fn a_waiter_without_a_node_has_no_permit() {
    let servers = ZookeeperServers::start();
    let (raw, lock) = (raw(&servers).await, client(&servers).await);
    let held = claim("holder", 1, 1);
    lock.lock(&held).await.unwrap();
    for removed in 0..2 {
        let mut asking = Vec::new();
        for number in 0..3 {
            asking.push(waiting(&lock, &claim(&format!("{removed}.{number}"), 1, 1)));
            stands(&servers, &raw, number + 1).await;
        }
        raw.delete(&nodes(&raw, "locks").await[removed], None).await.unwrap();
        let error = soon("an error", asking.remove(removed)).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert_eq!(lock.unlock(&claim(&format!("{removed}.{removed}"), 1, 1)).await.unwrap(), Unlocked::NotHeld);
        assert!(nodes(&raw, "locks").await.len() == 2 && asking.iter().all(|waiting| !waiting.is_finished()));
        for (number, waiting) in (0..3).filter(|number| *number != removed).zip(asking) {
            waiting.abort();
            let _ = waiting.await;
            let left = claim(&format!("{removed}.{number}"), 1, 1);
            assert_eq!(lock.unlock(&left).await.unwrap(), Unlocked::NotHeld);
        }
    }
    assert!(nodes(&raw, "locks").await.is_empty() && nodes(&raw, "leases").await.len() == 1);
}

/// The server removes folders in which nobody stands: whoever comes then, or waits meanwhile, makes them anew.
#[tokio::test]
async fn folders_that_are_removed_are_made_anew() {
    let servers = ZookeeperServers::start();
    let (raw, lock) = (raw(&servers).await, client(&servers).await);
    for round in 0..3 {
        let held = claim(&format!("holder {round}"), 2, 2);
        lock.lock(&held).await.unwrap();
        assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
        let gone: &[&str] = [&["leases"][..], &["locks"], &["leases", "locks", ""]][round];
        for folder in gone {
            raw.delete(format!("/oarlock/x/{folder}").trim_end_matches('/'), None).await.unwrap();
        }
    }
    // The one who waits is the first in the line, and sees no folder of permits when those are given back.
    let (held, waits) = (claim("holder", 2, 2), claim("waits", 1, 2));
    lock.lock(&held).await.unwrap();
    let waiting = waiting(&lock, &waits);
    stands(&servers, &raw, 1).await;
    let mut writer = raw.new_multi_writer();
    for node in nodes(&raw, "leases").await {
        writer.add_delete(&node, None).unwrap();
    }
    writer.add_delete("/oarlock/x/leases", None).unwrap();
    writer.commit().await.unwrap();
    assert_eq!(soon("the grant", waiting).await.unwrap().unwrap().slots.as_slice(), [0]);
}

/// More permits wake who waits, by an event: the session's own looks are seconds apart.
#[tokio::test]
async fn more_permits_wake_the_first_in_line() {
    let servers = ZookeeperServers::start();
    let (raw, lock) = (raw(&servers).await, client(&servers).await);
    let (held, waits) = (claim("holder", 1, 1), [claim("first", 1, 1), claim("second", 1, 1)]);
    lock.lock(&held).await.unwrap();
    let first = waiting(&lock, &waits[0]);
    stands(&servers, &raw, 1).await;
    let second = waiting(&lock, &waits[1]);
    stands(&servers, &raw, 2).await;
    let version = raw.check_stat("/oarlock/x/leases").await.unwrap().unwrap().cversion;
    assert!(lock.resize(&held.name, 3).await.unwrap());
    // What is made and deleted again is no permit for anybody.
    let after = raw.check_stat("/oarlock/x/leases").await.unwrap().unwrap().cversion;
    assert!(after >= version + 2);
    let slots = [soon("more permits", first).await, soon("more permits", second).await];
    assert_eq!(slots.map(|grant| grant.unwrap().unwrap().slots.as_slice().to_vec()), [[1], [2]]);
    assert_eq!(nodes(&raw, "leases").await.len(), 3);
}

/// A permit that hangs on no session is nobody's, and free again only when somebody evicts its holder: the doctor names
/// it.
#[tokio::test]
async fn a_permit_without_a_session_is_found_and_evicted() {
    let servers = ZookeeperServers::start();
    let (raw, lock) = (raw(&servers).await, client(&servers).await);
    let held = claim("holder", 1, 2);
    lock.lock(&held).await.unwrap();
    let stray = async || {
        let found = lock.doctor().await.unwrap();
        found.iter().any(|finding| finding.setting.contains("node=/oarlock/x/leases/"))
    };
    assert!(!stray().await);
    raw.create("/oarlock/x/leases/_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lease-0000000009", b"", &PERSISTENT)
        .await
        .unwrap();
    assert!(stray().await && lock.try_lock(&claim("next", 1, 2)).await.unwrap().is_none());
    lock.evict(&held.name).await.unwrap().unwrap();
    assert!(!stray().await);
    soon("both permits", lock.lock(&claim("next", 2, 2))).await.unwrap();
}

/// In the folder of a semaphore of kazoo's, whose permits take no notice of ours, nothing is granted.
#[tokio::test]
async fn kazoos_semaphore_is_named_and_not_counted_with() {
    let servers = ZookeeperServers::start();
    let (mut kazoo, lock) = (Peer::kazoo(&servers), client(&servers).await);
    assert_eq!(kazoo.ask("permit").await, "true");
    let mut claim = claim("ours", 1, 2);
    claim.name = LockName::new("job").unwrap();
    for error in [lock.try_lock(&claim).await.unwrap_err(), soon("the refusal", lock.lock(&claim)).await.unwrap_err()] {
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("kazoo's Semaphore"), "{error}");
    }
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::NotHeld);
    let found = lock.doctor().await.unwrap();
    assert!(found.iter().any(|finding| finding.setting.contains("node=/oarlock/job/")), "{found:?}");
    assert_eq!(kazoo.ask("give").await, "released");
    soon("a permit", lock.lock(&claim)).await.unwrap();
}

/// Permits that are free cost three requests, and one to give them back. Who waits for the one ahead, and then for a
/// permit, asks seven times in all, whatever the crowd and however long it lasts: once more than for a mutex.
#[tokio::test]
async fn a_permit_costs_seven_requests_whatever_the_crowd() {
    for (of, crowd) in [(1, 2), (1, 300), (5, 300)] {
        let servers = ZookeeperServers::start();
        let (lock, raw) = (client(&servers).await, raw(&servers).await);
        let held: Vec<_> = (0..of).map(|number| claim(&format!("holder {number}"), 1, of)).collect();
        lock.lock(&held[0]).await.unwrap();
        assert_eq!(lock.unlock(&held[0]).await.unwrap(), Unlocked::Released);
        let (before, start) = (packets(&servers), Instant::now());
        for held in &held {
            lock.lock(held).await.unwrap();
        }
        let at = packets(&servers);
        let others = |start: Instant| 4 + 2 * start.elapsed().as_secs();
        let asked = at[0] - before[0];
        assert!(asked <= 3 * u64::from(of) + others(start), "{asked} requests for {of} permits");
        let start = Instant::now();
        let all: Vec<_> = (0..crowd)
            .map(|number| {
                let lock = Arc::clone(&lock);
                tokio::spawn(async move {
                    let waits = claim(&number.to_string(), 1, of);
                    lock.lock(&waits).await.unwrap();
                    // So that the next one has to wait.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                    assert_eq!(lock.unlock(&waits).await.unwrap(), Unlocked::Released);
                })
            })
            .collect();
        until("all in line", async || nodes(&raw, "locks").await.len() == crowd).await;
        for held in &held {
            assert_eq!(lock.unlock(held).await.unwrap(), Unlocked::Released);
        }
        for waiter in all {
            soon("its turn", waiter).await.unwrap();
        }
        let now = packets(&servers);
        let (asked, told) = (now[0] - at[0], now[1] - at[1]);
        let (crowd, of) = (crowd as u64, u64::from(of));
        // Pings, proofs and looks at the nodes of all; and the releases of those who held first.
        let others = others(start) + of + start.elapsed().as_secs() / 5 * (crowd * 2).div_ceil(200);
        assert!(asked <= 7 * crowd + others, "{asked} requests for {crowd}, and {others} others");
        // What is sent beyond the answers is watches that fired: on the one ahead, and on the folder, twice.
        assert!(
            told <= asked + 3 * (crowd + of) + others,
            "{told} packets for {asked} requests of {crowd}, and {others} others"
        );
    }
}

/// What the session of these claims has asked and was told, which is known by how long it lasts.
fn packets(servers: &ZookeeperServers) -> [u64; 2] {
    let connections = servers.ask(0, "cons").unwrap();
    let of_ours = |line: &&str| line.contains(&format!("to={}", LONG.as_millis()));
    let Some(ours) = connections.lines().find(of_ours) else { return [0; 2] };
    ["recved=", "sent="].map(|what| {
        let (_, count) = ours.split_once(what).unwrap();
        count.split(',').next().unwrap().parse().unwrap()
    })
}
