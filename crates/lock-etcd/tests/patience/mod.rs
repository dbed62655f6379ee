//! What the contract lets the store say while a member dies or an election goes on: that it is away, and nothing else.

#![allow(dead_code, reason = "each test program uses its own part")]

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, DistributedLock, Error, ErrorKind, Grant, LockGuard, Mutex};
use lock_etcd::EtcdLock;

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

/// The same for one owner, who may ask again after an answer was lost.
pub(crate) async fn claim(lock: Arc<EtcdLock>, claim: Claim) -> Grant {
    loop {
        match lock.lock(&claim).await {
            Ok(grant) => return grant,
            Err(error) => pause_after(error).await,
        }
    }
}
