//! From a URL or options to a connection.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    BackendFactory, BackendUrl, Clock, DistributedLock, Error, ErrorKind, Evidence, Params, Result, Servers,
    StoreToken, SystemClock, Target, TlsFiles, check_timeout, invalid_url,
};
use zookeeper_client::{Acls, Client, Connector, Error as ZkError};

use crate::ZookeeperLock;
use crate::doctor::warn_in_background;
use crate::error::{no_chroot, no_session};
use crate::keys::Keys;
use crate::nodes::Peers;
use crate::sessions::Sessions;
use crate::tokens::Known;

/// The port of a host without one.
const PORT: u16 = 2181;

/// What a URL looks like.
const EXAMPLE: &str = "zookeeper://h1:2181,h2:2181/chroot";

/// How a user shows who it is.
#[derive(Clone)]
struct Login {
    user: String,
    password: String,
    sasl: bool,
}

/// The files that TLS needs, in PEM.
#[derive(Clone)]
#[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "only said to be missing"))]
struct Tls {
    ca: String,
    identity: Option<(String, String)>,
}

/// What all sessions of a client have in common.
pub(crate) struct Settings {
    /// `host:port` each.
    pub(crate) hosts: Vec<String>,
    /// As it may be shown.
    pub(crate) servers: String,
    /// Hosts and chroot, as the client crate reads them.
    cluster: String,
    /// The path below which all others are, or nothing.
    chroot: String,
    login: Option<Login>,
    tls: Option<Tls>,
    pub(crate) keys: Keys,
    /// The bound of each request.
    pub(crate) timeout: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    /// From where tokens are counted, as far as it was read.
    pub(crate) tokens: Known,
    pub(crate) peers: Peers,
}

impl Settings {
    /// Who may do what with the nodes that we make.
    pub(crate) fn acls(&self) -> Acls<'static> {
        if self.login.is_some() { Acls::creator_all() } else { Acls::anyone_all() }
    }

    /// What shows in the store that who was granted the lock by these nodes, with this token, holds it.
    pub(crate) fn evidence<'a>(
        &'a self,
        nodes: impl IntoIterator<Item = &'a String>,
        token: StoreToken,
    ) -> impl Iterator<Item = Evidence> {
        let path = |node: &'a String| format!("{}{node}", self.chroot);
        nodes.into_iter().map(move |node| Evidence::new("zookeeper", path(node), token.get()))
    }

    pub(crate) fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// A connector that logs in.
    pub(crate) fn connector(&self) -> Result<Connector> {
        let mut connector = Client::connector();
        if let Some(Login { user, password, sasl }) = &self.login {
            connector = match sasl {
                false => connector.with_auth("digest", format!("{user}:{password}").as_bytes()),
                true => with_sasl(connector, user, password)?,
            };
        }
        match &self.tls {
            Some(tls) => with_tls(connector, tls),
            None => Ok(connector),
        }
    }

    pub(crate) fn open(
        &self,
        connector: Connector,
    ) -> Pin<Box<dyn Future<Output = Result<Client, ZkError>> + Send + '_>> {
        #[cfg(feature = "tls")]
        if self.tls.is_some() {
            return Box::pin(connector.secure_connect(&self.cluster));
        }
        Box::pin(connector.connect(&self.cluster))
    }
}

#[cfg(feature = "sasl")]
fn with_sasl(connector: Connector, user: &str, password: &str) -> Result<Connector> {
    let options = zookeeper_client::SaslOptions::digest_md5(user.to_owned(), password.to_owned());
    Ok(connector.with_sasl(options))
}

#[cfg(not(feature = "sasl"))]
fn with_sasl(_: Connector, _: &str, _: &str) -> Result<Connector> {
    Err(Error::not_built_in("SASL", "zookeeper-sasl"))
}

#[cfg(feature = "tls")]
fn with_tls(connector: Connector, tls: &Tls) -> Result<Connector> {
    let unusable =
        |error: ZkError| Error::new(ErrorKind::Invalid, "the certificates cannot be used").with_source(error);
    let mut options = zookeeper_client::TlsOptions::new().with_pem_ca(&tls.ca).map_err(unusable)?;
    if let Some((cert, key)) = &tls.identity {
        options = options.with_pem_identity(cert, key).map_err(unusable)?;
    }
    Ok(connector.with_tls(options))
}

#[cfg(not(feature = "tls"))]
fn with_tls(_: Connector, _: &Tls) -> Result<Connector> {
    Err(Error::not_built_in("TLS", "zookeeper-tls"))
}

/// What can be chosen when connecting.
#[derive(Clone)]
pub struct ZookeeperOptions {
    hosts: Vec<String>,
    chroot: String,
    login: Option<Login>,
    tls: Option<Tls>,
    prefix: String,
    timeout: Duration,
    clock: Arc<dyn Clock>,
    peers: Peers,
}

impl fmt::Debug for ZookeeperOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("ZookeeperOptions");
        f.field("hosts", &self.hosts).field("chroot", &self.chroot).field("prefix", &self.prefix);
        f.field("timeout", &self.timeout).finish_non_exhaustive()
    }
}

impl ZookeeperOptions {
    /// The servers of `zookeeper://user:password@h1:2181,h2:2181/chroot`, with the prefix `oarlock`. All but one host
    /// may be left out.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if it is no such URL, or has parameters.
    pub fn new(url: &str) -> Result<Self> {
        Self::from_url(&BackendUrl::without_params(url)?)
    }

    fn from_url(url: &BackendUrl) -> Result<Self> {
        let Servers { user, password, hosts, path } = url.servers(PORT, EXAMPLE)?;
        let login = match (user, password) {
            (None, None) => None,
            (Some(user), Some(password)) => Some(Login { user, password, sasl: false }),
            _ => return Err(invalid_url(url, "of user and password, one needs the other", EXAMPLE)),
        };
        let hosts = hosts.iter().map(ToString::to_string).collect();
        let chroot = path.trim_end_matches('/');
        let chroot = if chroot.is_empty() { String::new() } else { format!("/{chroot}") };
        let (prefix, timeout) = ("oarlock".to_owned(), Duration::from_secs(5));
        Ok(Self { hosts, chroot, login, tls: None, prefix, timeout, clock: Arc::new(SystemClock), peers: Peers::Mutex })
    }

    /// The path below which the locks are, `oarlock` unless set. The lock `x` is the line in `/prefix/x`, and with an
    /// empty prefix in `/x`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_owned();
        self
    }

    /// How long the servers may take to answer a request, 5 s unless set.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Logs in with the scheme `digest`. The nodes that are made then are this user's alone.
    pub fn digest(mut self, user: &str, password: &str) -> Self {
        self.login = Some(Login { user: user.to_owned(), password: password.to_owned(), sasl: false });
        self
    }

    /// Logs in by SASL with the mechanism DIGEST-MD5. The nodes that are made then are this user's alone.
    #[cfg(feature = "sasl")]
    pub fn sasl(mut self, user: &str, password: &str) -> Self {
        self.login = Some(Login { user: user.to_owned(), password: password.to_owned(), sasl: true });
        self
    }

    /// Connects by TLS. `ca` are the certificates to trust, in PEM; `identity` is the client's own certificate and its
    /// key, where the servers want one.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, ca: &str, identity: Option<(&str, &str)>) -> Self {
        let identity = identity.map(|(cert, key)| (cert.to_owned(), key.to_owned()));
        self.tls = Some(Tls { ca: ca.to_owned(), identity });
        self
    }

    /// Takes part beside Curator's `InterProcessReadWriteLock`, its readers and writers, and no more beside its
    /// `InterProcessMutex` and kazoo's `Lock`: neither of them takes notice of the other. Clients of ours exclude each other
    /// either way.
    pub fn curator_read_write(mut self) -> Self {
        self.peers = Peers::ReadWriteLock;
        self
    }

    /// The clock that [`Grant::valid_until`](lock_core::Grant::valid_until) is counted on. Sessions go by the servers'.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    fn params(mut self, params: &mut Params) -> Result<Self> {
        if let Some(timeout) = params.take_duration("timeout")? {
            self.timeout = timeout;
        }
        if let Some((user, password)) = params.take_both(["user", "password"])? {
            self = self.digest(&user, &password);
        }
        match (params.take("auth").as_deref(), &mut self.login) {
            (None | Some("digest"), _) => {}
            (Some("sasl"), Some(login)) => login.sasl = true,
            (Some("sasl"), None) => return Err(Error::new(ErrorKind::Invalid, "auth = sasl needs user and password")),
            (Some(_), _) => return Err(Error::new(ErrorKind::Invalid, "auth is digest or sasl")),
        }
        match params.take("curator").as_deref() {
            None | Some("mutex") => {}
            Some("read-write") => self = self.curator_read_write(),
            Some(_) => return Err(Error::new(ErrorKind::Invalid, "curator is mutex or read-write")),
        }
        let files = TlsFiles::take(params)?;
        match (files.read_ca()?, files.read_identity()?) {
            (Some(ca), identity) => self.tls = Some(Tls { ca, identity }),
            (None, Some(_)) => return Err(Error::new(ErrorKind::Invalid, "TLS needs ca, the certificates to trust")),
            (None, None) => {}
        }
        Ok(self)
    }

    /// Connects, in bounded time. It must be called, and the lock be used, within a tokio runtime that has I/O and time
    /// enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a prefix or a time-out that cannot be, [`ErrorKind::Unavailable`] if no server can be
    /// reached or they have no majority, [`ErrorKind::Refused`] for a wrong user or password, and where the path behind
    /// the hosts does not exist.
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(self) -> Result<ZookeeperLock> {
        check_timeout(self.timeout)?;
        let hosts = self.hosts.join(",");
        let settings = Arc::new(Settings {
            keys: Keys::new(&self.prefix)?,
            cluster: format!("{hosts}{}", self.chroot),
            chroot: self.chroot.clone(),
            servers: hosts,
            hosts: self.hosts,
            login: self.login,
            tls: self.tls,
            timeout: self.timeout,
            clock: self.clock,
            tokens: Known::default(),
            peers: self.peers,
        });
        let sessions = match Sessions::connect(Arc::clone(&settings)).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                return Err(open_port(&settings.hosts).await.map_or(error, |host| no_session(&host)));
            }
            connected => Arc::new(connected?),
        };
        if !self.chroot.is_empty() {
            // Who looks could not tell a missing one from an empty one. A user who may not list it learns of that later.
            let listed = sessions.any().await?.list_now("/").await;
            if let Ok(None) = listed {
                return Err(no_chroot(&self.chroot));
            }
        }
        let warning = Arc::new(warn_in_background(&settings, sessions.shortest));
        Ok(ZookeeperLock { settings, sessions, _warning: warning })
    }
}

/// Which of the hosts takes a connection at all?
async fn open_port(hosts: &[String]) -> Option<String> {
    let looking = async {
        for host in hosts {
            if tokio::net::TcpStream::connect(host).await.is_ok() {
                return Some(host.clone());
            }
        }
        None
    };
    tokio::time::timeout(Duration::from_secs(1), looking).await.unwrap_or(None)
}

/// Connects to `zookeeper://user:password@h1:2181,h2:2181/chroot`, or `zk:`.
///
/// Its own settings are `timeout`, see [`ZookeeperOptions::timeout`]; `user` and `password`, which go before what the
/// URL says; `auth`, which is `digest` or `sasl`; `curator`, which is `mutex` or `read-write`, see
/// [`ZookeeperOptions::curator_read_write`]; and for TLS the files `ca`, `cert` and `key`.
#[derive(Clone, Copy, Debug, Default)]
pub struct ZookeeperFactory;

#[async_trait]
impl BackendFactory for ZookeeperFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["zookeeper", "zk"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let Target { url, prefix, mut params, .. } = target;
        let options = ZookeeperOptions::from_url(&url)?.prefix(&prefix).params(&mut params)?;
        params.finish("zookeeper", &["timeout", "user", "password", "auth", "curator", "ca", "cert", "key"])?;
        Ok(Arc::new(options.connect().await?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let options = ZookeeperOptions::new("zookeeper://us%40er:p%2Fw@h1,h2:7,[::1]:8,[::2]/a/b/").unwrap();
        assert_eq!(options.hosts, ["h1:2181", "h2:7", "[::1]:8", "[::2]:2181"]);
        assert_eq!(options.chroot, "/a/b");
        let login = options.login.as_ref().unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str()), ("us@er", "p/w"));
        assert!(!format!("{options:?}").contains("p/w"));
        assert_eq!(ZookeeperOptions::new("zk://h").unwrap().chroot, "");
    }

    #[tokio::test]
    async fn another_service_is_told_from_servers_that_are_away() {
        let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (there, away) = (other.local_addr().unwrap().to_string(), "127.0.0.1:1".to_owned());
        for (host, says) in [(&there, "is it ZooKeeper's port"), (&away, "none of 127.0.0.1:1 can be reached")] {
            let options = ZookeeperOptions::new(&format!("zk://{host}")).unwrap().timeout(Duration::from_millis(300));
            let error = options.connect().await.map(drop).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.to_string().contains(says), "{error}");
        }
    }

    #[test]
    fn what_is_no_server_is_refused() {
        for bad in ["zookeeper:", "zookeeper://", "zookeeper://h:x", "zk://h:1,", "zk://u@h", "zk://h?a=1", "zk://a b"]
        {
            assert_eq!(ZookeeperOptions::new(bad).unwrap_err().kind(), ErrorKind::Invalid, "{bad}");
        }
    }
}
