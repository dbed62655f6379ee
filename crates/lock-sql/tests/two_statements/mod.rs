//! What a lock costs that nobody else wants.

use std::sync::Arc;

use lock_core::{DistributedLock, Locks};
use test_servers::Statements;

/// A lock and its release are two statements; several locks at once are taken by one, where the store can do that.
pub(crate) async fn counted(store: Arc<dyn DistributedLock>) {
    const CYCLES: usize = 20;
    let name = store.capabilities().backend;
    let takes_all = store.capabilities().takes_all;
    let locks = Locks::new(store);
    let mutex = locks.mutex("x");
    // The first makes the lock's row.
    mutex.lock().await.unwrap().unlock().await.unwrap();
    let statements = Statements::listen();
    let mut costs = Vec::new();
    for _ in 0..CYCLES {
        let before = statements.sent();
        mutex.lock().await.unwrap().unlock().await.unwrap();
        costs.push(statements.sent() - before);
    }
    // A session is looked at, too, when its server takes long to answer.
    costs.sort_unstable();
    assert_eq!((costs[0], costs[CYCLES / 2]), (2, 2), "{name}: {costs:?}");
    let all = locks.all(["p", "q", "r"]);
    all.lock().await.unwrap().unlock().await.unwrap();
    for _ in 0..if takes_all { CYCLES } else { 0 } {
        let before = statements.sent();
        let guard = all.lock().await.unwrap();
        assert_eq!(statements.sent() - before, 1, "{name}");
        guard.unlock().await.unwrap();
    }
}
