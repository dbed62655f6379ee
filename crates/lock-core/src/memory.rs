//! The in-memory backend, `memory:`: exact, first come, first served, and scriptable, so that an application's own
//! tests can make it stall, fail, lose a lock or move its time.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
//! use std::{sync::Arc, time::Duration};
//! use lock_core::{Locks, memory::MemoryLock};
//!
//! let store = MemoryLock::new();
//! let locks = Locks::new(Arc::new(store.clone()));
//! let guard = locks.mutex("orders/42").lease(Duration::from_millis(300)).lock().await?;
//! store.script().lose("orders/42");       // as if an operator had evicted it: noticed at the next renewal
//! guard.lost().await;
//! # Ok(()) }
//! ```

mod script;
mod store;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use script::Faults;
pub use script::{MemoryScript, Verb};
use store::Store;

use crate::contract::{
    Capabilities, Claim, Clock, DistributedLock, Finding, Grant, Holder, Kept, ListQuery, LockName, LockStatus,
    LockValue, Modes, OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result, Scope, StoreToken,
    SystemClock, Unlocked,
};

/// One client of an in-memory store. A clone is the same client; [`MemoryLock::client`] is another one of the same
/// store.
#[derive(Clone, Debug)]
pub struct MemoryLock {
    store: Arc<Store>,
    faults: Arc<Faults>,
}

impl Default for MemoryLock {
    fn default() -> Self {
        Self::new()
    }
}

impl MemoryLock {
    /// A store of its own.
    pub fn new() -> Self {
        Self::with_clock(Arc::new(SystemClock))
    }

    /// A store of its own that goes by this clock, for example a [`ManualClock`](crate::ManualClock).
    pub fn with_clock(clock: Arc<dyn Clock>) -> Self {
        Self { store: Arc::new(Store::new(clock)), faults: Arc::default() }
    }

    /// Another client of the same store, with no faults.
    pub fn client(&self) -> Self {
        Self { store: Arc::clone(&self.store), faults: Arc::default() }
    }

    /// What tests do to this client, and to the store behind it.
    pub fn script(&self) -> MemoryScript {
        MemoryScript::new(Arc::clone(&self.store), Arc::clone(&self.faults))
    }
}

#[async_trait]
impl DistributedLock for MemoryLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("memory", Scope::Process);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.numbers_grants = true;
        capabilities.keeps = true;
        capabilities.values = true;
        capabilities.modes = Modes::ALL;
        capabilities.takes_all = true;
        capabilities.limits_rates = true;
        capabilities.min_lease = Duration::from_millis(1);
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(self.store.clock())
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.faults.request(Verb::TryLock).await?;
        let answer = self.store.try_lock(claim)?;
        self.faults.reply(self.store.clock()).await;
        Ok(answer)
    }

    async fn try_lock_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        self.faults.request(Verb::TryLockAll).await?;
        let answer = self.store.try_lock_all(claims)?;
        self.faults.reply(self.store.clock()).await;
        Ok(answer)
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.faults.request(Verb::Lock).await?;
        let answer = self.store.lock(claim).await?;
        self.faults.reply(self.store.clock()).await;
        Ok(answer)
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        self.faults.request(Verb::Unlock).await?;
        let answer = self.store.unlock(claim);
        self.faults.reply(self.store.clock()).await;
        Ok(answer)
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        if let Err(error) = self.faults.request(Verb::Renew).await {
            let kind = error.kind();
            return claims.iter().map(|_| Err(script::failure(kind))).collect();
        }
        let answers = self.store.renew(claims);
        self.faults.reply(self.store.clock()).await;
        answers.into_iter().map(Ok).collect()
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        self.faults.request(Verb::Keep).await?;
        let answer = self.store.keep(claim, rest);
        self.faults.reply(self.store.clock()).await;
        Ok(answer)
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        self.faults.request(Verb::Proclaim).await?;
        let answer = self.store.proclaim(claim, value);
        self.faults.reply(self.store.clock()).await;
        Ok(answer)
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.faults.request(Verb::Inspect).await?;
        Ok(self.store.inspect(name))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.faults.request(Verb::Inspect).await?;
        Ok(self.store.list(query))
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        self.faults.request(Verb::Evict).await?;
        Ok(self.store.evict(name))
    }

    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        self.faults.request(Verb::Evict).await?;
        Ok(self.store.evict_owner(name, owner))
    }

    async fn raise_tokens(&self, _name: &LockName, above: StoreToken) -> Result<()> {
        self.faults.request(Verb::RaiseTokens).await?;
        self.store.raise_tokens(above);
        Ok(())
    }

    async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        self.faults.request(Verb::Resize).await?;
        let answer = self.store.resize(name, permits)?;
        self.faults.reply(self.store.clock()).await;
        Ok(answer)
    }

    async fn reserve(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.faults.request(Verb::Reserve).await?;
        let answer = self.store.reserve(name, wanted);
        self.faults.reply(self.store.clock()).await;
        Ok(answer)
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.faults.request(Verb::Inspect).await?;
        Ok(Vec::new())
    }

    async fn close(&self) -> Result<()> {
        Ok(())
    }
}
