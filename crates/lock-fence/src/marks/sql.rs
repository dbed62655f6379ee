//! Marks in a SQL database.

use lock_core::{Error, ErrorKind, Result};
use sqlx::Pool;

use super::Marks;
use crate::Access;
use crate::sql::{self, Fenced};

/// How often a check is made anew while other transactions are in its way.
const TRIES: usize = 3;

/// Marks in PostgreSQL, MySQL, MariaDB or SQLite, in the table `oarlock_fence`, which [`sql::schema`] makes. All servers
/// with this database share them, and with [`sql::check`].
///
/// A check is one statement, which waits for the disk. A holder of several permits has a transaction.
#[derive(Debug)]
pub struct SqlMarks<DB: Fenced> {
    pool: Pool<DB>,
}

impl<DB: Fenced> SqlMarks<DB> {
    /// The marks in the database of this pool.
    pub fn new(pool: Pool<DB>) -> Self {
        Self { pool }
    }

    async fn try_check(&self, access: &Access) -> Result<()> {
        if access.slots().len() < 2 {
            let mut connection = self.pool.acquire().await.map_err(no_connection)?;
            return sql::check_on::<DB>(&mut connection, access).await;
        }
        let mut tx = self.pool.begin().await.map_err(no_connection)?;
        sql::check_on::<DB>(&mut tx, access).await?;
        tx.commit()
            .await
            .map_err(|error| Error::new(ErrorKind::Unknown, "the commit was not confirmed").with_source(error))
    }
}

impl<DB: Fenced> Marks for SqlMarks<DB> {
    async fn check(&self, access: &Access) -> Result<()> {
        let mut tries = 1;
        loop {
            match self.try_check(access).await {
                Err(error) if error.kind() == ErrorKind::Conflict && tries < TRIES => tries += 1,
                checked => return checked,
            }
        }
    }
}

fn no_connection(error: sqlx::Error) -> Error {
    Error::new(ErrorKind::Unavailable, "the database of the marks cannot be reached; try again").with_source(error)
}
