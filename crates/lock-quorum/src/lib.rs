//! One lock over a majority of several independent stores, `quorum:?store=URL&store=URL&store=URL`: no single one of
//! them is needed, and none is trusted alone.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! use lock_core::{Config, Registry};
//! use lock_quorum::QuorumFactory;
//!
//! let mut registry = Registry::new();
//! let stores = registry.clone();
//! registry.register(QuorumFactory::over(stores));
//! let url = "quorum:?store=memory:a&store=memory:b&store=memory:c";
//! let locks = registry.connect(Config::from_url(url)?).await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! guard.unlock().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # How it grants
//!
//! There are *n* stores, an odd number, and more than half of all *n* are a majority, also while some are away.
//!
//! 1. The client asks all stores for the lock, at once, and notes when it asked each. It goes on when a majority has
//!    granted the lock. *T* is the highest token of those that did.
//! 2. It raises the tokens of stores that granted the lock to *T*, where their own is lower, until a majority of all
//!    has *T* as its floor. Then it looks at the clock. If a majority of those stores still holds the lock for it,
//!    the lock is granted with the token *T*. It is valid as long as a majority is: until the smallest end of the
//!    majority whose ends are latest, each counted from when the request was sent. (It is the core that looks, as it
//!    does at each grant.)
//!
//! If there is no majority, whatever was granted is given back. A release goes to all stores, and again to those that
//! do not answer. Whoever asks a store again that was to give back, or that did not answer, is another owner there, as
//! `1#owner` is of `owner`; and what is being given back counts no more. So no release ends a hold that counts, however
//! late it arrives. A renewal counts if a majority prolongs the lease. A store that has lost the hold has its tokens
//! raised to *T* then, and is asked to grant the lock again. So a hold outlives stores that are emptied one by one.
//!
//! # Why no two hold a lock at once
//!
//! It is assumed that
//!
//! - **(E1)** each store keeps the rules of [the contract](DistributedLock#the-contract): it grants a lock to one
//!   owner at a time, and to no other before the end that it promised the first one;
//! - **(E2)** no two of the stores are the same one;
//! - **(E3)** a store that restarts knows what it has promised;
//! - **(E4)** the clocks of the client and of the stores run at the same rate, but for the margin that the core takes
//!   off.
//!
//! Let *P* and *Q* hold the lock at one instant. Each then holds it in a majority of the stores. Two majorities have
//! a store in common, which is one store (E2). It would have granted the lock to both at once, before the end that it
//! promised (E4). That contradicts (E1) and (E3).
//!
//! # Why tokens rise
//!
//! The maximum of the tokens alone does not rise: *P* may have 100 from store A and 50 from store B, and *Q* 51 from B
//! and 50 from C. So it is also assumed that
//!
//! - **(T1)** after a store has answered that its tokens are raised to *T*, every later *grant* of it has a higher
//!   token than *T*; [`Capabilities::numbers_grants`] says so, and stores that do not are refused;
//! - **(T2)** a store that restarts knows its floor.
//!
//! Let *P* hold the lock with *T*, and *Q* after it. Let *p* be the instant at which *P* looked at the clock, and *q*
//! that of *Q*. At *p*, *P* held the lock in a majority of the stores, whose floor was *T* already. At *q*, *Q* held
//! it in a majority. Some store *X* is in both. *P* holds before *Q*, so *p* is before *q*. *X* had granted the lock
//! to *P* at *p*, and to *Q* at *q*, and to one at a time (E1). So it granted it to *Q* after *p*, when its floor was
//! *T*. The token of that grant is above *T* (T1, T2), and the token of *Q* is not below it, since it is the highest
//! of those that *Q* was given. ∎
//!
//! The model `quorum` of `crates/models` tries all that a few clients and three stores can do in every order, and shows
//! that each of these rules is needed.
//!
//! # What it cannot promise
//!
//! - **A store that restarts empty** breaks (E3): it may grant the lock to another while its holder still has the
//!   others, and then a majority may have two holders. [`rejoin_after`](QuorumOptions::rejoin_after) keeps such a
//!   store out until every lease that it has forgotten is over. With it, (E3) holds as long as fewer than half of the
//!   stores are emptied within that time. It breaks (T2), too. Stores whose tokens begin at their clock, which is all
//!   that can be members, make up for it with `rejoin_after` if their clocks differ by less than that time and nobody
//!   raised tokens by hand.
//! - **A hold that only just a majority granted** ends early if one of these stores is emptied. Its holder is told, and
//!   the next is granted no sooner than the others allow. Renewals take the lock again where it is free, so this is rare.
//! - **A store that is behind another URL of another store** breaks (E2). When stores are connected to, and at the first
//!   lock if one is yet to be made, a lock of the quorum's own is taken in each and looked for in the others. Two
//!   databases of one server are not told apart from two servers.
//! - **First come, first served**, values, kept holds, readers and permits: see [`Capabilities`].
//!
//! Names that begin with `oarlock-quorum/` are the quorum's own in each store; lists leave them out.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acquire;
mod gather;
mod look;
mod member;
mod open;
mod options;
mod rejoin;
mod release;
mod renew;
mod tally;
mod turns;
mod wait;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, ErrorKind, Finding, Grant, Holder, Instant, ListQuery, LockName,
    LockStatus, Notice, OwnerId, Page, Renewal, Result, StoreToken, Unlocked,
};
use tokio::sync::OnceCell;

use gather::{Answers, Request, gather};
use member::Member;
pub use options::{QuorumFactory, QuorumOptions};

/// A lock over a majority of independent stores. A clone is the same client.
#[derive(Clone)]
pub struct QuorumLock(Arc<Inner>);

struct Inner {
    members: Vec<Member>,
    clock: Arc<dyn Clock>,
    capabilities: Capabilities,
    options: QuorumOptions,
    /// Set when it is known that no two of the stores are the same.
    apart: OnceCell<()>,
    holds: Mutex<HashMap<OwnerId, Hold>>,
}

/// What this client knows of a hold of its own.
#[derive(Clone, Debug)]
struct Hold {
    /// The one that was answered first: a repeated request has no other.
    token: StoreToken,
    valid_until: Instant,
    /// The places of stores that did nothing, and from which nothing is to be released.
    untouched: Vec<usize>,
}

impl fmt::Debug for QuorumLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumLock").field("members", &self.0.members).finish_non_exhaustive()
    }
}

impl Inner {
    fn majority(&self) -> usize {
        tally::majority(self.members.len())
    }

    fn holds(&self) -> MutexGuard<'_, HashMap<OwnerId, Hold>> {
        self.holds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner of this claim asks for nothing any more.
    fn forget(&self, claim: &Claim) {
        self.members.iter().for_each(|member| member.turns.forget(&claim.owner));
    }

    /// Asks all stores.
    async fn ask<'a, T: Send + 'a>(
        &'a self,
        request: impl Fn(&'a Member) -> Request<'a, T>,
        decided: impl Fn(&[Option<Result<T>>]) -> bool,
    ) -> Answers<T> {
        let requests = self.members.iter().enumerate().map(|(place, member)| (place, request(member)));
        gather(&self.members, requests, self.options.timeout, decided).await
    }

    /// Asks all stores for what a majority has to answer.
    async fn ask_majority<'a, T: Send + 'a>(
        &'a self,
        what: &str,
        request: impl Fn(&'a Member) -> Request<'a, T>,
    ) -> Result<Answers<T>> {
        let count =
            |answers: &[Option<Result<T>>]| answers.iter().filter(|answer| matches!(answer, Some(Ok(_)))).count();
        let answers = self.ask(request, |answers| count(answers) >= self.majority()).await;
        if count(&answers) >= self.majority() {
            return Ok(answers);
        }
        Err(match answers.iter().all(Option::is_some) {
            true => tally::refused(what, &answers),
            false => tally::failed(what, &answers, ErrorKind::Unavailable),
        })
    }
}

#[async_trait]
impl DistributedLock for QuorumLock {
    fn capabilities(&self) -> Capabilities {
        self.0.capabilities.clone()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.reach_all();
        self.take_or_leave(claim).await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.reach_all();
        self.take_in_turn(claim).await
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        self.give_back(claim).await
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        self.reach_all();
        self.renew_all(claims).await
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        let members = self.0.members.iter().filter_map(Member::known);
        // What one store says of a hold does not decide on it: that is asked of all.
        let doubts = members.map(|member| member.notices().map(|_| Notice::Doubt));
        stream::select_all(doubts).chain(stream::pending()).boxed()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.reach_all();
        self.0.status_of(name).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.reach_all();
        self.0.holder_of(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.reach_all();
        self.0.page(query).await
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        let asked = self.0.ask_majority("evict", |member| Box::pin(member.evict(name)));
        Ok(self.0.common(asked.await?))
    }

    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        let asked = self.0.ask_majority("evict", |member| Box::pin(member.evict_owner(name, owner)));
        Ok(self.0.common(asked.await?))
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        let asked = self.0.ask_majority("raise_tokens", |member| {
            Box::pin(async move { member.client()?.raise_tokens(name, above).await })
        });
        asked.await.map(drop)
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.reach_all();
        self.0.findings().await
    }

    async fn close(&self) -> Result<()> {
        let clients = self.0.members.iter().filter_map(Member::known);
        let closed = futures_util::future::join_all(clients.map(|client| client.close())).await;
        closed.into_iter().collect()
    }
}
