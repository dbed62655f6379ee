//! What a lock costs that nobody else wants.

use std::sync::Arc;

use lock_core::{DistributedLock, Locks};
use test_servers::Statements;

/// A lock and its release are two statements.
pub(crate) async fn counted(store: Arc<dyn DistributedLock>) {
    const CYCLES: u64 = 20;
    let name = store.capabilities().backend;
    let mutex = Locks::new(store).mutex("x");
    // The first makes the lock's row.
    mutex.lock().await.unwrap().unlock().await.unwrap();
    let statements = Statements::listen();
    for _ in 0..CYCLES {
        mutex.lock().await.unwrap().unlock().await.unwrap();
    }
    assert_eq!(statements.sent(), 2 * CYCLES, "{name}");
}
