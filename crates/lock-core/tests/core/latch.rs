//! Latches, by a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use lock_core::testing::{Effect, Faulty, Verb};
use lock_core::{ErrorKind, Locks};

use crate::common::{advance, settle, setup};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test]
async fn an_arrival_counts_as_long_as_it_is_kept() {
    let (_, clock, locks) = setup();
    let latch = locks.latch("x", 2).keep(HOUR);
    assert!(latch.arrive("a").await.unwrap().first);
    advance(&clock, HOUR / 2).await;
    // Again, it does not count longer.
    assert!(!latch.arrive("a").await.unwrap().first);
    assert_eq!(latch.arrived().await.unwrap(), ["a"]);
    advance(&clock, HOUR / 2).await;
    assert!(latch.arrived().await.unwrap().is_empty());
    for wrong in [latch.clone().keep(Duration::ZERO), latch.keep(HOUR * 24 * 400), locks.latch("x", 1025)] {
        assert_eq!(wrong.arrive("a").await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}

/// Whoever dies while it arrives keeps others of the same party only until its lease is over.
#[tokio::test]
async fn another_arrives_for_the_same_party_and_dies() {
    let (store, clock, locks) = setup();
    let other = Locks::new(Arc::new(store));
    let dying = other.mutex("x@latch/0/1/a").hold_for(10 * SECOND).lock().await.unwrap();
    std::mem::forget(dying);
    let soon = locks.latch("x", 1).within(SECOND);
    let waiting = tokio::spawn(async move { soon.arrive("a").await });
    let patient = locks.latch("x", 1);
    let arriving = tokio::spawn(async move { patient.arrive("a").await });
    settle().await;
    for _ in 0..40 {
        advance(&clock, SECOND / 4).await;
        // One that has not arrived does not count.
        if !arriving.is_finished() {
            assert!(locks.latch("x", 1).arrived().await.unwrap().is_empty());
        }
    }
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    advance(&clock, SECOND).await;
    assert!(arriving.await.unwrap().unwrap().first);
}

#[tokio::test]
async fn a_wait_rides_out_an_outage_and_no_longer() {
    let (store, clock, others) = setup();
    let faulty = Faulty::new(Arc::new(store));
    let locks = Locks::new(faulty.backend());
    faulty.always(Verb::Inspect, Effect::AWAY);
    let wait = |locks: &Locks| {
        let latch = locks.latch("x", 1);
        tokio::spawn(async move { latch.wait().await })
    };
    let waiting = wait(&locks);
    for _ in 0..10 {
        advance(&clock, SECOND / 2).await;
    }
    others.latch("x", 1).arrive("a").await.unwrap();
    faulty.always(Verb::Inspect, Effect::Pass);
    advance(&clock, SECOND).await;
    waiting.await.unwrap().unwrap();

    faulty.always(Verb::Inspect, Effect::AWAY);
    let waiting = wait(&locks);
    for _ in 0..24 {
        advance(&clock, SECOND / 2).await;
    }
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
}
