//! The janitor: one task releases what was dropped, cancelled or left unknown, or keeps it where it is to outlive its owner,
//! until the store answers.
//!
//! A store that is away for longer than a lease may have had a request to acquire all the while. When it is back it may do
//! that request, and nobody would be there to give the lock back. So the janitor asks on after the lease.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use crate::contract::{Claim, Clock, DistributedLock, Error, ErrorKind, Instant, LockName, OwnerId};
use crate::engine::sync::{Mutex, MutexGuard, PoisonError};
use crate::engine::timing::Pauses;
use crate::engine::worker::Worker;

#[cfg(test)]
mod model;

/// So many releases at most are asked for after their leases. Each is small, but a store may be away for days.
const MOST_LATE: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Janitor {
    shared: Arc<Shared>,
    worker: Worker,
}

#[derive(Debug)]
struct Shared {
    backend: Arc<dyn DistributedLock>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    wake: Notify,
    /// Something is late.
    late: Notify,
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What it has to release, also what it is at: another runtime's task begins with all of it.
    unfinished: HashMap<OwnerId, Job>,
    /// Of that, what came since the task looked.
    new: Vec<Job>,
    /// What the store did not answer within its lease; the first is asked for next. No shutdown waits for it.
    late: VecDeque<Job>,
    /// Nothing is late any more: after a shutdown.
    drops_late: bool,
    /// Releases that others see to, and that a shutdown waits for.
    watched: HashMap<OwnerId, LockName>,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Job {
    claim: Claim,
    /// Until when the hold is to go on without its owner.
    keep_until: Option<Instant>,
}

impl Janitor {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>, clock: Arc<dyn Clock>) -> Self {
        let (wake, late, idle) = (Notify::new(), Notify::new(), Notify::new());
        let shared = Shared { backend, clock, state: Mutex::default(), wake, late, idle };
        Self { shared: Arc::new(shared), worker: Worker::default() }
    }

    /// Sees to it that the task runs, if called inside a runtime.
    pub(crate) fn start(&self) {
        self.worker.ensure(|| run(Arc::clone(&self.shared)));
    }

    /// Takes a claim over. Neither blocks nor spawns: it may be called from a destructor, on any thread.
    pub(crate) fn release(&self, claim: Claim) {
        self.take(Job { claim, keep_until: None });
    }

    /// The same for a hold that is to go on until then.
    pub(crate) fn keep(&self, claim: Claim, until: Instant) {
        self.take(Job { claim, keep_until: Some(until) });
    }

    fn take(&self, job: Job) {
        let mut state = self.shared.state();
        state.unfinished.insert(job.claim.owner.clone(), job.clone());
        state.new.push(job);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Somebody else releases this, and says when it is done.
    pub(crate) fn watch(&self, claim: &Claim) {
        self.shared.state().watched.insert(claim.owner.clone(), claim.name.clone());
    }

    /// That is done.
    pub(crate) fn settle(&self, owner: &OwnerId) {
        self.shared.state().watched.remove(owner);
        self.shared.tell_if_idle();
    }

    /// Ends when nothing is left to release.
    pub(crate) async fn idle(&self) {
        loop {
            // Made before the question, so that no notification falls in between.
            let idle = self.shared.idle.notified();
            if self.shared.state().is_idle() {
                return;
            }
            idle.await;
        }
    }

    /// What the store did not answer within its lease is not asked for any more.
    pub(crate) fn drop_late(&self) {
        let mut state = self.shared.state();
        state.drops_late = true;
        state.late.clear();
    }

    /// What is not released yet.
    pub(crate) fn unfinished(&self) -> Vec<LockName> {
        let state = self.shared.state();
        let mut names: Vec<_> =
            state.unfinished.values().map(|job| &job.claim.name).chain(state.watched.values()).collect();
        names.sort_unstable();
        names.dedup();
        names.into_iter().cloned().collect()
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.wake.notify_one();
    }
}

impl State {
    fn is_idle(&self) -> bool {
        self.unfinished.is_empty() && self.watched.is_empty()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell_if_idle(&self) {
        let idle = self.state().is_idle();
        if idle {
            self.idle.notify_waiters();
        }
    }

    /// Releases a claim. A store that does not answer within the lease is [asked on](Self::see_to_late).
    async fn finish(&self, job: Job) {
        let (name, owner) = (&job.claim.name, &job.claim.owner);
        let over = self.clock.now() + job.claim.lease;
        let mut pauses = Pauses::default();
        let mut is_late = false;
        while let Err(error) = self.ask(&job).await {
            if error.kind() == ErrorKind::Closed {
                tracing::debug!(%name, %owner, ?error, "not released");
                break;
            }
            if self.clock.now() >= over {
                tracing::warn!(%name, %owner, ?error, "not released within its lease");
                is_late = is_away(&error);
                break;
            }
            tracing::debug!(%name, %owner, ?error, "release failed, will be tried again");
            self.clock.sleep_until(self.clock.now() + pauses.next()).await;
        }
        {
            let mut state = self.state();
            state.unfinished.remove(owner);
            if is_late && !state.drops_late && state.late.len() < MOST_LATE {
                state.late.push_back(job);
                self.late.notify_one();
            }
        }
        self.tell_if_idle();
    }

    /// Asks on for what is late, until the store has answered each. One at a time, however many there are: so a store that
    /// is away is asked about once in a second.
    async fn see_to_late(&self) -> Infallible {
        let mut pauses = Pauses::default();
        loop {
            // Made before the question, so that no notification falls in between.
            let more = self.late.notified();
            let next = self.state().late.front().cloned();
            let Some(job) = next else {
                more.await;
                continue;
            };
            let answer = self.ask(&job).await;
            let waits = answer.as_ref().is_err_and(is_away);
            {
                let mut state = self.state();
                // None: it was dropped meanwhile. Else it is the one that was asked for, since others come behind it.
                let asked = state.late.pop_front();
                // Should it be the fault of this one, the others have their turn first.
                state.late.extend(asked.filter(|_| waits));
            }
            tracing::debug!(name = %job.claim.name, owner = %job.claim.owner, ?answer, "asked for after its lease");
            if waits {
                self.clock.sleep_until(self.clock.now() + pauses.next()).await;
            } else {
                pauses = Pauses::default();
            }
        }
    }

    /// One that panics must not take the others along.
    async fn ask(&self, Job { claim, keep_until }: &Job) -> Result<(), Error> {
        let rest = keep_until.map(|until| until.saturating_duration_since(self.clock.now()));
        let asking = AssertUnwindSafe(async {
            match rest.filter(|rest| !rest.is_zero()) {
                None => self.backend.unlock(claim).await.map(drop),
                Some(rest) => self.backend.keep(claim, rest).await.map(drop),
            }
        })
        .catch_unwind();
        match asking.await {
            Ok(answer) => answer,
            // Not as a store that is away: asked for ever, it would panic for ever.
            Err(_) => Err(Error::new(ErrorKind::Refused, "the backend panicked")),
        }
    }
}

/// Did the store not answer?
fn is_away(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown)
}

async fn run(shared: Arc<Shared>) {
    let process = std::process::id();
    let mut on_their_way = FuturesUnordered::new();
    {
        // What a task began whose runtime is gone.
        let mut state = shared.state();
        state.new = state.unfinished.values().cloned().collect();
    }
    let mut late = pin!(shared.see_to_late());
    loop {
        // A fork has a copy of this task's memory: it must not release what its parent holds.
        if std::process::id() != process {
            return;
        }
        let (jobs, closed) = {
            let mut state = shared.state();
            (std::mem::take(&mut state.new), state.closed)
        };
        on_their_way.extend(jobs.into_iter().map(|job| shared.finish(job)));
        if closed && on_their_way.is_empty() {
            return;
        }
        tokio::select! {
            Some(()) = on_their_way.next() => {}
            () = shared.wake.notified() => {}
            never = &mut late => match never {},
        }
    }
}
