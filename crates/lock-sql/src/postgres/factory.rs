//! From a URL or options to a database with our tables.

use std::sync::Arc;

use async_trait::async_trait;
use lock_core::{BackendFactory, DistributedLock, Error, ErrorKind, Result, Target, warn_of};
use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::acquire::takes;
use super::error::Postgres;
use super::release::releases;
use super::statements::{SCHEMA, Statements, VERSION, the_row};
use super::{PostgresLock, PostgresSessionLock, arguments, session};
use crate::server::{Again, Mode, Read, Server, ServerOptions, Statement, TlsMode, fit, fit_mode};

impl ServerOptions {
    /// The script that makes the tables and functions in PostgreSQL: for those who give their programs no right to do
    /// so.
    pub fn postgres_schema(&self) -> String {
        self.reached.table.fill(SCHEMA)
    }

    /// The same for a [`PostgresSessionLock`].
    pub fn postgres_session_schema(&self) -> String {
        self.reached.table.fill(session::SCHEMA)
    }

    pub(super) fn for_postgres(&self) -> PgConnectOptions {
        let login = &self.login;
        let mut options = PgConnectOptions::new_without_pgpass().host(&login.host).application_name("oarlock");
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
        // As PostgreSQL's own programs do.
        let database = login.database.clone().unwrap_or_else(|| options.get_username().to_owned());
        options = options.database(&database);
        if let Some(mode) = self.tls.mode {
            options = options.ssl_mode(match mode {
                TlsMode::Disable => PgSslMode::Disable,
                TlsMode::Prefer => PgSslMode::Prefer,
                TlsMode::Require => PgSslMode::Require,
                TlsMode::VerifyCa => PgSslMode::VerifyCa,
                TlsMode::VerifyFull => PgSslMode::VerifyFull,
            });
        }
        if let Some(root) = &self.tls.root {
            options = options.ssl_root_cert(root);
        }
        if let (Some(certificate), Some(key)) = (&self.tls.certificate, &self.tls.key) {
            options = options.ssl_client_cert(certificate).ssl_client_key(key);
        }
        options
    }

    /// With the schema of the tables, once that is known: it alone is searched, so that the names in statements and in
    /// functions mean the same tables over each connection. Temporary ones come last, or they would come first.
    pub(super) fn connecting(&self, schema: Option<&str>) -> PgConnectOptions {
        let connect = self.for_postgres();
        if self.pooler {
            // A pooler refuses settings that it cannot have for each client.
            return connect.statement_cache_capacity(0).extra_float_digits(None);
        }
        // Our functions see what was committed before each of their statements.
        let connect = connect.options(self.bounds()).options([("default_transaction_isolation", "read committed")]);
        connect.options(schema.map(|schema| ("search_path", format!("{schema}, pg_temp"))))
    }

    /// Without the schema of the tables: as the user's own programs find things there.
    pub(crate) fn server(&self, schema: Option<&str>) -> Server<Postgres> {
        let transaction = self.pooler.then(|| {
            let bounds = self.bounds().map(|(name, value)| format!("SET LOCAL {name} = {value};"));
            let search = schema.map(|schema| format!("SET LOCAL search_path = {schema}, pg_temp;"));
            let begin =
                format!("BEGIN ISOLATION LEVEL READ COMMITTED; {}{}", bounds.concat(), search.unwrap_or_default());
            (Statement::from(begin), Statement::from("COMMIT"))
        });
        Server::new(self.connecting(schema), &self.reached, None, transaction)
    }

    /// What bounds a request in the server: rows are found by their keys, and it ends before our own patience is over.
    fn bounds(&self) -> [(&'static str, String); 6] {
        let limit = self.reached.timeout.as_millis();
        [
            // A plan is kept for long: one that was made while a table was small must not read all of it when it has grown.
            ("enable_seqscan", "off".to_owned()),
            ("enable_bitmapscan", "off".to_owned()),
            // What has no index to go by is therefore taken for costly, and would be compiled for tenths of a second.
            ("jit", "off".to_owned()),
            ("lock_timeout", (limit / 2).to_string()),
            ("statement_timeout", (limit * 3 / 4).to_string()),
            ("idle_in_transaction_session_timeout", (limit * 2).to_string()),
        ]
    }
}

impl PostgresLock {
    /// Connects, in bounded time, and makes the tables if they are missing. It must be called, and the lock be used,
    /// within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for an option that cannot be, [`ErrorKind::Unavailable`] if the server cannot be reached
    /// or is a standby, [`ErrorKind::Refused`] for a wrong user or password, missing rights, and tables of another
    /// shape, [`ErrorKind::Unsupported`] for TLS where it is not built in.
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
        let statements = Statements::new(&options.reached.table);
        let found = Found::by(options).await?;
        let schema = options.reached.table.schema().map_or(found.schema, str::to_owned);
        let (server, statements) = (Arc::new(options.server(Some(&schema))), Arc::new(statements));
        // A pooler's client that is stopped would keep the locks of all that it sent with others.
        let most = if options.pooler { usize::MAX } else { (options.reached.connections / 2).max(1) };
        let lock = Self {
            takes: takes(&server, &statements, most),
            releases: releases(&server, &statements, most),
            statements,
            prefix,
            unsettled: Arc::default(),
            waiters: Arc::default(),
            client: Arc::default(),
            sweeper: Arc::default(),
            listens: (!options.pooler).then(|| options.connecting(Some(&schema))),
            timeout: options.reached.timeout,
            server,
            schema_is_chosen: options.reached.table.schema().is_some(),
            schema,
        };
        if !found.made {
            lock.server.script(&options.postgres_schema()).await?;
        }
        let (shown, table) = (&lock.server.shown, &options.reached.table);
        let probed = match lock.server.run(&lock.statements.probe, arguments!(), Again::Yes).await {
            Ok(probed) => probed,
            Err(error) => {
                // Tables of the other mode have another shape, and so do those of another version.
                if let Ok(probed) = lock.server.run(&lock.statements.mode, arguments!(), Again::Yes).await {
                    fit_mode(the_row(&probed)?.read("mode")?, Mode::Row, shown, table)?;
                    fit(the_row(&probed)?.read("version")?, VERSION, shown, table)?;
                }
                return Err(error);
            }
        };
        fit_mode(the_row(&probed)?.read("mode")?, Mode::Row, shown, table)?;
        fit(the_row(&probed)?.read("version")?, VERSION, shown, table)?;
        lock.sweep_if_due();
        warn_of(&lock.findings().await.unwrap_or_default(), &lock.server.shown);
        Ok(lock)
    }
}

/// Which tables are meant, and on which server.
pub(super) struct Found {
    pub(super) made: bool,
    /// Quoted where it must be.
    pub(super) schema: String,
    /// The server's version, as in 150004.
    pub(super) server: i64,
}

impl Found {
    /// Once, and over a connection that is not used again: another one might be led to other tables, by other settings of
    /// its user, or because somebody makes some.
    pub(super) async fn by(options: &ServerOptions) -> Result<Self> {
        let (server, statements) = (options.server(None), Statements::new(&options.reached.table));
        let found = server.run(&statements.find, arguments!(), Again::Yes).await;
        server.close().await;
        let found = found?;
        let row = the_row(&found)?;
        if row.read("standby")? {
            let message = format!("the server {} is a standby; name the primary", server.shown);
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
        // Without any, the server says so when the tables are made.
        let schema = row.read::<Option<String>, _>("schema")?.unwrap_or_else(|| "public".to_owned());
        Ok(Self { made: row.read("made")?, schema, server: row.read("server")? })
    }
}

/// Connects to `postgres://user:password@host:port/database`.
///
/// Its own settings are `mode`: `row`, the default, for a [`PostgresLock`], or `session`, for a [`PostgresSessionLock`];
/// `table`, `shedlock`, `timeout`, `connections` and `pooler`, see [`ServerOptions`]; `host` (also the folder of a socket), `user`,
/// `password` and `dbname`, which go before what the URL says; and `sslmode`, `sslrootcert`, `sslcert` and `sslkey`, as
/// for PostgreSQL's own programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct PostgresFactory;

#[async_trait]
impl BackendFactory for PostgresFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["postgres", "postgresql"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let options = ServerOptions::from_target(target)?;
        Ok(match options.mode {
            Mode::Row if options.shedlock.is_some() => PostgresLock::with_shedlock(options).await?,
            Mode::Row => Arc::new(PostgresLock::with(options).await?),
            Mode::Session => Arc::new(PostgresSessionLock::with(options).await?),
        })
    }

    fn schema(&self, target: Target) -> Result<String> {
        let options = ServerOptions::from_target(target)?;
        Ok(match options.mode {
            Mode::Row => options.postgres_schema(),
            Mode::Session => options.postgres_session_schema(),
        })
    }
}
