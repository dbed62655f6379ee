//! Readers of one process share a grant: how long, past whom, and who gives it back. By a clock that the test moves.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::memory::MemoryLock;
use lock_core::testing::{Effect, Faulty, Verb};
use lock_core::{Clock, ErrorKind, Instant, LeaseState, LockGuard, Locks, ManualClock, Notice, RwLock};
use tokio::task::JoinHandle;

use crate::common::{LEASE, advance, granted, settle, setup, waiter};

const MILLI: Duration = Duration::from_millis(1);

/// A store whose requests are counted, its clock, and a client.
struct World {
    store: MemoryLock,
    clock: ManualClock,
    faulty: Faulty,
    locks: Locks,
}

impl World {
    fn new() -> Self {
        let (store, clock, _) = setup();
        let faulty = Faulty::new(Arc::new(store.clone()));
        let locks = Locks::builder(faulty.backend()).label("test").lease(LEASE).build().unwrap();
        Self { store, clock, faulty, locks }
    }

    fn rw_lock(&self) -> RwLock {
        self.locks.rw_lock("a").unwrap()
    }

    /// Another client of the store.
    fn other(&self) -> RwLock {
        Locks::new(Arc::new(self.store.client())).rw_lock("a").unwrap()
    }

    /// How often the store was asked for the lock.
    fn asked(&self) -> usize {
        self.faulty.calls(Verb::Lock) + self.faulty.calls(Verb::TryLock)
    }

    fn released(&self) -> usize {
        self.faulty.calls(Verb::Unlock)
    }

    /// Does another reader of this kind ask the store, where `held` is of one who reads?
    async fn asks_anew(&self, held: &LockGuard, rw_lock: &RwLock) -> bool {
        let before = self.asked();
        let guard = rw_lock.read().await.unwrap();
        let asked = self.asked() - before;
        assert_eq!(asked == 0, guard.owner() == held.owner());
        assert_eq!(asked == 0, guard.fencing_token() == held.fencing_token());
        guard.unlock().await.unwrap();
        asked == 1
    }
}

async fn writer(rw_lock: RwLock) -> JoinHandle<lock_core::Result<LockGuard>> {
    let writer = tokio::spawn(async move { rw_lock.write().await });
    settle().await;
    writer
}

#[tokio::test]
async fn sharing_costs_no_request_and_the_last_gives_it_back_once() {
    let world = World::new();
    let (rw_lock, other) = (world.rw_lock(), world.other());
    let first = rw_lock.read().await.unwrap();
    let second = rw_lock.clone().wait(Duration::from_secs(5)).read().await.unwrap();
    let third = rw_lock.try_read().await.unwrap().unwrap();
    assert_eq!(world.asked(), 1);
    let seen = world.locks.inspect("a").await.unwrap();
    assert!(seen.holders.len() == 1 && seen.holders[0].owner == *third.owner(), "{seen:?}");
    // In any order, by a release or a drop.
    let (view, views) = (first.lease(), [second.lease(), third.lease()]);
    first.unlock().await.unwrap();
    assert!(views.iter().all(|view| view.is_held()) && other.try_write().await.unwrap().is_none());
    drop(second);
    settle().await;
    assert_eq!(world.released(), 0);
    assert!(third.is_held() && other.try_write().await.unwrap().is_none());
    third.unlock().await.unwrap();
    assert_eq!(world.released(), 1);
    assert!(!view.is_held());
    assert!(other.try_write().await.unwrap().is_some());
}

#[tokio::test]
async fn guards_that_are_dropped_release_once() {
    let world = World::new();
    let readers = [world.rw_lock().read().await.unwrap(), world.rw_lock().read().await.unwrap()];
    drop(readers);
    advance(&world.clock, MILLI).await;
    assert_eq!((world.asked(), world.released()), (1, 1));
    assert!(world.other().try_write().await.unwrap().is_some());
}

#[tokio::test]
async fn a_grant_lets_readers_in_for_a_bounded_time_and_number() {
    let world = World::new();
    let long = Duration::from_secs(3600);
    for (rw_lock, open) in [
        (world.rw_lock(), 10 * MILLI),
        (world.rw_lock().hand_over_for(Duration::from_millis(30)), 30 * MILLI),
        (world.rw_lock().hand_over_for(long), 100 * MILLI),
        (world.rw_lock().hand_over_for(long).lease(Duration::from_secs(1)), 50 * MILLI),
    ] {
        let held = rw_lock.read().await.unwrap();
        assert!(!world.asks_anew(&held, &rw_lock).await);
        world.clock.advance(open - MILLI);
        assert!(!world.asks_anew(&held, &rw_lock).await, "{open:?}");
        world.clock.advance(MILLI);
        assert!(world.asks_anew(&held, &rw_lock).await, "{open:?}");
        held.unlock().await.unwrap();
    }
    let rw_lock = world.rw_lock().hand_overs(2);
    let held = rw_lock.read().await.unwrap();
    for asks in [false, false, true] {
        assert_eq!(world.asks_anew(&held, &rw_lock).await, asks);
    }
}

#[tokio::test]
async fn who_is_fair_or_has_other_options_shares_nothing() {
    let world = World::new();
    let plain = world.rw_lock();
    for rw_lock in [plain.clone().fair(true), plain.clone().hand_overs(0), plain.clone().max_hold(LEASE)] {
        let held = rw_lock.read().await.unwrap();
        assert!(world.asks_anew(&held, &rw_lock).await, "{rw_lock:?}");
        assert!(world.asks_anew(&held, &plain).await, "{rw_lock:?}");
    }
    let held = plain.read().await.unwrap();
    for rw_lock in [plain.clone().fair(true), plain.clone().lease(LEASE * 2), plain.clone().token_floor(1)] {
        assert!(world.asks_anew(&held, &rw_lock).await, "{rw_lock:?}");
    }
}

#[tokio::test]
async fn a_writer_of_the_process_that_waits_ends_the_sharing() {
    for fair in [false, true] {
        let world = World::new();
        let rw_lock = world.rw_lock();
        let held = rw_lock.read().await.unwrap();
        let writes = writer(rw_lock.clone().fair(fair)).await;
        let reads = tokio::spawn({
            let rw_lock = rw_lock.clone();
            async move { rw_lock.read().await }
        });
        settle().await;
        assert!(!reads.is_finished(), "it stands behind the writer");
        assert_eq!(world.asked(), 3);
        held.unlock().await.unwrap();
        let written = granted(writes).await;
        assert!(!reads.is_finished());
        written.unlock().await.unwrap();
        granted(reads).await.unlock().await.unwrap();

        // One that gives up is waited for no more.
        let held = rw_lock.read().await.unwrap();
        let writes = writer(rw_lock.clone().fair(fair)).await;
        writes.abort();
        assert!(writes.await.unwrap_err().is_cancelled());
        advance(&world.clock, MILLI).await;
        assert!(!world.asks_anew(&held, &rw_lock).await);
        // And one that does not wait stops nobody.
        assert!(rw_lock.clone().fair(fair).try_write().await.unwrap().is_none());
        assert!(!world.asks_anew(&held, &rw_lock).await);
        held.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn a_writer_elsewhere_waits_for_no_reader_that_comes_after_the_bound() {
    let world = World::new();
    let rw_lock = world.rw_lock();
    let held = rw_lock.read().await.unwrap();
    let writes = writer(world.other()).await;
    world.clock.advance(9 * MILLI);
    let shares = rw_lock.read().await.unwrap();
    assert_eq!(shares.owner(), held.owner());
    world.clock.advance(MILLI);
    let late = tokio::spawn(async move { rw_lock.read().await });
    held.unlock().await.unwrap();
    settle().await;
    assert!(!late.is_finished() && !writes.is_finished());
    shares.unlock().await.unwrap();
    let written = granted(writes).await;
    assert!(!late.is_finished());
    written.unlock().await.unwrap();
    granted(late).await.unlock().await.unwrap();
}

#[tokio::test]
async fn risk_and_loss_are_told_to_all() {
    let world = World::new();
    let rw_lock = world.rw_lock().hand_over_for(LEASE);
    let readers = [rw_lock.read().await.unwrap(), rw_lock.read().await.unwrap(), rw_lock.read().await.unwrap()];
    world.faulty.once(Verb::Renew, Effect::AWAY);
    advance(&world.clock, LEASE / 3).await;
    assert!(readers.iter().all(|reader| reader.state() == LeaseState::AtRisk));
    advance(&world.clock, LEASE / 10).await;
    assert!(readers.iter().all(|reader| reader.state() == LeaseState::Held));
    let mut told = readers.each_ref().map(|reader| Box::pin(reader.lease().into_lost()));
    assert!(told.iter_mut().all(|told| told.as_mut().now_or_never().is_none()));
    assert!(world.store.script().lose("a"));
    advance(&world.clock, LEASE / 3).await;
    assert!(told.iter_mut().all(|told| told.as_mut().now_or_never().is_some()));
    // Who comes now has a hold of its own.
    let next = rw_lock.read().await.unwrap();
    assert!(next.is_held() && next.owner() != readers[0].owner());
    for reader in readers {
        assert_eq!(reader.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    assert!(next.is_held());
    assert!(!world.asks_anew(&next, &rw_lock).await);
}

#[tokio::test]
async fn what_is_at_risk_or_over_lets_nobody_in() {
    let world = World::new();
    let rw_lock = world.rw_lock();
    let held = rw_lock.read().await.unwrap();
    world.faulty.once(Verb::Renew, Effect::AWAY);
    world.faulty.tell(Notice::Doubt);
    settle().await;
    assert_eq!(held.state(), LeaseState::AtRisk);
    assert!(world.asks_anew(&held, &rw_lock).await);
    world.clock.advance(LEASE);
    assert!(!held.is_held());
    let next = rw_lock.read().await.unwrap();
    assert!(next.is_held() && next.owner() != held.owner());
    assert_eq!(held.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    // A writer was granted the lock: whoever was believed to read has lost it.
    assert!(world.store.script().lose("a"));
    let written = rw_lock.write().await.unwrap();
    assert!(!next.is_held() && written.is_held());
}

#[tokio::test]
async fn a_renewal_goes_on_as_long_as_one_of_them_is_there() {
    let world = World::new();
    let (first, second) = (world.rw_lock().read().await.unwrap(), world.rw_lock().read().await.unwrap());
    drop(first);
    for _ in 0..10 {
        advance(&world.clock, LEASE / 3).await;
        assert!(second.is_held());
    }
    assert!(world.other().try_write().await.unwrap().is_none());
}

#[tokio::test]
async fn a_panic_and_a_dropped_future_leave_it_to_the_others() {
    let world = World::new();
    let rw_lock = world.rw_lock();
    let held = rw_lock.read().await.unwrap();
    let panics = tokio::spawn({
        let rw_lock = rw_lock.clone();
        async move { rw_lock.run_read(async |_| panic!("in the section")).await }
    });
    assert!(panics.await.unwrap_err().is_panic());
    let mut dropped = Box::pin(rw_lock.run_read(async |_| std::future::pending::<()>().await));
    assert!(dropped.as_mut().now_or_never().is_none());
    drop(dropped);
    // One that waits behind a writer, and gives up.
    let writes = writer(rw_lock.clone()).await;
    let mut waits = Box::pin(rw_lock.read());
    assert!(waits.as_mut().now_or_never().is_none());
    drop(waits);
    settle().await;
    assert!(held.is_held() && !writes.is_finished());
    held.unlock().await.unwrap();
    granted(writes).await.unlock().await.unwrap();
    let again = waiter(world.locks.mutex("a")).await;
    granted(again).await.unlock().await.unwrap();
}

#[tokio::test]
async fn a_release_that_fails_is_repeated_once_for_all() {
    let world = World::new();
    let (first, last) = (world.rw_lock().read().await.unwrap(), world.rw_lock().read().await.unwrap());
    first.unlock().await.unwrap();
    world.faulty.once(Verb::Unlock, Effect::AWAY);
    assert_eq!(last.unlock().await.unwrap_err().kind(), ErrorKind::Unavailable);
    for _ in 0..5 {
        advance(&world.clock, Duration::from_secs(1)).await;
    }
    assert_eq!(world.released(), 2);
    assert!(world.other().try_write().await.unwrap().is_some());
}

#[tokio::test]
async fn a_shutdown_ends_all_and_releases_once() {
    let world = World::new();
    let readers = [world.rw_lock().read().await.unwrap(), world.rw_lock().read().await.unwrap()];
    assert!(world.locks.shutdown(Duration::from_secs(1)).await.unreleased.is_empty());
    assert!(readers.iter().all(|reader| !reader.is_held()));
    assert_eq!(world.released(), 1);
    for reader in readers {
        assert_eq!(reader.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    }
    assert_eq!(world.released(), 1);
    assert!(world.other().try_write().await.unwrap().is_some());
    assert_eq!(world.rw_lock().read().await.unwrap_err().kind(), ErrorKind::Closed);
}

/// A clock at which something is done when it is asked next.
#[derive(Debug, Default)]
struct Asked {
    clock: ManualClock,
    then: Mutex<Option<LockGuard>>,
}

#[async_trait]
impl Clock for Asked {
    fn now(&self) -> Instant {
        let guard = self.then.lock().unwrap().take();
        if let Some(guard) = guard {
            guard.unlock().now_or_never().expect("the store answers at once").unwrap();
        }
        self.clock.now()
    }

    async fn sleep_until(&self, at: Instant) {
        self.clock.sleep_until(at).await;
    }
}

/// Two who share a hold release it at the same moment: each of them had it until then.
#[tokio::test]
async fn the_last_to_go_takes_nothing_from_the_one_before() {
    let clock = Arc::new(Asked::default());
    let store = MemoryLock::with_clock(Arc::clone(&clock) as Arc<dyn Clock>);
    let locks = Locks::builder(Arc::new(store.clone())).lease(LEASE).build().unwrap();
    let rw_lock = locks.rw_lock("a").unwrap();
    let [one, other] = [rw_lock.read().await.unwrap(), rw_lock.read().await.unwrap()];
    assert_eq!(one.owner(), other.owner());
    *clock.then.lock().unwrap() = Some(other);
    one.unlock().await.unwrap();
    assert!(clock.then.lock().unwrap().is_none(), "the other went while the one did");
    assert!(locks.inspect("a").await.unwrap().holders.is_empty());
}

/// The store ends a hold and does not tell, and a reader of the same process has the lock next: who had it alone is told
/// at once, and who waits for that hold asks the store.
#[tokio::test]
async fn a_reader_ends_the_hold_before_it() {
    let world = World::new();
    let alone = world.rw_lock().write().await.unwrap();
    let waiting = waiter(world.locks.mutex("a")).await;
    world.locks.evict("a").await.unwrap().unwrap();
    assert!(alone.is_held(), "of which nothing tells");
    let reads = world.rw_lock().read().await.unwrap();
    assert!(reads.is_held() && !alone.is_held());
    reads.unlock().await.unwrap();
    granted(waiting).await.unlock().await.unwrap();
    assert_eq!(alone.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
}
