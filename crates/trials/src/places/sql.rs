//! Counters in a database, which is used as applications use it: the check, the data and the log in one transaction.

use std::io;
use std::str::FromStr;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::protected::{Protected, Shown, Wanted};
use conformance_tests::resource::Access;
use oarlock::{ErrorKind, fence};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{MySqlPool, PgPool, SqlitePool};

/// What its tables are, beside that of the marks.
const TABLES: [&str; 2] = [
    "CREATE TABLE counter (resource VARCHAR(64) PRIMARY KEY, value BIGINT NOT NULL)",
    "CREATE TABLE history (id {number} PRIMARY KEY, resource VARCHAR(64) NOT NULL, kind INT NOT NULL, \
     token BIGINT NOT NULL, value BIGINT NOT NULL)",
];

/// The counters in a database of one kind: how its column of numbers that count up is made, how a transaction begins,
/// how a statement's parameters are written, which errors say that another transaction was in the way, how it is
/// connected to, and how a value is set.
macro_rules! counters {
    ($name:ident, $database:ty, $pool:ty, $number:literal, $begin:literal, $text:expr, $way:expr,
     $options:expr, $set:literal) => {
        pub(super) struct $name($pool);

        impl $name {
            async fn connect(url: &str) -> sqlx::Result<$pool> {
                <$pool>::connect_with($options(url)?).await
            }

            /// Makes the tables, in a database that has none.
            pub(super) async fn make(url: &str) -> sqlx::Result<()> {
                let pool = Self::connect(url).await?;
                sqlx::query(fence::sql::schema::<$database>()).execute(&pool).await?;
                for table in TABLES {
                    sqlx::query(sqlx::AssertSqlSafe(table.replace("{number}", $number))).execute(&pool).await?;
                }
                pool.close().await;
                Ok(())
            }

            pub(super) async fn open(url: &str) -> io::Result<Box<dyn Protected>> {
                Ok(Box::new(Self(Self::connect(url).await.map_err(io::Error::other)?)))
            }

            /// Answers nothing if another transaction was in the way.
            async fn once(&self, resource: &str, shown: &Shown, wanted: Wanted) -> io::Result<Option<Option<u64>>> {
                let sql = |text: &'static str| sqlx::AssertSqlSafe($text(text));
                let mut tx = match self.0.begin_with($begin).await {
                    Err(error) if in_the_way(&error, &$way) => return Ok(None),
                    tx => tx.map_err(io::Error::other)?,
                };
                match fence::sql::check(&mut tx, super::access(shown)?).await {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::Stale => return Ok(Some(None)),
                    Err(error) if error.kind() == ErrorKind::Conflict => return Ok(None),
                    Err(error) => return Err(io::Error::other(error)),
                }
                let done = async {
                    let value = match wanted {
                        Wanted::Write(value) => {
                            let value = value as i64;
                            sqlx::query(sql($set)).bind(resource).bind(value).execute(&mut *tx).await?;
                            value
                        }
                        Wanted::Read | Wanted::Share => {
                            let value = sqlx::query_scalar(sql("SELECT value FROM counter WHERE resource = ?"));
                            value.bind(resource).fetch_optional(&mut *tx).await?.unwrap_or(0_i64)
                        }
                    };
                    sqlx::query(sql("INSERT INTO history (resource, kind, token, value) VALUES (?, ?, ?, ?)"))
                        .bind(resource)
                        .bind(super::number_of(wanted.kind()))
                        .bind(shown.token as i64)
                        .bind(value)
                        .execute(&mut *tx)
                        .await?;
                    tx.commit().await?;
                    Ok::<_, sqlx::Error>(value as u64)
                };
                match done.await {
                    Err(error) if in_the_way(&error, &$way) => Ok(None),
                    done => done.map(|value| Some(Some(value))).map_err(io::Error::other),
                }
            }
        }

        #[async_trait]
        impl Protected for $name {
            async fn access(&self, resource: &str, shown: &Shown, wanted: Wanted) -> io::Result<Option<u64>> {
                loop {
                    if let Some(answer) = self.once(resource, shown, wanted).await? {
                        return Ok(answer);
                    }
                }
            }

            async fn log(&self, resource: &str) -> io::Result<Vec<Access>> {
                let text = "SELECT kind, token, value FROM history WHERE resource = ? ORDER BY id";
                let rows = sqlx::query_as::<_, (i32, i64, i64)>(sqlx::AssertSqlSafe($text(text)));
                let rows = rows.bind(resource.to_owned()).fetch_all(&self.0).await.map_err(io::Error::other)?;
                Ok(super::log(
                    rows.into_iter().map(|(kind, token, value)| (super::kind_of(kind), token as u64, value as u64)),
                ))
            }
        }
    };
}

counters!(
    Postgres,
    sqlx::Postgres,
    PgPool,
    "BIGSERIAL",
    "BEGIN",
    numbered,
    ["40001", "40P01"],
    PgConnectOptions::from_str,
    "INSERT INTO counter VALUES (?, ?) ON CONFLICT (resource) DO UPDATE SET value = excluded.value"
);
counters!(
    MySql,
    sqlx::MySql,
    MySqlPool,
    "BIGINT AUTO_INCREMENT",
    "BEGIN",
    str::to_owned,
    ["40001"],
    MySqlConnectOptions::from_str,
    "INSERT INTO counter VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)"
);
// One that only reads would fail where it goes on to write.
counters!(
    Sqlite,
    sqlx::Sqlite,
    SqlitePool,
    "INTEGER",
    "BEGIN IMMEDIATE",
    str::to_owned,
    ["5", "261", "517"],
    patient,
    "INSERT INTO counter VALUES (?, ?) ON CONFLICT (resource) DO UPDATE SET value = excluded.value"
);

/// Another process may be stopped in the middle of a transaction.
fn patient(url: &str) -> sqlx::Result<SqliteConnectOptions> {
    let options = SqliteConnectOptions::from_str(url)?.journal_mode(SqliteJournalMode::Wal);
    Ok(options.synchronous(SqliteSynchronous::Normal).busy_timeout(Duration::from_secs(60)))
}

fn in_the_way(error: &sqlx::Error, codes: &[&str]) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| codes.contains(&&*code))
}

/// With numbers for question marks.
fn numbered(text: &str) -> String {
    let mut parts = text.split('?');
    let first = parts.next().unwrap_or_default().to_owned();
    (1..).zip(parts).fold(first, |text, (number, part)| format!("{text}${number}{part}"))
}
