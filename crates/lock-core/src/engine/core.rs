//! What all handles of one store share: the backend, the queue, the keeper, the janitor; and how they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::contract::claim::Identity;
use crate::contract::options::LockOptions;
use crate::contract::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Grant, Instant, LockName, LockValue, Mode, Result,
    Scope,
};
use crate::engine::hold::{End, Hold, Process};
use crate::engine::janitor::Janitor;
use crate::engine::keeper::Keeper;
use crate::engine::observer::Sights;
use crate::engine::request::{Permit, Queue};
use crate::engine::telemetry::Telemetry;
use crate::engine::who_holds::WhoHolds;
use crate::engine::{Lease, LockGuard, Owner, timing};

/// What all handles of one store share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn DistributedLock>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) capabilities: Capabilities,
    pub(crate) keeper: Keeper,
    pub(crate) janitor: Janitor,
    pub(crate) queue: Arc<Queue>,
    pub(crate) telemetry: Telemetry,
    pub(crate) who_holds: WhoHolds,
    pub(crate) sights: Sights,
    pub(crate) closed: CancellationToken,
    /// The same, for those who only look: asking the token takes a mutex.
    is_closed: AtomicBool,
    identity: Identity,
    process: u32,
    next_hold: AtomicU64,
    acquiring: AtomicUsize,
    settled: Notify,
}

impl Core {
    pub(crate) fn new(backend: Arc<dyn DistributedLock>, identity: Identity) -> Self {
        let clock = backend.clock();
        let capabilities = backend.capabilities();
        let telemetry = Telemetry::new(capabilities.backend);
        let queue = Arc::new(Queue::new(telemetry));
        Self {
            capabilities,
            telemetry,
            who_holds: WhoHolds::default(),
            sights: Sights::default(),
            keeper: Keeper::new(Arc::clone(&backend), Arc::clone(&clock), Arc::clone(&queue), telemetry),
            janitor: Janitor::new(Arc::clone(&backend), Arc::clone(&clock)),
            backend,
            clock,
            queue,
            identity,
            closed: CancellationToken::new(),
            is_closed: AtomicBool::new(false),
            process: std::process::id(),
            next_hold: AtomicU64::new(0),
            acquiring: AtomicUsize::new(0),
            settled: Notify::new(),
        }
    }

    /// A claim by a new owner.
    pub(crate) fn claim(
        &self,
        name: LockName,
        lease: Duration,
        options: &LockOptions,
        value: Option<LockValue>,
    ) -> Claim {
        let owner = self.identity.draw(self.capabilities.scope == Scope::Process);
        let (fair, mode) = (options.fair, options.mode);
        Claim { fair, value, mode, ..Claim::new(name, owner, lease) }
    }

    /// The lease to ask for. A store may learn how long one it can give only when it is asked for a longer one.
    pub(crate) fn lease(&self, options: &LockOptions) -> Duration {
        let longest = if options.lease_chosen { None } else { self.backend.capabilities().max_lease };
        options.asked_lease(longest)
    }

    /// # Errors
    /// [`ErrorKind::Closed`] after a shutdown and in a fork of the process.
    pub(crate) fn check_open(&self, op: &'static str) -> Result<()> {
        if self.is_closed() {
            return Err(self.context(closed(), op, None));
        }
        self.check_process(op)
    }

    /// # Errors
    /// [`ErrorKind::Closed`] in a fork of the process: what the parent holds is not the child's to use.
    pub(crate) fn check_process(&self, op: &'static str) -> Result<()> {
        // A store inside the process was copied with it: there is nothing that the two could share.
        if self.capabilities.scope == Scope::Process || std::process::id() == self.process {
            return Ok(());
        }
        let message = format!("made by process {}, used in a fork of it: connect anew in the fork", self.process);
        Err(self.context(Error::new(ErrorKind::Closed, message), op, None))
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Counts an acquisition as begun, so that a shutdown waits for its clean-up.
    pub(crate) fn begin(&self) {
        self.acquiring.fetch_add(1, Ordering::AcqRel);
        self.janitor.start();
    }

    /// Counts it as ended.
    pub(crate) fn settle(&self) {
        if self.acquiring.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.settled.notify_waiters();
        }
    }

    /// Makes a guard of a grant, and sees to its renewal; the guard is an error if what it is of is over already.
    pub(crate) fn guard(
        self: &Arc<Self>,
        claim: Claim,
        grant: Grant,
        options: &LockOptions,
        owner: Option<&Owner>,
        permit: Option<Permit>,
    ) -> std::result::Result<LockGuard, LockGuard> {
        let id = self.next_hold.fetch_add(1, Ordering::Relaxed);
        let now = self.clock.now();
        let only = self.capabilities.scope != Scope::Process;
        let clock = Arc::clone(&self.clock);
        let process = Process { clock, telemetry: self.telemetry, id: only.then_some(self.process) };
        let hold = Arc::new(Hold::new(claim, grant, id, *options, process, now));
        let course = hold.what_next(now);
        if let Some(course) = course {
            self.keeper.keep(&hold, course, now);
        }
        // A shutdown may have emptied the keeper just before.
        let closed = self.is_closed();
        if closed {
            self.keeper.forget(id);
            hold.end(End::Expired);
        }
        let guard = |lease| LockGuard::new(lease, Arc::clone(self));
        let lease = Lease { hold, turn: 0 };
        if course.is_none() || closed {
            return Err(guard(lease));
        }
        match options.mode {
            Mode::Exclusive => {
                self.queue.granted(&lease, owner, permit, guard);
                // If it ended just before, the keeper has looked for it in the line in vain.
                if !lease.hold.runs(0, now) {
                    self.queue.vacate(&lease.hold);
                }
            }
            Mode::Shared => self.queue.reads(&lease),
            // Of a semaphore the queue knows nothing.
            Mode::Permits { .. } => {}
        }
        Ok(LockGuard::granted(lease, Arc::clone(self)))
    }

    /// The store has answered a release, or the janitor has taken it over.
    pub(crate) fn released(&self, hold: &Hold) {
        // In this order: a shutdown that takes it from the keeper asks whether it is settled after that.
        hold.settle();
        self.keeper.forget(hold.id);
        if self.is_closed() {
            self.janitor.settle(&hold.claim.owner);
        }
    }

    pub(crate) fn context(&self, error: Error, op: &'static str, name: Option<&LockName>) -> Error {
        error.with_context(op, self.capabilities.backend, name)
    }

    /// Ends everything, and answers what could not be released until `deadline` is over.
    pub(crate) async fn shutdown(&self, deadline: Duration) -> Vec<LockName> {
        self.is_closed.store(true, Ordering::Release);
        self.closed.cancel();
        self.queue.close();
        for hold in self.keeper.drain() {
            match hold.end(End::Shutdown) {
                None => self.janitor.release(hold.claim.clone()),
                // Its guard awaits the answer.
                Some(End::Released) => {
                    self.janitor.watch(&hold.claim);
                    if hold.is_settled() {
                        self.janitor.settle(&hold.claim.owner);
                    }
                }
                Some(_) => {}
            }
        }
        self.janitor.start();
        let late = self.clock.now() + deadline;
        let released = async {
            self.settled().await;
            self.janitor.idle().await;
        };
        tokio::select! {
            biased;
            () = released => {}
            () = self.clock.sleep_until(late) => {}
        }
        let unreleased = self.janitor.unfinished();
        self.janitor.drop_late();
        tokio::select! {
            biased;
            closed = self.backend.close() => if let Err(error) = closed {
                tracing::debug!(?error, "the backend did not close cleanly");
            },
            () = self.clock.sleep_until(late.max(self.clock.now() + timing::GRACE)) => {}
        }
        unreleased
    }

    /// Ends when no acquisition is under way.
    async fn settled(&self) {
        loop {
            // Made before the question, so that no notification falls in between.
            let settled = self.settled.notified();
            if self.acquiring.load(Ordering::Acquire) == 0 {
                return;
            }
            settled.await;
        }
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "these locks were shut down")
}

/// Sleeps until `at`, or for ever.
pub(crate) async fn sleep_until(clock: &dyn Clock, at: Option<Instant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}
