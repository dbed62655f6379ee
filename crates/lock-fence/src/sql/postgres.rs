//! The marks in PostgreSQL.

use sqlx::error::DatabaseError;
use sqlx::{PgConnection, Postgres};

use super::lock_in::taking::Take;
use super::sealed::{Marks, Trouble};

/// $1 name, $2 token. Answers the mark if it was not higher. Either way its row is locked, in its newest version: where
/// the transaction's snapshot has an older one, PostgreSQL fails with a serialization failure instead.
const RAISE: &str = "INSERT INTO oarlock_fence AS mark (name, token) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET token = excluded.token WHERE mark.token <= excluded.token RETURNING token";

/// $1 name. For the error alone; the row is locked already.
const MARK: &str = "SELECT token FROM oarlock_fence WHERE name = $1";

/// $1 name. Answers the mark in its newest version, or fails as above.
const LOOK: &str = "SELECT token FROM oarlock_fence WHERE name = $1 FOR SHARE";

/// $1 the lock's key. Answers the token, unless a lease runs. Like all who change a lock, it has the row first; the condition
/// and the clock are come to afterwards.
const TAKE: &str = "INSERT INTO oarlock_lock AS l (name, token, lease_us, since_us, expires_us, waited_for) VALUES ($1,
        greatest((SELECT value FROM oarlock_meta WHERE key = 'floor') + 1, oarlock_now()), 0, 0, 0,
        EXISTS (SELECT FROM oarlock_waiter WHERE name = $1))
    ON CONFLICT (name) DO UPDATE SET owner = NULL, token = greatest(l.token + 1, oarlock_now())
        WHERE l.owner IS NULL OR l.expires_us <= oarlock_now() RETURNING token";

impl Marks for Postgres {
    const STORE: &str = "postgres";
    const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS oarlock_fence (name text COLLATE \"C\" PRIMARY KEY, token bigint NOT NULL) \
        WITH (fillfactor = 50)";

    async fn raise(connection: &mut PgConnection, mark: &str, token: i64) -> sqlx::Result<i64> {
        let raised = sqlx::query_scalar(RAISE).bind(mark).bind(token).fetch_optional(&mut *connection).await?;
        match raised {
            Some(raised) => Ok(raised),
            None => sqlx::query_scalar(MARK).bind(mark).fetch_one(connection).await,
        }
    }

    async fn look(connection: &mut PgConnection, mark: &str) -> sqlx::Result<Option<i64>> {
        sqlx::query_scalar(LOOK).bind(mark).fetch_optional(connection).await
    }

    fn explain(error: &dyn DatabaseError) -> Trouble {
        match error.code().as_deref() {
            // A serialization failure, a deadlock, and a lock that was not free within `lock_timeout`.
            Some("40001" | "40P01" | "55P03") => Trouble::Conflict,
            Some("42P01") => Trouble::NoTable,
            _ => Trouble::Other,
        }
    }
}

impl Take for Postgres {
    async fn take(connection: &mut PgConnection, key: &str) -> sqlx::Result<Option<i64>> {
        sqlx::query_scalar(TAKE).bind(key).fetch_optional(connection).await
    }
}
