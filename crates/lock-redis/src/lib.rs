//! Oarlock's backend for Redis 6.2 and later, and Valkey: locks for every host that reaches the server.
//!
//! A lock is a plain string at `prefix:name` with its owner in it, set with `SET … NX PX` and deleted only by its
//! owner. So it excludes, and is excluded by, any client that locks in this common way.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! use lock_core::{Config, Registry};
//!
//! let mut registry = Registry::new();
//! registry.register(lock_redis::RedisFactory);
//! # let server = test_servers::RedisServer::start();
//! let url = "redis://cache.internal";
//! # let url = &server.url();
//! let locks = registry.connect(Config::from_url(url)?).await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! guard.unlock().await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acquire;
mod address;
mod answers;
mod batches;
mod bounded;
mod cluster;
mod connection;
mod dial;
mod doctor;
mod error;
mod factory;
mod free;
mod keep;
mod keys;
mod life;
mod modes;
mod options;
#[cfg(test)]
mod properties;
mod rates;
mod records;
mod release;
mod renew;
mod replicas;
mod scripts;
mod sentinel;
mod servers;
mod slots;
mod status;
mod times;
mod tls;
mod together;
mod values;
mod waiters;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Finding, Grant, Holder, Kept, ListQuery, LockName, LockStatus,
    LockValue, Modes, Notice, OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result, Scope, StoreToken,
    Unlocked,
};
use tokio::sync::watch;

use acquire::{another_kind, granted};
use answers::{Acquired, nonsense};
use connection::{Again, Client};
pub use factory::RedisFactory;
use keys::Keys;
pub use options::RedisOptions;
use scripts::RAISE;
use servers::Servers;

/// Locks on a Redis or Valkey server, or on a cluster of them.
///
/// Waiters stand in line on the server; a release hands the lock to the first who lives, and tells it by a message.
/// Leases go by the server's clock. What the server forgets, by a restart without persistence or an eviction, is lost,
/// and noticed at the next renewal. The end of the connection, which comes with a restart, has everything renewed at
/// once.
#[derive(Clone)]
pub struct RedisLock {
    servers: Arc<Servers>,
    client: Arc<Client>,
    keys: Keys,
}

impl fmt::Debug for RedisLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, keys) = (self.servers.to_string(), &self.keys);
        f.debug_struct("RedisLock").field("server", &server).field("keys", keys).finish_non_exhaustive()
    }
}

impl RedisLock {
    /// Connects to the server of a URL such as `redis://cache.internal`, in bounded time. [`RedisOptions`] has more to
    /// choose.
    ///
    /// # Errors
    /// As [`RedisOptions::connect`].
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        RedisOptions::new(url)?.prefix(prefix).connect().await
    }
}

#[async_trait]
impl DistributedLock for RedisLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("redis", Scope::Network);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.numbers_grants = true;
        capabilities.keeps = true;
        capabilities.values = true;
        capabilities.modes = Modes::ALL;
        capabilities.takes_all = true;
        capabilities.limits_rates = true;
        capabilities.min_lease = Duration::from_millis(10);
        capabilities.answers_within = self.client.dialer.timeout;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.client.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        let keys = Arc::new(self.keys.of(&claim.name));
        let before = match self.take_free(claim, &keys).await? {
            Ok(grant) => return Ok(Some(grant)),
            Err(before) => before,
        };
        let (sent, acquired) = Box::pin(self.acquire(claim, &keys, None, before)).await?;
        Ok(match acquired {
            Acquired::Granted { token, left, slots } => Some(granted(claim, sent, token, left).with_slots(slots)),
            Acquired::Busy { .. } => None,
            Acquired::Another(found) => return Err(another_kind(claim, found, before)),
        })
    }

    async fn try_lock_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        self.take_all(claims).await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        let keys = Arc::new(self.keys.of(&claim.name));
        let before = match self.take_free(claim, &keys).await? {
            Ok(grant) => return Ok(grant),
            Err(before) => before,
        };
        // Seldom done, and large: who is granted at once would carry the room for it.
        Box::pin(self.wait(claim, keys, before)).await
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        if let Some(keys) = self.client.records.forget(&claim.name, &claim.owner) {
            // It was granted just now: it stands in no line.
            return self.release(claim, &keys, "").await;
        }
        let keys = self.keys.of(&claim.name);
        self.release(claim, &keys, &self.place(&claim.owner, claim.lease, claim.mode, &keys)).await
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
        let doubts = self.client.doubts.subscribe();
        let next =
            async |mut doubts: watch::Receiver<()>| doubts.changed().await.ok().map(|()| (Notice::Doubt, doubts));
        stream::unfold(doubts, next).boxed()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.statuses(vec![name.clone()]).await?.pop().ok_or_else(nonsense)
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.holder_of(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.page(query).await
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        self.end_hold(name).await
    }

    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        self.end_one(name, owner).await
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        let (keys, above) = (self.keys.of(name), above.get().to_string());
        let answer = self.servers.run(&RAISE, &[&*keys.tokens], &[above.as_bytes()], Again::Yes).await?;
        answer.link.confirm(self.client.own_key(keys.slot)).await
    }

    async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        self.set_permits(name, permits).await
    }

    async fn reserve(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.reserve_time(name, wanted).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.servers.close();
        Ok(())
    }
}
