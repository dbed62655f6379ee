//! What can be chosen when connecting.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{BackendUrl, Clock, HostPort, Params, Result, Servers, SystemClock, check_timeout, invalid_url};

use crate::MemcachedLock;
use crate::connection::Client;
use crate::keys::Keys;

/// For the errors of wrong URLs.
const EXAMPLE: &str = "memcached://cache.internal:11211";

/// Where memcached listens unless it is told otherwise.
const PORT: u16 = 11211;

/// What can be chosen when connecting.
#[derive(Clone, Debug)]
pub struct MemcachedOptions {
    server: HostPort,
    prefix: String,
    timeout: Duration,
    clock: Arc<dyn Clock>,
}

impl MemcachedOptions {
    /// The server of `memcached://host:port`. The prefix is `oarlock`; the port may be left out.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](lock_core::ErrorKind::Invalid) if it is no such URL, or has parameters.
    pub fn new(url: &str) -> Result<Self> {
        Self::from_url(&BackendUrl::without_params(url)?)
    }

    pub(crate) fn from_url(url: &BackendUrl) -> Result<Self> {
        let Servers { user, password, hosts, path, .. } = url.servers(PORT, EXAMPLE)?;
        let wrong = if user.is_some() || password.is_some() {
            "this backend has no login for memcached"
        } else if !path.is_empty() {
            "memcached has no databases, so nothing follows the host"
        } else if hosts.len() > 1 {
            "locks are on one server; to use several as one, each of them would have to grant"
        } else {
            ""
        };
        match hosts.into_iter().next() {
            Some(server) if wrong.is_empty() => {
                let (timeout, clock) = (Duration::from_secs(2), Arc::new(SystemClock));
                Ok(Self { server, prefix: "oarlock".to_owned(), timeout, clock })
            }
            _ => Err(invalid_url(url, wrong, EXAMPLE)),
        }
    }

    /// The settings by which a URL and a config say what the methods here say.
    pub(crate) const SETTINGS: [&str; 1] = ["timeout"];

    pub(crate) fn settings(mut self, params: &mut Params) -> Result<Self> {
        if let Some(timeout) = params.take_duration("timeout")? {
            self.timeout = timeout;
        }
        Ok(self)
    }

    /// The prefix of the locks. The key of the lock `x` is `prefix:x`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_owned();
        self
    }

    /// How long the server may take to answer a request, 2 s unless set. A request whose connection broke is made once
    /// more.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The clock that [`Grant::valid_until`](lock_core::Grant::valid_until) is counted on. Leases always go by the
    /// server's.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Connects, in bounded time, and logs a warning for each setting of the server that lets it evict locks. It must
    /// be called, and the lock be used, within a tokio runtime that has I/O and time enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](lock_core::ErrorKind::Unavailable) if there is no such server, [`ErrorKind::Unsupported`](lock_core::ErrorKind::Unsupported) for one that is older than
    /// 1.6.13, has no CAS numbers or wants a login, [`ErrorKind::Invalid`](lock_core::ErrorKind::Invalid) for a prefix or a time-out that cannot be.
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(self) -> Result<MemcachedLock> {
        check_timeout(self.timeout)?;
        let keys = Keys::new(&self.prefix)?;
        let client = Arc::new(Client::new(self.server, self.timeout, self.clock));
        let lock = MemcachedLock { client, keys };
        lock.check().await?;
        Ok(lock)
    }
}

#[cfg(test)]
mod tests {
    use lock_core::ErrorKind;

    use super::*;

    #[test]
    fn a_url_names_one_server_and_nothing_else() {
        let server = |url| MemcachedOptions::new(url).map(|options| options.server.to_string());
        assert_eq!(server("memcached://cache").unwrap(), "cache:11211");
        assert_eq!(server("memcached://[::1]:7/").unwrap(), "[::1]:7");
        for (bad, why) in [
            ("memcached:", "host"),
            ("memcached://a,b", "one server"),
            ("memcached://user:hunter2@a", "login"),
            ("memcached://a/0", "databases"),
            ("memcached://a?timeout=1s", "methods"),
        ] {
            let error = server(bad).unwrap_err();
            let text = error.to_string();
            assert!(error.kind() == ErrorKind::Invalid && text.contains(why) && !text.contains("hunter2"), "{text}");
        }
    }
}
