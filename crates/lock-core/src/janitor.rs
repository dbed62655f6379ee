//! The janitor: one task releases what was dropped, cancelled or left unknown, until the store answers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use crate::worker::Worker;
use crate::{Claim, Clock, DistributedLock, LockName, OwnerId};

/// The pause before a release is tried again: doubled each time, from the first to the last.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));

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
    queue: Vec<Claim>,
    unfinished: HashMap<OwnerId, LockName>,
    closed: bool,
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
        let mut state = self.shared.state();
        state.unfinished.insert(claim.owner.clone(), claim.name.clone());
        state.queue.push(claim);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Ends when nothing is left to release.
    pub(crate) async fn idle(&self) {
        loop {
            // Made before the question, so that no notification falls in between.
            let idle = self.shared.idle.notified();
            if self.shared.state().unfinished.is_empty() {
                return;
            }
            idle.await;
        }
    }

    /// What is not released yet.
    pub(crate) fn unfinished(&self) -> Vec<LockName> {
        self.shared.state().unfinished.values().cloned().collect()
    }
}

impl Drop for Janitor {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn release(&self, claim: Claim) {
        let over = self.clock.now() + claim.lease;
        let mut pause = PAUSES.0;
        while let Err(error) = self.backend.unlock(&claim).await {
            let (name, owner) = (&claim.name, &claim.owner);
            if self.clock.now() >= over {
                tracing::warn!(%name, %owner, ?error, "not released: the store did not answer within its lease");
                break;
            }
            tracing::debug!(%name, %owner, ?error, "release failed, will be tried again");
            self.clock.sleep_until(self.clock.now() + pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
        let mut state = self.state();
        state.unfinished.remove(&claim.owner);
        if state.unfinished.is_empty() {
            self.idle.notify_waiters();
        }
    }
}

async fn run(shared: Arc<Shared>) {
    let process = std::process::id();
    let mut on_their_way = FuturesUnordered::new();
    loop {
        // A fork has a copy of this task's memory: it must not release what its parent holds.
        if std::process::id() != process {
            return;
        }
        let (claims, closed) = {
            let mut state = shared.state();
            (std::mem::take(&mut state.queue), state.closed)
        };
        on_their_way.extend(claims.into_iter().map(|claim| shared.release(claim)));
        if closed && on_their_way.is_empty() {
            return;
        }
        tokio::select! {
            Some(()) = on_their_way.next() => {}
            () = shared.wake.notified() => {}
        }
    }
}
