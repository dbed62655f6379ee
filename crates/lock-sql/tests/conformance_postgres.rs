//! The suite on a real PostgreSQL server, behind a proxy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_sql::{PostgresFactory, PostgresLock, ServerOptions};
use sqlx::{Connection, PgConnection};
use test_servers::{PostgresServer, Proxy};

conformance_tests::suite!(PostgresHarness);

/// A host that is busy with other tests may take its time.
const PATIENCE: Duration = Duration::from_secs(6);

struct PostgresHarness;

#[async_trait]
impl Harness for PostgresHarness {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(PostgresFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        let server = PostgresServer::start();
        let proxy = Proxy::new(server.address());
        Box::new(PostgresStore { proxy, server: Mutex::new(server) })
    }
}

struct PostgresStore {
    proxy: Proxy,
    server: Mutex<PostgresServer>,
}

impl PostgresStore {
    /// Through the proxy.
    fn server_url(&self) -> String {
        PostgresServer::url_at(self.proxy.address())
    }

    fn url_past_the_proxy(&self) -> String {
        self.server.lock().unwrap().url()
    }

    /// Past the proxy, by a connection that knows nothing of locks.
    async fn raw(&self) -> PgConnection {
        PgConnection::connect(&self.url_past_the_proxy()).await.unwrap()
    }

    async fn change(&self, name: &LockName, statement: &'static str, number: i64) {
        let query = sqlx::query(statement).bind(format!("oarlock/{name}")).bind(number);
        let changed = query.execute(&mut self.raw().await).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{statement}");
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        let options = ServerOptions::new(&self.server_url()).unwrap().timeout(PATIENCE);
        Arc::new(PostgresLock::with(options).await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("{}?timeout={}s", self.server_url(), PATIENCE.as_secs()))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("postgres://127.0.0.1:1".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let query = sqlx::query_scalar("SELECT owner FROM oarlock_lock WHERE name = $1");
        let owner = query.bind(format!("oarlock/{name}")).fetch_optional(&mut self.raw().await).await.unwrap();
        owner.flatten()
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => self.proxy.hold_c2s(),
            Fault::HoldRequestsOfPresent => self.proxy.hold_c2s_of_present(),
            Fault::HoldAnswers => self.proxy.hold_s2c(),
            Fault::ReleaseRequests | Fault::ReleaseAnswers => self.proxy.forward(),
            Fault::Restart => tokio::task::block_in_place(|| self.server.lock().unwrap().restart()),
            Fault::DeleteHold(name) => {
                self.change(&name, "DELETE FROM oarlock_lock WHERE name = $1 AND $2 = 0", 0).await
            }
            Fault::RaiseToken(name, above) => {
                let above = above.try_into().unwrap();
                self.change(&name, "UPDATE oarlock_lock SET token = $2 WHERE name = $1", above).await;
            }
            // A token that no grant can be above.
            Fault::PutForeign(name) => {
                self.change(&name, "INSERT INTO oarlock_lock VALUES ($1, NULL, $2, -1, -1, -1)", i64::MAX).await;
            }
            Fault::ReplaceStore => {
                let empty = "TRUNCATE oarlock_lock, oarlock_waiter, oarlock_client, oarlock_gone";
                sqlx::query(empty).execute(&mut self.raw().await).await.unwrap();
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
