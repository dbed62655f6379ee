//! The same application on every store without a server.

use crate::application::works;

#[tokio::test]
async fn memory() {
    works("memory:stores").await;
}

#[tokio::test]
async fn sqlite() {
    let folder = tempfile::tempdir().unwrap();
    works(&format!("sqlite:{}", folder.path().join("locks.db").display())).await;
}
