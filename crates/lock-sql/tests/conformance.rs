//! The suite on SQLite files.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{Claim, DistributedLock, LockName, OwnerId, Registry};
use lock_sql::{SqliteFactory, SqliteLock};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{Connection, Executor};
use tempfile::TempDir;
use test_servers::Disk;
use tokio::sync::Mutex;

conformance_tests::suite!(SqliteHarness);

pub(crate) struct SqliteHarness;

#[async_trait]
impl Harness for SqliteHarness {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn declared(&self) -> &'static [(&'static str, &'static str)] {
        &[
            (
                "request_held_back",
                "while another process writes it asks again and again, and counts from the try that was done",
            ),
            ("answer_held_back", "nothing carries its answers"),
            ("any_connection_swallowed", "it has no connections"),
            ("late_acquire_lands_after_reconnect", "it has no connections of which some could be held"),
            ("restarted_while_held", "it has no server"),
            ("kept_hold_survives_a_restart", "it has no server"),
            ("outage_while_waiting", "it has no server"),
            ("restarted_with_waiters", "it has no server"),
            ("drop_every_verb_answer_held", "nothing carries its answers"),
        ]
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(SqliteFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        // In memory where there is room: a client whose turn it is to wait for the disk is passed over meanwhile.
        Box::new(SqliteStore { folder: test_servers::folder(Disk::Memory), in_the_way: Mutex::default() })
    }
}

struct SqliteStore {
    folder: TempDir,
    /// A writer in the middle of a transaction.
    in_the_way: Mutex<Option<SqliteConnection>>,
}

impl SqliteStore {
    fn path(&self) -> PathBuf {
        self.folder.path().join("locks.db")
    }

    /// A connection that knows nothing of locks.
    async fn raw(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.path());
        SqliteConnection::connect_with(&options).await.unwrap()
    }

    /// The first grant makes the file and its tables.
    async fn make(&self) {
        let lock = SqliteLock::open(self.path(), "other").await.unwrap();
        let claim = Claim::new(LockName::new("x").unwrap(), OwnerId::from_store("x"), Duration::from_secs(1));
        lock.try_lock(&claim).await.unwrap().unwrap();
        lock.unlock(&claim).await.unwrap();
    }

    async fn change(&self, name: &LockName, statement: &'static str, number: i64) {
        let query = sqlx::query(statement).bind(format!("oarlock/{name}")).bind(number);
        let changed = query.execute(&mut self.raw().await).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{statement}");
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(SqliteLock::open(self.path(), "oarlock").await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("sqlite:{}", self.path().display()))
    }

    fn url_of_nothing(&self) -> Option<String> {
        Some(format!("sqlite:{}/missing/locks.db", self.folder.path().display()))
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let query = sqlx::query_scalar("SELECT owner FROM oarlock_lock WHERE name = ?1");
        let owner = query.bind(format!("oarlock/{name}")).fetch_optional(&mut self.raw().await).await.unwrap();
        owner.flatten()
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => {
                self.make().await;
                let mut writer = self.raw().await;
                writer.execute("BEGIN IMMEDIATE").await.unwrap();
                *self.in_the_way.lock().await = Some(writer);
            }
            Fault::ReleaseRequests => {
                let writer = self.in_the_way.lock().await.take().unwrap();
                writer.close().await.unwrap();
            }
            Fault::DeleteHold(name) => {
                self.change(&name, "DELETE FROM oarlock_lock WHERE name = ?1 AND ?2 = 0", 0).await
            }
            Fault::RaiseToken(name, above) => {
                let above = above.try_into().unwrap();
                // A quorum may never have come to this file.
                self.make().await;
                let raise = "INSERT INTO oarlock_lock VALUES (?1, NULL, -1, -1, -1, -1, 0, ?2) \
                             ON CONFLICT DO UPDATE SET token = excluded.token";
                self.change(&name, raise, above).await;
            }
            // A token that no grant can be above.
            Fault::PutForeign(name) => {
                self.change(&name, "INSERT INTO oarlock_lock VALUES (?1, NULL, -1, -1, -1, -1, 0, ?2)", i64::MAX).await;
            }
            Fault::ReplaceStore => {
                let old = self.folder.path().join("old");
                std::fs::create_dir(&old).unwrap();
                for file in ["locks.db", "locks.db-wal", "locks.db-shm"] {
                    let path = self.folder.path().join(file);
                    if path.exists() {
                        std::fs::rename(path, old.join(file)).unwrap();
                    }
                }
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
