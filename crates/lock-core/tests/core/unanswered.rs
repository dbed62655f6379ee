//! What is told at the end of a wait of which the store said nothing, and what is asked for it.

use std::sync::Arc;
use std::time::Duration;

use conformance_tests::{Effect, Faulty, Verb as Call};
use lock_core::memory::Verb;
use lock_core::{ErrorKind, Locks};

use crate::common::{advance, setup, waiter};

#[tokio::test]
async fn a_store_that_does_not_answer_is_not_taken_for_a_busy_one() {
    let (store, clock, locks) = setup();
    store.script().stall();
    let waiting = waiter(locks.mutex("a").wait(Duration::from_secs(3))).await;
    advance(&clock, Duration::from_secs(3)).await;
    advance(&clock, Duration::from_millis(100)).await;
    advance(&clock, Duration::from_millis(100)).await;
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    // In so short a time a slow one does not answer either.
    let short = waiter(locks.mutex("a").wait(Duration::from_millis(900))).await;
    advance(&clock, Duration::from_millis(900)).await;
    advance(&clock, Duration::from_millis(100)).await;
    advance(&clock, Duration::from_millis(100)).await;
    assert_eq!(short.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    assert!(error.to_string().contains("not granted within 3s: the store does not answer"), "{error}");
}

#[tokio::test]
async fn a_store_that_fails_at_the_end_is_not_taken_for_a_busy_one() {
    let (store, clock, locks) = setup();
    let other = Locks::new(Arc::new(store.client()));
    let _held = other.mutex("a").lock().await.unwrap();
    for (kind, told) in [(ErrorKind::Unavailable, ErrorKind::Unknown), (ErrorKind::Refused, ErrorKind::Timeout)] {
        let waiting = waiter(locks.mutex("a").wait(Duration::from_secs(3))).await;
        store.script().fail(Verb::Inspect, kind, 1);
        advance(&clock, Duration::from_secs(3)).await;
        assert_eq!(waiting.await.unwrap().unwrap_err().kind(), told);
    }
}

#[tokio::test]
async fn many_whose_wait_is_over_ask_once_who_holds_the_lock() {
    let (store, clock, _) = setup();
    let other = Locks::new(Arc::new(store.client()));
    let held = other.mutex("a").lock().await.unwrap();
    let faulty = Faulty::new(Arc::new(store));
    faulty.always(Call::Inspect, Effect::DelayReply(Duration::from_millis(50)));
    let locks = Locks::new(faulty.backend());
    let mut waiters = Vec::new();
    for _ in 0..500 {
        waiters.push(waiter(locks.mutex("a").wait(Duration::from_secs(3))).await);
    }
    let before = faulty.calls(Call::Inspect);
    advance(&clock, Duration::from_secs(3)).await;
    for waiter in waiters {
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.holder().map(|holder| &holder.owner), Some(held.owner()), "{error}");
    }
    let asked = faulty.calls(Call::Inspect) - before;
    assert!(asked <= 3, "{asked} times");
}
