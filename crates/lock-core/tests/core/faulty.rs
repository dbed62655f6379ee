//! The store that misbehaves to order, as an application's test meets it.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::testing::{Effect, Faulty, Verb};
use lock_core::{ErrorKind, LeaseState, Locks, ManualClock};

const LEASE: Duration = Duration::from_secs(30);

/// A store by a clock that the test moves.
fn faulty() -> (Faulty, Locks, ManualClock) {
    let clock = ManualClock::new();
    let faulty = Faulty::new(Arc::new(MemoryLock::with_clock(Arc::new(clock.clone()))));
    let locks = Locks::builder(faulty.backend()).lease(LEASE).outage(Duration::ZERO).build().unwrap();
    (faulty, locks, clock)
}

/// Moves the clock on in small steps until that is so.
async fn advance_until(clock: &ManualClock, what: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if what() {
            return;
        }
        clock.advance(Duration::from_millis(100));
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }
    panic!("it never came");
}

#[tokio::test]
async fn the_next_acquisition_fails_as_it_is_told() {
    let (faulty, locks, _) = faulty();
    for kind in [ErrorKind::Refused, ErrorKind::Unavailable, ErrorKind::Unknown] {
        faulty.once(Verb::Lock, Effect::Fail(kind));
        assert_eq!(locks.mutex("a").lock().await.unwrap_err().kind(), kind);
    }
    locks.mutex("a").lock().await.unwrap().unlock().await.unwrap();
}

#[tokio::test]
async fn a_lost_reply_is_unknown_and_cleaned_up() {
    let (faulty, locks, _) = faulty();
    faulty.once(Verb::Lock, Effect::LoseReply);
    assert_eq!(locks.mutex("a").lock().await.unwrap_err().kind(), ErrorKind::Unknown);
    assert!(faulty.calls(Verb::Unlock) > 0);
    assert!(locks.inspect("a").await.unwrap().holder().is_none());
}

#[tokio::test]
async fn an_acquisition_hangs_until_its_wait_is_over() {
    let (faulty, locks, clock) = faulty();
    faulty.always(Verb::Lock, Effect::DelayRequest(LEASE * 10));
    let mutex = locks.mutex("a").wait(LEASE);
    let waiting = tokio::spawn(async move { mutex.lock().await });
    advance_until(&clock, || waiting.is_finished()).await;
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
}

#[tokio::test]
async fn a_hold_is_lost_now() {
    let (faulty, locks, clock) = faulty();
    let guard = locks.mutex("a").lock().await.unwrap();
    let before = clock_now(&clock);
    assert!(faulty.lose("a").await.unwrap());
    guard.lost().await;
    assert_eq!((guard.is_held(), clock_now(&clock)), (false, before));
    assert!(!faulty.lose("a").await.unwrap());
    assert_eq!(faulty.lose("").await.unwrap_err().kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn renewals_fail_for_a_while_or_for_too_long() {
    let (faulty, locks, clock) = faulty();
    let guard = locks.mutex("a").lock().await.unwrap();
    let lease = guard.lease().clone();
    faulty.always(Verb::Renew, Effect::AWAY);
    advance_until(&clock, || lease.state() == LeaseState::AtRisk).await;
    faulty.always(Verb::Renew, Effect::Pass);
    advance_until(&clock, || lease.state() == LeaseState::Held).await;
    faulty.always(Verb::Renew, Effect::AWAY);
    advance_until(&clock, || lease.state() == LeaseState::Lost).await;
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn the_store_is_away_for_every_request() {
    let (faulty, locks, _) = faulty();
    faulty.everything(Effect::AWAY);
    let away = |error: lock_core::Error| assert_eq!(error.kind(), ErrorKind::Unavailable);
    away(locks.mutex("a").try_lock().await.unwrap_err());
    away(locks.inspect("a").await.unwrap_err());
    away(locks.list(&Default::default()).await.unwrap_err());
    away(locks.evict("a").await.unwrap_err());
    away(locks.raise_tokens("a", 1_u64).await.unwrap_err());
    away(locks.doctor().await.unwrap_err());
    faulty.everything(Effect::Pass);
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
}

fn clock_now(clock: &ManualClock) -> lock_core::Instant {
    lock_core::Clock::now(clock)
}
