//! Rate limiters, by a clock that the test moves.

use std::sync::Arc;
use std::time::Duration;

use lock_core::testing::{Effect, Faulty, Verb};
use lock_core::{ErrorKind, Locks};

use crate::common::{advance, settle, setup};

const SECOND: Duration = Duration::from_secs(1);
const MILLI: Duration = Duration::from_millis(1);

/// What a pause left over is not saved up, so there is no double rate at the boundary of two minutes.
#[tokio::test]
async fn nothing_is_saved_up() {
    let (_, clock, locks) = setup();
    let limiter = locks.rate_limiter("x", 10, SECOND).unwrap();
    advance(&clock, 100 * SECOND).await;
    let mut taken = 0;
    for _ in 0..1000 {
        taken += usize::from(limiter.try_acquire(1).await.unwrap());
        advance(&clock, 2 * MILLI).await;
    }
    // In two seconds.
    assert_eq!(taken, 20);
}

#[tokio::test]
async fn a_block_is_one_request_and_half_of_it_is_fetched() {
    let (store, clock, _) = setup();
    let faulty = Faulty::new(Arc::new(store));
    let locks = Locks::new(faulty.backend());
    let limiter = locks.rate_limiter("x", 1000, SECOND).unwrap();
    // 20 of them come in 20 ms.
    for number in 0..20 {
        if number == 10 {
            assert!(!limiter.try_acquire(1).await.unwrap());
            advance(&clock, 10 * MILLI).await;
        }
        assert!(limiter.try_acquire(1).await.unwrap(), "{number}");
    }
    assert_eq!(faulty.calls(Verb::Reserve), 3);
    let alone = limiter.clone().block(1);
    for _ in 0..3 {
        advance(&clock, 50 * MILLI).await;
        assert!(alone.try_acquire(1).await.unwrap());
    }
    assert_eq!(faulty.calls(Verb::Reserve), 6);
}

/// Those who come later wait behind one who wants many, and all come in time.
#[tokio::test]
async fn waiters_are_served_in_their_order() {
    let (_, clock, locks) = setup();
    let limiter = locks.rate_limiter("x", 10, SECOND).unwrap();
    limiter.acquire(1).await.unwrap();
    let mut tasks = Vec::new();
    for many in [1, 5, 1] {
        let limiter = limiter.clone();
        tasks.push(tokio::spawn(async move { limiter.acquire(many).await }));
        settle().await;
    }
    assert!(!limiter.try_acquire(1).await.unwrap());
    let mut ended = [0; 3];
    for tick in 1..=10 {
        advance(&clock, 100 * MILLI).await;
        for (task, ended) in tasks.iter().zip(&mut ended) {
            if *ended == 0 && task.is_finished() {
                *ended = tick;
            }
        }
    }
    // The fifth of five comes half a second after the one before.
    assert_eq!(ended, [1, 6, 7]);
}

#[tokio::test]
async fn what_nobody_waits_for_any_more_goes_to_the_next() {
    let (store, clock, _) = setup();
    let faulty = Faulty::new(Arc::new(store));
    let locks = Locks::new(faulty.backend());
    let limiter = locks.rate_limiter("x", 1, SECOND).unwrap();
    limiter.acquire(1).await.unwrap();
    let waiting = tokio::spawn({
        let limiter = limiter.clone();
        async move { limiter.acquire(5).await }
    });
    settle().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    assert_eq!(faulty.calls(Verb::Reserve), 2);
    // The five would be there after five seconds. Of these, no more are kept than a client fetches.
    let error = limiter.clone().wait(SECOND).acquire(1).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Timeout);
    advance(&clock, 5 * SECOND).await;
    assert!(limiter.try_acquire(1).await.unwrap());
    assert_eq!(faulty.calls(Verb::Reserve), 2);
    assert!(!limiter.try_acquire(1).await.unwrap());
}

#[tokio::test]
async fn a_store_that_is_away_lets_nobody_through() {
    let (store, _, _) = setup();
    let faulty = Faulty::new(Arc::new(store));
    let locks = Locks::new(faulty.backend());
    let limiter = locks.rate_limiter("x", 1, SECOND).unwrap();
    faulty.once(Verb::Reserve, Effect::AWAY);
    assert_eq!(limiter.acquire(1).await.unwrap_err().kind(), ErrorKind::Unavailable);
    faulty.once(Verb::Reserve, Effect::LoseReply);
    assert_eq!(limiter.acquire(1).await.unwrap_err().kind(), ErrorKind::Unknown);
    // That one took a permit which nobody has.
    assert!(!limiter.try_acquire(1).await.unwrap());
    let waiting = tokio::spawn(async move { limiter.acquire(1).await });
    settle().await;
    let _ = locks.shutdown(SECOND).await;
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
}
