//! The keeper: one task renews the leases of one `Locks`, in batches, and says when one is over.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::stream::{BoxStream, FuturesUnordered, StreamExt};
use tokio::sync::Notify;

use crate::lease::{End, Shared as Lease, Term, margin};
use crate::worker::Worker;
use crate::{Clock, DistributedLock, Error, ErrorKind, Instant, OwnerId, Renewal, Result};

/// What is due this soon goes into the batch that leaves now.
const SLACK: Duration = Duration::from_millis(20);

/// The most claims in one call.
const BATCH: usize = 1000;

#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    worker: Worker,
}

#[derive(Debug)]
struct Shared {
    backend: Arc<dyn DistributedLock>,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    leases: BTreeMap<u64, Entry>,
    order: BTreeSet<(Instant, u64)>,
    /// Until when the task sleeps; an entry before that must wake it.
    asleep_until: Option<Instant>,
    closed: bool,
}

struct Entry {
    due: Instant,
    renew: bool,
    lease: Arc<Lease>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} due {:?}", self.lease.claim.name, self.due)
    }
}

impl State {
    fn schedule(&mut self, lease: Arc<Lease>, due: Instant, renew: bool) {
        let id = lease.id;
        self.remove(id);
        self.order.insert((due, id));
        self.leases.insert(id, Entry { due, renew, lease });
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.leases.remove(&id)?;
        self.order.remove(&(entry.due, id));
        Some(entry)
    }
}

/// When to renew a lease that holds until `until`: with two thirds of it left, and in any case not at once.
fn renewal_time(lease: &Lease, until: Instant, now: Instant) -> Instant {
    let early = until.saturating_sub(lease.claim.lease * 2 / 3 - margin(lease.claim.lease));
    early.max(now + until.saturating_duration_since(now) / 3)
}

impl Keeper {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>, clock: Arc<dyn Clock>) -> Self {
        let shared = Shared { backend, clock, state: Mutex::default(), wake: Notify::new() };
        Self { shared: Arc::new(shared), worker: Worker::default() }
    }

    /// Watches over a lease that holds until `until`, from now on.
    pub(crate) fn keep(&self, lease: &Arc<Lease>, until: Instant, now: Instant) {
        self.worker.ensure(|| run(Arc::clone(&self.shared), self.shared.backend.losses()));
        self.shared.schedule(lease, until, now);
    }

    /// No longer watches over a lease.
    pub(crate) fn forget(&self, id: u64) {
        self.shared.state().remove(id);
    }

    /// Watches over nothing any more; answers what it did watch over.
    pub(crate) fn drain(&self) -> Vec<Arc<Lease>> {
        let mut state = self.shared.state();
        state.order.clear();
        std::mem::take(&mut state.leases).into_values().map(|entry| entry.lease).collect()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a lease in its place for its next renewal, or for its end.
    fn schedule(&self, lease: &Arc<Lease>, until: Instant, now: Instant) {
        let renew = match lease.term {
            Term::Open => true,
            Term::Until(end) => until < end,
            Term::Fixed => false,
        };
        self.insert(lease, if renew { renewal_time(lease, until, now) } else { until }, renew);
    }

    fn insert(&self, lease: &Arc<Lease>, due: Instant, renew: bool) {
        let mut state = self.state();
        state.schedule(Arc::clone(lease), due, renew);
        if state.asleep_until.is_none_or(|until| due < until) {
            state.asleep_until = Some(due);
            self.wake.notify_one();
        }
    }

    /// Takes out what is due: leases to renew. Those whose time is over are told on the way.
    fn take_due(&self, now: Instant) -> Vec<Arc<Lease>> {
        let mut state = self.state();
        let mut batch = Vec::new();
        while let Some(&(due, id)) = state.order.first()
            && due <= now + SLACK
        {
            let renew = state.leases.get(&id).is_some_and(|entry| entry.renew);
            if due > now && !renew {
                break;
            }
            let Some(entry) = state.remove(id) else { continue };
            // Asking is what notices the end of a lease.
            let Some(until) = entry.lease.until(now) else { continue };
            if renew {
                batch.push(Arc::clone(&entry.lease));
            }
            // While the renewal is on its way, and if it never comes back, the end is what is due next.
            state.schedule(entry.lease, until, false);
        }
        batch
    }

    /// The store told of a loss by itself.
    fn lose(&self, owner: &OwnerId) {
        let mut state = self.state();
        let theirs = state.leases.values().find(|entry| entry.lease.claim.owner == *owner);
        if let Some(lease) = theirs.map(|entry| Arc::clone(&entry.lease)) {
            lease.end(End::NotHeld);
            state.remove(lease.id);
        }
    }

    /// What a batch was answered.
    fn apply(&self, batch: Vec<Arc<Lease>>, answers: Vec<Result<Renewal>>) {
        let now = self.clock.now();
        let mut answers = answers.into_iter();
        for lease in batch {
            match answers.next() {
                Some(Ok(Renewal::Held { valid_until })) => {
                    // Released while the renewal was on its way: it stays out.
                    if let Some(until) = lease.confirm(valid_until) {
                        self.schedule(&lease, until, now);
                    }
                }
                Some(Ok(Renewal::NotHeld)) => {
                    lease.end(End::NotHeld);
                    self.state().remove(lease.id);
                }
                failed => {
                    lease.risk();
                    let error = failed.and_then(Result::err).unwrap_or_else(|| {
                        Error::new(ErrorKind::Unknown, "the backend gave fewer answers than it got claims")
                    });
                    tracing::warn!(name = %lease.claim.name, owner = %lease.claim.owner, ?error, "renewal failed");
                    let pause = (lease.claim.lease / 20).clamp(Duration::from_millis(10), Duration::from_secs(1));
                    if let Some(until) = lease.until(now) {
                        self.insert(&lease, (now + pause).min(until), true);
                    }
                }
            }
        }
    }

    /// Sends one batch, in bounded time: a renewal that hangs must leave time for another.
    async fn renew(&self, batch: Vec<Arc<Lease>>) -> (Vec<Arc<Lease>>, Vec<Result<Renewal>>) {
        let claims: Vec<_> = batch.iter().map(|lease| lease.claim.clone()).collect();
        let bound = claims.iter().map(|claim| claim.lease / 3).min().unwrap_or_default();
        let late = self.clock.now() + bound;
        let failed = |message: &str| {
            let error = || Err(Error::new(ErrorKind::Unknown, message));
            batch.iter().map(|_| error()).collect()
        };
        let answers = tokio::select! {
            biased;
            answers = AssertUnwindSafe(async { self.backend.renew(&claims).await }).catch_unwind() =>
                answers.unwrap_or_else(|_| failed("the backend panicked")),
            () = self.clock.sleep_until(late) => failed("no answer within a third of the lease"),
        };
        (batch, answers)
    }
}

async fn run(shared: Arc<Shared>, losses: BoxStream<'static, OwnerId>) {
    let mut losses = losses.fuse();
    let process = std::process::id();
    let mut on_their_way = FuturesUnordered::new();
    loop {
        // A fork has a copy of this task's memory: it must not renew what its parent holds.
        if std::process::id() != process {
            return;
        }
        let due = shared.take_due(shared.clock.now());
        for batch in due.chunks(BATCH) {
            on_their_way.push(shared.renew(batch.to_vec()));
        }
        let next = {
            let mut state = shared.state();
            if state.closed && state.leases.is_empty() {
                return;
            }
            state.asleep_until = state.order.first().map(|&(due, _)| due);
            state.asleep_until
        };
        tokio::select! {
            Some((batch, answers)) = on_their_way.next() => shared.apply(batch, answers),
            Some(owner) = losses.next() => shared.lose(&owner),
            () = shared.wake.notified() => {}
            () = sleep_until(&*shared.clock, next) => {}
        }
    }
}

/// Sleeps until `at`, or for ever.
pub(crate) async fn sleep_until(clock: &dyn Clock, at: Option<Instant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
