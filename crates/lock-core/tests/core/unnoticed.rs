//! What our clock does not count, and guards that nobody looks at.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::testing::{Faulty, Verb as Call};
use lock_core::{Locks, Owner};

use crate::common::{LEASE, advance, settle, setup, waiter};

/// A snapshot that is restored, a hypervisor's pause: the wall clock alone may show it.
#[tokio::test]
async fn a_step_of_the_wall_clock_has_everything_renewed() {
    let (store, clock, _) = setup();
    let faulty = Faulty::new(Arc::new(store.clone()));
    let locks = Locks::new(faulty.backend());
    let (kept, lost) = (locks.mutex("a").lock().await.unwrap(), locks.mutex("b").lock().await.unwrap());
    advance(&clock, Duration::from_secs(2)).await;
    assert!(store.script().lose("b"));
    let before = faulty.calls(Call::Renew);
    clock.step_wall(Duration::from_millis(900));
    advance(&clock, Duration::from_secs(1)).await;
    assert_eq!(faulty.calls(Call::Renew), before, "clocks are set a little all the time");
    clock.step_wall(Duration::from_secs(60));
    advance(&clock, Duration::from_secs(1)).await;
    assert!(faulty.calls(Call::Renew) > before);
    assert!(kept.is_held() && !lost.is_held());
}

/// The other guards of an owner were sent to futures that nobody polls.
#[tokio::test]
async fn an_owners_guard_that_nobody_takes_does_not_keep_the_lock() {
    let (store, clock, locks) = setup();
    let other = Locks::new(Arc::new(store.client()));
    let owner = Owner::new();
    let held = other.mutex("a").lock().await.unwrap();
    let first = waiter(locks.mutex("a").owner(&owner)).await;
    let mutex = locks.mutex("a").owner(&owner);
    // In line, and polled no more.
    let mut unpolled = Box::pin(mutex.lock());
    assert!(unpolled.as_mut().now_or_never().is_none());
    held.unlock().await.unwrap();
    settle().await;
    let first = first.await.unwrap().unwrap();
    advance(&clock, LEASE / 2).await;
    assert!(first.is_held());
    first.unlock().await.unwrap();
    for _ in 0..10 {
        advance(&clock, LEASE / 2).await;
    }
    assert!(other.mutex("a").try_lock().await.unwrap().is_some(), "nobody has it in their hands");
    drop(unpolled);
}
