//! What can be chosen when connecting.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{BackendUrl, Clock, Error, ErrorKind, Params, Result, SystemClock, TlsFiles, check_timeout};
use redis::{ProtocolVersion, RedisConnectionInfo};
use tokio::sync::watch;

use crate::RedisLock;
use crate::address::{Location, Topology};
use crate::cluster::Cluster;
use crate::connection::{Client, Connection, Target};
use crate::dial::Dialer;
use crate::free::Contended;
use crate::keys::Keys;
use crate::life::Life;
use crate::records::Records;
use crate::sentinel::Sentinels;
use crate::servers::Servers;
use crate::times::Times;
use crate::tls::Tls;

/// What can be chosen when connecting.
#[derive(Clone)]
pub struct RedisOptions {
    location: Location,
    files: TlsFiles,
    sentinel_user: Option<String>,
    sentinel_password: Option<String>,
    prefix: String,
    timeout: Duration,
    replicas: usize,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for RedisOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("RedisOptions");
        f.field("server", &self.location.topology.to_string()).field("files", &self.files);
        f.field("prefix", &self.prefix).field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl RedisOptions {
    /// The server of `redis://user:password@host:port/database` or `unix:/path/to/socket`, or the primary that the
    /// sentinels of `redis+sentinel://user:password@host1:port,host2:port/primary` name; with TLS `rediss…`. The prefix
    /// is `oarlock`. User, password, ports and database may be left out.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is no such URL, or has parameters.
    pub fn new(url: &str) -> Result<Self> {
        Self::from_url(&BackendUrl::without_params(url)?)
    }

    pub(crate) fn from_url(url: &BackendUrl) -> Result<Self> {
        Ok(Self {
            location: Location::parse(url)?,
            files: TlsFiles::default(),
            sentinel_user: None,
            sentinel_password: None,
            prefix: "oarlock".to_owned(),
            timeout: Duration::from_secs(2),
            replicas: 0,
            clock: Arc::new(SystemClock),
        })
    }

    /// The settings by which a URL and a config say what the methods here say.
    pub(crate) const SETTINGS: [&str; 10] =
        ["timeout", "replicas", "user", "password", "db", "sentinel_user", "sentinel_password", "ca", "cert", "key"];

    /// What these settings say goes before what the URL does.
    pub(crate) fn settings(mut self, params: &mut Params) -> Result<Self> {
        if let Some(timeout) = params.take_duration("timeout")? {
            self.timeout = timeout;
        }
        self.replicas = params.take_parsed("replicas")?.unwrap_or(self.replicas);
        let location = &mut self.location;
        location.user = params.take("user").or(location.user.take());
        location.password = params.take("password").or(location.password.take());
        location.database = params.take_parsed("db")?.unwrap_or(location.database);
        self.sentinel_user = params.take("sentinel_user");
        self.sentinel_password = params.take("sentinel_password");
        self.files = TlsFiles::take(params)?;
        Ok(self)
    }

    /// The prefix of the locks. The key of the lock `x` is `prefix:x`, and with an empty prefix `x`, or
    /// `oarlock-lock:x` if `x` begins with `oarlock-`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_owned();
        self
    }

    /// How long the server may take to answer a request, 2 s unless set. A request whose connection broke is sent once
    /// more.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// A grant or a renewal counts only when so many replicas have it; none unless set. It then takes about one round
    /// trip more, and the server's to its replicas. If too few have it within half the [time-out](Self::timeout), it is
    /// taken back, and the error is of kind [`ErrorKind::Unavailable`].
    pub fn replicas(mut self, replicas: usize) -> Self {
        self.replicas = replicas;
        self
    }

    /// The file of the CA, in PEM form, that must have signed the server's certificate; it alone is trusted. Without
    /// it, the system's are. Only with TLS.
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.files.ca = Some(file.into());
        self
    }

    /// The files of the certificate that the client shows, and of its key, in PEM form. Only with TLS.
    pub fn client_certificate(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.files.identity = Some((certificate.into(), key.into()));
        self
    }

    /// As whom to log in to the sentinels; without it, as nobody. The user and password of the URL are for the server.
    pub fn sentinel_login(mut self, user: Option<&str>, password: &str) -> Self {
        self.sentinel_user = user.map(str::to_owned);
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// The clock that [`Grant::valid_until`](lock_core::Grant::valid_until) is counted on. Leases always go by the
    /// server's.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects, in bounded time, and logs a warning for each setting of the server that voids a promise. It must be
    /// called, and the lock be used, within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a prefix, a time-out or a file that cannot be, [`ErrorKind::Unavailable`] if the
    /// server cannot be reached, [`ErrorKind::Refused`] for a wrong user or password, missing rights, or a certificate
    /// that is not trusted, [`ErrorKind::Unsupported`] for a server older than Redis 6.2, and for TLS if it is not
    /// built in.
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(self) -> Result<RedisLock> {
        check_timeout(self.timeout)?;
        let cluster = matches!(self.location.topology, Topology::Cluster(_));
        if cluster && self.location.database != 0 {
            return Err(Error::new(ErrorKind::Invalid, "a cluster has no databases; leave db out"));
        }
        let keys = Keys::new(&self.prefix, cluster)?;
        let dialer = Dialer { tls: self.tls()?, timeout: self.timeout };
        let Location { topology, user, password, database, .. } = self.location;
        let client = Arc::new(Client {
            dialer,
            login: login(user, password).set_db(database),
            clock: self.clock,
            id: format!("{:016x}", rand::random::<u64>()),
            waiters: Arc::default(),
            life: Life::default(),
            times: Times::default(),
            contended: Contended::default(),
            records: Records::default(),
            replicas: self.replicas,
            doubts: watch::Sender::new(()),
        });
        let one = |target| Servers::One(Arc::new(Connection::new(target, Arc::clone(&client))));
        let servers = match topology {
            Topology::One(address) => one(Target::Fixed(address)),
            Topology::Sentinel(addresses, name) => {
                let login = login(self.sentinel_user, self.sentinel_password);
                one(Target::Primary(Sentinels { addresses, name, login }))
            }
            Topology::Cluster(seeds) => Servers::Cluster(Cluster::new(Arc::clone(&client), seeds)),
        };
        let lock = RedisLock { servers: Arc::new(servers), client, keys };
        lock.check().await?;
        Ok(lock)
    }

    fn tls(&self) -> Result<Option<Tls>> {
        if self.location.tls {
            return Tls::new(&self.files).map(Some);
        }
        self.files.refuse("rediss").map(|()| None)
    }
}

/// By RESP3, so that messages come over the same connection as answers.
fn login(user: Option<String>, password: Option<String>) -> RedisConnectionInfo {
    let mut login = RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3);
    if let Some(user) = user {
        login = login.set_username(user);
    }
    if let Some(password) = password {
        login = login.set_password(password);
    }
    login
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        let options = RedisOptions::new("redis://user:hunter2@cache").unwrap();
        assert!(!format!("{options:?}").contains("hunter2"));
        assert!(RedisOptions::new("redis://cache?a=1").is_err());
    }
}
