//! The locks of one store, as an application uses them.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::asking::Permit;
use crate::claim::Identity;
use crate::hold::{End, Hold, Process};
use crate::janitor::Janitor;
use crate::keeper::Keeper;
use crate::mutex::{Queue, closed};
use crate::options::{LockOptions, setters};
use crate::telemetry::Telemetry;
use crate::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, Lease, ListQuery, LockGuard,
    LockName, LockStatus, Mutex, Owner, Page, Result, Scope,
};

/// What all handles of one [`Locks`] share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) backend: Arc<dyn DistributedLock>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) capabilities: Capabilities,
    pub(crate) keeper: Keeper,
    pub(crate) janitor: Janitor,
    pub(crate) queue: Arc<Queue>,
    pub(crate) telemetry: Telemetry,
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
    /// A claim by a new owner.
    pub(crate) fn claim(&self, name: LockName, options: &LockOptions) -> Claim {
        let mut claim = Claim::new(name, self.identity.draw(), options.asked_lease());
        claim.fair = options.fair;
        claim
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
        self.queue.granted(&lease, owner, permit, guard);
        Ok(guard(lease))
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
}

/// The locks of one store. Cloning is cheap: clones share the connection, the keeper that renews and the janitor that
/// cleans up.
///
/// Both are tasks on the runtime on which a lock was first acquired. That runtime must be running for leases to be
/// renewed: a thread that blocks a current-thread runtime for longer than a lease loses its locks, and knows it.
#[derive(Clone)]
pub struct Locks {
    core: Arc<Core>,
    options: LockOptions,
}

impl Locks {
    /// The locks of this store, with the defaults: a lease of 30 s (or the shortest the store can give, if that is
    /// longer), renewed; waits without end; labelled with the program's name.
    pub fn new(backend: Arc<dyn DistributedLock>) -> Self {
        let identity = Identity::new(&Identity::default_label()).expect("the default label is a label");
        let shortest = backend.capabilities().min_lease;
        let options = LockOptions::default();
        let options = LockOptions { lease: options.lease.max(shortest), ..options };
        Self::assemble(backend, identity, options)
    }

    /// The locks of this store, with other defaults.
    pub fn builder(backend: Arc<dyn DistributedLock>) -> LocksBuilder {
        LocksBuilder { backend, label: None, options: LockOptions::default() }
    }

    fn assemble(backend: Arc<dyn DistributedLock>, identity: Identity, options: LockOptions) -> Self {
        let clock = backend.clock();
        let capabilities = backend.capabilities();
        let telemetry = Telemetry::new(capabilities.backend);
        let queue = Arc::new(Queue::new(telemetry));
        let core = Core {
            capabilities,
            telemetry,
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
        };
        Self { core: Arc::new(core), options }
    }

    /// A handle for the lock of this name, a text or a [`LockName`], with these locks' defaults. No I/O; a text that
    /// cannot be a name is reported when the lock is acquired.
    pub fn mutex<N>(&self, name: N) -> Mutex
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Mutex::new(Arc::clone(&self.core), name.try_into().map_err(Into::into), self.options)
    }

    /// Runs `section` with the lock of this name held, and drops it at the loss: [`Mutex::run`] with these locks'
    /// defaults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
    /// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
    /// let sent = locks.with("invoices/2026-11", async |lease| lease.fencing_token().get() > 0).await?;
    /// assert!(sent);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::run`].
    ///
    /// # Cancel safety
    /// As [`Mutex::run`].
    pub async fn with<T>(&self, name: &str, section: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        self.mutex(name).run(section).await
    }

    /// What the store can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.core.capabilities
    }

    /// The store itself.
    pub fn backend(&self) -> &Arc<dyn DistributedLock> {
        &self.core.backend
    }

    /// Who holds a lock, and who waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what cannot be a name; else as the store says.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn inspect(&self, name: &str) -> Result<LockStatus> {
        self.core.check_open("inspect")?;
        let name = LockName::new(name)?;
        let answer = self.core.backend.inspect(&name).await;
        answer.map_err(|error| self.core.context(error, "inspect", Some(&name)))
    }

    /// The locks that are held or waited for, a page at a time.
    ///
    /// # Errors
    /// As the store says.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.core.check_open("list")?;
        let answer = self.core.backend.list(query).await;
        answer.map_err(|error| self.core.context(error, "list", None))
    }

    /// Ends the hold on a lock by force, whoever's it is, and answers whose it was. The owner learns of it as a loss,
    /// at its next renewal at the latest; until then two may believe that they hold the lock.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what cannot be a name; else as the store says.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have been done. The same after a lost reply, which is an error.
    pub async fn evict(&self, name: &str) -> Result<Option<Holder>> {
        self.core.check_open("evict")?;
        let name = LockName::new(name)?;
        let answer = self.core.backend.evict(&name).await;
        answer.map_err(|error| self.core.context(error, "evict", Some(&name)))
    }

    /// Settings of the store that void a promise.
    ///
    /// # Errors
    /// As the store says.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        self.core.check_open("doctor")?;
        self.core.backend.doctor().await.map_err(|error| self.core.context(error, "doctor", None))
    }

    /// Ends these locks, for all clones: every hold is lost at once and released, every acquisition under way ends with
    /// [`ErrorKind::Closed`], and the store's connections are closed. Reports what could not be released within
    /// `deadline`; that is free when its lease is over.
    ///
    /// # Cancel safety
    /// Dropped, the releases go on in the background, and it may be called again.
    pub async fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        let core = &self.core;
        core.is_closed.store(true, Ordering::Release);
        core.closed.cancel();
        core.queue.close();
        for hold in core.keeper.drain() {
            match hold.end(End::Shutdown) {
                None => core.janitor.release(hold.claim.clone()),
                // Its guard awaits the answer.
                Some(End::Released) => {
                    core.janitor.watch(&hold.claim);
                    if hold.is_settled() {
                        core.janitor.settle(&hold.claim.owner);
                    }
                }
                Some(_) => {}
            }
        }
        core.janitor.start();
        let late = core.clock.now() + deadline;
        let released = async {
            self.settled().await;
            core.janitor.idle().await;
        };
        tokio::select! {
            biased;
            () = released => {}
            () = core.clock.sleep_until(late) => {}
        }
        let unreleased = core.janitor.unfinished();
        tokio::select! {
            biased;
            closed = core.backend.close() => if let Err(error) = closed {
                tracing::debug!(?error, "the backend did not close cleanly");
            },
            () = core.clock.sleep_until(late.max(core.clock.now() + Duration::from_millis(100))) => {}
        }
        ShutdownReport { unreleased }
    }

    /// Ends when no acquisition is under way.
    async fn settled(&self) {
        loop {
            // Made before the question, so that no notification falls in between.
            let settled = self.core.settled.notified();
            if self.core.acquiring.load(Ordering::Acquire) == 0 {
                return;
            }
            settled.await;
        }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("backend", &self.core.backend).field("options", &self.options).finish()
    }
}

/// What a shutdown could not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "says which locks are still held in the store"]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Locks that the store did not confirm as released.
    pub unreleased: Vec<LockName>,
}

/// Chooses the defaults of [`Locks`]. They are checked by [`LocksBuilder::build`].
#[derive(Debug)]
pub struct LocksBuilder {
    backend: Arc<dyn DistributedLock>,
    label: Option<String>,
    options: LockOptions,
}

impl LocksBuilder {
    pub(crate) fn with_options(mut self, options: LockOptions) -> Self {
        self.options = options;
        self
    }

    /// How the application calls itself in the store, before the host's name: 1 to 64 bytes without control characters,
    /// `@` and `#`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    setters!();

    /// Checks the choices.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] naming the option that is out of bounds; [`ErrorKind::Unsupported`] where the store
    /// cannot do it.
    pub fn build(self) -> Result<Locks> {
        self.options.check(&self.backend.capabilities())?;
        let identity = Identity::new(&self.label.unwrap_or_else(Identity::default_label))?;
        Ok(Locks::assemble(self.backend, identity, self.options))
    }
}
