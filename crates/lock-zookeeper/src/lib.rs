//! Oarlock's backend for ZooKeeper 3.6 and later: one server or an ensemble, locks for every host that reaches it.
//!
//! A lock is a line of ephemeral sequential nodes in the layout of Curator's `InterProcessMutex`, and the first of them
//! holds it. So it excludes, and is excluded by, Curator, and kazoo's `Lock` with `extra_lock_patterns=["-lock-"]`.
//!
//! Permits of a semaphore are in the layout of Curator's `InterProcessSemaphoreV2`, and counted together with its own.
//!
//! A node's data are its owner, and after a line break the value that it shows. Curator's `LeaderSelector` and kazoo's
//! `Election` read both as the candidate's id.
//!
//! A hold that is kept without its owner is a persistent node in the owner's place, which the clients of this crate
//! delete when its time is over by the servers' clock. If none of them is there, and only other programs wait, it
//! stands until one comes. (A version of this crate from before that refuses to wait behind such a node, and names it.)
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! use lock_core::{Config, Registry, ErrorKind};
//!
//! let mut registry = Registry::new();
//! registry.register(lock_zookeeper::ZookeeperFactory);
//! # let servers = test_servers::ZookeeperServers::start();
//! let url = "zookeeper://zk1.internal,zk2.internal,zk3.internal";
//! # let url = &servers.url();
//! let locks = registry.connect(Config::from_url(url)?).await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! guard.unlock().await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acquire;
mod acquire_permits;
mod claims;
mod doctor;
mod error;
mod keep;
mod kept;
mod keys;
mod nodes;
mod options;
mod permits;
mod proclaim;
#[cfg(test)]
mod properties;
mod release;
mod renew;
mod session;
mod sessions;
mod status;
mod supervise;
mod tokens;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use lock_core::{
    Background, Capabilities, Claim, Clock, DistributedLock, Error, Finding, Grant, Holder, Instant, Kept, ListQuery,
    LockName, LockStatus, LockValue, Notice, OwnerId, Page, Proclaimed, Renewal, Result, Scope, StoreToken, Unlocked,
};
use tokio::sync::broadcast::error::RecvError;
use zookeeper_client::Error as ZkError;

use claims::Hold;
use error::of_request;
use options::Settings;
pub use options::{ZookeeperFactory, ZookeeperOptions};
use sessions::Sessions;

/// Locks on one ZooKeeper server or ensemble.
///
/// Claims of about one lease share a session whose time-out is that lease, or up to a tenth more. A renewal is one
/// committed write for all of them. Waiters each watch the one before them. An eviction, and a connection that breaks,
/// are told at once.
#[derive(Clone)]
pub struct ZookeeperLock {
    settings: Arc<Settings>,
    sessions: Arc<Sessions>,
    _warning: Arc<Background>,
}

impl fmt::Debug for ZookeeperLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (servers, keys) = (&self.settings.servers, &self.settings.keys);
        f.debug_struct("ZookeeperLock").field("servers", servers).field("keys", keys).finish_non_exhaustive()
    }
}

impl ZookeeperLock {
    /// Connects to the servers of a URL such as `zookeeper://zk1,zk2,zk3`, in bounded time. [`ZookeeperOptions`] has
    /// more to choose.
    ///
    /// # Errors
    /// As [`ZookeeperOptions::connect`].
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        ZookeeperOptions::new(url)?.prefix(prefix).connect().await
    }

    /// What this client holds for this owner, and what time it is.
    fn hold(&self, owner: &OwnerId) -> Option<(Hold, Instant)> {
        let sessions = self.sessions.with_claim(owner);
        let hold = sessions.iter().find_map(|session| session.claimed(owner)?.hold)?;
        Some((hold, self.settings.clock.now()))
    }
}

#[async_trait]
impl DistributedLock for ZookeeperLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("zookeeper", Scope::Network);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        (capabilities.keeps, capabilities.values, capabilities.tells_changes) = (true, true, true);
        capabilities.prompt_loss = true;
        (capabilities.modes.shared, capabilities.modes.permits) = (true, true);
        capabilities.min_lease = self.sessions.shortest;
        capabilities.max_lease = self.sessions.longest.get().copied();
        capabilities.answers_within = self.settings.timeout;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.settings.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.acquire(claim, false).await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.acquire(claim, true)
            .await?
            .ok_or_else(|| Error::new(lock_core::ErrorKind::Unknown, "a wait ended for no reason"))
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        self.release(claim).await
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        renew::renew(&self.sessions, claims).await
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        self.keep_hold(claim, rest).await
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        self.show(claim, value).await
    }

    fn changes(&self, name: &LockName) -> BoxStream<'static, ()> {
        self.tell(name)
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let seen = self.look(vec![name.clone()]).await?.pop();
        seen.map(|seen| seen.status).ok_or_else(|| of_request(ZkError::MarshallingError))
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

    async fn raise_tokens(&self, _name: &LockName, above: StoreToken) -> Result<()> {
        self.sessions.any().await?.raise_tokens(above).await
    }

    async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        self.set_permits(name, permits).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        let heard = self.sessions.notices.subscribe();
        unfold(heard, async |mut heard| {
            loop {
                match heard.recv().await {
                    Ok(notice) => return Some((notice, heard)),
                    // Renewals tell of what was missed.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }

    async fn close(&self) -> Result<()> {
        self.sessions.close().await
    }
}
