//! From a URL or options to a database with our tables.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{BackendFactory, DistributedLock, Error, ErrorKind, Result, Target};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use super::bell::quiet;
use super::error::is_missing_table;
use super::statements::{SCHEMA, SETUP, Statements, VERSION};
use super::{MySqlLock, arguments};
use crate::server::{Again, Answer, Mode, Read, Server, ServerOptions, Statement, Table, TlsMode, fit, fit_mode};

impl ServerOptions {
    /// The script that makes the tables in MySQL and MariaDB: for those who give their programs no right to do so.
    pub fn mysql_schema(&self) -> String {
        self.reached.table.fill(SCHEMA)
    }

    fn for_mysql(&self) -> MySqlConnectOptions {
        let login = &self.login;
        let mut options = MySqlConnectOptions::new().host(&login.host);
        if let Some(port) = login.port {
            options = options.port(port);
        }
        if let Some(socket) = &login.socket {
            options = options.socket(socket);
        }
        if let Some(user) = &login.user {
            options = options.username(user);
        }
        if let Some(password) = &login.password {
            options = options.password(password);
        }
        if let Some(database) = &login.database {
            options = options.database(database);
        }
        if let Some(mode) = self.tls.mode {
            options = options.ssl_mode(match mode {
                TlsMode::Disable => MySqlSslMode::Disabled,
                TlsMode::Prefer => MySqlSslMode::Preferred,
                TlsMode::Require => MySqlSslMode::Required,
                TlsMode::VerifyCa => MySqlSslMode::VerifyCa,
                TlsMode::VerifyFull => MySqlSslMode::VerifyIdentity,
            });
        }
        if let Some(root) = &self.tls.root {
            options = options.ssl_ca(root);
        }
        if let (Some(certificate), Some(key)) = (&self.tls.certificate, &self.tls.key) {
            options = options.ssl_client_cert(certificate).ssl_client_key(key);
        }
        options
    }
}

impl MySqlLock {
    /// Connects, in bounded time, and makes the tables if they are missing. It must be called, and the lock be used,
    /// within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an option that cannot be, [`ErrorKind::Unavailable`] if the server cannot be reached
    /// or is read-only, [`ErrorKind::Refused`] for a wrong user or password, missing rights, and tables of another
    /// shape, [`ErrorKind::Unsupported`] for `pooler` and `mode=session`, for one of several primaries (Galera, Group Replication), and for TLS
    /// where it is not built in.
    ///
    /// # Cancel safety
    /// Nothing is held yet. The tables may have been made.
    pub async fn with(options: ServerOptions) -> Result<Self> {
        options.check_without_shedlock()?;
        Self::of(&options).await
    }

    /// Whether ShedLock's table is joined or not.
    pub(crate) async fn of(options: &ServerOptions) -> Result<Self> {
        let prefix = options.check()?;
        if options.mode == Mode::Session {
            let message = "mode=session is for PostgreSQL; leave `mode` off";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        if options.pooler {
            let message = "pooler is for PostgreSQL; MySQL needs connections of its own";
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let setup = Statement::from(SETUP);
        let connect = options.for_mysql();
        let lock = Self {
            bell: quiet(connect.clone()),
            server: Arc::new(Server::new(connect, &options.reached, Some(setup), None)),
            statements: Arc::new(Statements::new(&options.reached.table)),
            sweeper: Arc::default(),
            prefix,
            unsettled: Arc::default(),
            line: Arc::default(),
            waiters: Arc::default(),
            client: Arc::default(),
        };
        lock.check_settings().await?;
        lock.make_tables(options).await?;
        lock.sweep_if_due();
        Ok(lock)
    }

    async fn make_tables(&self, options: &ServerOptions) -> Result<()> {
        let table = &options.reached.table;
        let mut probed = self.server.run(&self.statements.probe, arguments!(), Again::Yes).await;
        if probed.is_err() {
            // Tables of another mode have another shape, and so do those of another version.
            if let Ok(found) = self.server.run(&self.statements.mode, arguments!(), Again::Yes).await {
                let version = self.fit_mode(&found, table)?;
                // While somebody else is making them, they are of none.
                version.map_or(Ok(()), |version| fit(Some(version), VERSION, &self.server.shown, table))?;
            }
        }
        if probed.as_ref().is_err_and(is_missing_table) {
            self.server.script(&options.mysql_schema()).await?;
            probed = self.server.run(&self.statements.probe, arguments!(), Again::Yes).await;
        }
        let version = self.fit_mode(&probed?, table)?;
        fit(version, VERSION, &self.server.shown, table)
    }

    /// Answers the version of the tables, if they are of this mode.
    fn fit_mode(&self, found: &Answer<sqlx::MySql>, table: &Table) -> Result<Option<i64>> {
        let Some(row) = found.rows.first() else { return Ok(None) };
        let mode: Option<String> = row.read("mode")?;
        fit_mode(mode.as_deref(), Mode::Row, &self.server.shown, table)?;
        row.read("version")
    }
}

/// Connects to `mysql://user:password@host:port/database`, and the same with `mariadb:`.
///
/// Its own settings are `table`, `shedlock`, `timeout` and `connections`, see [`ServerOptions`]; `host` (also the path of a
/// socket), `user`, `password` and `dbname`, which go before what the URL says; and `sslmode`, `sslrootcert`, `sslcert`
/// and `sslkey`, with the meanings that PostgreSQL gives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct MySqlFactory;

#[async_trait]
impl BackendFactory for MySqlFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["mysql", "mariadb"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let options = ServerOptions::from_target(target)?;
        Ok(match &options.shedlock {
            Some(_) => MySqlLock::with_shedlock(options).await?,
            None => Arc::new(MySqlLock::with(options).await?),
        })
    }

    fn schema(&self, target: Target) -> Result<String> {
        Ok(ServerOptions::from_target(target)?.mysql_schema())
    }
}
