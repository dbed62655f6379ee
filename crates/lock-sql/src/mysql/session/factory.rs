//! From options to a database with our tables.

use std::sync::Arc;

use lock_core::{Error, ErrorKind, Result};

use super::statements::Statements;
use super::{MySqlSessionLock, arguments};
use crate::mysql::bell::quiet;
use crate::mysql::factory::Tables;
use crate::mysql::statements::SETUP;
use crate::server::{Again, Mode, Read, Server, ServerOptions, Statement};

impl MySqlSessionLock {
    /// Connects, in bounded time, and makes the tables if they are missing. It must be called, and the lock be used,
    /// within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// As for [`MySqlLock::with`](crate::MySqlLock::with); [`ErrorKind::Invalid`] also for ShedLock's table;
    /// [`ErrorKind::Refused`] for tables whose locks are rows; [`ErrorKind::Unsupported`] for a server of Galera or of
    /// Group Replication, and for one behind something that lends connections.
    ///
    /// # Cancel safety
    /// Nothing is held yet. The tables may have been made.
    pub async fn with(options: ServerOptions) -> Result<Self> {
        let prefix = options.check()?;
        options.check_without_pooler()?;
        options.check_rows_of_shedlock()?;
        let connect = options.for_mysql();
        let mut lock = Self {
            connecting: quiet(connect.clone()),
            server: Arc::new(Server::new(connect, &options.reached, Some(Statement::from(SETUP)), None)),
            statements: Arc::new(Statements::new(&options.reached.table)),
            prefix,
            sessions: Arc::default(),
            claims: Arc::default(),
            sweeper: Arc::default(),
            space: Arc::from(""),
            ceiling: Arc::default(),
        };
        lock.check_settings().await?;
        let tables = Tables { server: &lock.server, table: &options.reached.table, mode: Mode::Session };
        tables.make(&lock.statements.probe, &options.mysql_session_schema()).await?;
        let answer = lock.server.run(&"SELECT DATABASE()".into(), arguments!(), Again::Yes).await?;
        let database: Option<String> = answer.rows.first().map_or(Ok(None), |row| row.read(0))?;
        let database = database.unwrap_or_default();
        let (database, table) = options.reached.table.in_database(&database);
        // Some servers take databases of different cases for one.
        lock.space = Arc::from(format!("{}.{table}", database.to_lowercase()));
        lock.raise_to_clock().await?;
        lock.try_a_session().await?;
        lock.sweep();
        Ok(lock)
    }
}

impl ServerOptions {
    pub(in crate::mysql) fn check_without_pooler(&self) -> Result<()> {
        if self.pooler {
            let message = "pooler is for PostgreSQL; MySQL needs connections of its own";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        Ok(())
    }
}
