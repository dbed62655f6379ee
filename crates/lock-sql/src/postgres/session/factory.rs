//! From options to a database with our tables.

use std::sync::Arc;

use lock_core::{Error, ErrorKind, Result, warn_of};
use sqlx::postgres::PgConnectOptions;

use super::super::factory::Found;
use super::super::statements::the_row;
use super::statements::{OLDEST, Statements};
use super::{PostgresSessionLock, arguments};
use crate::server::{Again, Mode, Read, Server, ServerOptions, fit, fit_mode};

/// Of the tables.
const VERSION: i64 = 8;

/// The first server that can end a transaction for its age, be it one that waits.
const ENDS_OLD_TRANSACTIONS: i64 = 170_000;

impl ServerOptions {
    /// What a session is told first: nothing but the client ends its waits, which may be long; the server looks each
    /// second whether the client of one that waits is still there, and soon notices a host that is gone without a word;
    /// notes are found by their keys, and none waits for the disk.
    fn for_sessions(&self, schema: &str, server: i64) -> PgConnectOptions {
        let connect = self.for_postgres().options([
            ("statement_timeout", "0"),
            ("lock_timeout", "0"),
            ("client_connection_check_interval", "1000"),
            ("tcp_keepalives_idle", "10"),
            ("tcp_keepalives_interval", "5"),
            ("tcp_keepalives_count", "4"),
            ("synchronous_commit", "off"),
            // Who repeats a release is warned that nothing is left to unlock.
            ("client_min_messages", "error"),
            ("default_transaction_isolation", "read committed"),
            ("enable_seqscan", "off"),
            ("enable_bitmapscan", "off"),
            ("jit", "off"),
        ]);
        let connect = connect.options((server >= ENDS_OLD_TRANSACTIONS).then_some(("transaction_timeout", "0")));
        connect.options([("search_path", format!("{schema}, pg_temp"))]).statement_cache_capacity(0)
    }
}

impl PostgresSessionLock {
    /// Connects, in bounded time, and makes the tables if they are missing. It must be called, and the lock be used,
    /// within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// As for [`PostgresLock::with`](crate::PostgresLock::with); [`ErrorKind::Invalid`] also for a pooler, and for
    /// ShedLock's table; [`ErrorKind::Refused`] for tables whose locks are rows; [`ErrorKind::Unsupported`] for a
    /// server that is older than PostgreSQL 14, and for one behind a pooler that lends connections.
    ///
    /// # Cancel safety
    /// Nothing is held yet. The tables may have been made.
    pub async fn with(options: ServerOptions) -> Result<Self> {
        let prefix = options.check()?;
        if options.pooler {
            let message =
                "mode=session needs sessions of its own: leave `pooler` off and go past the pooler, or use mode=row";
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        options.check_rows_of_shedlock()?;
        let statements = Statements::new(&options.reached.table);
        let found = Found::by(&options).await?;
        let schema = options.reached.table.schema().map_or(found.schema, str::to_owned);
        if found.server < OLDEST {
            let message = format!(
                "the server {}: mode=session needs PostgreSQL 14, which can end an idle session, and this is {}; upgrade it, or \
                 use mode=row",
                options.reached.shown,
                found.server / 10_000
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let lock = Self {
            connecting: options.for_sessions(&schema, found.server),
            server: Arc::new(Server::new(options.connecting(Some(&schema)), &options.reached, None, None)),
            statements: Arc::new(statements),
            prefix,
            sessions: Arc::default(),
            claims: Arc::default(),
            sweeper: Arc::default(),
            schema,
        };
        if !found.made {
            lock.server.script(&options.postgres_session_schema()).await?;
        }
        let (shown, table) = (&lock.server.shown, &options.reached.table);
        // First, for those of the other mode have another shape, and so do those of another version.
        let mode = super::super::statements::Statements::new(table).mode;
        let probed = lock.server.run(&mode, arguments!(), Again::Yes).await?;
        fit_mode(the_row(&probed)?.read("mode")?, Mode::Session, shown, table)?;
        fit(the_row(&probed)?.read("version")?, VERSION, shown, table)?;
        lock.server.run(&lock.statements.probe, arguments!(), Again::Yes).await?;
        lock.raise(None).await?;
        lock.sweep();
        warn_of(&lock.findings().await.unwrap_or_default(), &lock.server.shown);
        Ok(lock)
    }
}
