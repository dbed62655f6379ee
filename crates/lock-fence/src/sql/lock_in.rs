//! A transaction that is the lock.

use lock_core::{Error, ErrorKind, LockName, Result};
use sqlx::Transaction;

use super::{Fenced, explained};
use crate::Access;

/// A database in which a transaction can be the lock: `sqlx::Postgres` and `sqlx::MySql`.
pub trait Locking: Fenced + taking::Take {}

impl<DB: Fenced + taking::Take> Locking for DB {}

pub(crate) mod taking {
    pub trait Take: sqlx::Database {
        /// Locks the row of this key until the transaction's end, and raises its token. Answers the token, or nothing: a
        /// lease still runs.
        fn take(connection: &mut Self::Connection, key: &str)
        -> impl Future<Output = sqlx::Result<Option<i64>>> + Send;
    }
}

/// Has this transaction be the lock of this name, until it is committed or rolled back. There is no lease and nothing to
/// renew: this is what `SELECT … FOR UPDATE` is used for.
///
/// It takes the row of the lock in the tables that the lock store of this database made, by the store's default settings
/// (`table` and `prefix` are `oarlock`). So it also excludes those who hold the lock by a lease, as a mutex, readers, or
/// with permits; and as long as it lasts, nobody is granted such a lease.
///
/// - **While another such transaction has the lock**, this one waits in the database, for as long as the database's
///   own timeout for locks. Call it first in the transaction.
/// - **While a lease runs**, it fails at once by [`ErrorKind::Conflict`]. Roll back, so that the holder can renew, and
///   begin again later. It enters no line, and may overtake a waiter when a lease ran out without a release.
/// - **A client that wants a lease meanwhile** waits in the database too, one request long, and then as in an outage of
///   the store. Keep such transactions shorter than a third of the shortest lease: a late renewal of a lease that is
///   over waits as well, with all that is renewed by the same request.
/// - **PostgreSQL with `mode=session`** has no rows, and is refused.
/// - **SQLite** has no such call: a transaction that writes is the only one of its file anyway. It does not look whether
///   a lease runs, though.
/// - **Deadlock**: two transactions that lock several names in different orders can block each other. The database ends
///   one of them, with [`ErrorKind::Conflict`].
///
/// Answers the access of this transaction. Its token is above that of every earlier lease and below that of every later
/// one. If the name's leases are checked by [`check`](super::check), check this access as well: an earlier holder that
/// was paused is then refused.
///
/// ```
/// # #[cfg(feature = "postgres")]
/// # async fn pay(pool: &sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
/// # use lock_fence as fence;
/// let mut tx = pool.begin().await?;
/// let access = fence::sql::lock_in(&mut tx, "accounts/1").await?;
/// fence::sql::check(&mut tx, &access).await?; // if others hold accounts/1 by a lease
/// sqlx::query("UPDATE account SET balance = balance - 50 WHERE id = 1").execute(&mut *tx).await?;
/// tx.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Those of [`check`](super::check) but for [`ErrorKind::Stale`], and [`ErrorKind::Invalid`] for what is no lock's name.
/// After an error, roll back at once.
///
/// # Cancel safety
/// After a drop, roll the transaction back, as dropping it does.
pub async fn lock_in<DB, N>(tx: &mut Transaction<'_, DB>, name: N) -> Result<Access>
where
    DB: Locking,
    N: TryInto<LockName>,
    Error: From<N::Error>,
{
    let name: LockName = name.try_into()?;
    // As lock-sql calls the row of a lock.
    let taken = DB::take(&mut *tx, &format!("oarlock/{name}")).await;
    let taken = match taken {
        Err(error) => Err(explained::<DB>(error, NO_TABLES)),
        Ok(None) => Err(Error::new(
            ErrorKind::Conflict,
            "the lock is held by a lease; roll this transaction back, and begin it again later",
        )),
        Ok(Some(number)) => access(&name, number),
    };
    taken.map_err(|error| error.with_context("lock_in", DB::STORE, Some(&name)))
}

/// Why a lock of this database has no row.
const NO_TABLES: &str =
    "there is no table oarlock_lock; connect a lock store with rows to this database once, which makes it";

/// The numbers of a store are the tokens' upper bits.
fn access(name: &LockName, number: i64) -> Result<Access> {
    Access::new(name.clone(), (number as u64) << 8)
}
