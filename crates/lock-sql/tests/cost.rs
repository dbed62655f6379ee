//! What a lock costs that nobody else wants.

mod two_statements;

use std::sync::Arc;

use lock_sql::SqliteLock;

#[tokio::test]
async fn sqlite() {
    let file = tempfile::tempdir().unwrap();
    let store = SqliteLock::open(file.path().join("locks.db"), "t").await.unwrap();
    two_statements::counted(Arc::new(store)).await;
}
