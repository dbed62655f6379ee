//! The marks in SQLite.

use sqlx::error::DatabaseError;
use sqlx::{Sqlite, SqliteConnection};

use super::sealed::{Marks, Trouble};

/// $1 name, $2 token. Answers the mark. It makes the transaction the only one that writes, which fails if it has read
/// from an older state of the file.
const RAISE: &str = "INSERT INTO oarlock_fence (name, token) VALUES ($1, $2)
    ON CONFLICT (name) DO UPDATE SET token = max(token, excluded.token) RETURNING token";

/// $1 name. Answers the mark. What the transaction reads is from the same state of the file, whoever writes meanwhile.
const LOOK: &str = "SELECT token FROM oarlock_fence WHERE name = $1";

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
