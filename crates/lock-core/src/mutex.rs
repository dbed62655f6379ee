//! The handle for one lock: a name and options. Here an acquisition is made, bounded and, where need be, undone.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;

use crate::keeper::sleep_until;
use crate::locks::Core;
use crate::options::LockOptions;
use crate::{Claim, Error, ErrorKind, Grant, Holder, Instant, LockGuard, LockName, Result};

/// How much longer than its wait an acquisition may take to leave the queue and to ask who holds the lock. After that
/// the background takes over.
const FAREWELL: Duration = Duration::from_millis(100);

/// A handle for one lock: its name and the options of its acquisitions. Making and cloning it costs no I/O, and holds
/// nothing.
///
/// It is not re-entrant: an acquisition while another of the same handle holds the lock waits like any other.
#[derive(Clone)]
pub struct Mutex {
    core: Arc<Core>,
    name: std::result::Result<LockName, String>,
    options: LockOptions,
}

impl Mutex {
    pub(crate) fn new(core: Arc<Core>, name: Result<LockName>, options: LockOptions) -> Self {
        Self { core, name: name.map_err(|error| error.message().to_owned()), options }
    }

    /// How long the store keeps the lock for a holder that it does not hear of: the time after which a crashed holder's
    /// lock is free, and the longest outage that a hold survives. It is renewed at a third.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How long an acquisition may take in all: connection, pool and queue. With zero, [`Mutex::lock`] tries once.
    pub fn wait(mut self, wait: Duration) -> Self {
        self.options.wait = Some(wait);
        self
    }

    /// Take the lock for a fixed time instead: it is never renewed, and lost when the time is up.
    pub fn hold_for(mut self, hold: Duration) -> Self {
        self.options.hold_for = Some(hold);
        self
    }

    /// Renew no longer than this in all: then the lock is lost. A bound for sections that hang.
    pub fn max_hold(mut self, max_hold: Duration) -> Self {
        self.options.max_hold = Some(max_hold);
        self
    }

    /// First come, first served across processes, also where that costs speed.
    pub fn fair(mut self, fair: bool) -> Self {
        self.options.fair = fair;
        self
    }

    /// The lock's name, if it is one.
    pub fn name(&self) -> Option<&LockName> {
        self.name.as_ref().ok()
    }

    /// Waits until the lock is granted, or until [`Mutex::wait`] is over.
    ///
    /// # Errors
    /// - [`ErrorKind::Timeout`] when the wait is over. The error names the holder if the store can tell in time, which
    ///   takes up to 100 ms more.
    /// - [`ErrorKind::Invalid`] and [`ErrorKind::Unsupported`] for a name or an option.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Refused`], [`ErrorKind::Unknown`] as the store says. A store that is
    ///   down is an error, not a longer wait.
    /// - [`ErrorKind::Closed`] after a shutdown.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the place in the queue, and the lock if it was granted just then, are given back in
    /// the background.
    ///
    /// # If the reply is lost
    /// That is an [`ErrorKind::Unknown`]; whatever the store did is undone, here or in the background.
    pub async fn lock(&self) -> Result<LockGuard> {
        if let Some(guard) = self.acquire(Verb::Lock).await? {
            return Ok(guard);
        }
        // Busy, which only the one try of a wait of zero is told.
        let holder = match self.name() {
            Some(name) => self.holder(name).await,
            None => None,
        };
        Err(self.core.context(Error::timeout(Duration::ZERO, holder), "lock", self.name()))
    }

    /// Takes the lock now or not at all: `None` means that it is held by another, or waited for where the store is fair.
    ///
    /// # Errors
    /// As [`Mutex::lock`]. [`Mutex::wait`] bounds it too, without one the store's own bound on requests does.
    ///
    /// # Cancel safety
    /// May be dropped at any point: a lock that was granted just then is given back in the background.
    ///
    /// # If the reply is lost
    /// That is an [`ErrorKind::Unknown`]; whatever the store did is undone, here or in the background.
    pub async fn try_lock(&self) -> Result<Option<LockGuard>> {
        self.acquire(Verb::TryLock).await
    }

    async fn acquire(&self, verb: Verb) -> Result<Option<LockGuard>> {
        let (name, deadline) = self.prepare(verb.name())?;
        loop {
            let claim = self.core.claim(name.clone(), &self.options);
            let span = tracing::debug_span!("acquire", verb = verb.name(), %name, owner = %claim.owner);
            match self.attempt(claim, deadline, verb).instrument(span).await? {
                Attempt::Granted(guard) => return Ok(Some(guard)),
                Attempt::Busy => return Ok(None),
                // This process was paused. A new claim, with what is left of the wait.
                Attempt::TooLate => {}
            }
        }
    }

    fn tries_once(&self) -> bool {
        self.options.wait.is_some_and(|wait| wait.is_zero())
    }

    /// Checks everything that needs no store, and sets the time at which the wait is over.
    fn prepare(&self, op: &'static str) -> Result<(LockName, Option<Instant>)> {
        self.core.check_open(op)?;
        let in_context = |error| self.core.context(error, op, self.name());
        let name = self.name.clone().map_err(|wrong| in_context(Error::new(ErrorKind::Invalid, wrong)))?;
        self.options.check(&self.core.capabilities).map_err(in_context)?;
        // A wait of zero bounds nothing: one request has to be let through.
        let wait = self.options.wait.filter(|_| !self.tries_once());
        Ok((name, wait.map(|wait| self.core.clock.now() + wait)))
    }

    /// One claim, from its first byte to a guard or to nothing being left of it.
    async fn attempt(&self, claim: Claim, deadline: Option<Instant>, verb: Verb) -> Result<Attempt> {
        let core = &self.core;
        let mut pending = Pending::arm(core, claim);
        let outcome = tokio::select! {
            biased;
            answer = verb.ask(core, &pending.claim, self.tries_once()) => Outcome::Answered(answer),
            () = core.closed.cancelled() => Outcome::Closed,
            () = sleep_until(&*core.clock, deadline) => Outcome::TimedOut,
        };
        let error = match outcome {
            Outcome::Answered(Ok(Some(grant))) => {
                pending.armed = false;
                // Until the end of this function it counts as under way: a shutdown meanwhile waits.
                match core.guard(pending.claim.clone(), grant, &self.options) {
                    Ok(guard) => {
                        tracing::debug!(token = %guard.fencing_token(), "granted");
                        return Ok(Attempt::Granted(guard));
                    }
                    Err(over) => {
                        let released = over.unlock().await;
                        tracing::debug!(?released, "granted too late");
                        return core.check_open(verb.name()).map(|()| Attempt::TooLate);
                    }
                }
            }
            Outcome::Answered(Ok(None)) => {
                pending.armed = false;
                return Ok(Attempt::Busy);
            }
            Outcome::Answered(Err(error)) if error.is_refused() => {
                pending.armed = false;
                error
            }
            Outcome::Answered(Err(error)) => {
                pending.undo().await;
                error
            }
            Outcome::Closed => {
                drop(pending);
                Error::new(ErrorKind::Closed, "these locks were shut down")
            }
            Outcome::TimedOut => self.time_out(pending).await,
        };
        Err(core.context(error, verb.name(), self.name()))
    }

    /// Who holds the lock, if the store answers soon.
    async fn holder(&self, name: &LockName) -> Option<Holder> {
        let late = self.core.clock.now() + FAREWELL;
        tokio::select! {
            biased;
            status = self.core.backend.inspect(name) => status.ok().and_then(|status| status.holder),
            () = self.core.clock.sleep_until(late) => None,
        }
    }

    /// Leaves the queue and asks who holds the lock, both at once and in bounded time.
    async fn time_out(&self, pending: Pending) -> Error {
        let name = pending.claim.name.clone();
        let owner = pending.claim.owner.clone();
        let ((), holder) = futures_util::future::join(pending.undo(), self.holder(&name)).await;
        // Granted at the very end, and given back: that is nobody to name.
        let holder = holder.filter(|holder| holder.owner != owner);
        Error::timeout(self.options.wait.unwrap_or_default(), holder)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("name", &self.name).field("options", &self.options).finish()
    }
}

#[derive(Clone, Copy)]
enum Verb {
    Lock,
    TryLock,
}

impl Verb {
    fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::TryLock => "try_lock",
        }
    }

    async fn ask(self, core: &Core, claim: &Claim, once: bool) -> Result<Option<Grant>> {
        match self {
            Self::Lock if !once => core.backend.lock(claim).await.map(Some),
            Self::Lock | Self::TryLock => core.backend.try_lock(claim).await,
        }
    }
}

/// What became of one claim.
enum Attempt {
    Granted(LockGuard),
    Busy,
    /// Granted, but over before we knew.
    TooLate,
}

enum Outcome {
    Answered(Result<Option<Grant>>),
    Closed,
    TimedOut,
}

/// A claim about which the store may have heard. Armed before the first byte leaves: dropped while it is, it goes to the
/// janitor.
struct Pending {
    core: Arc<Core>,
    claim: Claim,
    armed: bool,
}

impl Pending {
    fn arm(core: &Arc<Core>, claim: Claim) -> Self {
        core.begin();
        Self { core: Arc::clone(core), claim, armed: true }
    }

    /// Undoes whatever the store did: here if it answers soon, else in the background.
    async fn undo(mut self) {
        let late = self.core.clock.now() + FAREWELL;
        let undone = tokio::select! {
            biased;
            answer = self.core.backend.unlock(&self.claim) => answer.is_ok(),
            () = self.core.clock.sleep_until(late) => false,
        };
        self.armed = !undone;
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.armed {
            self.core.janitor.release(self.claim.clone());
        }
        self.core.settle();
    }
}
