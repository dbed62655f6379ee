//! What is told at the end of a wait of which the store said nothing, and what is asked for it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::memory::Verb;
use lock_core::testing::{Effect, Faulty, Verb as Call};
use lock_core::{ErrorKind, Locks};

use crate::common::{LEASE, advance, settle, setup, waiter};

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
    let faulty = Faulty::new(Arc::new(store.clone()));
    let locks = Locks::new(faulty.backend());
    let mut waiters = Vec::new();
    for _ in 0..500 {
        waiters.push(waiter(locks.mutex("a").wait(Duration::from_secs(3))).await);
    }
    let before = faulty.calls(Call::Inspect);
    // All of them have come to ask before the first is answered.
    store.script().stall();
    for _ in 0..30 {
        advance(&clock, Duration::from_millis(100)).await;
    }
    store.script().resume();
    for waiter in waiters {
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.holder().map(|holder| &holder.owner), Some(held.owner()), "{error}");
    }
    let asked = faulty.calls(Call::Inspect) - before;
    assert!(asked <= 3, "{asked} times");
}

/// However many things there are to undo and to ask at its end.
#[tokio::test]
async fn a_wait_ends_a_tenth_of_a_second_late_at_most() {
    for comes_first in [true, false] {
        let (store, clock, locks) = setup();
        let other = Locks::new(Arc::new(store.client()));
        let _held = other.mutex("a").lock().await.unwrap();
        // One stands in the store's line, or behind a task of this process that does.
        let _ahead = if comes_first { None } else { Some(waiter(locks.mutex("a")).await) };
        let waiting = waiter(locks.mutex("a").wait(Duration::from_secs(3))).await;
        store.script().stall();
        for _ in 0..30 {
            advance(&clock, Duration::from_millis(100)).await;
        }
        assert!(!waiting.is_finished(), "it asks who holds the lock");
        advance(&clock, Duration::from_millis(100)).await;
        assert!(waiting.is_finished());
    }
}

#[tokio::test]
async fn a_store_that_is_closed_is_not_asked_again() {
    let (store, clock, _) = setup();
    let faulty = Faulty::new(Arc::new(store.clone()));
    let locks = Locks::new(faulty.backend());
    let guard = locks.mutex("a").lock().await.unwrap();
    store.script().fail(Verb::Unlock, ErrorKind::Closed, 1000);
    drop(guard);
    for _ in 0..50 {
        advance(&clock, Duration::from_millis(100)).await;
    }
    assert_eq!(faulty.calls(Call::Unlock), 1);
}

/// 9. A store that is away may have had a request all the while, and do it when it is back.
#[tokio::test]
async fn a_release_is_repeated_until_the_store_answers() {
    const MANY: usize = 20;
    let (store, clock, _) = setup();
    let faulty = Faulty::new(Arc::new(store.clone()));
    let locks = Locks::new(faulty.backend());
    faulty.always(Call::Unlock, Effect::AWAY);
    for number in 0..MANY {
        drop(locks.mutex(number.to_string()).lock().await.unwrap());
    }
    let seconds = async |count| {
        let before = faulty.calls(Call::Unlock);
        for _ in 0..count {
            advance(&clock, Duration::from_secs(1)).await;
        }
        faulty.calls(Call::Unlock) - before
    };
    seconds(LEASE.as_secs() + 5).await;
    let asked = seconds(100).await;
    assert!((50..=110).contains(&asked), "{asked} requests in 100 s, however many releases there are");
    faulty.always(Call::Unlock, Effect::Pass);
    assert_eq!(seconds(10).await, MANY);
    assert_eq!(seconds(10).await, 0, "each is answered once");
}

#[tokio::test]
async fn an_end_does_not_wait_for_what_is_not_answered_within_its_lease() {
    for shut_down in [true, false] {
        let (store, clock, _) = setup();
        let faulty = Faulty::new(Arc::new(store.clone()));
        let locks = Locks::new(faulty.backend());
        faulty.always(Call::Unlock, Effect::AWAY);
        drop(locks.mutex("a").lock().await.unwrap());
        for _ in 0..LEASE.as_secs() + 5 {
            advance(&clock, Duration::from_secs(1)).await;
        }
        if shut_down {
            let ended = locks.shutdown(LEASE).now_or_never().expect("it ends at once");
            assert_eq!(ended.unreleased, []);
        } else {
            drop(locks);
        }
        // Its task sees the end when it runs next, and whether time has passed by then too is chance.
        settle().await;
        let before = faulty.calls(Call::Unlock);
        for _ in 0..10 {
            advance(&clock, Duration::from_secs(1)).await;
        }
        assert_eq!(faulty.calls(Call::Unlock), before, "shut down: {shut_down}");
    }
}
