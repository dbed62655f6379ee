//! A store that misbehaves to order, around any other: what networks and busy servers do to requests and replies, on
//! purpose and at a known moment. For the tests of applications, and of the library itself.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
//! use std::sync::Arc;
//! use lock_core::memory::MemoryLock;
//! use lock_core::testing::{Effect, Faulty, Verb};
//! use lock_core::{ErrorKind, Locks};
//!
//! let store = Faulty::new(Arc::new(MemoryLock::new()));
//! let locks = Locks::new(store.backend());
//! store.once(Verb::TryLock, Effect::LoseReply);
//! assert_eq!(locks.mutex("orders/42").try_lock().await.unwrap_err().kind(), ErrorKind::Unknown);
//!
//! let guard = locks.mutex("orders/42").lock().await?;
//! store.lose("orders/42").await?;
//! guard.lost().await;
//! # Ok(()) }
//! ```

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt};
use tokio::sync::{broadcast, watch};

use crate::contract::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, Instant, Kept, ListQuery,
    LockName, LockStatus, LockValue, Notice, OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result,
    StoreToken, Unlocked,
};
pub use crate::memory::Verb;

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effect {
    /// Nothing.
    Pass,
    /// It fails before anything is sent, with an error of this kind.
    Fail(ErrorKind),
    /// It is sent and done, and the reply is lost: [`ErrorKind::Unknown`], at once.
    LoseReply,
    /// It is sent so much later.
    DelayRequest(Duration),
    /// It is sent and done, and the reply comes so much later.
    DelayReply(Duration),
    /// It vanishes: nothing is done, and there is no answer. After [`Faulty::CUT`] it is [`ErrorKind::Unknown`], as a
    /// backend that bounds its requests has to say.
    Cut,
    /// The backend has a bug and panics.
    Panic,
    /// It is sent, and the backend panics when the reply comes; after this time if none came.
    PanicLater(Duration),
}

impl Effect {
    /// The store is away: it cannot be reached, and nothing is sent.
    pub const AWAY: Self = Self::Fail(ErrorKind::Unavailable);
}

/// A backend that misbehaves to order. Clones are the same one. Delays go by the clock of the backend that it is around;
/// with a [`ManualClock`](crate::ManualClock) they end when the test says so.
#[derive(Clone, Debug)]
pub struct Faulty(Arc<State>);

#[derive(Debug)]
struct State {
    inner: Arc<dyn DistributedLock>,
    plan: Mutex<[Plan; Verb::ALL.len()]>,
    clock: Arc<Skewed>,
    told: broadcast::Sender<Notice>,
}

#[derive(Debug, Default)]
struct Plan {
    standing: Option<Effect>,
    next: VecDeque<Effect>,
    calls: usize,
}

impl Faulty {
    /// How long a request that vanished is waited for.
    pub const CUT: Duration = Duration::from_secs(1);

    /// Around this backend, behaving well until told otherwise.
    pub fn new(inner: Arc<dyn DistributedLock>) -> Self {
        let clock = Arc::new(Skewed { inner: inner.clock(), ahead: watch::Sender::default() });
        Self(Arc::new(State { inner, plan: Mutex::default(), clock, told: broadcast::Sender::new(1000) }))
    }

    /// As a backend.
    pub fn backend(&self) -> Arc<dyn DistributedLock> {
        Arc::new(self.clone())
    }

    /// From now on, this happens to every call of the verb.
    pub fn always(&self, verb: Verb, effect: Effect) {
        self.plan()[verb as usize].standing = Some(effect);
    }

    /// From now on, this happens to every call.
    pub fn everything(&self, effect: Effect) {
        Verb::ALL.into_iter().for_each(|verb| self.always(verb, effect));
    }

    /// This happens to the next call of the verb that has nothing planned, once.
    pub fn once(&self, verb: Verb, effect: Effect) {
        self.plan()[verb as usize].next.push_back(effect);
    }

    /// How often the verb was called.
    pub fn calls(&self, verb: Verb) -> usize {
        self.plan()[verb as usize].calls
    }

    /// Ends a hold now, whoever has it, and tells its holder at once: its lease is lost when the holder's task has run next.
    /// Answers whether anybody held the lock. ([`Locks::evict`](crate::Locks::evict) ends it too, but a holder may learn of
    /// that only at its next renewal.)
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what cannot be a name; else as the store says.
    pub async fn lose(&self, name: &str) -> Result<bool> {
        let evicted = self.0.inner.evict(&LockName::new(name)?).await?;
        if let Some(holder) = &evicted {
            self.tell(Notice::NotHeld(holder.owner.clone()));
        }
        Ok(evicted.is_some())
    }

    /// The store says this unasked, to whoever listens by now.
    pub fn tell(&self, notice: Notice) {
        // Nobody may listen yet.
        let _ = self.0.told.send(notice);
    }

    /// Moves the clock that the core sees ahead of the one the backend counts by.
    pub fn advance_clock(&self, by: Duration) {
        self.0.clock.ahead.send_modify(|ahead| *ahead += by);
    }

    fn plan(&self) -> MutexGuard<'_, [Plan; Verb::ALL.len()]> {
        self.0.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn effect(&self, verb: Verb) -> Effect {
        let plan = &mut self.plan()[verb as usize];
        plan.calls += 1;
        plan.next.pop_front().or(plan.standing).unwrap_or(Effect::Pass)
    }

    async fn pass(&self, time: Duration) {
        let clock = self.0.inner.clock();
        clock.sleep_until(clock.now() + time).await;
    }

    /// What happens to one call.
    async fn call<T>(&self, verb: Verb, call: impl Future<Output = Result<T>>) -> Result<T> {
        match self.effect(verb) {
            Effect::Pass => call.await,
            Effect::Fail(kind) => Err(Error::new(kind, "the test has this request fail")),
            Effect::LoseReply => {
                call.await?;
                Err(lost())
            }
            Effect::DelayRequest(delay) => {
                self.pass(delay).await;
                call.await
            }
            Effect::DelayReply(delay) => {
                let answer = call.await;
                self.pass(delay).await;
                answer
            }
            Effect::Cut => {
                self.pass(Self::CUT).await;
                Err(lost())
            }
            Effect::PanicLater(delay) => {
                tokio::select! {
                    _ = call => {}
                    () = self.pass(delay) => {}
                }
                panic!("the test makes {verb:?} panic")
            }
            Effect::Panic => panic!("the test makes {verb:?} panic"),
        }
    }
}

fn lost() -> Error {
    Error::new(ErrorKind::Unknown, "the test loses this reply")
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl DistributedLock for Faulty {
    fn capabilities(&self) -> Capabilities {
        self.0.inner.capabilities()
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.0.clock) as Arc<dyn Clock>
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.call(Verb::TryLock, self.0.inner.try_lock(claim)).await
    }

    async fn try_lock_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        self.call(Verb::TryLockAll, self.0.inner.try_lock_all(claims)).await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.call(Verb::Lock, self.0.inner.lock(claim)).await
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        self.call(Verb::Unlock, self.0.inner.unlock(claim)).await
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        self.call(Verb::Keep, self.0.inner.keep(claim, rest)).await
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        self.call(Verb::Proclaim, self.0.inner.proclaim(claim, value)).await
    }

    fn changes(&self, name: &LockName) -> BoxStream<'static, ()> {
        self.0.inner.changes(name)
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let all = async { Ok(self.0.inner.renew(claims).await) };
        match self.call(Verb::Renew, all).await {
            Ok(answers) => answers,
            Err(error) => claims.iter().map(|_| Err(error.clone())).collect(),
        }
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        let told = stream::unfold(self.0.told.subscribe(), async |mut told| Some((told.recv().await.ok()?, told)));
        stream::select(self.0.inner.notices(), told).boxed()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.call(Verb::Inspect, self.0.inner.inspect(name)).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.call(Verb::Inspect, self.0.inner.holder(name)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.call(Verb::Inspect, self.0.inner.list(query)).await
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        self.call(Verb::Evict, self.0.inner.evict(name)).await
    }

    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        self.call(Verb::Evict, self.0.inner.evict_owner(name, owner)).await
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        self.call(Verb::RaiseTokens, self.0.inner.raise_tokens(name, above)).await
    }

    async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        self.call(Verb::Resize, self.0.inner.resize(name, permits)).await
    }

    async fn reserve(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.call(Verb::Reserve, self.0.inner.reserve(name, wanted)).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.call(Verb::Inspect, self.0.inner.doctor()).await
    }

    async fn close(&self) -> Result<()> {
        self.0.inner.close().await
    }
}

/// A clock that is ahead of another.
#[derive(Debug)]
struct Skewed {
    inner: Arc<dyn Clock>,
    ahead: watch::Sender<Duration>,
}

#[async_trait]
impl Clock for Skewed {
    fn now(&self) -> Instant {
        self.inner.now() + *self.ahead.borrow()
    }

    async fn sleep_until(&self, at: Instant) {
        let mut ahead = self.ahead.subscribe();
        loop {
            let by = *ahead.borrow_and_update();
            tokio::select! {
                () = self.inner.sleep_until(at.saturating_sub(by)) => return,
                // The sender lives as long as `self`.
                _ = ahead.changed() => {}
            }
        }
    }

    fn wall(&self) -> Option<Duration> {
        self.inner.wall().map(|wall| wall + *self.ahead.borrow())
    }
}
