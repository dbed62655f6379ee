//! The order of the steps, with a table and a store in memory: what is under way at the same moment, and what lands late.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use futures_util::FutureExt;
use lock_core::memory::MemoryLock;
use lock_core::{Error, ErrorKind, OwnerId};
use tokio::sync::watch;

use super::layout::{Column, Layout};
use super::table::tests::seen;
use super::table::{Row, RowKept, Rows, Seen, Taken};
use super::*;
use crate::server::{ServerOptions, Unsettled};

const LONG: Duration = Duration::from_secs(300);

type Ours = Shedlock<MemoryLock, Fake>;

/// Who has a row, until when, and since which request to take it.
type Has = (OwnerId, Instant, Option<i64>);

/// Rows in memory.
#[derive(Debug)]
struct Fake {
    store: MemoryLock,
    rows: Mutex<HashMap<String, Has>>,
    taken: AtomicI64,
    layout: Layout,
    unsettled: Unsettled,
    /// Requests to take a row, and to prolong rows, are held up.
    held_up: watch::Sender<bool>,
}

impl Fake {
    fn change<T>(&self, name: &LockName, change: impl FnOnce(&mut Option<Has>) -> T) -> T {
        let mut rows = self.rows.lock().unwrap();
        let mut row = rows.remove(name.as_str());
        let answer = change(&mut row);
        rows.extend(row.map(|row| (name.to_string(), row)));
        answer
    }

    fn row(&self, name: &LockName) -> Option<Row> {
        let (by, until, at_us) = self.rows.lock().unwrap().get(name.as_str())?.clone();
        let left = until.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(Row { by, at_us, held_for: Duration::ZERO, left })
    }

    async fn ours(&self, name: &LockName) -> Option<OwnerId> {
        let holder = self.store.holder(name).await.unwrap()?;
        Some(if holder.kept { holder.owner.kept() } else { holder.owner })
    }

    /// A request to take the row comes to the server.
    async fn land(&self, claim: &Claim) -> Taken {
        if self.ours(&claim.name).await.as_ref() != Some(&claim.owner) {
            return Taken::NotHeld;
        }
        match self.row(&claim.name).filter(|row| row.by != claim.owner) {
            Some(row) => Taken::Busy { by: Some(row.by), left: row.left },
            None => {
                self.take_for(&claim.name, &claim.owner, claim.lease);
                Taken::Ours
            }
        }
    }

    fn take_for(&self, name: &LockName, owner: &OwnerId, lease: Duration) {
        let at = self.taken.fetch_add(1, Ordering::Relaxed);
        self.change(name, |row| *row = Some((owner.clone(), Instant::now() + lease, Some(at))));
    }

    /// Gives the row that this one has to that one, until then.
    fn pass(&self, name: &LockName, by: &OwnerId, to: OwnerId, until: Instant) -> bool {
        let has = self.row(name).filter(|row| row.by == *by);
        if let Some(row) = &has {
            self.change(name, |has| *has = Some((to, until, row.at_us)));
        }
        has.is_some()
    }

    async fn pass_the_gate(&self) {
        let _ = self.held_up.subscribe().wait_for(|held_up| !held_up).await;
    }
}

#[async_trait]
impl Table for Fake {
    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn unsettled(&self) -> &Unsettled {
        &self.unsettled
    }

    async fn take(&self, claim: &Claim) -> Result<Taken> {
        let on_its_way = self.unsettled.send(&claim.owner);
        self.pass_the_gate().await;
        let taken = self.land(claim).await;
        on_its_way.settle();
        Ok(taken)
    }

    async fn prolong(&self, claims: &[Claim]) -> Vec<Result<bool>> {
        self.pass_the_gate().await;
        let until = |claim: &Claim| Instant::now() + claim.lease;
        let prolong = |claim: &Claim| Ok(self.pass(&claim.name, &claim.owner, claim.owner.clone(), until(claim)));
        claims.iter().map(prolong).collect()
    }

    async fn free(&self, name: &LockName, seen: &Row) -> Result<bool> {
        let is_seen = self.row(name).is_some_and(|row| row.at_us == seen.at_us);
        Ok(is_seen && self.pass(name, &seen.by, seen.by.clone(), Instant::now()))
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<RowKept> {
        let holds = self.ours(&claim.name).await.as_ref() == Some(&claim.owner);
        let now = holds && self.pass(&claim.name, &claim.owner, claim.owner.kept(), Instant::now() + rest);
        Ok(RowKept { now, twice: false })
    }

    async fn look(&self, name: &LockName) -> Result<Seen> {
        let mut seen = seen(None, None);
        (seen.row, seen.ours) = (self.row(name), self.ours(name).await);
        Ok(seen)
    }

    async fn list(&self, _: &ListQuery) -> Result<Rows> {
        Err(Error::new(ErrorKind::Unsupported, "not in this test"))
    }

    async fn findings(&self) -> Result<Vec<Finding>> {
        Ok(Vec::new())
    }
}

async fn ours() -> Ours {
    let column = |name: &str| Column {
        name: name.to_owned(),
        kind: "timestamp".to_owned(),
        most: None,
        digits: 6,
        is_unique: true,
    };
    let columns = ["name", "lock_until", "locked_at", "locked_by"].map(column);
    let options = ServerOptions::new("postgres://h").unwrap();
    let layout = Layout::of(&options, "shedlock".to_owned(), &columns, &["timestamp"]).unwrap();
    let store = MemoryLock::new();
    let (rows, taken) = (Mutex::default(), AtomicI64::default());
    let (unsettled, held_up) = (Unsettled::default(), watch::Sender::default());
    Shedlock::new(store.clone(), Fake { store: store.client(), rows, taken, layout, unsettled, held_up }).await
}

fn claim(owner: &str) -> Claim {
    Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), LONG)
}

/// Java takes the row.
fn theirs(lock: &Ours) -> bool {
    let name = claim("").name;
    let is_free = lock.table.row(&name).is_none();
    if is_free {
        lock.table.take_for(&name, &OwnerId::from_store("java"), LONG);
    }
    is_free
}

async fn renewed(lock: &Ours, claim: &Claim) -> Renewal {
    lock.renew(std::slice::from_ref(claim)).await.pop().unwrap().unwrap()
}

/// A renewal finds the row free because a release has just freed it: that is no loss, and the release says so.
#[tokio::test]
async fn a_renewal_beside_a_release() {
    let (lock, held) = (ours().await, claim("a"));
    lock.try_lock(&held).await.unwrap().unwrap();
    lock.table.held_up.send_replace(true);
    let mut renewing = std::pin::pin!(renewed(&lock, &held));
    assert!(renewing.as_mut().now_or_never().is_none());
    lock.ours.script().stall();
    let mut releasing = std::pin::pin!(lock.unlock(&held));
    assert!(releasing.as_mut().now_or_never().is_none());
    assert!(theirs(&lock), "the row comes free first");
    lock.table.held_up.send_replace(false);
    assert_eq!(renewing.await, Renewal::NotHeld);
    lock.ours.script().resume();
    assert_eq!(releasing.await.unwrap(), Unlocked::Released);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
}

/// A renewal finds the row another's because the hold is about to be kept: our lock stays until it is.
#[tokio::test]
async fn a_renewal_beside_one_who_keeps() {
    let (lock, held) = (ours().await, claim("a"));
    lock.try_lock(&held).await.unwrap().unwrap();
    lock.table.held_up.send_replace(true);
    let mut renewing = std::pin::pin!(renewed(&lock, &held));
    assert!(renewing.as_mut().now_or_never().is_none());
    assert!(lock.table.keep(&held, LONG).await.unwrap().now);
    lock.table.held_up.send_replace(false);
    assert!(matches!(renewing.await, Renewal::Held { .. }));
    assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::Kept);
    assert_eq!(renewed(&lock, &held).await, Renewal::NotHeld);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
    assert!(!theirs(&lock) && lock.holder(&held.name).await.unwrap().unwrap().kept);
}

/// A request to take the row lands before its owner's release, or after it: nothing is left.
#[tokio::test]
async fn a_request_that_was_given_up() {
    for lands_after in [false, true] {
        let (lock, late) = (ours().await, claim("a"));
        lock.table.held_up.send_replace(true);
        assert!(lock.try_lock(&late).now_or_never().is_none());
        let land = async |now: bool| {
            if now {
                drop(lock.table.land(&late).await)
            }
        };
        land(!lands_after).await;
        lock.unlock(&late).await.unwrap();
        land(lands_after).await;
        assert_eq!(lock.holder(&late.name).await.unwrap(), None);
        assert!(theirs(&lock));
    }
}

/// Our lock is lost while its owner waits for the row: it goes to the end of our line, and gets both in the end.
#[tokio::test]
async fn our_lock_is_lost_while_the_row_is_waited_for() {
    let (lock, waits) = (ours().await, claim("a"));
    assert!(theirs(&lock));
    let mut waiting = std::pin::pin!(lock.lock(&waits));
    assert!(waiting.as_mut().now_or_never().is_none());
    let status = lock.inspect(&waits.name).await.unwrap();
    assert_eq!(status.holder().unwrap().owner.as_str(), "java");
    assert_eq!(status.waiters.iter().map(|waiter| &waiter.owner).collect::<Vec<_>>(), [&waits.owner]);
    assert!(lock.ours.script().lose("x"));
    assert_eq!(lock.evict(&waits.name).await.unwrap().unwrap().owner.as_str(), "java");
    let grant = waiting.await.unwrap();
    assert_eq!(lock.holder(&waits.name).await.unwrap().unwrap().token, grant.token);
    assert_eq!(lock.unlock(&waits).await.unwrap(), Unlocked::Released);
}

/// Nobody has both while one is lost, and neither stays behind.
#[tokio::test]
async fn what_is_left_of_a_loss() {
    let (lock, held) = (ours().await, claim("a"));
    lock.try_lock(&held).await.unwrap().unwrap();
    assert!(lock.ours.script().lose("x"));
    assert_eq!(renewed(&lock, &held).await, Renewal::NotHeld);
    assert!(theirs(&lock), "the row came free");
    assert_eq!(lock.try_lock(&held).await.unwrap(), None);
    lock.evict(&held.name).await.unwrap().unwrap();
    lock.try_lock(&held).await.unwrap().unwrap();
    lock.table.change(&held.name, |row| *row = None);
    assert_eq!(renewed(&lock, &held).await, Renewal::NotHeld);
    assert_eq!(lock.ours.holder(&held.name).await.unwrap(), None, "our lock came free");
    assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::NotHeld);
}
