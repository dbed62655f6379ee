//! Oarlock's backend for memcached 1.6.13 and later: locks for every host that reaches one server, of the lowest rung.
//!
//! A lock is an item, which the server forgets with everything else when it is restarted, and may throw out when its
//! memory is full. What a lock protects should check fencing tokens.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! use lock_core::{Config, Registry};
//!
//! let mut registry = Registry::new();
//! registry.register(lock_memcached::MemcachedFactory);
//! # let server = test_servers::MemcachedServer::start();
//! let url = "memcached://cache.internal:11211";
//! # let url = &server.url();
//! let locks = registry.connect(Config::from_url(url)?).await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! guard.unlock().await?;
//! # Ok(())
//! # }
//! ```
//!
//! The client of the text protocol is our own, since a future of this one may be dropped at any moment, several requests
//! are on their way at the same time, and each is bounded in time.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acquire;
mod connection;
mod doctor;
mod error;
mod factory;
mod keys;
mod options;
mod process;
mod read;
mod record;
mod release;
mod renew;
mod retry;
mod server_time;
mod status;
mod tokens;
mod waiters;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Finding, Grant, Holder, Kept, ListQuery, LockName, LockStatus,
    LockValue, Notice, OwnerId, Page, Proclaimed, Renewal, Result, Scope, Unlocked,
};
use tokio::sync::watch;

use connection::Client;
pub use factory::MemcachedFactory;
use keys::Keys;
pub use options::MemcachedOptions;
use waiters::Watch;

/// Locks on one memcached server.
///
/// There is no line: waiters look again and again, ten times a second in the end. Leases go by the server's clock, which
/// counts whole seconds; a lock whose holder has died comes free up to four seconds after its lease, and to a waiter that
/// saw it all the time at once. What the server forgets, by a restart, an eviction or `flush_all`, is lost, and noticed at the next renewal. The end of the
/// connection, which comes with a restart, has everything renewed at once.
#[derive(Clone, Debug)]
pub struct MemcachedLock {
    client: Arc<Client>,
    keys: Keys,
}

impl MemcachedLock {
    /// Connects to the server of a URL such as `memcached://cache.internal`, in bounded time. [`MemcachedOptions`] has
    /// more to choose.
    ///
    /// # Errors
    /// As [`MemcachedOptions::connect`].
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        MemcachedOptions::new(url)?.prefix(prefix).connect().await
    }
}

#[async_trait]
impl DistributedLock for MemcachedLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("memcached", Scope::Network);
        capabilities.keeps = true;
        capabilities.values = true;
        capabilities.min_lease = Duration::from_secs(1);
        capabilities.max_lease = Some(acquire::LONGEST);
        capabilities.answers_within = self.client.server.timeout;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.client.server.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.take(claim, &mut Watch::default()).await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.wait(claim).await
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        self.release(claim).await
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        self.renew_all(claims).await
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        self.keep_for(claim, rest).await
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        self.show(claim, value).await
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        let doubts = self.client.server.doubts.subscribe();
        let next =
            async |mut doubts: watch::Receiver<()>| doubts.changed().await.ok().map(|()| (Notice::Doubt, doubts));
        stream::unfold(doubts, next).boxed()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.status(name).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.holder_of(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.page(query).await
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        self.end_hold(name, None).await
    }

    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        self.end_hold(name, Some(owner)).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.client.close();
        Ok(())
    }
}
