//! The suite on a real MariaDB server, or on the MySQL or MariaDB server that `OARLOCK_TEST_MYSQL_URL` names. Cases
//! share it: each has a proxy and tables of its own.

use std::net::ToSocketAddrs;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_sql::{MySqlFactory, MySqlLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use test_servers::{MariaDbServer, Proxy};

conformance_tests::suite!(MySqlHarness);

/// A host that is busy with other tests may take its time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Soon enough for who is to be served although a connection has died in silence.
const IMPATIENCE: Duration = Duration::from_secs(6);

/// The server of all cases that are not alone, with connections for the clients of as many as run at once.
static SHARED: LazyLock<MariaDbServer> = LazyLock::new(|| MariaDbServer::start_with(&["--max-connections=500"]));

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
        Box::new(MySqlStore::of(&elsewhere().unwrap_or_else(|| SHARED.url()), None))
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        Box::new(match elsewhere() {
            Some(url) => MySqlStore::of(&url, None),
            None => {
                let server = MariaDbServer::start();
                MySqlStore::of(&server.url(), Some(server))
            }
        })
    }
}

/// A server that somebody else started.
fn elsewhere() -> Option<String> {
    std::env::var("OARLOCK_TEST_MYSQL_URL").ok()
}

struct MySqlStore {
    proxy: Proxy,
    /// Past the proxy.
    direct: String,
    /// Through it.
    proxied: String,
    /// What the names of the tables begin with.
    table: String,
    /// If it is alone, and we started it.
    server: Mutex<Option<MariaDbServer>>,
}

impl MySqlStore {
    fn of(url: &str, server: Option<MariaDbServer>) -> Self {
        // From the user to the slash before the database.
        let (login, rest) =
            url.rsplit_once('@').expect("OARLOCK_TEST_MYSQL_URL is mysql://user:password@host:port/database");
        let (host, database) = rest.split_once('/').expect("OARLOCK_TEST_MYSQL_URL names a database");
        let address = host.to_socket_addrs().ok().and_then(|mut found| found.next());
        let proxy = Proxy::new(address.expect("OARLOCK_TEST_MYSQL_URL names a host and a port"));
        let proxied = format!("{login}@{}/{database}", proxy.address());
        let table = format!("t{:016x}", rand::random::<u64>());
        Self { proxy, direct: url.to_owned(), proxied, table, server: Mutex::new(server) }
    }

    /// Past the proxy, by a connection that knows nothing of locks.
    async fn raw(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.direct).await.unwrap()
    }

    fn statement(&self, text: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(text.replace("{t}", &self.table))
    }

    async fn change(&self, name: &LockName, statement: &str, number: i64) {
        let query = sqlx::query(self.statement(statement)).bind(format!("oarlock/{name}")).bind(number);
        let changed = query.execute(&mut self.raw().await).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{statement}");
    }

    async fn client(&self, timeout: Duration) -> Arc<dyn DistributedLock> {
        let options = ServerOptions::new(&self.proxied).unwrap().timeout(timeout);
        let options = options.table(&self.table).unwrap();
        Arc::new(MySqlLock::with(options).await.unwrap())
    }
}

#[async_trait]
impl Store for MySqlStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        self.client(PATIENCE).await
    }

    async fn connect_impatient(&self) -> Arc<dyn DistributedLock> {
        self.client(IMPATIENCE).await
    }

    fn url(&self) -> Option<String> {
        Some(format!("{}?timeout={}s&table={}", self.proxied, PATIENCE.as_secs(), self.table))
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("mysql://127.0.0.1:1/x".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let query = sqlx::query_scalar(self.statement("SELECT owner FROM {t}_lock WHERE name = ?"));
        let owner: Option<Option<Vec<u8>>> =
            query.bind(format!("oarlock/{name}")).fetch_optional(&mut self.raw().await).await.unwrap();
        owner.flatten().map(|owner| String::from_utf8(owner).unwrap())
    }

    fn connections(&self) -> Vec<u64> {
        vec![self.proxy.connections()]
    }

    fn waits_over(&self) -> usize {
        3
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        match fault {
            Fault::HoldRequests => self.proxy.hold_c2s(),
            Fault::HoldRequestsOfPresent => self.proxy.hold_c2s_of_present(),
            Fault::HoldAnswers => self.proxy.hold_s2c(),
            Fault::Swallow(_, number) => self.proxy.swallow(number),
            Fault::CutOff => self.proxy.cut(),
            Fault::ReleaseRequests | Fault::ReleaseAnswers => self.proxy.forward(),
            Fault::Restart => match self.server.lock().unwrap().as_mut() {
                Some(server) => tokio::task::block_in_place(|| server.restart()),
                None => return Err(NotOffered),
            },
            Fault::DeleteHold(name) => self.change(&name, "DELETE FROM {t}_lock WHERE name = ? AND ? = 0", 0).await,
            Fault::RaiseToken(name, above) => {
                let raise = sqlx::query(self.statement("UPDATE {t}_lock SET token = ? WHERE name = ?")).bind(above);
                raise.bind(format!("oarlock/{name}")).execute(&mut self.raw().await).await.unwrap();
            }
            // A token that no grant can be above.
            Fault::PutForeign(name) => {
                self.change(&name, "INSERT INTO {t}_lock VALUES (?, NULL, ?, -1, -1, -1, 0)", i64::MAX).await;
            }
            Fault::ReplaceStore => {
                for empty in ["lock", "waiter", "client", "gone"].map(|table| format!("DELETE FROM {{t}}_{table}")) {
                    sqlx::query(self.statement(&empty)).execute(&mut self.raw().await).await.unwrap();
                }
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
