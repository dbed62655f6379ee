//! The handle for one lock: a name and options. Here an acquisition is made, bounded and, where need be, undone.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tracing::Instrument;
use tracing::field::Empty;

use crate::asking::{Asking, Outcome, Permit};
use crate::keeper::sleep_until;
use crate::locks::Core;
use crate::options::{LockOptions, setters};
use crate::outage::{Outage, stood_in_line};
use crate::queue::{Entry, Wish};
use crate::telemetry::Began;
use crate::{Error, ErrorKind, Holder, Instant, Lease, LockGuard, LockName, Owner, Result};

/// The queue in the process, of guards and of acquisitions that ask the store.
pub(crate) type Queue = crate::queue::Queue<LockGuard, Asking>;

type Turn = crate::queue::Turn<LockGuard, Asking>;
type Place<'a> = crate::queue::Place<'a, LockGuard, Asking>;

/// What becomes of who came to the queue in the process.
enum Come {
    Held(LockGuard),
    Ask(Option<Permit>),
    GoOn(Asking),
    Busy,
    /// Whoever asked for all was told so.
    Failed(Error, Option<Instant>),
}

/// How much longer than its wait an acquisition may take to leave the queue and to ask who holds the lock. After that
/// the background takes over.
pub(crate) const FAREWELL: Duration = Duration::from_millis(100);

/// So often in a row a grant may be over before it is known.
const TOO_LATE: u32 = 5;

/// A handle for one lock: its name and the options of its acquisitions. Making and cloning it costs no I/O, and holds
/// nothing.
///
/// Without an [`owner`](Mutex::owner) it is not re-entrant: an acquisition while another of the same handle holds the
/// lock waits like any other.
///
/// Tasks of one process that use the same [`Locks`](crate::Locks) or its clones wait in a queue in the process, first
/// come, first served; one of them asks the store. A lock that is released passes to the next of them without a
/// request, as often and as long as [`Mutex::hand_overs`] and [`Mutex::hand_over_for`] let it, then it goes back to the
/// store.
#[derive(Clone)]
pub struct Mutex {
    core: Arc<Core>,
    name: std::result::Result<LockName, String>,
    options: LockOptions,
    owner: Option<Owner>,
}

impl Mutex {
    pub(crate) fn new(core: Arc<Core>, name: Result<LockName>, options: LockOptions) -> Self {
        Self { core, name: name.map_err(|error| error.message().to_owned()), options, owner: None }
    }

    setters!();

    /// Take the lock for a fixed time instead: it is never renewed, and lost when the time is up.
    pub fn hold_for(mut self, hold: Duration) -> Self {
        self.options.hold_for = Some(hold);
        self
    }

    /// Acquire it for this owner, who gets it again while it has it. See [`Owner`].
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
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
    ///   away for longer than [`Mutex::outage`] is an error, not a longer wait.
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
        let error = self.timed_out(self.core.clock.now() + FAREWELL).await;
        Err(self.core.context(error, "lock", self.name()))
    }

    /// Runs `section` with the lock held, and drops it at the loss. It gets a view of the hold, with the fencing token.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
    /// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
    /// let token = locks.mutex("orders/42").run(async |lease| lease.fencing_token()).await?;
    /// # let _ = token; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::lock`]; [`ErrorKind::Lost`], saying why, if the lock was not held to the section's end. What the
    /// section did before may stand, and may have overlapped with another holder unless the resource checks the fencing
    /// token.
    ///
    /// # Cancel safety
    /// Dropping it drops the section and releases the lock in the background.
    ///
    /// # If the reply is lost
    /// As [`Mutex::lock`] for the acquisition. A release whose reply is lost is repeated in the background: the section
    /// was covered to its end, and its result is returned.
    pub async fn run<T>(&self, section: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        let guard = self.lock().await?;
        let output = guard.run(section(guard.lease())).await?;
        match guard.unlock().await {
            Ok(()) => Ok(output),
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            Err(error) => {
                tracing::debug!(?error, "the release goes on in the background");
                Ok(output)
            }
        }
    }

    /// Takes the lock now or not at all: `None` means that it is held by another, or waited for where the store is
    /// fair.
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
        let span = tracing::debug_span!("acquire", verb = verb.name(), %name, owner = Empty, token = Empty);
        let began = Began::now();
        let outcome = self.seek(&name, deadline, verb).instrument(span.clone()).await;
        self.core.telemetry.acquired(began, outcome.as_ref().map(Option::as_ref));
        let guard = outcome?;
        if let Some(guard) = &guard
            && !span.is_disabled()
        {
            span.record("owner", tracing::field::display(guard.owner()));
            span.record("token", guard.fencing_token().get());
            span.in_scope(|| tracing::debug!("granted"));
        }
        Ok(guard)
    }

    async fn seek(&self, name: &LockName, deadline: Option<Instant>, verb: Verb) -> Result<Option<LockGuard>> {
        let core = &self.core;
        let waits = matches!(verb, Verb::Lock) && !self.tries_once();
        let failed = |error| Err(core.context(error, verb.name(), Some(name)));
        let (mut outage, mut too_late) = (Outage::default(), 0);
        // After a failure it goes on with the right that it had.
        let mut again = None;
        loop {
            let came = match again.take() {
                Some(permit) => Come::Ask(permit),
                None => self.come(name, waits, deadline).await?,
            };
            let began = core.clock.now();
            let asking = match came {
                Come::Held(guard) => return Ok(Some(guard)),
                Come::Busy => return Ok(None),
                Come::Ask(permit) => Ok(self.asking(name, waits, permit)),
                Come::GoOn(asking) if asking.is_at_home() => Ok(asking),
                Come::GoOn(asking) => Ok(self.asking(name, waits, asking.abandon())),
                Come::Failed(error, since) => Err((error, since)),
            };
            let (error, permit) = match asking {
                Ok(asking) => match asking.answer(deadline, &self.options, self.owner.as_ref()).await {
                    Outcome::Granted(guard) => return Ok(Some(guard)),
                    Outcome::Busy => return Ok(None),
                    Outcome::TooLate => {
                        core.check_open(verb.name())?;
                        too_late += 1;
                        if too_late == TOO_LATE {
                            return failed(self.too_slow());
                        }
                        continue;
                    }
                    Outcome::TimedOut(late) => return failed(self.timed_out(late).await),
                    Outcome::Failed(error, permit) => (error, Some(permit)),
                },
                Err((error, since)) => {
                    outage.heard_of(since);
                    (error, None)
                }
            };
            let took = core.clock.now().saturating_duration_since(began);
            let back = permit.is_some() && stood_in_line(took, core.capabilities.answers_within);
            let pause = outage.pause(&error, back, core.clock.now(), self.options.outage).filter(|_| waits);
            if let Some(pause) = pause
                && self.pause(pause, deadline).await
            {
                tracing::debug!(%name, ?error, "the store is away; the acquisition goes on");
                again = permit;
                continue;
            }
            core.check_open(verb.name())?;
            if let Some(permit) = permit.flatten() {
                permit.failed(&error, outage.since());
            }
            return failed(outage.told(error, core.clock.now()));
        }
    }

    /// Comes to the queue in the process, and waits there for its turn.
    async fn come(&self, name: &LockName, waits: bool, deadline: Option<Instant>) -> Result<Come> {
        let core = &self.core;
        loop {
            let now = core.clock.now();
            let wish = Wish { options: &self.options, owner: self.owner.as_ref(), waits, now };
            let place = match core.queue.enter(name, wish) {
                Entry::Again(lease) => {
                    let guard = LockGuard::new(lease, Arc::clone(core));
                    if guard.take() {
                        return Ok(Come::Held(guard));
                    }
                    continue;
                }
                Entry::Busy => return Ok(Come::Busy),
                Entry::Ask(permit) => return Ok(Come::Ask(permit)),
                Entry::Wait(place) => place,
            };
            match self.stand_in_line(place, deadline).await? {
                Turn::Held(guard) if guard.take() => return Ok(Come::Held(guard)),
                // This process was paused. It comes again, with what is left of its wait.
                Turn::Held(_) => {}
                Turn::Ask(permit) => return Ok(Come::Ask(Some(permit))),
                Turn::GoOn(asking) => return Ok(Come::GoOn(asking)),
                Turn::Failed(error, since) => return Ok(Come::Failed(error, since)),
            }
        }
    }

    /// Waits for the store to come back. False: there is no time for that.
    async fn pause(&self, pause: Duration, deadline: Option<Instant>) -> bool {
        let core = &self.core;
        tokio::select! {
            biased;
            () = core.closed.cancelled() => false,
            () = sleep_until(&*core.clock, deadline) => false,
            () = core.clock.sleep_until(core.clock.now() + pause) => true,
        }
    }

    fn too_slow(&self) -> Error {
        let lease = humantime::format_duration(self.options.asked_lease());
        let wrong = format!(
            "granted {TOO_LATE} times, and each time the lease of {lease} was over before the answer came; take a longer one"
        );
        Error::new(ErrorKind::Unavailable, wrong)
    }

    fn asking(&self, name: &LockName, waits: bool, permit: Option<Permit>) -> Asking {
        Asking::begin(&self.core, self.core.claim(name.clone(), &self.options), waits, permit)
    }

    /// Waits for its turn in the process.
    async fn stand_in_line(&self, place: Place<'_>, deadline: Option<Instant>) -> Result<Turn> {
        let core = &self.core;
        let mut turn = pin!(place.turn());
        loop {
            let mut stopped = pin!(core.keeper.stopped());
            // Listened for before it is started, so that no stop falls in between. Its runtime may have been another's,
            // and somebody has to notice when the hold ends that this waits for.
            stopped.as_mut().enable();
            core.keeper.start();
            tokio::select! {
                biased;
                // Sent away without a word: that is a shutdown.
                turn = &mut turn => return turn.ok_or_else(|| core.context(closed(), "lock", self.name())),
                () = sleep_until(&*core.clock, deadline) => {
                    let error = self.timed_out(core.clock.now() + FAREWELL).await;
                    return Err(core.context(error, "lock", self.name()));
                }
                () = stopped => {}
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

    /// The error at the end of a wait, no later than that.
    async fn timed_out(&self, late: Instant) -> Error {
        let holder = match self.name() {
            Some(name) => self.holder(name, late).await,
            None => None,
        };
        Error::timeout(self.options.wait.unwrap_or_default(), holder)
    }

    /// Who holds the lock, if this process does or the store answers soon.
    async fn holder(&self, name: &LockName, late: Instant) -> Option<Holder> {
        if let Some(holder) = self.core.queue.holder(name) {
            return Some(holder);
        }
        tokio::select! {
            biased;
            status = self.core.backend.inspect(name) => status.ok().and_then(|status| status.holder),
            () = self.core.clock.sleep_until(late) => None,
        }
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("name", &self.name).field("options", &self.options).finish()
    }
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "these locks were shut down")
}

pub(crate) fn lost(lease: &Lease) -> Error {
    Error::new(ErrorKind::Lost, lease.loss())
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
}
