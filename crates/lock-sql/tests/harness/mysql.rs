//! The suite on a real MariaDB server, or on the MySQL or MariaDB server that `OARLOCK_TEST_MYSQL_URL` names. Cases
//! share it: each has a proxy and tables of its own, with or without ShedLock's.

use std::net::ToSocketAddrs;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::{Fault, Harness, NotOffered, Store};
use lock_core::{DistributedLock, LockName, Registry};
use lock_sql::{MySqlFactory, MySqlLock, MySqlSessionLock, ServerOptions};
use sqlx::{AssertSqlSafe, Connection, MySqlConnection};
use test_servers::{MariaDbServer, Proxy};

/// A host that is busy with other tests may take its time.
const PATIENCE: Duration = Duration::from_secs(20);

/// Soon enough for who is to be served although a connection has died in silence.
const IMPATIENCE: Duration = Duration::from_secs(6);

/// The server of all cases that are not alone, with connections for the clients of as many as run at once.
static SHARED: LazyLock<MariaDbServer> = LazyLock::new(|| MariaDbServer::start_with(&["--max-connections=800"]));

/// Which locks of a MySQL server they are.
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "each suite is one of them")]
pub(crate) enum MySqlHarness {
    Rows,
    /// Of clients that join ShedLock's table.
    Shedlock,
    Sessions,
}

#[async_trait]
impl Harness for MySqlHarness {
    fn name(&self) -> &'static str {
        match self {
            Self::Rows => "mysql",
            Self::Shedlock => "mysql-shedlock",
            Self::Sessions => "mysql-session",
        }
    }

    fn registry(&self) -> Registry {
        let mut registry = Registry::new();
        registry.register(MySqlFactory);
        registry
    }

    async fn store(&self) -> Box<dyn Store> {
        Box::new(MySqlStore::of(&elsewhere().unwrap_or_else(|| SHARED.url()), None, *self).await)
    }

    async fn store_alone(&self) -> Box<dyn Store> {
        Box::new(match elsewhere() {
            Some(url) => MySqlStore::of(&url, None, *self).await,
            None => {
                let server = MariaDbServer::start();
                MySqlStore::of(&server.url(), Some(server), *self).await
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
    which: MySqlHarness,
    /// If it is alone, and we started it.
    server: Mutex<Option<MariaDbServer>>,
}

impl MySqlStore {
    async fn of(url: &str, server: Option<MariaDbServer>, which: MySqlHarness) -> Self {
        // From the user to the slash before the database.
        let (login, rest) =
            url.rsplit_once('@').expect("OARLOCK_TEST_MYSQL_URL is mysql://user:password@host:port/database");
        let (host, database) = rest.split_once('/').expect("OARLOCK_TEST_MYSQL_URL names a database");
        let address = host.to_socket_addrs().ok().and_then(|mut found| found.next());
        let proxy = Proxy::new(address.expect("OARLOCK_TEST_MYSQL_URL names a host and a port"));
        let proxied = format!("{login}@{}/{database}", proxy.address());
        let table = format!("t{:016x}", rand::random::<u64>());
        let store = Self { proxy, direct: url.to_owned(), proxied, table, which, server: Mutex::new(server) };
        if which == MySqlHarness::Shedlock {
            // As it is documented, but with room for any name, and with names as ours are, which no collation touches.
            store
                .run(
                    "CREATE TABLE {t}_shedlock (name VARBINARY(600) NOT NULL, lock_until TIMESTAMP(3) NOT NULL,
                        locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL,
                        PRIMARY KEY (name))",
                )
                .await;
        }
        store
    }

    /// Past the proxy, by a connection that knows nothing of locks.
    async fn raw(&self) -> MySqlConnection {
        MySqlConnection::connect(&self.direct).await.unwrap()
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

    /// The note of a hold by a session, and that session.
    async fn end_hold(&self, name: &LockName) {
        let mut raw = self.raw().await;
        let session = sqlx::query_scalar(self.statement("SELECT session FROM {t}_hold WHERE name = ?"));
        let session: u64 = session.bind(format!("oarlock/{name}")).fetch_one(&mut raw).await.unwrap();
        self.change(name, "DELETE FROM {t}_hold WHERE name = ? AND ? = 0", 0).await;
        sqlx::query(AssertSqlSafe(format!("KILL {session}"))).execute(&mut raw).await.unwrap();
    }

    /// Another name's note in the place of this one's.
    async fn put_foreign(&self, name: &LockName) {
        let put = "INSERT INTO {t}_hold SELECT CONCAT('oarlock_', LEFT(SHA2(CONCAT(LOWER(DATABASE()), '.{t}', x'00', ?), 256), 32)),
            'foreign', 'foreign', ?, 0, 60000000, 0, (UNIX_TIMESTAMP() + 60) * 1000000";
        self.change(name, put, 1).await;
    }

    async fn client(&self, timeout: Duration) -> Arc<dyn DistributedLock> {
        let options = ServerOptions::new(&self.proxied).unwrap().timeout(timeout);
        let options = options.table(&self.table).unwrap();
        match self.which {
            MySqlHarness::Rows => Arc::new(MySqlLock::with(options).await.unwrap()),
            MySqlHarness::Sessions => Arc::new(MySqlSessionLock::with(options).await.unwrap()),
            MySqlHarness::Shedlock => {
                let options = options.shedlock(&format!("{}_shedlock", self.table)).unwrap();
                MySqlLock::with_shedlock(options).await.unwrap()
            }
        }
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
        let url = format!("{}?timeout={}s&table={}", self.proxied, PATIENCE.as_secs(), self.table);
        Some(match self.which {
            MySqlHarness::Rows => url,
            MySqlHarness::Sessions => format!("{url}&mode=session"),
            MySqlHarness::Shedlock => format!("{url}&shedlock={}_shedlock", self.table),
        })
    }

    fn url_of_nothing(&self) -> Option<String> {
        // Nothing can listen there.
        Some("mysql://127.0.0.1:1/x".to_owned())
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        let holds = if self.which == MySqlHarness::Sessions { "hold" } else { "lock" };
        let query = sqlx::query_scalar(self.statement(&format!("SELECT owner FROM {{t}}_{holds} WHERE name = ?")));
        let owner: Option<Option<Vec<u8>>> =
            query.bind(format!("oarlock/{name}")).fetch_optional(&mut self.raw().await).await.unwrap();
        owner.flatten().map(|owner| String::from_utf8(owner).unwrap())
    }

    fn connections(&self) -> Vec<u64> {
        vec![self.proxy.connections()]
    }

    fn waits_over(&self) -> usize {
        if self.which == MySqlHarness::Sessions { 2 } else { 3 }
    }

    async fn inject(&self, fault: Fault) -> Result<(), NotOffered> {
        let Some(fault) = fault.strike([&self.proxy]) else { return Ok(()) };
        match fault {
            Fault::Restart => match self.server.lock().unwrap().as_mut() {
                Some(server) => tokio::task::block_in_place(|| server.restart()),
                None => return Err(NotOffered),
            },
            Fault::DeleteHold(name) if self.which == MySqlHarness::Sessions => self.end_hold(&name).await,
            Fault::RaiseToken(_, above) if self.which == MySqlHarness::Sessions => {
                let table = "REPLACE INTO {t}_hold VALUES ('', '', '', ?, 0, 0, 0, 0)";
                sqlx::query(self.statement(table)).bind(above).execute(&mut self.raw().await).await.unwrap();
                let limit = "UPDATE {t}_meta SET value = ? + 1 WHERE name = 'ceiling'";
                sqlx::query(self.statement(limit)).bind(above).execute(&mut self.raw().await).await.unwrap();
            }
            Fault::PutForeign(name) if self.which == MySqlHarness::Sessions => self.put_foreign(&name).await,
            Fault::ReplaceStore if self.which == MySqlHarness::Sessions => {
                for table in ["hold", "wait", "shown", "epoch"] {
                    self.run(&format!("DELETE FROM {{t}}_{table}")).await;
                }
            }
            Fault::DeleteHold(name) => {
                if self.which == MySqlHarness::Shedlock {
                    let delete = sqlx::query(self.statement("DELETE FROM {t}_shedlock WHERE name = ?"));
                    delete.bind(name.as_str()).execute(&mut self.raw().await).await.unwrap();
                }
                self.change(&name, "DELETE FROM {t}_lock WHERE name = ? AND ? = 0", 0).await;
            }
            Fault::RaiseToken(name, above) => {
                let raise = sqlx::query(self.statement("UPDATE {t}_lock SET token = ? WHERE name = ?")).bind(above);
                raise.bind(format!("oarlock/{name}")).execute(&mut self.raw().await).await.unwrap();
            }
            // A token that no grant can be above.
            Fault::PutForeign(name) => {
                self.change(&name, "INSERT INTO {t}_lock VALUES (?, NULL, ?, -1, -1, -1, 0, 0)", i64::MAX).await;
            }
            Fault::ReplaceStore => {
                let theirs: &[&str] = if self.which == MySqlHarness::Shedlock { &["shedlock"] } else { &[] };
                for table in ["lock", "waiter", "client", "gone"].iter().chain(theirs) {
                    self.run(&format!("DELETE FROM {{t}}_{table}")).await;
                }
            }
            _ => return Err(NotOffered),
        }
        Ok(())
    }
}
