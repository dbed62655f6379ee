//! The janitor: one task releases what was dropped, cancelled or left unknown, or keeps it where it is to outlive its owner,
//! until the store answers.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
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
    idle: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// What it has to release, also what it is at: another runtime's task begins with all of it.
    unfinished: HashMap<OwnerId, Job>,
    /// Of that, what came since the task looked.
    new: Vec<Job>,
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
        let shared = Shared { backend, clock, state: Mutex::default(), wake: Notify::new(), idle: Notify::new() };
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

    /// Releases a claim, in the end or never: then it is free when its lease is over.
    async fn finish(&self, job: Job) {
        let claim = &job.claim;
        let over = self.clock.now() + claim.lease;
        let mut pauses = Pauses::default();
        while let Err(error) = self.ask(&job).await {
            let (name, owner) = (&claim.name, &claim.owner);
            if error.kind() == ErrorKind::Closed {
                tracing::debug!(%name, %owner, ?error, "not released");
                break;
            }
            if self.clock.now() >= over {
                tracing::warn!(%name, %owner, ?error, "not released: the store did not answer within its lease");
                break;
            }
            tracing::debug!(%name, %owner, ?error, "release failed, will be tried again");
            self.clock.sleep_until(self.clock.now() + pauses.next()).await;
        }
        self.state().unfinished.remove(&claim.owner);
        self.tell_if_idle();
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
            Err(_) => Err(Error::new(ErrorKind::Unknown, "the backend panicked")),
        }
    }
}

async fn run(shared: Arc<Shared>) {
    let process = std::process::id();
    let mut on_their_way = FuturesUnordered::new();
    {
        // What a task began whose runtime is gone.
        let mut state = shared.state();
        state.new = state.unfinished.values().cloned().collect();
    }
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
        }
    }
}
