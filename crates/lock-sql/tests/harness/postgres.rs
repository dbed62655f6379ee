//! The suite on a real PostgreSQL server, which cases share: each has a proxy and tables of its own, with or without ShedLock's.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_sql::{PostgresFactory, PostgresLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use test_servers::{PostgresServer, Proxy};

/// A host that is busy with other tests may take its time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Soon enough for who is to be served although a connection has died in silence.
const IMPATIENCE: Duration = Duration::from_secs(6);

/// The server of all cases that are not alone, with connections for the clients of as many as run at once.
static SHARED: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start_with(&["max_connections=500"]));

static STORES: AtomicU64 = AtomicU64::new(0);

pub(crate) struct PostgresHarness {
    /// Do clients join ShedLock's table?
    pub(crate) shedlock: bool,
}

#[async_trait]
impl Harness for PostgresHarness {
    fn name(&self) -> &'static str {
        if self.shedlock { "postgres-shedlock" } else { "postgres" }
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(PostgresFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        Box::new(PostgresStore::at(SHARED.address(), None, self.shedlock).await)
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        let server = PostgresServer::start();
        Box::new(PostgresStore::at(server.address(), Some(server), self.shedlock).await)
    }
}

struct PostgresStore {
    proxy: Proxy,
    address: SocketAddr,
    /// What the names of the tables begin with.
    table: String,
    /// Is ShedLock's there too?
    shedlock: bool,
    /// If it is alone.
    server: Mutex<Option<PostgresServer>>,
}

impl PostgresStore {
    async fn at(address: SocketAddr, server: Option<PostgresServer>, shedlock: bool) -> Self {
        let table = format!("case_{}", STORES.fetch_add(1, Ordering::Relaxed));
        let store = Self { proxy: Proxy::new(address), address, table, shedlock, server: Mutex::new(server) };
        if shedlock {
            // As it is documented, but with room for any name.
            store
                .run(
                    "CREATE TABLE {t}_shedlock (name VARCHAR(600) NOT NULL, lock_until TIMESTAMP NOT NULL,
                        locked_at TIMESTAMP NOT NULL, locked_by VARCHAR(255) NOT NULL, PRIMARY KEY (name))",
                )
                .await;
        }
        store
    }

    /// Through the proxy.
    fn server_url(&self) -> String {
        PostgresServer::url_at(self.proxy.address())
    }

    /// Past the proxy, by a connection that knows nothing of locks.
    async fn raw(&self) -> PgConnection {
        PgConnection::connect(&PostgresServer::url_at(self.address)).await.unwrap()
    }

    fn statement(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.replace("{t}", &self.table))
    }

    async fn run(&self, statement: &str) {
        sqlx::query(self.statement(statement)).execute(&mut self.raw().await).await.unwrap();
    }

    async fn change(&self, name: &LockName, statement: &str, number: i64) {
        let query = sqlx::query(self.statement(statement)).bind(format!("oarlock/{name}")).bind(number);
        let changed = query.execute(&mut self.raw().await).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{statement}");
    }

    async fn client(&self, timeout: Duration) -> Arc<dyn DistributedLock> {
        let options = ServerOptions::new(&self.server_url()).unwrap().timeout(timeout);
        let options = options.table(&self.table).unwrap();
        if self.shedlock {
            let options = options.shedlock(&format!("{}_shedlock", self.table)).unwrap();
            return PostgresLock::with_shedlock(options).await.unwrap();
        }
        Arc::new(PostgresLock::with(options).await.unwrap())
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        self.client(PATIENCE).await
    }

    async fn connect_impatient(&self) -> Arc<dyn DistributedLock> {
        self.client(IMPATIENCE).await
    }

    fn url(&self) -> Option<String> {
        let url = format!("{}?timeout={}s&table={}", self.server_url(), PATIENCE.as_secs(), self.table);
        Some(if self.shedlock { format!("{url}&shedlock={}_shedlock", self.table) } else { url })
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("postgres://127.0.0.1:1".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let query = sqlx::query_scalar(self.statement("SELECT owner FROM {t}_lock WHERE name = $1"));
        let owner = query.bind(format!("oarlock/{name}")).fetch_optional(&mut self.raw().await).await.unwrap();
        owner.flatten()
    }

    fn connections(&self) -> Vec<u64> {
        vec![self.proxy.connections()]
    }

    fn waits_over(&self) -> usize {
        2
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        let Some(fault) = fault.strike([&self.proxy]) else { return Ok(()) };
        match fault {
            Fault::Restart => match self.server.lock().unwrap().as_mut() {
                Some(server) => tokio::task::block_in_place(|| server.restart()),
                None => return Err(NotOffered),
            },
            Fault::DeleteHold(name) => {
                if self.shedlock {
                    let delete = sqlx::query(self.statement("DELETE FROM {t}_shedlock WHERE name = $1"));
                    delete.bind(name.as_str()).execute(&mut self.raw().await).await.unwrap();
                }
                self.change(&name, "DELETE FROM {t}_lock WHERE name = $1 AND $2 = 0", 0).await;
            }
            Fault::RaiseToken(name, above) => {
                let above = above.try_into().unwrap();
                self.change(&name, "UPDATE {t}_lock SET token = $2 WHERE name = $1", above).await;
            }
            // A token that no grant can be above.
            Fault::PutForeign(name) => {
                self.change(&name, "INSERT INTO {t}_lock VALUES ($1, NULL, $2, -1, -1, -1)", i64::MAX).await;
            }
            Fault::ReplaceStore => {
                self.run("TRUNCATE {t}_lock, {t}_waiter, {t}_client, {t}_gone, {t}_value").await;
                if self.shedlock {
                    self.run("TRUNCATE {t}_shedlock").await;
                }
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
