//! A store by a clock that the test moves, and tasks that want its locks.

use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::{Error, LockGuard, Locks, ManualClock, Mutex};
use tokio::task::JoinHandle;

pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// A store, its clock and the locks of one client.
pub(crate) fn setup() -> (MemoryLock, ManualClock, Locks) {
    let clock = ManualClock::new();
    let store = MemoryLock::with_clock(Arc::new(clock.clone()));
    let locks = Locks::builder(Arc::new(store.clone())).label("test").build().unwrap();
    (store, clock, locks)
}

/// Lets every other task of the runtime do what it can.
pub(crate) async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

pub(crate) async fn advance(clock: &ManualClock, duration: Duration) {
    clock.advance(duration);
    settle().await;
}

/// A task that waits for the lock, in its place in the queue when this returns.
pub(crate) async fn waiter(mutex: Mutex) -> JoinHandle<Result<LockGuard, Error>> {
    let waiter = tokio::spawn(async move { mutex.lock().await });
    settle().await;
    waiter
}

pub(crate) async fn granted(waiter: JoinHandle<Result<LockGuard, Error>>) -> LockGuard {
    settle().await;
    assert!(waiter.is_finished());
    waiter.await.unwrap().unwrap()
}
