//! What the contract lets the store say while a member dies or an election goes on: that it is away, and nothing else.

use std::time::Duration;

use lock_core::{Error, ErrorKind, LockGuard, Mutex};

/// Goes on if the store is away, and fails with any other error.
pub(crate) async fn pause_after(error: Error) {
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error:?}");
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// Waits for the lock, and anew after the store was away.
pub(crate) async fn lock(mutex: Mutex) -> LockGuard {
    loop {
        match mutex.lock().await {
            Ok(guard) => return guard,
            Err(error) => pause_after(error).await,
        }
    }
}
