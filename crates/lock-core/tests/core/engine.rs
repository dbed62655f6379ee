//! The engine over the in-memory backend, by a clock that the test moves: exact, without a wait.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::Verb;
use lock_core::testing::{Faulty, Verb as Call};
use lock_core::{ErrorKind, LeaseState, Locks, Notice};

use crate::common::{LEASE, advance, settle, setup};

#[tokio::test]
async fn a_lease_is_renewed_as_long_as_it_is_held() {
    let (_, clock, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    for _ in 0..100 {
        advance(&clock, LEASE / 3).await;
        assert_eq!(guard.state(), LeaseState::Held);
    }
    guard.unlock().await.unwrap();
    assert!(locks.inspect("a").await.unwrap().holder().is_none());
}

/// However many are held, a store is asked ten times a second at most to prolong leases of 30 s, though an answer that
/// comes wakes the one who asks.
#[tokio::test]
async fn many_leases_are_renewed_in_few_batches() {
    const STEP: Duration = Duration::from_millis(5);
    let (store, clock, _) = setup();
    store.script().delay_replies(STEP);
    let faulty = Faulty::new(Arc::new(store));
    let locks = Locks::new(faulty.backend());
    let mut guards = Vec::new();
    for number in 0..2000 {
        let mutex = locks.mutex(number.to_string());
        let locking = tokio::spawn(async move { mutex.lock().await.unwrap() });
        settle().await;
        advance(&clock, STEP).await;
        guards.push(locking.await.unwrap());
    }
    let before = faulty.calls(Call::Renew);
    for _ in 0..4000 {
        advance(&clock, STEP).await;
    }
    let asked = faulty.calls(Call::Renew) - before;
    assert!(asked <= 10 * 20, "{asked} times in 20 s");
    assert!(guards.iter().all(|guard| guard.state() == LeaseState::Held));
}

#[tokio::test]
async fn a_pause_longer_than_the_lease_is_known_at_the_first_question() {
    let (_, clock, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    clock.advance(LEASE);
    // No task has run since.
    assert!(!guard.is_held());
    assert_eq!(guard.state(), LeaseState::Lost);
    settle().await;
    assert!(!guard.is_held(), "a loss is final, also if a renewal comes through after it");
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn the_holder_is_told_before_the_store_can_grant_to_another() {
    let (store, clock, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    let other = Locks::new(Arc::new(store.client()));
    store.script().stall();
    advance(&clock, LEASE - Duration::from_millis(1001)).await;
    assert_eq!(guard.state(), LeaseState::AtRisk);
    let lost = tokio::spawn({
        let lease = guard.lease();
        async move { lease.lost().await }
    });
    settle().await;
    assert!(!lost.is_finished());
    advance(&clock, Duration::from_millis(2)).await;
    assert!(lost.is_finished());
    assert!(other.mutex("a").try_lock().await.unwrap().is_none(), "the store still keeps it");
    advance(&clock, Duration::from_secs(1)).await;
    assert!(other.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_renewal_that_fails_is_repeated_and_one_that_comes_late_revives_nothing() {
    let (store, clock, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    store.script().fail(Verb::Renew, ErrorKind::Unavailable, 1);
    advance(&clock, LEASE / 3).await;
    assert_eq!(guard.state(), LeaseState::AtRisk);
    advance(&clock, Duration::from_secs(1)).await;
    assert_eq!(guard.state(), LeaseState::Held);

    store.script().stall();
    advance(&clock, LEASE / 3).await;
    advance(&clock, LEASE).await;
    store.script().resume();
    settle().await;
    assert_eq!(guard.state(), LeaseState::Lost);
}

#[tokio::test]
async fn the_lease_counts_from_the_send_of_a_renewal() {
    let (store, clock, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    store.script().delay_replies(Duration::from_secs(9));
    advance(&clock, LEASE / 3).await; // sent at 10 s
    advance(&clock, Duration::from_secs(9)).await; // answered at 19 s
    let remaining = guard.remaining();
    assert_eq!(remaining, Duration::from_secs(10 + 30 - 19 - 1), "less the margin of a second");
}

#[tokio::test]
async fn a_definite_no_is_a_loss_at_once() {
    let (store, clock, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    assert!(store.script().lose("a"));
    advance(&clock, LEASE / 3).await;
    assert_eq!(guard.state(), LeaseState::Lost);
    let error = guard.run(async {}).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn what_the_store_says_unasked_is_heard_at_once() {
    let (store, clock, _) = setup();
    let faulty = Faulty::new(Arc::new(store.clone()));
    let locks = Locks::new(faulty.backend());
    let fixed = locks.mutex("fixed").hold_for(LEASE).lock().await.unwrap();
    let [a, b, c] =
        [locks.mutex("a"), locks.mutex("b"), locks.mutex("c")].map(|mutex| async move { mutex.lock().await });
    let (a, b, c) = (a.await.unwrap(), b.await.unwrap(), c.await.unwrap());
    settle().await;
    faulty.tell(Notice::NotHeld(a.owner().clone()));
    faulty.tell(Notice::AtRisk(b.owner().clone()));
    faulty.tell(Notice::AtRisk(fixed.owner().clone()));
    settle().await;
    let states = [&fixed, &a, &b, &c].map(|guard| guard.state());
    assert_eq!(states, [LeaseState::Held, LeaseState::Lost, LeaseState::AtRisk, LeaseState::Held]);
    advance(&clock, Duration::from_secs(2)).await;
    assert_eq!(b.state(), LeaseState::Held, "renewed soon");

    // A doubt renews everything at once, also what is being renewed just now.
    store.script().delay_replies(Duration::from_secs(3));
    advance(&clock, LEASE / 3 - Duration::from_secs(2)).await;
    store.script().delay_replies(Duration::ZERO);
    store.script().lose("b");
    store.script().lose("c");
    let before = faulty.calls(lock_core::testing::Verb::Renew);
    faulty.tell(Notice::Doubt);
    settle().await;
    advance(&clock, Duration::from_millis(100)).await;
    assert!(faulty.calls(lock_core::testing::Verb::Renew) > before);
    assert!(!b.is_held() || !c.is_held());
    advance(&clock, Duration::from_secs(4)).await;
    assert!(!b.is_held() && !c.is_held(), "what was answered before the doubt is asked again");
    // One that goes on is no storm.
    let before = faulty.calls(lock_core::testing::Verb::Renew);
    for _ in 0..500 {
        faulty.tell(Notice::Doubt);
        settle().await;
    }
    assert!(faulty.calls(lock_core::testing::Verb::Renew) <= before + 1);
}

#[tokio::test]
async fn run_drops_the_section_at_the_loss() {
    let (store, clock, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    assert_eq!(guard.run(async { 7 }).await.unwrap(), 7);
    let section = tokio::spawn(async move { guard.run(std::future::pending::<()>()).await });
    settle().await;
    store.script().lose("a");
    advance(&clock, LEASE / 3).await;
    assert_eq!(section.await.unwrap().unwrap_err().kind(), ErrorKind::Lost);
}

#[tokio::test]
async fn a_fixed_hold_is_never_renewed_and_a_cap_ends_renewal() {
    let (_, clock, locks) = setup();
    let fixed = locks.mutex("fixed").hold_for(Duration::from_secs(10)).lock().await.unwrap();
    let capped = locks.mutex("capped").max_hold(Duration::from_secs(60)).lock().await.unwrap();
    for _ in 0..5 {
        assert!(fixed.is_held());
        advance(&clock, Duration::from_secs(2)).await;
    }
    assert!(!fixed.is_held());
    for _ in 0..10 {
        assert!(capped.is_held());
        advance(&clock, Duration::from_secs(5)).await;
    }
    assert!(!capped.is_held());
    for (guard, why) in [(fixed, "its lease ran out"), (capped, "held for as long as it may be")] {
        let error = guard.check().unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}

#[tokio::test]
async fn each_renewal_is_news() {
    let (store, clock, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    let (renewed, before) = (guard.changed(), guard.remaining());
    advance(&clock, LEASE / 3).await;
    renewed.await;
    assert!(guard.remaining() > before - LEASE / 3);
    // Of a loss, too, also if it is asked for what it was only afterwards.
    let lost = guard.changed();
    store.script().lose("a");
    advance(&clock, LEASE / 3).await;
    lost.await;
    assert!(!guard.is_held());
}

#[tokio::test]
async fn the_end_of_a_wait_names_the_holder() {
    let (store, clock, locks) = setup();
    let _held = locks.mutex("a").lock().await.unwrap();
    advance(&clock, Duration::from_secs(2)).await;
    let waiter = tokio::spawn({
        let mutex = locks.mutex("a").wait(Duration::from_secs(3));
        async move { mutex.lock().await }
    });
    // Another one asks the store, and this one waits in its process.
    let other = Locks::new(Arc::new(store.client()));
    let elsewhere = tokio::spawn(async move { other.mutex("a").wait(Duration::from_secs(3)).lock().await });
    settle().await;
    assert_eq!(locks.inspect("a").await.unwrap().waiters.len(), 1);
    advance(&clock, Duration::from_secs(3)).await;
    for waiter in [waiter, elsewhere] {
        let error = waiter.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout);
        assert_eq!(error.holder().unwrap().owner.label(), Some("test"));
        assert!(error.to_string().contains("test@") && error.to_string().contains("5s"), "{error}");
    }
    assert!(locks.inspect("a").await.unwrap().waiters.is_empty());
}

#[tokio::test]
async fn a_wait_of_zero_tries_once() {
    let (_, _, locks) = setup();
    let mutex = locks.mutex("a").wait(Duration::ZERO);
    let guard = mutex.lock().await.unwrap();
    let error = mutex.lock().await.unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Timeout, Some("lock")));
    assert_eq!(error.holder().unwrap().owner, *guard.owner());
    assert!(mutex.try_lock().await.unwrap().is_none());
}

#[tokio::test]
async fn what_is_unknown_is_undone_in_the_background_until_the_store_answers() {
    let (store, clock, locks) = setup();
    store.script().fail(Verb::Lock, ErrorKind::Unknown, 1);
    store.script().fail(Verb::Unlock, ErrorKind::Unavailable, 3);
    let told = locks.mutex("a").outage(Duration::ZERO);
    assert_eq!(told.lock().await.unwrap_err().kind(), ErrorKind::Unknown);
    settle().await;
    for _ in 0..3 {
        advance(&clock, Duration::from_secs(1)).await;
    }
    let report = locks.shutdown(Duration::ZERO).await;
    assert!(report.unreleased.is_empty());
}

#[tokio::test]
async fn a_shutdown_loses_releases_and_closes() {
    let (store, _, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    let waiter = tokio::spawn({
        let mutex = locks.mutex("a");
        async move { mutex.lock().await }
    });
    settle().await;
    let report = locks.shutdown(Duration::from_secs(1)).await;
    assert!(report.unreleased.is_empty());
    assert!(!guard.is_held());
    assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(locks.mutex("a").lock().await.unwrap_err().kind(), ErrorKind::Closed);
    drop(guard);
    let other = Locks::new(Arc::new(store.client()));
    assert!(other.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_shutdown_reports_what_it_could_not_release() {
    let (store, clock, locks) = setup();
    let _guard = locks.mutex("a").lock().await.unwrap();
    store.script().stall();
    let shutdown = tokio::spawn({
        let locks = locks.clone();
        async move { locks.shutdown(Duration::from_secs(2)).await }
    });
    settle().await;
    advance(&clock, Duration::from_secs(2)).await;
    let unreleased = shutdown.await.unwrap().unreleased;
    assert_eq!(unreleased.len(), 1);
    assert_eq!(unreleased[0].as_str(), "a");
}

#[test]
fn a_guard_dropped_without_a_runtime_is_released_when_one_runs() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (store, _, locks) = setup();
    let guard = runtime.block_on(locks.mutex("a").lock()).unwrap();
    std::thread::spawn(move || drop(guard)).join().unwrap();
    runtime.block_on(settle());
    let other = Locks::new(Arc::new(store.client()));
    assert!(runtime.block_on(other.mutex("a").try_lock()).unwrap().is_some());
}

#[test]
fn the_background_tasks_start_again_on_another_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let (_, clock, locks) = setup();
    let first = runtime();
    let kept = first.block_on(locks.mutex("kept").lock()).unwrap();
    let dropped = first.block_on(locks.mutex("dropped").lock()).unwrap();
    drop(first);
    drop(dropped);
    let second = runtime();
    second.block_on(async {
        let _third = locks.mutex("third").lock().await.unwrap();
        settle().await;
        assert!(locks.inspect("dropped").await.unwrap().holder().is_none());
        for _ in 0..10 {
            advance(&clock, LEASE / 3).await;
        }
        assert!(kept.is_held());
    });
}

#[tokio::test]
async fn dropping_everything_still_releases() {
    let (store, _, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    drop(locks);
    drop(guard);
    settle().await;
    assert!(Locks::new(Arc::new(store)).mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn bad_options_are_named() {
    let (_, _, locks) = setup();
    let year = Duration::from_secs(400 * 86_400);
    for (mutex, named) in [
        (locks.mutex("a").lease(Duration::ZERO), "lease"),
        (locks.mutex("a").lease(Duration::MAX), "lease"),
        (locks.mutex("a").wait(year), "wait"),
        (locks.mutex("a").hold_for(Duration::ZERO), "hold_for"),
        (locks.mutex("a").max_hold(year), "max_hold"),
        (locks.mutex(""), "name"),
    ] {
        let error = mutex.try_lock().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(named), "{error}");
    }
}

/// What is asked for with it at once is not bounded by a short one.
#[tokio::test]
async fn a_short_lease_puts_no_long_one_at_risk() {
    const SHORT: Duration = Duration::from_millis(300);
    let (store, clock, locks) = setup();
    let long = locks.mutex("long").lock().await.unwrap();
    let short = locks.mutex("short").lease(SHORT).lock().await.unwrap();
    settle().await;
    store.script().delay_replies(SHORT / 2);
    for _ in 0..200 {
        advance(&clock, SHORT / 3).await;
        assert_eq!(long.state(), LeaseState::Held);
    }
    drop(short);
}

/// It was asked again, and the first answer came after all.
#[tokio::test]
async fn an_answer_after_a_third_of_the_lease_counts() {
    let (store, clock, locks) = setup();
    let guard = locks.mutex("a").lock().await.unwrap();
    settle().await;
    store.script().delay_replies(LEASE / 2);
    advance(&clock, LEASE / 3).await;
    advance(&clock, LEASE / 3).await;
    assert_eq!(guard.state(), LeaseState::AtRisk);
    advance(&clock, LEASE / 6).await;
    // Asked at a third, answered at five sixths.
    assert_eq!(guard.remaining(), LEASE / 2 - Duration::from_secs(1));
}

#[tokio::test]
async fn a_lease_that_is_shorter_than_the_way_to_the_store_is_an_error() {
    const LEASE: Duration = Duration::from_millis(10);
    let (store, clock, locks) = setup();
    store.script().delay_replies(LEASE * 2);
    for waits in [true, false] {
        let mutex = locks.mutex("a").lease(LEASE);
        let asking =
            tokio::spawn(
                async move { if waits { mutex.lock().await.map(drop) } else { mutex.try_lock().await.map(drop) } },
            );
        for _ in 0..50 {
            advance(&clock, LEASE).await;
        }
        assert!(asking.is_finished());
        let error = asking.await.unwrap().unwrap_err();
        assert!(error.kind() == ErrorKind::Unavailable && error.to_string().contains("10ms"), "{error}");
    }
}
