//! Oarlock's backend for etcd 3.4 and later: locks for every host that reaches the cluster.
//!
//! A lock is the line of the keys under `prefix/name/`, in the order in which they were created; the first holds. So it
//! excludes, and is excluded by, `etcdctl lock prefix/name` and Go's `concurrency.Mutex`. A holder that shows a value leads
//! for `etcdctl elect` and Go's `concurrency.Election`, too, and whoever leads by those is seen here with what it proposed.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! use lock_core::{Config, Registry};
//!
//! let mut registry = Registry::new();
//! registry.register(lock_etcd::EtcdFactory);
//! # let cluster = test_servers::EtcdCluster::start(1);
//! let url = "etcd://etcd-1.internal,etcd-2.internal,etcd-3.internal";
//! # let url = &cluster.url();
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
mod changes;
mod connection;
mod crowd;
mod doctor;
mod error;
mod follow;
mod keep;
mod keys;
mod ledger;
mod options;
mod permits;
mod place;
#[cfg(test)]
mod properties;
mod release;
mod renew;
mod requests;
mod session;
mod sessions;
mod show;
mod standing;
mod status;
mod together;
mod tokens;
mod undo;
mod upkeep;
mod waiters;
mod watch;
mod watchlist;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt, unfold};
use lock_core::{
    Background, Capabilities, Claim, Clock, DistributedLock, Finding, Grant, Holder, Kept, ListQuery, LockName,
    LockStatus, LockValue, Mode, Modes, Notice, OwnerId, Page, Proclaimed, Renewal, Result, Scope, StoreToken,
    Unlocked,
};
use tokio::sync::broadcast::error::RecvError;

use changes::Changes;
use connection::Connection;
use crowd::Crowds;
use error::nonsense;
use keys::Keys;
use ledger::Ledger;
pub use options::{EtcdFactory, EtcdOptions};
use sessions::Sessions;
use tokens::Tokens;

/// Locks in one etcd cluster.
///
/// Waiters stand in line in the store, first come, first served. A stream of watches tells them when it is their turn,
/// and holders when they lose what they hold. Claims with leases of the same length share a lease of the store.
///
/// etcd counts in whole seconds, two at least, and more where the members take long for elections. So a lease, and the
/// time for which a hold is [kept](DistributedLock::keep), is rounded up to that. A new leader of the cluster counts both
/// from their beginning.
#[derive(Clone)]
pub struct EtcdLock {
    shared: Arc<Shared>,
    /// The watch and the upkeep. They end with the last clone of their client.
    tasks: Arc<Mutex<[Background; 2]>>,
}

/// What the tasks of a client share.
pub(crate) struct Shared {
    pub(crate) connection: Connection,
    pub(crate) keys: Keys,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) changes: Arc<Changes>,
    pub(crate) sessions: Sessions,
    pub(crate) tokens: Tokens,
    pub(crate) crowds: Crowds,
}

impl fmt::Debug for EtcdLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (servers, keys) = (&self.shared.connection.endpoints, &self.shared.keys);
        f.debug_struct("EtcdLock").field("servers", servers).field("keys", keys).finish_non_exhaustive()
    }
}

impl EtcdLock {
    /// Connects to the cluster of a URL such as `etcd://h1:2379,h2:2379`, in bounded time. [`EtcdOptions`] has more to
    /// choose.
    ///
    /// # Errors
    /// As [`EtcdOptions::connect`].
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        EtcdOptions::new(url)?.prefix(prefix).connect().await
    }

    pub(crate) fn new(connection: Connection, keys: Keys) -> Self {
        let ledger = Arc::new(Ledger::new(Arc::clone(&connection.clock), keys.clone()));
        let changes = Arc::new(Changes::new(keys.clone()));
        let (sessions, tokens) = (Sessions::default(), Tokens::new(&keys));
        let crowds = Crowds::default();
        let shared = Arc::new(Shared { connection, keys, ledger, changes, sessions, tokens, crowds });
        Self { shared, tasks: Arc::default() }
    }

    /// Sees to it that the tasks run. Those of a runtime that was shut down do not.
    fn ensure_tasks(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if !tasks.iter().all(Background::runs) {
            tasks[0].start(watch::keep_watching(Arc::clone(&self.shared)));
            tasks[1].start(upkeep::keep_up(Arc::clone(&self.shared)));
        }
    }
}

#[async_trait]
impl DistributedLock for EtcdLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("etcd", Scope::Network);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.keeps = true;
        capabilities.values = true;
        capabilities.modes = Modes::ALL;
        capabilities.takes_all = true;
        capabilities.tells_changes = true;
        capabilities.prompt_loss = true;
        capabilities.min_lease = Duration::from_secs(2);
        capabilities.answers_within = self.shared.connection.timeout;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.shared.connection.clock)
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        let losses = self.shared.ledger.losses();
        unfold(losses, async |mut losses| match losses.recv().await {
            Ok(owner) => Some((Notice::NotHeld(owner), losses)),
            // Some were not heard of.
            Err(RecvError::Lagged(_)) => Some((Notice::Doubt, losses)),
            Err(RecvError::Closed) => None,
        })
        .boxed()
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.ensure_tasks();
        match claim.mode {
            Mode::Permits { .. } => self.shared.take_permits(claim, false).await,
            _ => self.shared.try_lock(claim).await,
        }
    }

    async fn try_lock_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        self.ensure_tasks();
        self.shared.try_lock_all(claims).await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.ensure_tasks();
        match claim.mode {
            Mode::Permits { .. } => self.shared.take_permits(claim, true).await?.ok_or_else(nonsense),
            _ => self.shared.lock(claim).await,
        }
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        self.shared.unlock(claim).await
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        self.shared.renew(claims).await
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        self.shared.keep(claim, rest).await
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        self.shared.proclaim(claim, value).await
    }

    fn changes(&self, name: &LockName) -> BoxStream<'static, ()> {
        let changes = self.shared.changes.of(self.shared.keys.line(name));
        let lock = self.clone();
        // Perhaps this is called outside of a runtime; the stream is not.
        let watching = stream::once(async move { lock.ensure_tasks() });
        watching.filter(|()| std::future::ready(false)).chain(changes).boxed()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.shared.inspect(name).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.shared.first(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.shared.list(query).await
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        self.shared.evict(name, None).await
    }

    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        self.shared.evict(name, Some(owner)).await
    }

    async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        self.shared.resize(name, permits).await
    }

    async fn raise_tokens(&self, _name: &LockName, above: StoreToken) -> Result<()> {
        self.shared.tokens.raise(&self.shared.connection, above).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.shared.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.shared.sessions.close(&self.shared.connection).await;
        self.shared.connection.close();
        Ok(())
    }
}

/// The example of `lock_fence::etcd`, whose crate does not need this one.
#[cfg(doctest)]
#[doc = include_str!("../../lock-fence/src/etcd_example.md")]
struct FenceExample;
