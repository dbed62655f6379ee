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

/// Whoever dies while it arrives keeps others of the same party only until its lease is over, and other parties not at all.
#[tokio::test]
async fn another_arrives_for_the_same_party_and_dies() {
    let (store, clock, locks) = setup();
    let other = Locks::new(Arc::new(store));
    let dying = other.mutex("x@latch/0/2/a").hold_for(10 * SECOND).lock().await.unwrap();
    std::mem::forget(dying);
    let soon = locks.latch("x", 2).within(SECOND);
    let waiting = tokio::spawn(async move { soon.arrive("a").await });
    let patient = locks.latch("x", 2);
    let arriving = tokio::spawn(async move { patient.arrive("a").await });
    settle().await;
    assert!(locks.latch("x", 2).arrive("b").await.unwrap().first);
    for _ in 0..40 {
        advance(&clock, SECOND / 4).await;
        // One that has not arrived does not count.
        if !arriving.is_finished() {
            assert_eq!(locks.latch("x", 2).arrived().await.unwrap(), ["b"]);
        }
    }
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    advance(&clock, SECOND).await;
    assert!(arriving.await.unwrap().unwrap().first);
}

/// However many arrive at the same moment, as many get in as there are parties, and nothing is left of the others.
#[tokio::test]
async fn who_arrives_with_others_is_counted_after_them() {
    let (store, clock, locks) = setup();
    // All have looked by the time that the first is kept.
    let arrive = |name: &'static str, party: &'static str, of| {
        let faulty = Faulty::new(Arc::new(store.clone()));
        faulty.always(Verb::Keep, Effect::DelayRequest(SECOND));
        let locks = Locks::new(faulty.backend());
        tokio::spawn(async move { locks.latch(name, of).arrive(party).await })
    };
    let all = ["a", "b", "c", "d", "e", "f"].map(|party| arrive("x", party, 3));
    let two = [arrive("y", "a", 2), arrive("y", "b", 3)];
    for _ in 0..20 {
        advance(&clock, SECOND).await;
    }
    let (mut here, mut refused) = (Vec::new(), 0);
    for one in all {
        match one.await.unwrap() {
            Ok(arrival) => here.push(arrival.arrived),
            Err(error) if error.kind() == ErrorKind::Invalid => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    here.sort_unstable();
    assert_eq!((here, refused), (vec![1, 2, 3], 3));
    assert_eq!(locks.latch("x", 3).arrived().await.unwrap().len(), 3);
    let mut refused = 0;
    for one in two {
        refused += usize::from(one.await.unwrap().is_err_and(|error| error.kind() == ErrorKind::Invalid));
    }
    assert_eq!(refused, 1);
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
