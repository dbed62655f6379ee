//! From a URL or options to a server.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    BackendUrl, Clock, Error, ErrorKind, OneServer, Params, Result, SystemClock, Target, check_prefix, check_timeout,
    invalid_url, read_file,
};

use crate::keys::Prefix;
use crate::shedlock::TableName;

/// The parameters of the URL, and the settings of the config, that are a server's own.
const KNOWN: [&str; 14] = [
    "table",
    "shedlock",
    "mode",
    "timeout",
    "connections",
    "pooler",
    "host",
    "user",
    "password",
    "dbname",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
];

/// What can be chosen when connecting to PostgreSQL, MySQL or MariaDB.
#[derive(Clone)]
pub struct ServerOptions {
    pub(crate) login: Login,
    pub(crate) tls: Tls,
    pub(crate) pooler: bool,
    /// For a factory.
    pub(crate) mode: Mode,
    /// ShedLock's table, if that is joined.
    pub(crate) shedlock: Option<TableName>,
    pub(crate) reached: Reached,
}

/// Where the server is, and who we are there.
#[derive(Clone, Default)]
pub(crate) struct Login {
    pub(crate) host: String,
    pub(crate) port: Option<u16>,
    /// Instead of host and port: PostgreSQL's folder of sockets, MySQL's socket.
    pub(crate) socket: Option<PathBuf>,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<String>,
}

/// How the connection is to be protected.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    pub(crate) mode: Option<TlsMode>,
    pub(crate) root: Option<PathBuf>,
    pub(crate) certificate: Option<PathBuf>,
    pub(crate) key: Option<PathBuf>,
}

/// The modes of PostgreSQL's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TlsMode {
    Disable,
    Prefer,
    Require,
    VerifyCa,
    VerifyFull,
}

impl FromStr for TlsMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Ok(match text {
            "disable" => Self::Disable,
            "prefer" => Self::Prefer,
            "require" => Self::Require,
            "verify-ca" => Self::VerifyCa,
            "verify-full" => Self::VerifyFull,
            _ => {
                let modes = "there are disable, prefer, require, verify-ca and verify-full";
                return Err(Error::new(ErrorKind::Invalid, format!("{text:?} is no mode; {modes}")));
            }
        })
    }
}

/// What a lock is in the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mode {
    /// A row.
    #[default]
    Row,
    /// What a session of the server has.
    Session,
}

impl FromStr for Mode {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "row" => Ok(Self::Row),
            "session" => Ok(Self::Session),
            _ => Err(Error::new(ErrorKind::Invalid, format!("{text:?} is no mode; there are row and session"))),
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Row => "row",
            Self::Session => "session",
        })
    }
}

/// What is the same for all requests to a server.
#[derive(Clone)]
pub(crate) struct Reached {
    /// The server as it may be shown.
    pub(crate) shown: String,
    pub(crate) prefix: String,
    pub(crate) table: Table,
    pub(crate) timeout: Duration,
    pub(crate) connections: usize,
    pub(crate) clock: Arc<dyn Clock>,
}

/// What the names of all our tables begin with, perhaps after a schema and a dot. It stands in statements as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Table(String);

impl FromStr for Table {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let is_name = |name: &str| {
            let allowed = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
            (1..=40).contains(&name.len())
                && name.chars().all(allowed)
                && !name.starts_with(|c: char| c.is_ascii_digit())
        };
        let parts: Vec<_> = text.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_name(part)) {
            let message = format!(
                "{text:?} cannot be what tables are called: up to 40 of a-z, 0-9 and _, not a digit first, perhaps after a schema \
                 and a dot"
            );
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(Self(text.to_owned()))
    }
}

impl Table {
    /// A statement or script, with `{t}` filled in, and with `{bare}`, which is the same without the schema.
    pub(crate) fn fill(&self, text: &str) -> String {
        text.replace("{t}", &self.0).replace("{bare}", self.bare())
    }

    /// The database and the name in it of what is perhaps in another one.
    #[cfg(feature = "mysql")]
    pub(crate) fn in_database<'a>(&'a self, usual: &'a str) -> (&'a str, &'a str) {
        self.0.split_once('.').unwrap_or((usual, &self.0))
    }

    /// The schema, if one is named.
    #[cfg(feature = "postgres")]
    pub(crate) fn schema(&self) -> Option<&str> {
        self.0.split_once('.').map(|(schema, _)| schema)
    }

    fn bare(&self) -> &str {
        self.0.split_once('.').map_or(&self.0, |(_, bare)| bare)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reached { shown, prefix, table, timeout, connections, .. } = &self.reached;
        let mut f = f.debug_struct("ServerOptions");
        f.field("server", shown).field("prefix", prefix).field("table", table).field("timeout", timeout);
        f.field("connections", connections).field("shedlock", &self.shedlock).field("tls", &self.tls);
        f.finish_non_exhaustive()
    }
}

impl ServerOptions {
    /// The server of `postgres://user:password@host:port/database`, or the same with `mysql:`, with the prefix
    /// `oarlock`. All but the scheme may be left out.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is no such URL, or has parameters.
    pub fn new(url: &str) -> Result<Self> {
        Self::from_url(&BackendUrl::without_params(url)?)
    }

    /// The prefix of the locks: the same name under another prefix is another lock.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.reached.prefix = prefix.to_owned();
        self
    }

    /// What the names of the tables begin with, `oarlock` unless set, perhaps after a schema and a dot. Locks in other
    /// tables are other locks.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for anything but lower-case letters, digits and `_`.
    pub fn table(mut self, table: &str) -> Result<Self> {
        self.reached.table = table.parse()?;
        Ok(self)
    }

    /// How long a request may take, 2 s unless set, the wait for a connection included.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.reached.timeout = timeout;
        self
    }

    /// The most connections for requests, 8 unless set. PostgreSQL's notifications take one more.
    pub fn connections(mut self, connections: usize) -> Self {
        self.reached.connections = connections;
        self
    }

    /// The connections are those of a pooler that lends them for a transaction at a time, as PgBouncer does. Then
    /// nothing is kept on a connection: a request takes more round trips, and a waiter asks ten times a second. For
    /// PostgreSQL alone.
    pub fn pooler(mut self, pooler: bool) -> Self {
        self.pooler = pooler;
        self
    }

    /// Joins this table of [ShedLock](https://github.com/lukas-krecan/ShedLock)'s, `shedlock` unless it was given
    /// another name, perhaps after a schema and a dot: each lock then holds its row there too, and Java programs that
    /// use ShedLock with the database's time exclude these locks and are excluded. All programs that use our tables
    /// have to join it. The table has to be there.
    ///
    /// For `PostgresLock::with_shedlock` and `MySqlLock::with_shedlock`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for anything but letters of English, digits and `_`.
    pub fn shedlock(mut self, table: &str) -> Result<Self> {
        self.shedlock = Some(table.parse()?);
        Ok(self)
    }

    /// The server's Unix socket instead of its host and port: for PostgreSQL the folder it is in.
    pub fn socket(mut self, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        self.reached.shown = path.display().to_string();
        self.login.socket = Some(path);
        self
    }

    /// The clock that [`Grant::valid_until`](lock_core::Grant::valid_until) is counted on. Leases always go by the
    /// server's.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.reached.clock = clock;
        self
    }

    /// What a factory gets.
    pub(crate) fn from_target(target: Target) -> Result<Self> {
        let Target { url, prefix, mut params, .. } = target;
        let mut options = Self::from_url(&url)?.prefix(&prefix);
        options.take(&mut params)?;
        params.finish(url.scheme(), &KNOWN)?;
        Ok(options)
    }

    fn take(&mut self, params: &mut Params) -> Result<()> {
        let reached = &mut self.reached;
        reached.timeout = params.take_duration("timeout")?.unwrap_or(reached.timeout);
        reached.connections = params.take_parsed("connections")?.unwrap_or(reached.connections);
        if let Some(table) = params.take_parsed("table")? {
            reached.table = table;
        }
        self.pooler = params.take_parsed("pooler")?.unwrap_or(self.pooler);
        self.mode = params.take_parsed("mode")?.unwrap_or(self.mode);
        self.shedlock = params.take_parsed("shedlock")?;
        if let Some(host) = params.take("host") {
            if host.starts_with('/') {
                *self = self.clone().socket(host);
            } else {
                self.login.host = host;
            }
        }
        let login = &mut self.login;
        login.user = params.take("user").or(login.user.take());
        login.password = params.take("password").or(login.password.take());
        login.database = params.take("dbname").or(login.database.take());
        self.tls.mode = params.take_parsed("sslmode")?;
        self.tls.root = params.take("sslrootcert").map(PathBuf::from);
        self.tls.certificate = params.take("sslcert").map(PathBuf::from);
        self.tls.key = params.take("sslkey").map(PathBuf::from);
        Ok(())
    }

    fn from_url(url: &BackendUrl) -> Result<Self> {
        let example = format!("{}://user:password@host/database", url.scheme());
        let OneServer { user, password, host, port, path } = url.server(&example)?;
        if path.contains('/') {
            return Err(invalid_url(url, "it names more than a database", &example));
        }
        let login = Login {
            host: host.unwrap_or_else(|| "localhost".to_owned()),
            port,
            socket: None,
            user,
            password: password.filter(|password| !password.is_empty()),
            database: Some(path).filter(|database| !database.is_empty()),
        };
        let reached = Reached {
            shown: match login.port {
                Some(port) => format!("{}:{port}", login.host),
                None => login.host.clone(),
            },
            prefix: "oarlock".to_owned(),
            table: Table("oarlock".to_owned()),
            timeout: Duration::from_secs(2),
            connections: 8,
            clock: Arc::new(SystemClock),
        };
        Ok(Self { login, tls: Tls::default(), pooler: false, mode: Mode::Row, shedlock: None, reached })
    }

    /// A client that overlooked ShedLock's table would exclude nobody who goes by it.
    pub(crate) fn check_without_shedlock(&self) -> Result<()> {
        match &self.shedlock {
            None => Ok(()),
            Some(table) => {
                let message = format!("ShedLock's table {table} is to be joined: connect by `with_shedlock`");
                Err(Error::new(ErrorKind::Invalid, message))
            }
        }
    }

    /// Locks by sessions have no rows that could join it.
    pub(crate) fn check_rows_of_shedlock(&self) -> Result<()> {
        match &self.shedlock {
            None => Ok(()),
            Some(table) => {
                let message = format!("ShedLock's table {table} can be joined by locks that are rows: use mode=row");
                Err(Error::new(ErrorKind::Invalid, message))
            }
        }
    }

    /// The table of ShedLock that is to be joined.
    pub(crate) fn shedlock_table(&self) -> Result<&TableName> {
        let message = "no table of ShedLock is named: name it by `shedlock`, or connect by `with`";
        self.shedlock.as_ref().ok_or_else(|| Error::new(ErrorKind::Invalid, message))
    }

    /// What has to be right before anything is sent.
    pub(crate) fn check(&self) -> Result<Prefix> {
        let Reached { prefix, timeout, connections, .. } = &self.reached;
        let invalid = |wrong: String| Err(Error::new(ErrorKind::Invalid, wrong));
        check_prefix(prefix, None)?;
        check_timeout(*timeout)?;
        if !(1..=1000).contains(connections) {
            return invalid(format!("{connections} connections are not between 1 and 1000"));
        }
        let Tls { root, certificate, key, .. } = &self.tls;
        for (setting, file) in [("sslrootcert", root), ("sslcert", certificate), ("sslkey", key)] {
            // The driver reads it for each connection; what is wrong with it shows now.
            file.as_deref().map(|file| read_file(setting, file)).transpose()?;
        }
        if certificate.is_some() != key.is_some() {
            return invalid("sslcert and sslkey need each other".to_owned());
        }
        if !cfg!(feature = "tls") && !matches!(self.tls.mode, None | Some(TlsMode::Disable)) {
            return Err(Error::not_built_in("TLS", "tls"));
        }
        Ok(Prefix::new(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read_and_show_no_password() {
        let options = ServerOptions::new("postgres://us%40er:p%2Fw@[::1]:7/locks").unwrap();
        let Login { host, port, user, password, database, .. } = &options.login;
        assert_eq!((host.as_str(), *port, database.as_deref()), ("::1", Some(7), Some("locks")));
        assert_eq!((user.as_deref(), password.as_deref()), (Some("us@er"), Some("p/w")));
        assert!(!format!("{options:?}").contains("p/w"));
        for bad in ["mysql:", "mysql:h", "mysql://h/a/b", "mysql://h?a=1"] {
            assert_eq!(ServerOptions::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }

    #[test]
    fn tables_are_names_and_nothing_else() {
        for good in ["oarlock", "_a1", "app.locks"] {
            assert_eq!(good.parse::<Table>().unwrap().fill("SELECT FROM {t}_lock"), format!("SELECT FROM {good}_lock"));
        }
        for bad in ["", "a b", "a;b", "A", "1a", "a.b.c", "a.", "é", "\"a\"", "a--", &"a".repeat(41)] {
            assert!(bad.parse::<Table>().is_err(), "{bad}");
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let options = || ServerOptions::new("mysql://h").unwrap();
        for bad in [
            options().prefix("a\n"),
            options().timeout(Duration::ZERO),
            options().timeout(Duration::from_secs(61)),
            options().connections(0),
        ] {
            assert_eq!(bad.check().unwrap_err().kind(), ErrorKind::Invalid);
        }
        assert_eq!("sometimes".parse::<TlsMode>().unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!("table".parse::<Mode>().unwrap_err().kind(), ErrorKind::Invalid);
    }
}
