//! What a test can do to an in-memory store.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use tokio::sync::watch;

use super::store::Store;
use crate::contract::{Clock, Error, ErrorKind, LockName, Result};

/// The verbs of a backend that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verb {
    /// Taking the lock now or not at all.
    TryLock,
    /// Waiting for it.
    Lock,
    /// Releasing it.
    Unlock,
    /// Prolonging it.
    Renew,
    /// Letting a hold go on without its owner.
    Keep,
    /// Showing another value.
    Proclaim,
    /// Looking at one lock or at many, or at the store's settings.
    Inspect,
    /// Breaking it.
    Evict,
    /// Raising its tokens.
    RaiseTokens,
    /// Changing the number of permits.
    Resize,
    /// Taking several locks in one request, now or not at all.
    TryLockAll,
    /// Reserving a stretch of a rate limiter's line.
    Reserve,
}

impl Verb {
    /// All of them, in their order.
    pub(crate) const ALL: [Self; 12] = [
        Self::TryLock,
        Self::Lock,
        Self::Unlock,
        Self::Renew,
        Self::Keep,
        Self::Proclaim,
        Self::Inspect,
        Self::Evict,
        Self::RaiseTokens,
        Self::Resize,
        Self::TryLockAll,
        Self::Reserve,
    ];
}

#[derive(Debug, Default)]
pub(super) struct Faults {
    /// Whether there is anything to look up at all: nearly always not.
    any: AtomicBool,
    stalled: watch::Sender<bool>,
    plan: Mutex<Plan>,
}

#[derive(Debug, Default)]
struct Plan {
    failures: VecDeque<(Verb, ErrorKind)>,
    reply_delay: Duration,
}

pub(super) fn failure(kind: ErrorKind) -> Error {
    Error::new(kind, "the test's script says so")
}

impl Faults {
    /// A request on its way to the store.
    pub(super) async fn request(&self, verb: Verb) -> Result<()> {
        // Boxed, so that the futures stay small without a script.
        if self.any.load(Ordering::Acquire) { self.scripted(verb).boxed().await } else { Ok(()) }
    }

    async fn scripted(&self, verb: Verb) -> Result<()> {
        // The sender lives as long as `self`.
        let _ = self.stalled.subscribe().wait_for(|stalled| !stalled).await;
        let mut plan = self.plan.lock().unwrap_or_else(PoisonError::into_inner);
        match plan.failures.iter().position(|(failing, _)| *failing == verb) {
            Some(at) => Err(failure(plan.failures.remove(at).map_or(ErrorKind::Unknown, |(_, kind)| kind))),
            None => Ok(()),
        }
    }

    /// A reply on its way back.
    pub(super) async fn reply(&self, clock: &Arc<dyn Clock>) {
        if self.any.load(Ordering::Acquire) {
            self.delayed(clock).boxed().await;
        }
    }

    async fn delayed(&self, clock: &Arc<dyn Clock>) {
        let _ = self.stalled.subscribe().wait_for(|stalled| !stalled).await;
        let delay = self.plan.lock().unwrap_or_else(PoisonError::into_inner).reply_delay;
        if !delay.is_zero() {
            clock.sleep_until(clock.now() + delay).await;
        }
    }
}

/// What tests do to an in-memory store. Everything but [`lose`](Self::lose) and [`advance`](Self::advance) concerns one
/// client only: others of the same store see nothing of it.
#[derive(Clone, Debug)]
pub struct MemoryScript {
    store: Arc<Store>,
    faults: Arc<Faults>,
}

impl MemoryScript {
    pub(super) fn new(store: Arc<Store>, faults: Arc<Faults>) -> Self {
        Self { store, faults }
    }

    /// From now on the store does not hear this client, and the client does not hear the store.
    pub fn stall(&self) {
        self.faults.any.store(true, Ordering::Release);
        self.faults.stalled.send_replace(true);
    }

    /// Ends a stall: what was held up goes on.
    pub fn resume(&self) {
        self.faults.stalled.send_replace(false);
    }

    /// The next `times` requests of this verb fail before the store sees them, with an error of this kind.
    pub fn fail(&self, verb: Verb, kind: ErrorKind, times: usize) {
        let mut plan = self.faults.plan.lock().unwrap_or_else(PoisonError::into_inner);
        plan.failures.extend(std::iter::repeat_n((verb, kind), times));
        self.faults.any.store(true, Ordering::Release);
    }

    /// From now on each reply comes so much later; zero ends it.
    pub fn delay_replies(&self, delay: Duration) {
        self.faults.plan.lock().unwrap_or_else(PoisonError::into_inner).reply_delay = delay;
        self.faults.any.store(true, Ordering::Release);
    }

    /// Takes a lock from whoever holds it, as an operator would: the holder learns of it at its next renewal. Answers
    /// whether anybody held it.
    pub fn lose(&self, name: &str) -> bool {
        LockName::new(name).is_ok_and(|name| self.store.evict(&name).is_some())
    }

    /// Moves the store's time ahead of the clients' clock: leases run out early, as after a step of a server's clock.
    /// (To move both, give the store a [`ManualClock`](crate::ManualClock).)
    pub fn advance(&self, duration: Duration) {
        self.store.advance(duration);
    }
}
