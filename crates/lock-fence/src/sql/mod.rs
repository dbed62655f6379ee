//! The check for data in PostgreSQL, MySQL, MariaDB and SQLite, in the application's own sqlx transaction.
//!
//! The mark of each name is a row of the table `oarlock_fence`, which [`schema`] makes. [`check`] raises it by one
//! statement, or by one for each slot of a semaphore. The row is locked until the transaction ends, so the transactions of
//! two holders follow each other. [Readers](Access::shared) only look at the mark; several do so at the same time, and a
//! writer waits until they have ended.
//!
//! - Call it **first in the transaction**. What was read before it may be older than the last holder's writes.
//! - Transactions that only read call it too. A later holder that has read is then as safe as one that has written, unless
//!   it [shares](Access::shared) the lock.
//! - Two transactions that check several names in different orders can deadlock. The database ends one of them, with
//!   an error of kind [`Conflict`](lock_core::ErrorKind::Conflict).
//! - A name stands for one lock of one store. Tokens of different names or stores are no order, so do not mix them.
//! - Rows stay for ever, one for each name. A row may be deleted once no holder with an earlier token can be alive.

mod lock_in;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use lock_core::{Error, ErrorKind, Result};
use sqlx::Transaction;
use sqlx::error::DatabaseError;

use crate::Access;

pub use lock_in::{Locking, lock_in};

/// A database whose transactions can be checked: `sqlx::Postgres`, `sqlx::MySql` and `sqlx::Sqlite`, as far as the
/// features of their names are on.
pub trait Fenced: sqlx::Database + sealed::Marks {}

impl<DB: sqlx::Database + sealed::Marks> Fenced for DB {}

pub(crate) mod sealed {
    use super::*;

    pub trait Marks: sqlx::Database {
        const STORE: &str;
        const SCHEMA: &str;

        /// Raises this mark to this token if it is lower. Answers the mark as it is then, and locks it until the
        /// transaction's end.
        fn raise(
            connection: &mut Self::Connection,
            mark: &str,
            token: i64,
        ) -> impl Future<Output = sqlx::Result<i64>> + Send;

        /// Answers the mark, if there is one, and keeps others from raising it until the transaction's end.
        fn look(
            connection: &mut Self::Connection,
            mark: &str,
        ) -> impl Future<Output = sqlx::Result<Option<i64>>> + Send;

        fn explain(error: &dyn DatabaseError) -> Trouble;
    }

    /// What a database's refusal comes to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Trouble {
        Conflict,
        NoTable,
        Other,
    }
}

use sealed::Trouble;

/// The statement that makes the table of the marks, if it is not there. It belongs to your migrations.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// assert!(lock_fence::sql::schema::<sqlx::Sqlite>().starts_with("CREATE TABLE IF NOT EXISTS oarlock_fence"));
/// ```
pub fn schema<DB: Fenced>() -> &'static str {
    DB::SCHEMA
}

/// Checks that no later holder has used this database, and has it refuse all earlier ones from now on. If the transaction
/// is rolled back, it is as if it was never called.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use lock_fence as fence;
/// # let pool = sqlx::SqlitePool::connect("sqlite::memory:").await?;
/// # sqlx::query(fence::sql::schema::<sqlx::Sqlite>()).execute(&pool).await?;
/// # sqlx::query("CREATE TABLE account (id INTEGER PRIMARY KEY, balance BIGINT)").execute(&pool).await?;
/// # let lease = ("accounts/1", 7);
/// let mut tx = pool.begin().await?;
/// fence::sql::check(&mut tx, lease).await?;
/// sqlx::query("UPDATE account SET balance = balance - 50 WHERE id = 1").execute(&mut *tx).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sqlite"))]
/// # fn main() {}
/// ```
///
/// # Errors
/// After an error, roll back: nothing of the transaction is to be kept.
///
/// - [`ErrorKind::Stale`]: a later holder was here. [`Stale::of`](crate::Stale::of) has both tokens.
/// - [`ErrorKind::Conflict`]: another transaction was in the way, as it can be at an isolation level above "read
///   committed", at a deadlock, or after a timeout for locks. Begin the transaction again, with the same token.
/// - [`ErrorKind::Refused`]: the table is missing, the user has no rights, and the like.
/// - [`ErrorKind::Unavailable`]: the connection is gone, and the transaction with it.
///
/// # Cancel safety
/// After a drop, roll the transaction back, as dropping it does.
///
/// # If the commit's reply is lost
/// Run the same transaction again, with the same token: it is refused only if a later holder came in between.
pub async fn check<DB, A>(tx: &mut Transaction<'_, DB>, access: A) -> Result<()>
where
    DB: Fenced,
    A: TryInto<Access>,
    Error: From<A::Error>,
{
    check_on::<DB>(tx, &access.try_into()?).await
}

/// The same without a transaction, where the marks of an access are one at most.
pub(crate) async fn check_on<DB: Fenced>(connection: &mut DB::Connection, access: &Access) -> Result<()> {
    for mark in access.marks() {
        let found = match access.is_shared() {
            true => DB::look(&mut *connection, &mark).await.map(Option::unwrap_or_default),
            false => DB::raise(&mut *connection, &mark, access.token() as i64).await,
        };
        let found = found.map_err(|error| explained::<DB>(error, NO_TABLE));
        let checked = found.and_then(|found| Ok(access.check(found as u64).map(|_| ())?));
        checked.map_err(|error| error.with_context("fence", DB::STORE, Some(access.name())))?;
    }
    Ok(())
}

const NO_TABLE: &str = "there is no table oarlock_fence; make it by what fence::sql::schema() says";

fn explained<DB: Fenced>(error: sqlx::Error, no_table: &'static str) -> Error {
    let trouble = error.as_database_error().map(DB::explain);
    let (kind, message) = match trouble {
        Some(Trouble::Conflict) => (
            ErrorKind::Conflict,
            "another transaction was in the way; roll this one back and begin it again, with the same token",
        ),
        Some(Trouble::NoTable) => (ErrorKind::Refused, no_table),
        Some(Trouble::Other) => (ErrorKind::Refused, "the database refused"),
        // Whatever it was, without its connection a transaction is rolled back.
        None => (ErrorKind::Unavailable, "the connection broke, and with it the transaction; begin it again"),
    };
    Error::new(kind, message).with_source(error)
}
