//! What a lock costs that nobody else wants.

use std::sync::Arc;

use lock_core::{DistributedLock, Locks};
use lock_sql::{MySqlLock, PostgresLock, SqliteLock};
use test_servers::{MariaDbServer, PostgresServer, Statements};

#[tokio::test]
async fn a_lock_and_its_release_are_two_statements() {
    const CYCLES: u64 = 20;
    let file = tempfile::tempdir().unwrap();
    let (postgres, mariadb) = (PostgresServer::start(), MariaDbServer::start());
    let stores: [Arc<dyn DistributedLock>; 3] = [
        Arc::new(SqliteLock::open(file.path().join("locks.db"), "t").await.unwrap()),
        Arc::new(PostgresLock::connect(&postgres.url(), "t").await.unwrap()),
        Arc::new(MySqlLock::connect(&mariadb.url(), "t").await.unwrap()),
    ];
    let statements = Statements::listen();
    for store in stores {
        let name = store.capabilities().backend;
        let mutex = Locks::new(store).mutex("x");
        // The first makes the lock's row.
        mutex.lock().await.unwrap().unlock().await.unwrap();
        let before = statements.sent();
        for _ in 0..CYCLES {
            mutex.lock().await.unwrap().unlock().await.unwrap();
        }
        assert_eq!(statements.sent() - before, 2 * CYCLES, "{name}");
    }
}
