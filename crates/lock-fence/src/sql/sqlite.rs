//! The marks in SQLite.

use lock_core::HostClock;
use sqlx::error::DatabaseError;
use sqlx::{Sqlite, SqliteConnection};

use super::lock_in::taking::Take;
use super::sealed::{Marks, Trouble};

/// $1 name, $2 token. Answers the mark. It makes the transaction the only one that writes, which fails if it has read
/// from an older state of the file.
const RAISE: &str = "INSERT INTO oarlock_fence (name, token) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token) RETURNING token";

/// $1 name. Answers the mark. What the transaction reads is from the same state of the file, whoever writes meanwhile.
const LOOK: &str = "SELECT token FROM oarlock_fence WHERE name = $1";

/// $1 the lock's key, $2 this boot of the host, $3 its time, $4 the wall clock. Answers the token, unless a lease runs, or a
/// kept hold. Whether one does is told as the lock store tells it: a row of another boot goes by the wall clock.
const TAKE: &str = "
    INSERT INTO oarlock_lock AS l (name, owner, lease_us, since_us, expires_us, expires_wall_us, boot, token)
        VALUES ($1, NULL, 0, $3, $3, $4, $2, max($4, (SELECT value FROM oarlock_meta WHERE key = 'floor') + 1))
    ON CONFLICT (name) DO UPDATE SET owner = NULL, token = max(l.token + 1, excluded.token)
        WHERE l.owner IS NULL OR NOT CASE WHEN l.boot = $2 THEN l.expires_us > $3
            WHEN l.expires_wall_us - $4 <= l.lease_us THEN l.expires_wall_us > $4
            ELSE substr(l.owner, 1, 5) = 'kept#' AND l.lease_us > $3 END
    RETURNING token";

impl Marks for Sqlite {
    const STORE: &str = "sqlite";
    const SCHEMA: &str = "CREATE TABLE IF NOT EXISTS oarlock_fence (name TEXT PRIMARY KEY NOT NULL, token INTEGER NOT NULL) \
        WITHOUT ROWID";

    async fn raise(connection: &mut SqliteConnection, mark: &str, token: i64) -> sqlx::Result<i64> {
        sqlx::query_scalar(RAISE).bind(mark).bind(token).fetch_one(connection).await
    }

    async fn look(connection: &mut SqliteConnection, mark: &str) -> sqlx::Result<Option<i64>> {
        sqlx::query_scalar(LOOK).bind(mark).fetch_optional(connection).await
    }

    fn explain(error: &dyn DatabaseError) -> Trouble {
        // The last byte is the code, the others say more of it.
        let code = error.code().and_then(|code| code.parse::<u32>().ok()).unwrap_or_default() & 0xff;
        match code {
            // Busy, and locked within this process.
            5 | 6 => Trouble::Conflict,
            1 if error.message().starts_with("no such table") => Trouble::NoTable,
            _ => Trouble::Other,
        }
    }
}

impl Take for Sqlite {
    /// The time is read before the transaction has the file to itself, for which it may wait. So a lease that ends meanwhile
    /// still counts.
    async fn take(connection: &mut SqliteConnection, key: &str) -> sqlx::Result<Option<i64>> {
        let clock = HostClock::new();
        let now = clock.now();
        let take = sqlx::query_scalar(TAKE).bind(key).bind(clock.boot()).bind(now.host_us).bind(now.wall_us);
        take.fetch_optional(connection).await
    }
}
