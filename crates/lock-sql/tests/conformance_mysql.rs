//! The suite on a real MariaDB server, behind a proxy.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_sql::{MySqlFactory, MySqlLock, ServerOptions};
use sqlx::{Connection, MySqlConnection};
use test_servers::{MariaDbServer, Proxy};

conformance_tests::suite!(MySqlHarness);

/// A host that is busy with other tests may take its time.
const PATIENCE: Duration = Duration::from_secs(6);

struct MySqlHarness;

#[async_trait]
impl Harness for MySqlHarness {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(MySqlFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        let server = MariaDbServer::start();
        let proxy = Proxy::new(server.address());
        Box::new(MySqlStore { proxy, server: Mutex::new(server) })
    }
}

struct MySqlStore {
    proxy: Proxy,
    server: Mutex<MariaDbServer>,
}

impl MySqlStore {
    /// Through the proxy.
    fn server_url(&self) -> String {
        format!("mysql://root@{}/mysql", self.proxy.address())
    }

    fn url_past_the_proxy(&self) -> String {
        self.server.lock().unwrap().url()
    }

    /// Past the proxy, by a connection that knows nothing of locks.
    async fn raw(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.url_past_the_proxy()).await.unwrap()
    }

    async fn change(&self, name: &LockName, statement: &'static str, number: i64) {
        let query = sqlx::query(statement).bind(format!("oarlock/{name}")).bind(number);
        let changed = query.execute(&mut self.raw().await).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{statement}");
    }
}

#[async_trait]
impl Store for MySqlStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        let options = ServerOptions::new(&self.server_url()).unwrap().timeout(PATIENCE);
        Arc::new(MySqlLock::with(options).await.unwrap())
    }

    fn url(&self) -> Option<String> {
        Some(format!("{}?timeout={}s", self.server_url(), PATIENCE.as_secs()))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("mysql://127.0.0.1:1/x".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let query = sqlx::query_scalar("SELECT owner FROM oarlock_lock WHERE name = ?");
        let owner: Option<Option<Vec<u8>>> =
            query.bind(format!("oarlock/{name}")).fetch_optional(&mut self.raw().await).await.unwrap();
        owner.flatten().map(|owner| String::from_utf8(owner).unwrap())
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => self.proxy.hold_c2s(),
            Fault::HoldRequestsOfPresent => self.proxy.hold_c2s_of_present(),
            Fault::HoldAnswers => self.proxy.hold_s2c(),
            Fault::ReleaseRequests | Fault::ReleaseAnswers => self.proxy.forward(),
            Fault::Restart => tokio::task::block_in_place(|| self.server.lock().unwrap().restart()),
            Fault::DeleteHold(name) => self.change(&name, "DELETE FROM oarlock_lock WHERE name = ? AND ? = 0", 0).await,
            Fault::RaiseToken(name, above) => {
                let raise = sqlx::query("UPDATE oarlock_lock SET token = ? WHERE name = ?").bind(above);
                raise.bind(format!("oarlock/{name}")).execute(&mut self.raw().await).await.unwrap();
            }
            // A token that no grant can be above.
            Fault::PutForeign(name) => {
                self.change(&name, "INSERT INTO oarlock_lock VALUES (?, NULL, ?, -1, -1, -1, 0, 0)", i64::MAX).await;
            }
            Fault::ReplaceStore => {
                for empty in ["DELETE FROM oarlock_lock", "DELETE FROM oarlock_waiter", "DELETE FROM oarlock_gone"] {
                    sqlx::query(empty).execute(&mut self.raw().await).await.unwrap();
                }
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
