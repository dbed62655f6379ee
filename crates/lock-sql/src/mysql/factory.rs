//! From a URL or options to a database with our tables.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{BackendFactory, DistributedLock, Result, Target};
use sqlx::mysql::{MySqlConnectOptions, MySqlSslMode};

use super::bell::quiet;
use super::error::is_missing_table;
use super::statements::{MODE, SCHEMA, SETUP, Statements, VERSION};
use super::{MySql, MySqlLock, MySqlSessionLock, arguments, session};
use crate::server::{Again, Answer, Mode, Read, Server, ServerOptions, Statement, Table, TlsMode, fit, fit_mode};

impl ServerOptions {
    /// The script that makes the tables in MySQL and MariaDB: for those who give their programs no right to do so.
    pub fn mysql_schema(&self) -> String {
        self.reached.table.fill(SCHEMA)
    }

    /// The same for a [`MySqlSessionLock`].
    pub fn mysql_session_schema(&self) -> String {
        self.reached.table.fill(session::SCHEMA)
    }

    pub(super) fn for_mysql(&self) -> MySqlConnectOptions {
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
    /// shape, [`ErrorKind::Unsupported`] for `pooler`, for one of several primaries (Galera, Group Replication), and
    /// for TLS where it is not built in.
    ///
    /// # Cancel safety
    /// Nothing is held yet. The tables may have been made.
    ///
    /// [`ErrorKind::Invalid`]: lock_core::ErrorKind::Invalid
    /// [`ErrorKind::Refused`]: lock_core::ErrorKind::Refused
    /// [`ErrorKind::Unavailable`]: lock_core::ErrorKind::Unavailable
    /// [`ErrorKind::Unsupported`]: lock_core::ErrorKind::Unsupported
    pub async fn with(options: ServerOptions) -> Result<Self> {
        options.check_without_shedlock()?;
        Self::of(&options).await
    }

    /// Whether ShedLock's table is joined or not.
    pub(crate) async fn of(options: &ServerOptions) -> Result<Self> {
        let prefix = options.check()?;
        options.check_without_pooler()?;
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
        let tables = Tables { server: &lock.server, table: &options.reached.table, mode: Mode::Row };
        tables.make(&lock.statements.probe, &options.mysql_schema()).await?;
        lock.sweep_if_due();
        Ok(lock)
    }
}

/// The tables that a client is to use.
pub(super) struct Tables<'a> {
    pub(super) server: &'a Server<MySql>,
    pub(super) table: &'a Table,
    pub(super) mode: Mode,
}

impl Tables<'_> {
    /// Makes them if they are missing. `probe` answers their mode and version, and fails if they have another shape.
    pub(super) async fn make(&self, probe: &Statement, schema: &str) -> Result<()> {
        let mut probed = self.server.run(probe, arguments!(), Again::Yes).await;
        if probed.is_err() {
            // Tables of another mode have another shape, and so do those of another version.
            let which = Statement::from(self.table.fill(MODE));
            if let Ok(found) = self.server.run(&which, arguments!(), Again::Yes).await {
                let version = self.fit_mode(&found)?;
                version.map_or(Ok(()), |version| fit(Some(version), VERSION, &self.server.shown, self.table))?;
            }
        }
        if probed.as_ref().is_err_and(is_missing_table) {
            self.server.script(schema).await?;
            probed = self.server.run(probe, arguments!(), Again::Yes).await;
        }
        let version = self.fit_mode(&probed?)?;
        fit(version, VERSION, &self.server.shown, self.table)
    }

    /// Answers the version of the tables, if they are of this mode.
    fn fit_mode(&self, found: &Answer<sqlx::MySql>) -> Result<Option<i64>> {
        let Some(row) = found.rows.first() else { return Ok(None) };
        let (mode, version): (Option<String>, Option<i64>) = (row.read("mode")?, row.read("version")?);
        // While somebody else is making them, they are of neither.
        if mode.is_some() || version.is_some() {
            fit_mode(mode.as_deref(), self.mode, &self.server.shown, self.table)?;
        }
        Ok(version)
    }
}

/// Connects to `mysql://user:password@host:port/database`, and the same with `mariadb:`.
///
/// Its own settings are `mode`: `row`, the default, for a [`MySqlLock`], or `session`, for a [`MySqlSessionLock`];
/// `table`, `shedlock`, `timeout` and `connections`, see [`ServerOptions`]; `host` (also the path of a socket), `user`,
/// `password` and `dbname`, which go before what the URL says; and `sslmode`, `sslrootcert`, `sslcert` and `sslkey`,
/// with the meanings that PostgreSQL gives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct MySqlFactory;

#[async_trait]
impl BackendFactory for MySqlFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["mysql", "mariadb"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let options = ServerOptions::from_target(target)?;
        Ok(match options.mode {
            Mode::Row if options.shedlock.is_some() => MySqlLock::with_shedlock(options).await?,
            Mode::Row => Arc::new(MySqlLock::with(options).await?),
            Mode::Session => Arc::new(MySqlSessionLock::with(options).await?),
        })
    }

    fn schema(&self, target: Target) -> Result<String> {
        let options = ServerOptions::from_target(target)?;
        Ok(match options.mode {
            Mode::Row => options.mysql_schema(),
            Mode::Session => options.mysql_session_schema(),
        })
    }
}
