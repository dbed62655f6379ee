//! From a URL or options to a connection.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use etcd_client::ConnectOptions;
use lock_core::{
    BackendFactory, BackendUrl, Clock, DistributedLock, Params, Result, Servers, SystemClock, Target, TlsFiles,
    check_timeout, invalid_url, warn_of,
};

use crate::EtcdLock;
use crate::connection::Connection;
use crate::doctor::of_version;
use crate::error::not_done;
use crate::keys::Keys;

/// The port of a host without one.
const PORT: u16 = 2379;

/// What a URL looks like.
const EXAMPLE: &str = "etcd://user:password@h1:2379,h2:2379";

/// How often a silent connection is asked whether it lives (the server allows no more), and how long it may take to
/// answer; longer where a request may.
const PINGS: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(3));

/// What can be chosen when connecting.
#[derive(Clone)]
pub struct EtcdOptions {
    /// With their ports.
    hosts: Vec<String>,
    tls: bool,
    login: (Option<String>, Option<String>),
    prefix: String,
    timeout: Duration,
    in_order: bool,
    files: TlsFiles,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for EtcdOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("EtcdOptions");
        f.field("hosts", &self.hosts).field("prefix", &self.prefix).field("timeout", &self.timeout);
        f.finish_non_exhaustive()
    }
}

impl EtcdOptions {
    /// The cluster of `etcd://user:password@host:port,host:port`, with the prefix `oarlock`. User, password and ports
    /// may be left out; `etcds://` is the same over TLS.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](lock_core::ErrorKind::Invalid) if it is no such URL, or has parameters.
    pub fn new(url: &str) -> Result<Self> {
        Self::from_url(&BackendUrl::without_params(url)?)
    }

    fn from_url(url: &BackendUrl) -> Result<Self> {
        let Servers { user, password, hosts, path } = url.servers(PORT, EXAMPLE)?;
        if !path.is_empty() {
            return Err(invalid_url(url, "a cluster has no path", EXAMPLE));
        }
        Ok(Self {
            hosts: hosts.iter().map(ToString::to_string).collect(),
            tls: url.scheme() == "etcds",
            login: (user, password.filter(|password| !password.is_empty())),
            prefix: "oarlock".to_owned(),
            timeout: Duration::from_secs(2),
            in_order: false,
            files: TlsFiles::default(),
            clock: Arc::new(SystemClock),
        })
    }

    /// The prefix of the locks. The keys of the lock `x` begin with `prefix/x/`, and with an empty prefix with `x/`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_owned();
        self
    }

    /// How long a member may take to answer a request, 2 s unless set. Then the next one is asked, if there is one.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Whether to begin with the first member of the URL, say because it is near. Unless set, each client begins with any
    /// of them, so that no member has all the clients.
    pub fn in_order(mut self, in_order: bool) -> Self {
        self.in_order = in_order;
        self
    }

    /// The user and the password, as far as the URL does not name them.
    pub fn login(mut self, user: Option<String>, password: Option<String>) -> Self {
        self.login = (user.or(self.login.0), password.or(self.login.1));
        self
    }

    /// A file with the certificates, in PEM, that sign those of the servers; without it the system's count.
    pub fn ca(mut self, file: impl Into<PathBuf>) -> Self {
        self.files.ca = Some(file.into());
        self
    }

    /// Two files with our certificate and its key, in PEM, for servers that ask for them.
    pub fn identity(mut self, certificate: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        self.files.identity = Some((certificate.into(), key.into()));
        self
    }

    /// The clock that [`Grant::valid_until`](lock_core::Grant::valid_until) is counted on. Leases always go by the
    /// servers'.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects, in bounded time, and logs a warning if the member that it reached has known bugs about leases. It must
    /// be called, and the lock be used, within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](lock_core::ErrorKind::Invalid) for a prefix, a time-out or a file that cannot be, [`ErrorKind::Unavailable`](lock_core::ErrorKind::Unavailable) if no
    /// member can be reached, [`ErrorKind::Refused`](lock_core::ErrorKind::Refused) for a wrong user or password or missing rights,
    /// [`ErrorKind::Unsupported`](lock_core::ErrorKind::Unsupported) for TLS without the cargo feature `tls`.
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(self) -> Result<EtcdLock> {
        check_timeout(self.timeout)?;
        let keys = Keys::new(&self.prefix)?;
        let mut options = ConnectOptions::new()
            .with_connect_timeout(self.timeout)
            .with_keep_alive(PINGS.0, PINGS.1.max(self.timeout))
            .with_require_leader(true)
            .with_auto_token_refresh(true);
        if let (Some(user), password) = &self.login {
            options = options.with_user(user, password.clone().unwrap_or_default());
        }
        options = self.secured(options)?;
        let scheme = if self.tls { "https" } else { "http" };
        let endpoints = self.hosts.iter().map(|host| format!("{scheme}://{host}")).collect();
        let first = if self.in_order { 0 } else { rand::random_range(0..self.hosts.len()) };
        let connection = Connection::new(endpoints, first, options, self.timeout, self.clock);
        let lock = EtcdLock::new(connection, keys);
        // Whatever is wrong with address, login or rights shows here.
        lock.shared.present_revision().await.map_err(not_done)?;
        lock.warn().await;
        lock.ensure_tasks();
        Ok(lock)
    }

    #[cfg(feature = "tls")]
    fn secured(&self, options: ConnectOptions) -> Result<ConnectOptions> {
        use etcd_client::{Certificate, Identity, TlsOptions};
        if !self.tls {
            return self.files.refuse("etcds").map(|()| options);
        }
        let mut tls = match self.files.read_ca()? {
            Some(ca) => TlsOptions::new().ca_certificate(Certificate::from_pem(ca)),
            None => TlsOptions::new().with_native_roots(),
        };
        if let Some((certificate, key)) = self.files.read_identity()? {
            tls = tls.identity(Identity::from_pem(certificate, key));
        }
        Ok(options.with_tls(tls))
    }

    #[cfg(not(feature = "tls"))]
    fn secured(&self, options: ConnectOptions) -> Result<ConnectOptions> {
        if self.tls {
            return Err(lock_core::Error::not_built_in("etcds://", "tls"));
        }
        self.files.refuse("etcds").map(|()| options)
    }
}

impl EtcdLock {
    /// Says what is known of the version of the member that is connected.
    async fn warn(&self) {
        let connection = &self.shared.connection;
        let asking = connection.ask(crate::connection::Again::Yes, |link| {
            let mut maintenance = link.maintenance.clone();
            async move { maintenance.status().await }
        });
        // Who may not ask may lock all the same.
        let Ok(status) = asking.await else { return };
        let endpoints = connection.endpoints.join(",");
        warn_of(&of_version(&endpoints, status.value.version()), &endpoints);
    }
}

/// Connects to `etcd://user:password@host:port,host:port`, and with the cargo feature `tls` to `etcds://…`.
///
/// Its own settings are `timeout` and `in_order`, see [`EtcdOptions::timeout`] and [`EtcdOptions::in_order`]; `user` and `password`, which go before what the URL
/// says; and for TLS `ca`, `cert` and `key`, the names of files.
#[derive(Clone, Copy, Debug, Default)]
pub struct EtcdFactory;

#[async_trait]
impl BackendFactory for EtcdFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["etcd", "etcds"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let Target { url, prefix, mut params, .. } = target;
        let mut options =
            EtcdOptions::from_url(&url)?.prefix(&prefix).login(params.take("user"), params.take("password"));
        options = options.settings(&mut params)?;
        params.finish("etcd", &["timeout", "in_order", "user", "password", "ca", "cert", "key"])?;
        Ok(Arc::new(options.connect().await?))
    }
}

impl EtcdOptions {
    fn settings(mut self, params: &mut Params) -> Result<Self> {
        if let Some(timeout) = params.take_duration("timeout")? {
            self = self.timeout(timeout);
        }
        if let Some(in_order) = params.take_parsed("in_order")? {
            self = self.in_order(in_order);
        }
        self.files = TlsFiles::take(params)?;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    #[test]
    fn urls_are_read() {
        let options = EtcdOptions::new("etcd://us%40er:p%2Fw@h1,h2:7,[::1]:8,[::1]/").unwrap();
        assert_eq!(options.hosts, ["h1:2379", "h2:7", "[::1]:8", "[::1]:2379"]);
        assert_eq!(options.login, (Some("us@er".to_owned()), Some("p/w".to_owned())));
        assert!(!format!("{options:?}").contains("p/w") && !options.tls);
        assert!(EtcdOptions::new("etcds://h").unwrap().tls);
    }

    #[test]
    fn what_is_no_cluster_is_refused() {
        for bad in ["etcd:", "etcd://", "etcd://h/x", "etcd://h:x", "etcd://h,", "etcd://h?a=1", "etcd://a b"] {
            assert_eq!(EtcdOptions::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
