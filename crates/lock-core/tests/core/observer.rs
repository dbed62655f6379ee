//! Who holds a lock, as those see it who only look.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::{MemoryLock, Verb};
use lock_core::{Election, ErrorKind, Locks, ManualClock, Observed, Observer};

use crate::common::settle;

/// How often it looks.
const LOOK: Duration = Duration::from_millis(500);

const LEASE: Duration = Duration::from_secs(30);

fn store() -> (MemoryLock, ManualClock, Election) {
    let clock = ManualClock::new();
    let store = MemoryLock::with_clock(Arc::new(clock.clone()));
    let election = Locks::new(Arc::new(store.clone())).election("x").lease(LEASE);
    (store, clock, election)
}

/// What is seen next: the value of who holds it, or else.
async fn seen(observer: &mut Observer) -> String {
    match observer.next().await.unwrap() {
        Observed::Held(holder) => holder.value.unwrap().as_str().to_owned(),
        Observed::Free => "free".to_owned(),
        _ => "blind".to_owned(),
    }
}

/// The same when the time of the next look has come.
async fn later(clock: &ManualClock, observer: &mut Observer) -> String {
    let looks = async {
        tokio::task::yield_now().await;
        clock.advance(LOOK);
    };
    tokio::join!(seen(observer), looks).0
}

#[tokio::test]
async fn each_state_is_seen_once() {
    let (_, clock, election) = store();
    let mut observer = election.observe().unwrap();
    assert_eq!(seen(&mut observer).await, "free");
    let leadership = election.campaign("a").await.unwrap();
    assert_eq!(later(&clock, &mut observer).await, "a");
    clock.advance(LOOK);
    assert!(futures_util::FutureExt::now_or_never(observer.next()).is_none());
    leadership.proclaim("b").await.unwrap();
    assert_eq!(later(&clock, &mut observer).await, "b");
    leadership.resign().await.unwrap();
    assert_eq!(later(&clock, &mut observer).await, "free");
}

#[tokio::test]
async fn a_store_that_is_away_is_seen_once_and_what_is_after_it_again() {
    let (store, clock, election) = store();
    let _leadership = election.campaign("a").await.unwrap();
    let mut observer = election.observe().unwrap();
    assert_eq!(seen(&mut observer).await, "a");
    store.script().fail(Verb::Inspect, ErrorKind::Unavailable, 2);
    assert_eq!(later(&clock, &mut observer).await, "blind");
    // Away for two looks, which is seen once.
    let looks = async {
        for _ in 0..2 {
            clock.advance(LOOK);
            settle().await;
        }
    };
    assert_eq!(tokio::join!(seen(&mut observer), looks).0, "a");
}

#[tokio::test]
async fn observers_of_one_lock_share_the_answers() {
    let (store, _, election) = store();
    let mut observers: Vec<_> = (0..100).map(|_| election.observe().unwrap()).collect();
    // The second question would fail.
    assert_eq!(seen(&mut observers[0]).await, "free");
    store.script().fail(Verb::Inspect, ErrorKind::Unavailable, 1);
    for observer in &mut observers[1..] {
        assert_eq!(seen(observer).await, "free");
    }
    drop(observers);
    assert_eq!(seen(&mut election.observe().unwrap()).await, "blind");
}

#[tokio::test]
async fn a_shutdown_ends_it() {
    let clock = ManualClock::new();
    let locks = Locks::new(Arc::new(MemoryLock::with_clock(Arc::new(clock))));
    let mut observer = locks.observe("x").unwrap();
    assert_eq!(seen(&mut observer).await, "free");
    assert!(locks.shutdown(Duration::ZERO).await.unreleased.is_empty());
    assert_eq!(observer.next().await.unwrap_err().kind(), ErrorKind::Closed);
    assert!(locks.observe("x").is_err());
}
