//! The queue in the process, by a clock that the test moves: who gets the lock, and whether the store is asked.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::Verb;
use lock_core::{ErrorKind, LeaseState, LockValue, Locks, Owner};

use crate::common::{LEASE, granted, settle, setup, waiter};

#[tokio::test]
async fn a_released_lock_passes_on_in_order_without_a_request() {
    let (store, _, locks) = setup();
    let mut held = locks.mutex("a").lock().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(waiter(locks.mutex("a")).await);
    }
    store.script().stall();
    for waiter in waiters {
        let (before, view) = (held.fencing_token(), held.lease());
        held.unlock().await.unwrap();
        assert!(!view.is_held(), "a turn that is over");
        held = granted(waiter).await;
        assert!(held.fencing_token() > before);
        assert_eq!(held.fencing_token().store(), before.store());
    }
    // The last one has nobody to pass it to.
    store.script().resume();
    held.unlock().await.unwrap();
    assert!(locks.inspect("a").await.unwrap().holder().is_none());
}

#[tokio::test]
async fn hand_overs_are_bounded_in_number_and_in_time() {
    let (store, clock, locks) = setup();
    let other = Locks::new(Arc::new(store.client()));
    for (mutex, hand_overs, pause) in [
        (locks.mutex("a").hand_overs(2), 2, Duration::ZERO),
        (locks.mutex("b").hand_overs(0), 0, Duration::ZERO),
        (locks.mutex("c").hand_over_for(Duration::from_millis(30)), 3, Duration::from_millis(10)),
        (locks.mutex("d").fair(true), 0, Duration::ZERO),
    ] {
        let name = mutex.name().unwrap().clone();
        let mut held = mutex.lock().await.unwrap();
        let elsewhere = waiter(other.mutex(name.as_str())).await;
        let mut waiters = Vec::new();
        for _ in 0..5 {
            waiters.push(waiter(mutex.clone()).await);
        }
        let mut waiters = waiters.into_iter();
        for _ in 0..hand_overs {
            held.unlock().await.unwrap();
            held = granted(waiters.next().unwrap()).await;
            clock.advance(pause);
        }
        held.unlock().await.unwrap();
        // The other process's turn; and the rest have theirs after it.
        granted(elsewhere).await.unlock().await.unwrap();
        for waiter in waiters {
            granted(waiter).await.unlock().await.unwrap();
        }
    }
}

#[tokio::test]
async fn what_is_at_risk_or_lost_is_not_handed_over() {
    let (store, clock, locks) = setup();
    let held = locks.mutex("a").hand_over_for(LEASE * 10).lock().await.unwrap();
    let next = waiter(locks.mutex("a").hand_over_for(LEASE * 10)).await;
    store.script().fail(Verb::Renew, ErrorKind::Unavailable, 1);
    clock.advance(LEASE / 3);
    settle().await;
    assert_eq!(held.state(), LeaseState::AtRisk);
    let before = held.fencing_token();
    held.unlock().await.unwrap();
    let held = granted(next).await;
    assert!(held.fencing_token().store() > before.store(), "a grant of its own");

    let next = waiter(locks.mutex("a").hand_over_for(LEASE * 10)).await;
    assert!(store.script().lose("a"));
    clock.advance(LEASE / 3);
    settle().await;
    // Its guard is still there, and the next has a grant of its own.
    assert!(!held.is_held());
    let after = granted(next).await;
    assert!(after.is_held());
    assert_eq!(held.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(after.is_held());
}

#[tokio::test]
async fn whoever_is_cancelled_is_passed_over_wherever_it_stands() {
    let (_, _, locks) = setup();
    let held = locks.mutex("a").lock().await.unwrap();
    let [first, second, third] =
        [waiter(locks.mutex("a")).await, waiter(locks.mutex("a")).await, waiter(locks.mutex("a")).await];
    second.abort();
    settle().await;
    held.unlock().await.unwrap();
    // Told, and cancelled before it could take it.
    first.abort();
    let held = granted(third).await;
    let fourth = waiter(locks.mutex("a")).await;
    drop(held);
    granted(fourth).await.unlock().await.unwrap();
}

#[tokio::test]
async fn who_asks_the_store_leaves_its_place_there_to_the_next() {
    let (store, clock, locks) = setup();
    let other = Locks::new(Arc::new(store.client()));
    let held = other.mutex("a").lock().await.unwrap();
    let asking = waiter(locks.mutex("a")).await;
    let impatient = waiter(locks.mutex("a").wait(Duration::from_secs(1))).await;
    let patient = waiter(locks.mutex("a")).await;
    let before = locks.inspect("a").await.unwrap().waiters;
    assert_eq!(before.len(), 1, "a process is one waiter");
    asking.abort();
    settle().await;
    assert_eq!(locks.inspect("a").await.unwrap().waiters, before);
    clock.advance(Duration::from_secs(1));
    settle().await;
    let error = impatient.await.unwrap().unwrap_err();
    assert_eq!(error.holder().unwrap().owner, *held.owner());
    assert_eq!(locks.inspect("a").await.unwrap().waiters, before);
    held.unlock().await.unwrap();
    assert_eq!(*granted(patient).await.owner(), before[0].owner);
    // And with nobody to leave it to, the place is given back.
    let held = other.mutex("a").lock().await.unwrap();
    let asking = waiter(locks.mutex("a")).await;
    asking.abort();
    settle().await;
    assert!(locks.inspect("a").await.unwrap().waiters.is_empty());
    held.unlock().await.unwrap();
}

#[tokio::test]
async fn a_store_that_fails_fails_everybody_at_once() {
    let (store, _, locks) = setup();
    store.script().stall();
    let mut waiters = Vec::new();
    for _ in 0..5 {
        waiters.push(waiter(locks.mutex("a").outage(Duration::ZERO)).await);
    }
    store.script().fail(Verb::Lock, ErrorKind::Unavailable, 1);
    store.script().resume();
    settle().await;
    for waiter in waiters {
        assert!(waiter.is_finished());
        assert_eq!(waiter.await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_try_sees_the_processs_own_lock_without_asking() {
    let (store, _, locks) = setup();
    let held = locks.mutex("a").lock().await.unwrap();
    store.script().stall();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    let error = locks.mutex("a").wait(Duration::ZERO).lock().await.unwrap_err();
    assert_eq!(error.holder().unwrap().owner, *held.owner());
    store.script().resume();
    held.unlock().await.unwrap();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn an_owner_gets_its_lock_again_until_its_last_guard_goes() {
    let (store, clock, locks) = setup();
    let (owner, stranger) = (Owner::new(), Owner::new());
    let mutex = locks.mutex("a").owner(&owner);
    let outer = mutex.lock().await.unwrap();
    store.script().stall();
    let inner = mutex.lock().await.unwrap();
    let tried = mutex.try_lock().await.unwrap().unwrap();
    assert_eq!([inner.fencing_token(), tried.fencing_token()], [outer.fencing_token(); 2]);
    assert!(locks.mutex("a").owner(&stranger).try_lock().await.unwrap().is_none());
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    // Two of the same owner who wait for another's turn get it together.
    let together = locks.mutex("a").owner(&stranger);
    let [one, other] = [waiter(together.clone()).await, waiter(together).await];
    drop(outer);
    drop(tried);
    settle().await;
    assert!(inner.is_held() && !one.is_finished());
    inner.unlock().await.unwrap();
    let [one, other] = [granted(one).await, granted(other).await];
    assert_eq!(one.fencing_token(), other.fencing_token());
    store.script().resume();
    one.unlock().await.unwrap();
    assert!(locks.inspect("a").await.unwrap().holder().is_some());
    other.unlock().await.unwrap();
    assert!(locks.inspect("a").await.unwrap().holder().is_none());

    // What was lost is not had again.
    let outer = mutex.lock().await.unwrap();
    clock.advance(LEASE);
    let again = mutex.lock().await.unwrap();
    assert!(again.fencing_token().store() > outer.fencing_token().store());
    assert_eq!(outer.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(again.is_held());
}

#[tokio::test]
async fn a_capped_hold_counts_each_turn_from_its_start() {
    let (_, clock, locks) = setup();
    let mutex = locks.mutex("a").max_hold(Duration::from_secs(20)).hand_over_for(LEASE);
    let held = mutex.lock().await.unwrap();
    let next = waiter(mutex).await;
    clock.advance(Duration::from_secs(15));
    settle().await;
    held.unlock().await.unwrap();
    let held = granted(next).await;
    for _ in 0..3 {
        clock.advance(Duration::from_secs(6));
        settle().await;
        assert!(held.is_held());
    }
    clock.advance(Duration::from_secs(2));
    assert!(!held.is_held());
}

#[tokio::test]
async fn a_section_is_run_under_the_lock_and_dropped_at_the_loss() {
    let (store, clock, locks) = setup();
    let lease = locks.run("a", async |lease| lease).await.unwrap();
    assert!(!lease.is_held() && lease.fencing_token().get() > 0);
    let section = tokio::spawn({
        let locks = locks.clone();
        async move { locks.mutex("a").run(|_| std::future::pending::<()>()).await }
    });
    settle().await;
    assert!(locks.inspect("a").await.unwrap().holder().is_some());
    store.script().lose("a");
    clock.advance(LEASE / 3);
    let error = section.await.unwrap().unwrap_err();
    assert_eq!((error.kind(), error.op()), (ErrorKind::Lost, Some("run")));
    assert!(error.to_string().contains("the store says"), "{error}");
    // Lost before its end, and not noticed by then: the release says so.
    let error = locks.run("a", async |_| store.script().lose("a")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

/// Both tasks of an owner want it fair: one of them stands in the store's line.
#[tokio::test]
async fn an_owner_stands_in_the_stores_line_once() {
    let (store, _, locks) = setup();
    let other = Locks::new(Arc::new(store.client()));
    let held = other.mutex("a").lock().await.unwrap();
    let owner = Owner::new();
    let first = waiter(locks.mutex("a").fair(true).owner(&owner)).await;
    let second = waiter(locks.mutex("a").fair(true).owner(&owner)).await;
    assert_eq!(locks.inspect("a").await.unwrap().waiters.len(), 1);
    // Whoever stands there gives up: the other does in its place.
    first.abort();
    settle().await;
    let third = waiter(locks.mutex("a").fair(true).owner(&owner)).await;
    held.unlock().await.unwrap();
    let (second, third) = (granted(second).await, granted(third).await);
    assert_eq!(second.fencing_token(), third.fencing_token());
    second.unlock().await.unwrap();
    assert!(third.is_held() && other.mutex("a").try_lock().await.unwrap().is_none());
    third.unlock().await.unwrap();
    assert!(other.mutex("a").try_lock().await.unwrap().is_some());
}

#[tokio::test]
async fn a_hold_with_a_value_shares_no_grant() {
    let (_, _, locks) = setup();
    let shown = async || locks.inspect("x").await.unwrap().into_holder().and_then(|holder| holder.value);
    let plain = locks.mutex("x");
    let held = plain.lock().await.unwrap();
    let first = waiter(locks.mutex("x").value("a")).await;
    let (second, third) = (waiter(locks.mutex("x").value("b")).await, waiter(plain).await);
    assert_eq!(shown().await, None);
    held.unlock().await.unwrap();
    // The plain one has what the plain one leaves; the others stand in the store's line.
    for (waiter, value) in [(third, None), (first, Some("a")), (second, Some("b"))] {
        let guard = granted(waiter).await;
        assert_eq!(shown().await.as_ref().map(LockValue::as_str), value);
        guard.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn what_cannot_be_shown_is_an_error() {
    let (_, _, locks) = setup();
    for (mutex, wrong) in [
        (locks.mutex("x").value(""), "empty"),
        (locks.mutex("x").value("a\0b"), "NUL"),
        (locks.mutex("x").value("a").owner(&Owner::new()), "`owner`"),
    ] {
        let error = mutex.lock().await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(wrong), "{error}");
        assert!(error.name().is_some() && mutex.try_lock().await.is_err());
    }
}
