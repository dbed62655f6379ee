//! The marks in MySQL and MariaDB.

use lock_core::LockName;
use sqlx::MySql;
use sqlx::error::DatabaseError;
use sqlx::mysql::{MySqlConnection, MySqlDatabaseError};

use super::sealed::{Marks, Trouble};

/// Name, token, token. The server answers a write with the number of changed rows, which does not tell a mark that is
/// equal from one that is higher, and with the "last inserted id". `LAST_INSERT_ID(…)` makes that the mark; it stays 0
/// where the row is new. A write goes by the newest version of the row at every isolation level.
const RAISE: &str = "INSERT INTO oarlock_fence (name, token) VALUES (?, ?)
    ON DUPLICATE KEY UPDATE token = LAST_INSERT_ID(GREATEST(token, ?))";

impl Marks for MySql {
    const STORE: &str = "mysql";
    // Names are bytes: no collation takes two for one.
    const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS oarlock_fence (name VARBINARY(512) PRIMARY KEY, token BIGINT NOT NULL) \
        ENGINE=InnoDB";

    async fn raise(connection: &mut MySqlConnection, name: &LockName, token: i64) -> sqlx::Result<i64> {
        let raise = sqlx::query(RAISE).bind(name.as_str().as_bytes()).bind(token).bind(token);
        let mark = raise.execute(connection).await?.last_insert_id();
        Ok(if mark == 0 { token } else { mark as i64 })
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
