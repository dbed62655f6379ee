//! Locks that are bad on purpose.
// Each test that has this module makes some of the faults.
#![allow(dead_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Finding, Grant, Holder, Instant, Kept, ListQuery, LockName,
    LockStatus, LockValue, Notice, OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result, StoreToken,
    Unlocked,
};

/// What is wrong with a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing: what the cases here must not object to.
    None,
    /// It deletes whatever is there, as a bare `DEL` does.
    PlainDelete,
    /// It believes in its grant for ever.
    NoDeadline,
    /// It counts tokens itself.
    LocalTokens,
    /// It counts the lease from the answer.
    LeaseFromReply,
    /// What it holds outlives its client: it asks for a lease that does not end.
    NoExpiry,
}

#[derive(Debug)]
pub(crate) struct Bad {
    inner: Arc<dyn DistributedLock>,
    fault: Fault,
    tokens: AtomicU64,
}

/// A second more than the longest test.
const FOR_EVER: Duration = Duration::from_secs(3600);

impl Bad {
    pub(crate) fn new(inner: Arc<dyn DistributedLock>, fault: Fault) -> Self {
        Self { inner, fault, tokens: AtomicU64::new(1) }
    }

    /// Until when this lock believes in what was promised until then.
    fn believed(&self, claim: &Claim, until: Instant) -> Instant {
        match self.fault {
            Fault::NoDeadline => until + FOR_EVER,
            Fault::LeaseFromReply => self.inner.clock().now() + claim.lease,
            Fault::None | Fault::PlainDelete | Fault::LocalTokens | Fault::NoExpiry => until,
        }
    }

    /// What it asks for instead.
    fn asked(&self, claim: &Claim) -> Claim {
        let mut asked = claim.clone();
        if self.fault == Fault::NoExpiry {
            asked.lease = FOR_EVER;
        }
        asked
    }

    fn spoil(&self, claim: &Claim, grant: Grant) -> Grant {
        let valid_until = self.believed(claim, grant.valid_until);
        let token = match self.fault {
            Fault::LocalTokens => StoreToken::new(self.tokens.fetch_add(1, Ordering::Relaxed)).unwrap(),
            _ => grant.token,
        };
        Grant::new(token, valid_until).with_slots(grant.slots)
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Bad {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.inner.clock()
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        Ok(self.inner.try_lock(&self.asked(claim)).await?.map(|grant| self.spoil(claim, grant)))
    }

    async fn try_lock_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        let asked: Vec<_> = claims.iter().map(|claim| self.asked(claim)).collect();
        let Some(grants) = self.inner.try_lock_all(&asked).await? else { return Ok(None) };
        Ok(Some(claims.iter().zip(grants).map(|(claim, grant)| self.spoil(claim, grant)).collect()))
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        Ok(self.spoil(claim, self.inner.lock(&self.asked(claim)).await?))
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        if self.fault != Fault::PlainDelete {
            return self.inner.unlock(claim).await;
        }
        let evicted = self.inner.evict(&claim.name).await?;
        Ok(if evicted.is_some() { Unlocked::Released } else { Unlocked::NotHeld })
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        self.inner.keep(claim, rest).await
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        self.inner.proclaim(claim, value).await
    }

    fn changes(&self, name: &LockName) -> BoxStream<'static, ()> {
        self.inner.changes(name)
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let spoiled = |(claim, answer): (&Claim, Result<Renewal>)| match answer? {
            Renewal::Held { valid_until } => Ok(Renewal::Held { valid_until: self.believed(claim, valid_until) }),
            lost => Ok(lost),
        };
        let asked: Vec<_> = claims.iter().map(|claim| self.asked(claim)).collect();
        claims.iter().zip(self.inner.renew(&asked).await).map(spoiled).collect()
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.inner.notices()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.inner.inspect(name).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.inner.holder(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.inner.list(query).await
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        self.inner.evict(name).await
    }

    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        self.inner.evict_owner(name, owner).await
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        self.inner.raise_tokens(name, above).await
    }

    async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        self.inner.resize(name, permits).await
    }

    async fn reserve(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.inner.reserve(name, wanted).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.inner.doctor().await
    }

    async fn close(&self) -> Result<()> {
        self.inner.close().await
    }
}
