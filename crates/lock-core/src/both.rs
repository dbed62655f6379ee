//! Two stores as one, for the time in which a fleet moves from one to the other: [`Both`].
//!
//! # Why no two clients hold a lock at once
//!
//! A client of [`Both`] holds a lock while it holds it in the old store *and* in the new one. So it is kept apart from
//! clients of the old store by the old one, and from clients of the new store by the new one. Clients of the old store
//! alone and of the new store alone must not run at the same time: nothing keeps these apart.
//!
//! All take the old store first. A client that waits for the new store holds the old one, and nobody who holds the new
//! one waits for the old one, so no two wait for each other. A hold counts until the earlier of its two ends, and is lost
//! when either store says so.
//!
//! # Why tokens rise
//!
//! Each store's own tokens rise. They are not of one order, though, and a client of one store alone knows nothing of the
//! other's. So the token of a hold has to be the old store's as long as there are clients of the old store alone, and the
//! new store's as soon as there are clients of the new one alone. [`TokensOf`] says which, and clients of both kinds run
//! side by side while a fleet goes from the first to the second. It stays in order as follows.
//!
//! - With [`TokensOf::To`], a client raises the new store's tokens far above the old store's, after the old store
//!   has granted the lock and before it asks the new one. It does so each time; nearly always nothing is to be raised.
//!   Its token is the new store's: above every token of the old store that was ever a hold's.
//! - With [`TokensOf::From`], a client has the old store's token, unless the new store's is far above it. Then some client
//!   with `To` was there before, and the token is the new store's. No natural difference is that large: the tokens of all
//!   stores begin at the clock, and they would have to be years apart.
//! - While a client with `To` raises tokens, it holds the lock in the old store, and nobody gets the lock in the new one
//!   but those who asked it before. A client with `From` among these has an older token, and is granted before the client
//!   with `To` asks; or it has lost the old store meanwhile, and gives up.
//!
//! Nothing is raised in the old store, and nothing below a token that stands in a line already: ZooKeeper and etcd number
//! a claim when it joins their line, and a raise does not change that number.

mod look;
mod tokens;

use std::slice;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};

pub use tokens::TokensOf;

use crate::contract::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, Instant, Kept, ListQuery,
    LockName, LockStatus, LockValue, Notice, OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result,
    StoreToken, TAKE_ALL, Unlocked,
};

/// A lock in two stores, an old one and a new one: it is held while it is held in both.
#[derive(Clone, Debug)]
pub struct Both {
    from: Arc<dyn DistributedLock>,
    to: Arc<dyn DistributedLock>,
    tokens: TokensOf,
}

impl Both {
    /// The locks of these two stores, which go by one clock, as all stores but those of a test do.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if tokens are to be the new store's, and that one cannot raise its tokens.
    pub fn new(from: Arc<dyn DistributedLock>, to: Arc<dyn DistributedLock>, tokens: TokensOf) -> Result<Self> {
        let capabilities = to.capabilities();
        if tokens == TokensOf::To && !capabilities.raises_tokens {
            let wrong = format!("{} cannot raise its tokens: leave tokens=to off", capabilities.backend);
            return Err(Error::new(ErrorKind::Unsupported, wrong));
        }
        Ok(Self { from, to, tokens })
    }

    /// Readies the new store, now that the old one has granted the lock.
    async fn prepare(&self, claim: &Claim, first: &Grant) -> Result<()> {
        let Some(above) = self.tokens.floor(first.token)? else { return Ok(()) };
        self.to.raise_tokens(&claim.name, above).await.map_err(of(&self.to, "raise_tokens"))
    }

    /// Of both grants, the first of which was renewed until then.
    fn grant(&self, until: Instant, first: Grant, second: Grant) -> Grant {
        let token = self.tokens.choose(first.token, second.token);
        Grant::new(token, until.min(second.valid_until)).with_evidence(first.evidence).with_evidence(second.evidence)
    }

    /// Keeps what the old store granted while the new one is waited for. Ends when that is lost.
    async fn hold(&self, claim: &Claim, until: &Mutex<Instant>) -> Error {
        let clock = self.from.clock();
        let lost =
            || Error::new(ErrorKind::Unknown, "the old store's lock was lost while the new store's was waited for");
        loop {
            let (end, now) = (*until.lock().unwrap_or_else(PoisonError::into_inner), clock.now());
            if now >= end {
                return lost();
            }
            let third = end.saturating_duration_since(now) / 3;
            clock.sleep_until(now + third.max(claim.lease / 20)).await;
            match self.from.renew(slice::from_ref(claim)).await.pop() {
                Some(Ok(Renewal::Held { valid_until })) => {
                    *until.lock().unwrap_or_else(PoisonError::into_inner) = valid_until;
                }
                Some(Ok(Renewal::NotHeld)) => return lost(),
                failed => tracing::debug!(name = %claim.name, ?failed, "renewal in the old store failed"),
            }
        }
    }

    /// The new store failed. What the old one granted is given back here if nobody else will do it: after an error that says
    /// that nothing was done.
    async fn give_up(&self, claim: &Claim, error: Error) -> Error {
        if !error.is_refused() {
            return error;
        }
        self.give_back(claim).await.err().unwrap_or(error)
    }

    async fn give_back(&self, claim: &Claim) -> Result<()> {
        let wrong = "the new store did not grant the lock, and what the old one granted was not given back";
        let released = self.from.unlock(claim).await.map_err(of(&self.from, "unlock"));
        released.map(drop).map_err(|error| Error::new(ErrorKind::Unknown, wrong).with_source(error))
    }
}

/// Names the store that failed.
fn of(store: &Arc<dyn DistributedLock>, op: &'static str) -> impl Fn(Error) -> Error {
    let store = store.capabilities().backend;
    move |error| error.with_context(op, store, None)
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Both {
    fn capabilities(&self) -> Capabilities {
        let (from, to) = (self.from.capabilities(), self.to.capabilities());
        let mut both = Capabilities::new("both", from.scope.min(to.scope));
        both.fair = from.fair && to.fair;
        both.raises_tokens = from.raises_tokens && to.raises_tokens;
        both.numbers_grants = from.numbers_grants && to.numbers_grants;
        both.keeps = from.keeps && to.keeps;
        both.values = from.values && to.values;
        both.tells_changes = from.tells_changes && to.tells_changes;
        both.prompt_loss = from.prompt_loss && to.prompt_loss;
        both.min_lease = from.min_lease.max(to.min_lease);
        both.max_lease = from.max_lease.into_iter().chain(to.max_lease).min();
        both.answers_within = from.answers_within + to.answers_within;
        both
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.from.clock()
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        let Some(first) = self.from.try_lock(claim).await.map_err(of(&self.from, "try_lock"))? else { return Ok(None) };
        let second = async {
            self.prepare(claim, &first).await?;
            self.to.try_lock(claim).await.map_err(of(&self.to, "try_lock"))
        };
        match second.await {
            Ok(Some(second)) => Ok(Some(self.grant(first.valid_until, first, second))),
            Ok(None) => self.give_back(claim).await.map(|()| None),
            Err(error) => Err(self.give_up(claim, error).await),
        }
    }

    /// One after the other: all clients take the old store's lock of a name before the new one's.
    async fn try_lock_all(&self, _claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        Err(self.capabilities().cannot(TAKE_ALL))
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        let first = self.from.lock(claim).await.map_err(of(&self.from, "lock"))?;
        let until = Mutex::new(first.valid_until);
        let second = async {
            self.prepare(claim, &first).await?;
            self.to.lock(claim).await.map_err(of(&self.to, "lock"))
        };
        let second = tokio::select! {
            biased;
            second = second => second,
            lost = self.hold(claim, &until) => Err(lost),
        };
        let until = until.into_inner().unwrap_or_else(PoisonError::into_inner);
        match second {
            Ok(second) => Ok(self.grant(until, first, second)),
            Err(error) => Err(self.give_up(claim, error).await),
        }
    }

    /// The new store first: who then gets the old one finds the new one free. Both are asked whatever the first answers.
    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        let second = self.to.unlock(claim).await.map_err(of(&self.to, "unlock"));
        let first = self.from.unlock(claim).await.map_err(of(&self.from, "unlock"));
        match (first?, second?) {
            (Unlocked::Released, Unlocked::Released) => Ok(Unlocked::Released),
            _ => Ok(Unlocked::NotHeld),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let (first, second) = tokio::join!(self.from.renew(claims), self.to.renew(claims));
        let both = first.into_iter().zip(second).map(|both| match both {
            (Ok(Renewal::NotHeld), _) | (_, Ok(Renewal::NotHeld)) => Ok(Renewal::NotHeld),
            (Ok(Renewal::Held { valid_until: first }), Ok(Renewal::Held { valid_until: second })) => {
                Ok(Renewal::Held { valid_until: first.min(second) })
            }
            (Err(error), _) => Err(of(&self.from, "renew")(error)),
            (_, Err(error)) => Err(of(&self.to, "renew")(error)),
        });
        both.collect()
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        if self.to.keep(claim, rest).await.map_err(of(&self.to, "keep"))? == Kept::NotHeld {
            // Lost: nobody renews the other half, and nobody need wait for its end.
            self.from.unlock(claim).await.map_err(of(&self.from, "unlock"))?;
            return Ok(Kept::NotHeld);
        }
        self.from.keep(claim, rest).await.map_err(of(&self.from, "keep"))
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        if self.to.proclaim(claim, value).await.map_err(of(&self.to, "proclaim"))? == Proclaimed::NotHeld {
            return Ok(Proclaimed::NotHeld);
        }
        self.from.proclaim(claim, value).await.map_err(of(&self.from, "proclaim"))
    }

    fn changes(&self, name: &LockName) -> BoxStream<'static, ()> {
        stream::select(self.from.changes(name), self.to.changes(name)).boxed()
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        stream::select(self.from.notices(), self.to.notices()).boxed()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let from = async { self.from.inspect(name).await.map_err(of(&self.from, "inspect")) };
        let to = async { self.to.inspect(name).await.map_err(of(&self.to, "inspect")) };
        let (from, to) = look::seen(tokio::join!(from, to), LockStatus::free(name.clone()))?;
        Ok(look::status(from, to, self.tokens))
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        let from = async { self.from.holder(name).await.map_err(of(&self.from, "inspect")) };
        let to = async { self.to.holder(name).await.map_err(of(&self.to, "inspect")) };
        let (from, to) = look::seen(tokio::join!(from, to), None)?;
        Ok(look::holder(from, to, self.tokens))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        let from = async { self.from.list(query).await.map_err(of(&self.from, "list")) };
        let to = async { self.to.list(query).await.map_err(of(&self.to, "list")) };
        let (from, to) = look::seen(tokio::join!(from, to), Page::default())?;
        Ok(look::page(from, to, query, self.tokens))
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        let first = self.from.evict(name).await.map_err(of(&self.from, "evict"))?;
        let second = self.to.evict(name).await.map_err(of(&self.to, "evict"))?;
        Ok(look::holder(first, second, self.tokens))
    }

    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        let first = self.from.evict_owner(name, owner).await.map_err(of(&self.from, "evict"))?;
        let second = self.to.evict_owner(name, owner).await.map_err(of(&self.to, "evict"))?;
        Ok(look::holder(first, second, self.tokens))
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        // In this order: a new store far above the old one would have another meaning.
        self.from.raise_tokens(name, above).await.map_err(of(&self.from, "raise_tokens"))?;
        self.to.raise_tokens(name, above).await.map_err(of(&self.to, "raise_tokens"))
    }

    /// It has no semaphores: a permit would have to have the same number in both stores.
    async fn resize(&self, _name: &LockName, _permits: u32) -> Result<bool> {
        Err(self.capabilities().cannot("count permits: it has no semaphores"))
    }

    /// A stretch would have to begin at the same time in both stores.
    async fn reserve(&self, _name: &LockName, _wanted: &Reservation) -> Result<Reserved> {
        Err(self.capabilities().cannot("limit a rate: it has two lines; use one of the two stores"))
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        let mut findings = Vec::new();
        for (which, store) in [("from", &self.from), ("to", &self.to)] {
            let found = store.doctor().await.map_err(of(store, "doctor"))?;
            findings.extend(
                found
                    .into_iter()
                    .map(|finding| Finding { setting: format!("{which}: {}", finding.setting), ..finding }),
            );
        }
        Ok(findings)
    }

    async fn close(&self) -> Result<()> {
        let (from, to) = tokio::join!(self.from.close(), self.to.close());
        from.and(to)
    }
}
