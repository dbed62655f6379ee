//! The marks in MySQL and MariaDB.

use sqlx::MySql;
use sqlx::error::DatabaseError;
use sqlx::mysql::{MySqlConnection, MySqlDatabaseError};

use super::lock_in::taking::Take;
use super::sealed::{Marks, Trouble};

/// Name, token, token. The server answers a write with the number of changed rows, which does not tell a mark that is
/// equal from one that is higher, and with the "last inserted id". `LAST_INSERT_ID(…)` makes that the mark; it stays 0
/// where the row is new. A write goes by the newest version of the row at every isolation level.
const RAISE: &str = "INSERT INTO oarlock_fence (name, token) VALUES (?, ?)
    ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, ?))";

/// Name. Answers the mark in its newest version, at every isolation level.
const LOOK: &str = "SELECT token FROM oarlock_fence WHERE name = ? LOCK IN SHARE MODE";

/// The lock's key. Has its row, which it makes if there is none: by one statement, since two that first found none would
/// be in each other's way.
const OWN: &str = "INSERT INTO oarlock_lock (name, token, lease_us, since_us, expires_us)
    SELECT ?, value, 0, 0, 0 FROM oarlock_meta WHERE name = 'floor' ON DUPLICATE KEY UPDATE oarlock_lock.rev = oarlock_lock.rev + 1";

/// The lock's key. Changes the row unless a lease runs, and answers the token as the inserted id.
const TAKE: &str = "UPDATE oarlock_lock SET owner = NULL,
    token = LAST_INSERT_ID(GREATEST(token + 1, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)))
    WHERE name = ? AND (owner IS NULL OR expires_us <= CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED))";

impl Marks for MySql {
    const STORE: &str = "mysql";
    // Names are bytes: no collation takes two for one. The longest have the number of a slot behind.
    const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS oarlock_fence (name VARBINARY(528) PRIMARY KEY, token BIGINT NOT NULL) \
        ENGINE=InnoDB";

    async fn raise(connection: &mut MySqlConnection, mark: &str, token: i64) -> sqlx::Result<i64> {
        let raise = sqlx::query(RAISE).bind(mark.as_bytes()).bind(token).bind(token);
        let raised = raise.execute(connection).await?.last_insert_id();
        Ok(if raised == 0 { token } else { raised as i64 })
    }

    async fn look(connection: &mut MySqlConnection, mark: &str) -> sqlx::Result<Option<i64>> {
        sqlx::query_scalar(LOOK).bind(mark.as_bytes()).fetch_optional(connection).await
    }

    fn explain(error: &dyn DatabaseError) -> Trouble {
        match error.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number) {
            // A lock that was not free within `innodb_lock_wait_timeout`, a deadlock, a snapshot that is too old, and
            // members of Group Replication that did not agree.
            Some(1205 | 1213 | 1020 | 3101) => Trouble::Conflict,
            Some(1146) => Trouble::NoTable,
            _ => Trouble::Other,
        }
    }
}

impl Take for MySql {
    async fn take(connection: &mut MySqlConnection, key: &str) -> sqlx::Result<Option<i64>> {
        sqlx::query(OWN).bind(key.as_bytes()).execute(&mut *connection).await?;
        let taken = sqlx::query(TAKE).bind(key.as_bytes()).execute(connection).await?;
        Ok((taken.rows_affected() == 1).then(|| taken.last_insert_id() as i64))
    }
}
