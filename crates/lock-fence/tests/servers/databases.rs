//! The three databases behind one face: an application's transactions, with a check in them.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::Result;
use lock_fence::{Access, sql};
use sqlx::mysql::MySqlPoolOptions;
use sqlx::postgres::PgPoolOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Executor, MySql, Pool, Postgres, Row, Sqlite, Transaction};
use test_servers::{MariaDbServer, PostgresServer};

/// An application's database, which has a history of accepted writes: their places, and who wrote.
#[async_trait]
pub(crate) trait Database: Send + Sync {
    async fn begin(&self) -> Box<dyn Writer>;
}

/// One of its transactions.
#[async_trait]
pub(crate) trait Writer: Send {
    async fn check(&mut self, access: Access) -> Result<()>;

    /// Adds a token to the history.
    async fn write(&mut self, token: u64);

    /// Reads something else. The transaction has a snapshot then, and no lock of the history: at the level
    /// "serializable", MariaDB locks whatever is read.
    async fn look_aside(&mut self);

    async fn history(&mut self) -> Vec<u64>;

    async fn commit(self: Box<Self>) -> sqlx::Result<()>;
}

macro_rules! database {
    ($database:ty, $append:literal) => {
        #[async_trait]
        impl Database for Pool<$database> {
            async fn begin(&self) -> Box<dyn Writer> {
                Box::new(Pool::begin(self).await.unwrap())
            }
        }

        #[async_trait]
        impl Writer for Transaction<'static, $database> {
            async fn check(&mut self, access: Access) -> Result<()> {
                sql::check(self, &access).await
            }

            async fn write(&mut self, token: u64) {
                sqlx::query($append).bind(token as i64).execute(&mut **self).await.unwrap();
            }

            async fn look_aside(&mut self) {
                assert!(sqlx::query("SELECT place FROM aside").fetch_optional(&mut **self).await.unwrap().is_none());
            }

            async fn history(&mut self) -> Vec<u64> {
                let rows =
                    sqlx::query("SELECT token FROM history ORDER BY place").fetch_all(&mut **self).await.unwrap();
                rows.iter().map(|row| row.get::<i64, _>(0) as u64).collect()
            }

            async fn commit(self: Box<Self>) -> sqlx::Result<()> {
                Transaction::commit(*self).await
            }
        }
    };
}

// The next place. Whoever has passed the check is alone with the history.
database!(Postgres, "INSERT INTO history SELECT coalesce(max(place), 0) + 1, $1 FROM history");
database!(MySql, "INSERT INTO history SELECT coalesce(max(place), 0) + 1, ? FROM history");
database!(Sqlite, "INSERT INTO history SELECT coalesce(max(place), 0) + 1, $1 FROM history");

const HISTORY: &str = "CREATE TABLE history (place BIGINT PRIMARY KEY, token BIGINT NOT NULL)";

/// The isolation levels of the servers.
pub(crate) const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

pub(crate) async fn postgres(server: &PostgresServer, level: &'static str) -> Pool<Postgres> {
    let options = PgPoolOptions::new().after_connect(move |connection, _| {
        Box::pin(async move {
            let set = format!("SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL {level}");
            connection.execute(sqlx::AssertSqlSafe(set)).await.map(drop)
        })
    });
    options.connect(&server.url()).await.unwrap()
}

pub(crate) async fn mysql(server: &MariaDbServer, level: &'static str) -> Pool<MySql> {
    let options = MySqlPoolOptions::new().after_connect(move |connection, _| {
        Box::pin(async move {
            let set = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
            connection.execute(sqlx::AssertSqlSafe(set)).await.map(drop)
        })
    });
    options.connect(&server.url()).await.unwrap()
}

pub(crate) async fn sqlite(folder: &tempfile::TempDir) -> Pool<Sqlite> {
    let file = SqliteConnectOptions::new().filename(folder.path().join("data.db")).create_if_missing(true);
    let file = file.journal_mode(sqlx::sqlite::SqliteJournalMode::Wal);
    SqlitePoolOptions::new().connect_with(file).await.unwrap()
}

/// Makes the tables, the application's anew. The schema of the marks may be there already.
macro_rules! fresh {
    ($pool:expr, $database:ty) => {{
        let pool = $pool;
        for statement in [sql::schema::<$database>(), "DELETE FROM oarlock_fence", "DROP TABLE IF EXISTS history"] {
            pool.execute(statement).await.unwrap();
        }
        for statement in [HISTORY, "CREATE TABLE IF NOT EXISTS aside (place BIGINT PRIMARY KEY)"] {
            pool.execute(statement).await.unwrap();
        }
        Arc::new(pool) as Arc<dyn Database>
    }};
}

/// Every database at every isolation level, each when the one before is done, and what it is called.
pub(crate) async fn each<F: Future<Output = ()>>(check: impl Fn(&'static str, Arc<dyn Database>) -> F) {
    let folder = tempfile::tempdir().unwrap();
    check("SQLite", fresh!(sqlite(&folder).await, Sqlite)).await;
    let (mariadb, server) = (MariaDbServer::start(), PostgresServer::start());
    for level in LEVELS {
        println!("{level}");
        check("PostgreSQL", fresh!(postgres(&server, level).await, Postgres)).await;
        check("MariaDB", fresh!(mysql(&mariadb, level).await, MySql)).await;
    }
}
