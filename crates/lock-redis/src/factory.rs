//! From a URL or options to a connection.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    BackendFactory, BackendUrl, Clock, DistributedLock, Error, ErrorKind, Params, Result, SystemClock, Target,
};
use percent_encoding::percent_decode_str;
use redis::io::tcp::TcpSettings;
use redis::{Client, ConnectionAddr, IntoConnectionInfo, ProtocolVersion, RedisConnectionInfo};

use crate::RedisLock;
use crate::connection::{Connection, field};
use crate::doctor::findings;
use crate::error;
use crate::keys::Keys;
use crate::waiting::Waiters;

/// The port of a URL without one.
const PORT: u16 = 6379;

/// After so long without an answer to anything, the kernel takes a connection for dead.
const DEAD: Duration = Duration::from_secs(10);

/// The longest that anybody waits for one request.
const LONGEST: Duration = Duration::from_secs(60);

/// What can be chosen when connecting.
#[derive(Clone)]
pub struct RedisOptions {
    address: ConnectionAddr,
    /// The address as it may be shown.
    server: String,
    login: RedisConnectionInfo,
    prefix: String,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("RedisOptions");
        f.field("server", &self.server).field("prefix", &self.prefix).field("timeout", &self.timeout);
        f.finish_non_exhaustive()
    }
}

impl RedisOptions {
    /// The server of `redis://user:password@host:port/database` or `unix:/path/to/socket`, with the prefix `oarlock`.
    /// All but the host may be left out.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is no such URL, or has parameters.
    pub fn new(url: &str) -> Result<Self> {
        if url.contains('?') {
            return Err(Error::new(ErrorKind::Invalid, "give the parameters of the URL by methods"));
        }
        Self::from_url(&url.parse()?)
    }

    fn from_url(url: &BackendUrl) -> Result<Self> {
        let invalid = |wrong: &str| {
            let message = format!("the URL {url}: {wrong}; it looks like redis://user:password@host:6379/0");
            Error::new(ErrorKind::Invalid, message)
        };
        // RESP3, so that messages come over the same connection as answers.
        let mut login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
        if url.scheme() == "unix" {
            let path = url.path()?;
            if path.is_empty() {
                return Err(Error::new(ErrorKind::Invalid, "name the socket, as in unix:/run/redis/redis.sock"));
            }
            return Ok(Self::at(ConnectionAddr::Unix(PathBuf::from(&path)), path, login));
        }
        let server = url.server()?;
        let decode = |text: &str| {
            let text = percent_decode_str(text).decode_utf8().map_err(|_| invalid("user or password is not UTF-8"))?;
            Ok::<_, Error>(text.into_owned())
        };
        let host = server.host_str().filter(|host| !host.is_empty()).ok_or_else(|| invalid("it names no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if !server.username().is_empty() {
            login = login.set_username(decode(server.username())?);
        }
        if let Some(password) = server.password() {
            login = login.set_password(decode(password)?);
        }
        match server.path().trim_matches('/') {
            "" => {}
            database => login = login.set_db(database.parse().map_err(|_| invalid("the database is no number"))?),
        }
        let port = server.port().unwrap_or(PORT);
        let shown = format!("{host}:{port}");
        Ok(Self::at(ConnectionAddr::Tcp(host, port), shown, login))
    }

    fn at(address: ConnectionAddr, server: String, login: RedisConnectionInfo) -> Self {
        let (prefix, timeout) = ("oarlock".to_owned(), Duration::from_secs(2));
        Self { address, server, login, prefix, timeout, clock: Arc::new(SystemClock) }
    }

    /// The prefix of the locks. The key of the lock `x` is `prefix:x`, and with an empty prefix `x`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_owned();
        self
    }

    /// How long the server may take to answer a request, 2 s unless set. A request whose connection broke is sent once more.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The user, the password and the database, as far as the URL does not name them.
    fn login(mut self, params: &mut Params) -> Result<Self> {
        if let Some(user) = params.take("user") {
            self.login = self.login.set_username(user);
        }
        if let Some(password) = params.take("password") {
            self.login = self.login.set_password(password);
        }
        if let Some(database) = params.take_parsed("db")? {
            self.login = self.login.set_db(database);
        }
        Ok(self)
    }

    /// The clock that [`Grant::valid_until`](lock_core::Grant::valid_until) is counted on. Leases always go by the server's.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects, in bounded time, and logs a warning for each setting of the server that voids a promise. It must be called,
    /// and the lock be used, within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a prefix or a time-out that cannot be, [`ErrorKind::Unavailable`] if the server cannot be
    /// reached, [`ErrorKind::Refused`] for a wrong user or password or missing rights, [`ErrorKind::Unsupported`] for a
    /// server older than Redis 6.2.
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(self) -> Result<RedisLock> {
        if self.timeout < Duration::from_millis(1) || self.timeout > LONGEST {
            let wrong = format!("the time-out is {:?}; it must be between a millisecond and a minute", self.timeout);
            return Err(Error::new(ErrorKind::Invalid, wrong));
        }
        let keys = Keys::new(&self.prefix)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(DEAD / 2).with_interval(DEAD / 4);
        let tcp = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive);
        #[cfg(target_os = "linux")]
        let tcp = tcp.set_user_timeout(DEAD);
        let unusable = |error| Error::new(ErrorKind::Invalid, "the server's address cannot be used").with_source(error);
        let info = self.address.into_connection_info().map_err(unusable)?;
        let info = info.set_tcp_settings(tcp).set_redis_settings(self.login);
        let client = Client::open(info).map_err(unusable)?;
        let waiters = Arc::<Waiters>::default();
        let connection = Connection::new(client, self.server, self.timeout, self.clock, Arc::clone(&waiters));
        let connection = Arc::new(connection);
        let info = connection.info().await?;
        if too_old(&info) {
            return Err(error::too_old(&connection.server));
        }
        for finding in findings(&info) {
            tracing::warn!(server = %connection.server, setting = %finding.setting, voids = %finding.voids, "unsafe setting");
        }
        Ok(RedisLock { connection, keys, waiters })
    }
}

/// Older than 6.2, whose `SET` answers what was there before.
fn too_old(info: &str) -> bool {
    let mut parts = field(info, "redis_version").unwrap_or_default().split('.').map(str::parse::<u32>);
    matches!((parts.next(), parts.next()), (Some(Ok(major)), Some(Ok(minor))) if (major, minor) < (6, 2))
}

/// Connects to `redis://user:password@host:port/database` and `unix:/path/to/socket`.
///
/// Its own settings are `timeout`, see [`RedisOptions::timeout`], and `user`, `password` and `db`, which go before what the URL
/// says.
#[derive(Clone, Copy, Debug, Default)]
pub struct RedisFactory;

#[async_trait]
impl BackendFactory for RedisFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["redis", "unix", "rediss", "redis+sentinel", "redis+cluster"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let Target { url, prefix, mut params, .. } = target;
        let later = match url.scheme() {
            "rediss" => Some("TLS"),
            "redis+sentinel" => Some("Sentinel"),
            "redis+cluster" => Some("Redis Cluster"),
            _ => None,
        };
        if let Some(later) = later {
            let message = format!("{later} comes with a later release; redis:// and unix: are here");
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let timeout = params.take_duration("timeout")?;
        let mut options = RedisOptions::from_url(&url)?.prefix(&prefix).login(&mut params)?;
        params.finish("redis", &["timeout", "user", "password", "db"])?;
        if let Some(timeout) = timeout {
            options = options.timeout(timeout);
        }
        Ok(Arc::new(options.connect().await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let options = RedisOptions::new("redis://us%40er:p%2Fw@[::1]:7/3").unwrap();
        assert_eq!(options.address, ConnectionAddr::Tcp("::1".into(), 7));
        let login = &options.login;
        assert_eq!((login.username(), login.password(), login.db()), (Some("us@er"), Some("p/w"), 3));
        assert!(!format!("{options:?}").contains("p/w"));
        assert_eq!(RedisOptions::new("redis://cache").unwrap().address, ConnectionAddr::Tcp("cache".into(), PORT));
        let socket = RedisOptions::new("unix:/run/redis.sock").unwrap();
        assert_eq!(socket.address, ConnectionAddr::Unix("/run/redis.sock".into()));
    }

    #[test]
    fn old_servers_are_known() {
        let version = |version| too_old(&format!("# Server\r\nredis_version:{version}\r\n"));
        assert!(version("5.0.14") && version("6.0.16"));
        assert!(!version("6.2.0") && !version("7.0.15") && !version("10.0.1"));
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for bad in ["redis:", "redis://", "redis://h/x", "redis://h:x", "unix:", "redis://h?a=1"] {
            assert_eq!(RedisOptions::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
