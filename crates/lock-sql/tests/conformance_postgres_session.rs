//! The suite on PostgreSQL's sessions, on a real server, which cases share: each has a proxy and tables of its own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_sql::{PostgresFactory, PostgresSessionLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use test_servers::{PostgresServer, Proxy};

conformance_tests::suite!(SessionHarness);

/// A host that is busy with other tests may take its time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Soon enough for who is to be served although a connection has died in silence.
const IMPATIENCE: Duration = Duration::from_secs(6);

/// The server of all cases that are not alone, with connections for each name that is held or waited for.
static SHARED: LazyLock<PostgresServer> = LazyLock::new(|| PostgresServer::start_with(&["max_connections=800"]));

static STORES: AtomicU64 = AtomicU64::new(0);

struct SessionHarness;

#[async_trait]
impl Harness for SessionHarness {
    fn name(&self) -> &'static str {
        "postgres-session"
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(PostgresFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        Box::new(SessionStore::at(SHARED.address(), None))
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        let server = PostgresServer::start();
        Box::new(SessionStore::at(server.address(), Some(server)))
    }
}

struct SessionStore {
    proxy: Proxy,
    address: SocketAddr,
    /// What the names of the tables begin with.
    table: String,
    /// If it is alone.
    server: Mutex<Option<PostgresServer>>,
}

impl SessionStore {
    fn at(address: SocketAddr, server: Option<PostgresServer>) -> Self {
        let table = format!("case_{}", STORES.fetch_add(1, Ordering::Relaxed));
        Self { proxy: Proxy::new(address), address, table, server: Mutex::new(server) }
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

    /// About this lock, with a number.
    async fn change(&self, name: &LockName, statement: &str, number: i64) {
        let query = sqlx::query(self.statement(statement)).bind(format!("oarlock/{name}")).bind(number);
        query.execute(&mut self.raw().await).await.unwrap();
    }

    async fn client(&self, timeout: Duration) -> Arc<dyn DistributedLock> {
        let options = ServerOptions::new(&self.server_url()).unwrap().timeout(timeout);
        let options = options.table(&self.table).unwrap();
        Arc::new(PostgresSessionLock::with(options).await.unwrap())
    }
}

#[async_trait]
impl Store for SessionStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        self.client(PATIENCE).await
    }

    async fn connect_impatient(&self) -> Arc<dyn DistributedLock> {
        self.client(IMPATIENCE).await
    }

    fn url(&self) -> Option<String> {
        let timeout = PATIENCE.as_secs();
        Some(format!("{}?mode=session&timeout={timeout}s&table={}", self.server_url(), self.table))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("postgres://127.0.0.1:1?mode=session".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let query = sqlx::query_scalar(self.statement("SELECT owner FROM {t}_hold WHERE name = $1"));
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
            // The session that has the advisory lock, and the note of it.
            Fault::DeleteHold(name) => {
                let delete = "WITH gone AS (DELETE FROM {t}_hold WHERE name = $1 AND $2 = 0 RETURNING pid)
                    SELECT pg_terminate_backend(pid) FROM gone";
                self.change(&name, delete, 0).await;
            }
            Fault::RaiseToken(_, above) => {
                let raise = "UPDATE {t}_meta SET value = greatest(value, $1 - {t}_counted()) WHERE key = 'base'";
                let raise = sqlx::query(self.statement(raise)).bind(i64::try_from(above).unwrap());
                raise.execute(&mut self.raw().await).await.unwrap();
            }
            // The note of another name, at this one's place; not an old one, which would be swept.
            Fault::PutForeign(name) => {
                let put = "INSERT INTO {t}_hold SELECT {t}_key($1), 'foreign', NULL, $2, 0, 0, 0, 0, {t}_now()";
                self.change(&name, put, i64::MAX).await;
            }
            Fault::ReplaceStore => {
                let empty = self.statement("TRUNCATE {t}_hold, {t}_wait, {t}_value");
                sqlx::query(empty).execute(&mut self.raw().await).await.unwrap();
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
