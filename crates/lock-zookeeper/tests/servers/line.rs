//! What others do by hand to the nodes of a line, and watch events that are lost: nobody is granted but the first in
//! line, and nobody waits for ever.

use std::sync::Arc;

use crate::common::{LONG, soon, until};
use crate::events::Events;
use crate::raw::{PERSISTENT, is_watched, raw};
use futures_util::StreamExt;
use lock_core::{
    Claim, DistributedLock, ErrorKind, Grant, Holder, LeaseState, LockName, Locks, Notice, OwnerId, Result, Unlocked,
};
use lock_zookeeper::ZookeeperLock;
use test_servers::{Proxy, ZookeeperServers};
use tokio::task::JoinHandle;
use zookeeper_client::{Acls, Client, CreateMode};

/// What Curator's `Revoker` writes.
const REVOKE: &[u8] = b"__REVOKE__";

fn claim(owner: &str) -> Claim {
    Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LONG)
}

/// A client of ours that waits in the line.
struct Waiter {
    lock: Arc<ZookeeperLock>,
    claim: Claim,
    node: String,
    asking: JoinHandle<Result<Grant>>,
}

impl Waiter {
    async fn granted(self) -> (Arc<ZookeeperLock>, Claim) {
        soon("the grant", self.asking).await.unwrap().unwrap();
        (self.lock, self.claim)
    }

    /// Somebody deleted its node.
    async fn removed(self) {
        let error = soon("an error", self.asking).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert_eq!(self.lock.unlock(&self.claim).await.unwrap(), Unlocked::NotHeld);
    }
}

/// A server with one line in it.
struct Line {
    servers: ZookeeperServers,
    raw: Client,
}

impl Line {
    async fn new() -> Self {
        let servers = ZookeeperServers::start();
        Self { raw: raw(&servers).await, servers }
    }

    async fn client(&self) -> Arc<ZookeeperLock> {
        Arc::new(ZookeeperLock::connect(&self.servers.url(), "oarlock").await.unwrap())
    }

    async fn nodes(&self) -> Vec<String> {
        let mut nodes = self.raw.list_children("/oarlock/x").await.unwrap_or_default();
        nodes.sort_by_key(|node| node.rsplit('-').next().unwrap().to_owned());
        nodes.into_iter().map(|node| format!("/oarlock/x/{node}")).collect()
    }

    /// A node that somebody else made in the way of Curator and holds.
    async fn held_by_another(&self) -> String {
        for path in ["/oarlock", "/oarlock/x"] {
            let _ = self.raw.create(path, b"", &PERSISTENT).await;
        }
        let ephemeral = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        let path = "/oarlock/x/_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-";
        let (_, number) = self.raw.create(path, b"theirs", &ephemeral).await.unwrap();
        format!("{path}{number}")
    }

    async fn held_by_us(&self) -> (Arc<ZookeeperLock>, Claim, String) {
        let (lock, claim) = (self.client().await, claim("holder"));
        lock.try_lock(&claim).await.unwrap().unwrap();
        (lock, claim, self.nodes().await.pop().unwrap())
    }

    /// A client of ours, which waits at the end of the line.
    async fn waiter(&self, owner: &str) -> Waiter {
        self.waiter_by(self.client().await, owner).await
    }

    async fn waiter_by(&self, lock: Arc<ZookeeperLock>, owner: &str) -> Waiter {
        let before = self.nodes().await;
        let claim = claim(owner);
        let asking = tokio::spawn({
            let (lock, claim) = (Arc::clone(&lock), claim.clone());
            async move { lock.lock(&claim).await }
        });
        until("its node", async || self.nodes().await.len() == before.len() + 1).await;
        self.watched(before.last().unwrap()).await;
        let node = self.nodes().await.pop().unwrap();
        Waiter { lock, claim, node, asking }
    }

    /// Somebody else watches this node: the look that led to the watch is over.
    async fn watched(&self, node: &str) {
        until("a watch", async || is_watched(&self.servers, &self.raw, node).await).await;
    }

    /// Writes to a node. Those who watch it have been told when this ends, and watch no more.
    async fn write(&self, node: &str) {
        self.raw.set_data(node, REVOKE, None).await.unwrap();
    }

    async fn delete(&self, node: &str) {
        self.raw.delete(node, None).await.unwrap();
    }
}

/// A waiter that was told of something looks, and watches again; or was granted.
async fn watches_again(line: &Line, node: &str, waiter: &Waiter) {
    until("another watch", async || {
        assert!(!waiter.asking.is_finished(), "another holds");
        is_watched(&line.servers, &line.raw, node).await
    })
    .await;
}

/// 133. A write to the holder's node, which Curator's `Revoker` does, grants nothing, nor does one to a waiter's. The
/// line goes on as if nothing had been.
#[tokio::test]
async fn a_write_to_any_node_grants_nothing() {
    let line = Line::new().await;
    let held = line.held_by_another().await;
    let first = line.waiter("first").await;
    let second = line.waiter("second").await;
    for _ in 0..3 {
        line.write(&held).await;
        watches_again(&line, &held, &first).await;
        line.write(&first.node).await;
        watches_again(&line, &first.node, &second).await;
        line.write(&second.node).await;
    }
    assert!(!first.asking.is_finished() && !second.asking.is_finished());
    line.delete(&held).await;
    let (lock, claim) = first.granted().await;
    assert!(!second.asking.is_finished());
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
    let (lock, claim) = second.granted().await;
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
}

/// 133. A waiter's node is written and deleted in one transaction, as a release might be: the one behind it waits for
/// the holder.
#[tokio::test]
async fn a_waiter_that_goes_with_a_write_is_no_holder() {
    let line = Line::new().await;
    let (holder, held_by, held) = line.held_by_us().await;
    let first = line.waiter("first").await;
    let second = line.waiter("second").await;
    let mut writer = line.raw.new_multi_writer();
    writer.add_set_data(&first.node, REVOKE, None).unwrap();
    writer.add_delete(&first.node, None).unwrap();
    writer.commit().await.unwrap();
    watches_again(&line, &held, &second).await;
    assert_eq!(holder.unlock(&held_by).await.unwrap(), Unlocked::Released);
    let (lock, claim) = second.granted().await;
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
    first.removed().await;
}

/// 133. A write to the node of a hold is no loss, however often, and what is known of the hold stays: its node goes with
/// the release.
#[tokio::test]
async fn a_write_to_a_held_node_is_no_loss() {
    let line = Line::new().await;
    let lock = line.client().await;
    let locks = Locks::builder(lock).lease(LONG).build().unwrap();
    let guard = locks.mutex("x").lock().await.unwrap();
    let held = line.nodes().await.pop().unwrap();
    let watches = |node: &str| line.servers.ask(0, "wchp").unwrap().lines().any(|line| line == node);
    let is_watched_again = async || {
        assert_eq!(guard.state(), LeaseState::Held);
        watches(&held)
    };
    for _ in 0..3 {
        until("the watch", is_watched_again).await;
        line.write(&held).await;
    }
    until("the watch", is_watched_again).await;
    let ours = line.client().await;
    assert!(ours.try_lock(&claim("another")).await.unwrap().is_none());
    guard.unlock().await.unwrap();
    assert_eq!(line.nodes().await, [""; 0]);
    // It is a loss at once when the node goes.
    let guard = locks.mutex("x").lock().await.unwrap();
    let held = line.nodes().await.pop().unwrap();
    until("the watch", async || watches(&held)).await;
    line.write(&held).await;
    line.delete(&held).await;
    soon("the loss", guard.lost()).await;
}

/// 134. A waiter whose node was deleted by hand is told so, and is not granted beside the one behind it.
#[tokio::test]
async fn a_waiter_without_a_node_is_not_granted() {
    for by_us in [true, false] {
        let line = Line::new().await;
        let ours = if by_us { Some(line.held_by_us().await) } else { None };
        let held = if by_us { line.nodes().await.pop().unwrap() } else { line.held_by_another().await };
        let first = line.waiter("first").await;
        let second = line.waiter("second").await;
        line.delete(&first.node).await;
        watches_again(&line, &held, &second).await;
        match ours {
            Some((lock, claim, _)) => assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released),
            None => line.delete(&held).await,
        }
        let (lock, claim) = second.granted().await;
        first.removed().await;
        assert!(line.client().await.try_lock(&self::claim("another")).await.unwrap().is_none());
        assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
    }
}

/// 134. Of three in line, each node in turn is deleted by hand: exactly those who are left are granted, in their order.
#[tokio::test]
async fn whichever_node_is_deleted_the_others_are_granted_in_order() {
    for deleted in 0..3 {
        let line = Line::new().await;
        let held = line.held_by_another().await;
        let mut waiters = Vec::new();
        for owner in ["first", "second", "third"] {
            waiters.push(line.waiter(owner).await);
        }
        line.delete(&waiters[deleted].node).await;
        line.delete(&held).await;
        for (number, waiter) in waiters.into_iter().enumerate() {
            if number == deleted {
                waiter.removed().await;
                continue;
            }
            let (lock, claim) = waiter.granted().await;
            assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
        }
        assert_eq!(line.nodes().await, [""; 0]);
    }
}

/// 134. A holder that had waited passes the lock on, while the node of the next was deleted: the next hears of both at
/// once, and is not granted.
#[tokio::test]
async fn what_is_passed_on_to_a_waiter_without_a_node_is_not_taken() {
    let line = Line::new().await;
    let held = line.held_by_another().await;
    let first = line.waiter("first").await;
    let events = Events::of(line.servers.addresses()[0]).await;
    let second = line.waiter_by(events.client().await, "second").await;
    let third = line.waiter("third").await;
    line.delete(&held).await;
    let (lock, claim) = first.granted().await;
    events.gather();
    line.delete(&second.node).await;
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
    let (lock, claim) = third.granted().await;
    events.forward();
    second.removed().await;
    assert!(line.client().await.try_lock(&self::claim("another")).await.unwrap().is_none());
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
}

/// 133. A holder that had waited passes the lock on, while somebody writes to the node of the next, which hears of both at
/// once: it looks, is granted, and hears of the end of its hold.
#[tokio::test]
async fn what_is_passed_on_beside_a_write_is_held() {
    let line = Line::new().await;
    let held = line.held_by_another().await;
    let first = line.waiter("first").await;
    let events = Events::of(line.servers.addresses()[0]).await;
    let second = line.waiter_by(events.client().await, "second").await;
    line.delete(&held).await;
    let (lock, claim) = first.granted().await;
    events.gather();
    line.write(&second.node).await;
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
    events.forward();
    let node = second.node.clone();
    let (lock, claim) = second.granted().await;
    until("its watch", async || line.servers.ask(0, "wchp").unwrap().lines().any(|line| line == node)).await;
    let mut notices = lock.notices();
    line.delete(&node).await;
    assert_eq!(soon("the loss", notices.next()).await, Some(Notice::NotHeld(claim.owner.clone())));
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::NotHeld);
}

/// 134. As before with a node that was deleted, and the next hears of it over another connection.
#[tokio::test]
async fn what_is_passed_on_over_a_break_to_a_waiter_without_a_node_is_not_taken() {
    let line = Line::new().await;
    let held = line.held_by_another().await;
    let first = line.waiter("first").await;
    let proxy = Proxy::new(line.servers.addresses()[0]);
    let url = format!("zookeeper://{}", proxy.address());
    let behind = Arc::new(ZookeeperLock::connect(&url, "oarlock").await.unwrap());
    let second = line.waiter_by(behind, "second").await;
    let third = line.waiter("third").await;
    line.delete(&held).await;
    let (lock, claim) = first.granted().await;
    proxy.hold_s2c();
    line.delete(&second.node).await;
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
    let (lock, claim) = third.granted().await;
    proxy.reset();
    proxy.forward();
    second.removed().await;
    assert!(line.client().await.try_lock(&self::claim("another")).await.unwrap().is_none());
    assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
}

/// 133. Holders that had waited pass the lock on down the line, whatever was written to its nodes before.
#[tokio::test]
async fn the_lock_is_passed_on_down_a_line_that_was_written_to() {
    let line = Line::new().await;
    let held = line.held_by_another().await;
    let mut waiters = Vec::new();
    for number in 0..5 {
        waiters.push(line.waiter(&number.to_string()).await);
    }
    for waiter in &waiters {
        line.write(&waiter.node).await;
    }
    line.delete(&held).await;
    let mut last = None;
    for number in 0..5 {
        let waiter = waiters.remove(0);
        let token = soon("the grant", waiter.asking).await.unwrap().unwrap().token;
        assert!(Some(token) > last, "{number}");
        last = Some(token);
        assert!(waiters.iter().all(|behind| !behind.asking.is_finished()));
        line.write(&waiter.node).await;
        assert_eq!(waiter.lock.unlock(&waiter.claim).await.unwrap(), Unlocked::Released);
    }
    assert_eq!(line.nodes().await, [""; 0]);
}

/// A node that hangs on no session never ends: who waits behind it is told which it is, and leaves nothing, also where it
/// came behind others; `evict` removes it.
#[tokio::test]
async fn a_node_without_a_session_is_named_and_not_waited_for() {
    let line = Line::new().await;
    let (holder, held, _) = line.held_by_us().await;
    let sequential = CreateMode::PersistentSequential.with_acls(Acls::anyone_all());
    let path = "/oarlock/x/_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-";
    let (_, number) = line.raw.create(path, b"", &sequential).await.unwrap();
    let stray = format!("{path}{number}");
    let lock = line.client().await;
    let error = soon("an error", lock.lock(&claim("waits"))).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Refused && error.to_string().contains(&stray), "{error}");
    assert_eq!(line.nodes().await.len(), 2);
    assert_eq!(holder.unlock(&held).await.unwrap(), Unlocked::Released);
    let first = lock.evict(&held.name).await.unwrap().unwrap();
    assert_eq!((first.owner.as_str(), first.remaining), (stray.rsplit('/').next().unwrap(), Holder::ENDLESS));
    lock.try_lock(&claim("next")).await.unwrap().unwrap();
}
