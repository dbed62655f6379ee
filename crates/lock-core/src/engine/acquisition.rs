//! One acquisition, from the call to a guard or an error: it comes to the queue in the process, asks the store if it is
//! its turn to, goes on while the store is away, and ends in time.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::Instrument;
use tracing::field::Empty;

use crate::contract::options::LockOptions;
use crate::contract::{Error, ErrorKind, Holder, Instant, LockName, LockValue, Mode, Result};
use crate::engine::core::{Core, closed, sleep_until};
use crate::engine::outage::Outage;
use crate::engine::queue::{Entry, Ticket};
use crate::engine::request::{Outcome, Permit, Place, Request, Turn};
use crate::engine::telemetry::Began;
use crate::engine::{LockGuard, Owner, timing};

/// So often in a row a grant may be over before it is known.
const TOO_LATE: u32 = 5;

/// So often in a row a grant's token may be below the floor, where another client holds the lock while it is raised.
const TOO_LOW: u32 = 5;
const NOT_RAISED: &str = "the store was told to raise its tokens above the floor, and they are below it";

/// What was called.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
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

/// What becomes of who came to the queue in the process.
enum Come {
    Held(LockGuard),
    Ask(Option<Permit>),
    GoOn(Request),
    Busy,
    /// Whoever asked for all was told so.
    Failed(Error, Option<Instant>),
}

/// What is wanted, how, and until when.
pub(crate) struct Acquisition<'a> {
    core: &'a Arc<Core>,
    name: &'a LockName,
    options: &'a LockOptions,
    owner: Option<&'a Owner>,
    /// What is shown with the hold.
    value: Option<&'a LockValue>,
    verb: Verb,
    deadline: Option<Instant>,
    /// If there is a deadline.
    asked: Option<Box<Asked>>,
}

/// Who holds the lock: a question that is asked shortly before the wait is over.
#[derive(Default)]
struct Asked {
    /// The store's answer.
    told: OnceLock<Result<Option<Holder>>>,
    /// It has come.
    heard: Notify,
}

impl<'a> Acquisition<'a> {
    /// Checks everything that needs no store, and sets the time at which the wait is over.
    pub(crate) fn begin(
        core: &'a Arc<Core>,
        name: std::result::Result<&'a LockName, &String>,
        options: &'a LockOptions,
        owner: Option<&'a Owner>,
        verb: Verb,
    ) -> Result<Self> {
        core.check_open(verb.name())?;
        let in_context = |error| core.context(error, verb.name(), name.ok());
        let known = name.map_err(|wrong| in_context(Error::new(ErrorKind::Invalid, wrong.as_str())))?;
        options.check(&core.capabilities).map_err(in_context)?;
        // A wait of zero bounds nothing: one request has to be let through.
        let wait = options.wait.filter(|wait| !wait.is_zero());
        let deadline = wait.map(|wait| core.clock.now() + wait);
        let asked = deadline.map(|_| Box::default());
        Ok(Self { core, name: known, options, owner, value: None, verb, deadline, asked })
    }

    /// With a value to show.
    pub(crate) fn showing(mut self, value: &'a LockValue) -> Self {
        self.value = Some(value);
        self
    }

    /// The lock, however it comes.
    pub(crate) async fn lock(&self) -> Result<LockGuard> {
        match self.run().await? {
            Some(guard) => Ok(guard),
            // Busy, which only the one try of a wait of zero is told.
            None => {
                let holder = match self.core.queue.holder(self.name) {
                    Some(holder) => Some(holder),
                    None => tokio::select! {
                        biased;
                        told = self.core.who_holds.ask(&self.core.backend, self.name) => told.ok().flatten(),
                        () = self.core.clock.sleep_until(self.core.clock.now() + timing::GRACE) => None,
                    },
                };
                Err(self.failed(Error::timeout(Duration::ZERO, holder)))
            }
        }
    }

    /// The lock, or `None` if it is busy.
    pub(crate) async fn run(&self) -> Result<Option<LockGuard>> {
        let verb = self.verb.name();
        let span = tracing::debug_span!("acquire", verb, name = %self.name, owner = Empty, token = Empty);
        let began = Began::now();
        let seeking = async {
            tokio::select! {
                biased;
                outcome = self.seek() => outcome,
                never = self.ask_in_time() => match never {},
            }
        };
        // Pinned with its span, which so covers its end too.
        let outcome = pin!(seeking.instrument(span.clone())).await;
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

    async fn seek(&self) -> Result<Option<LockGuard>> {
        let core = self.core;
        let (mut outage, mut too_late, mut too_low) = (Outage::default(), 0, 0);
        // After a failure it goes on with the right that it had.
        let mut again = None;
        loop {
            let came = match again.take() {
                Some(permit) => Come::Ask(permit),
                None => self.come().await?,
            };
            let lease = core.lease(self.options);
            let request = match came {
                Come::Held(guard) => return Ok(Some(guard)),
                Come::Busy => return Ok(None),
                Come::Ask(permit) => Ok(self.request(permit, lease)),
                Come::GoOn(request) if request.is_at_home() => Ok(request),
                Come::GoOn(request) => Ok(self.request(request.abandon(), lease)),
                Come::Failed(error, since) => Err((error, since)),
            };
            let (error, permit, back) = match request {
                Ok(request) => match request.answer(self.deadline, self.options, self.owner).await {
                    Outcome::Granted(guard) => return Ok(Some(guard)),
                    Outcome::Busy => return Ok(None),
                    Outcome::TooLate => {
                        core.check_open(self.verb.name())?;
                        too_late += 1;
                        if too_late == TOO_LATE {
                            return Err(self.failed(self.too_slow()));
                        }
                        continue;
                    }
                    Outcome::TooLow(permit) => {
                        too_low += 1;
                        if too_low == TOO_LOW {
                            return Err(self.failed(Error::new(ErrorKind::Unknown, NOT_RAISED)));
                        }
                        self.raise().await?;
                        again = Some(permit);
                        continue;
                    }
                    Outcome::TimedOut(end) => return Err(self.failed(self.timed_out(end).await)),
                    Outcome::Failed { error, took, permit } => {
                        (error, Some(permit), timing::stood_in_line(took, core.capabilities.answers_within))
                    }
                },
                Err((error, since)) => {
                    outage.heard_of(since);
                    (error, None, false)
                }
            };
            if error.kind() == ErrorKind::Invalid && core.lease(self.options) < lease {
                // Nobody chose the lease, and now it is known how long one the store gives.
                again = permit;
                continue;
            }
            let pause = outage.pause(&error, back, core.clock.now(), self.options.outage).filter(|_| self.waits());
            if let Some(pause) = pause
                && self.pause(pause).await
            {
                tracing::debug!(name = %self.name, ?error, "the store is away; the acquisition goes on");
                again = permit;
                continue;
            }
            core.check_open(self.verb.name())?;
            if let Some(permit) = permit.flatten() {
                permit.failed(&error, outage.since());
            }
            return Err(self.failed(outage.told(error, core.clock.now())));
        }
    }

    /// Comes to the queue in the process, and waits there for its turn.
    async fn come(&self) -> Result<Come> {
        let core = self.core;
        // The store's line is the only one in which all modes stand.
        match self.options.mode {
            Mode::Exclusive => {}
            Mode::Shared => return Ok(self.come_to_read()),
            Mode::Permits { .. } => return Ok(Come::Ask(None)),
        }
        loop {
            let ticket = Ticket { options: self.options, owner: self.owner, waits: self.waits() };
            let place = match core.queue.enter(self.name, ticket) {
                Entry::Again(lease) => {
                    if let Some(guard) = LockGuard::new(lease, Arc::clone(core)).taken() {
                        return Ok(Come::Held(guard));
                    }
                    continue;
                }
                Entry::Busy => return Ok(Come::Busy),
                Entry::Ask(permit) => return Ok(Come::Ask(permit)),
                Entry::Wait(place) => place,
            };
            return Ok(match self.stand_in_line(place).await? {
                Turn::Held(guard) => match guard.taken() {
                    Some(guard) => Come::Held(guard),
                    // This process was paused. It comes again, with what is left of its wait.
                    None => continue,
                },
                Turn::Ask(permit) => Come::Ask(Some(permit)),
                Turn::GoOn(request) => Come::GoOn(request),
                Turn::Failed(error, since) => Come::Failed(error, since),
            });
        }
    }

    /// Comes in to others of the process who read, or is to ask the store.
    fn come_to_read(&self) -> Come {
        let core = self.core;
        while let Some(lease) = core.queue.join(self.name, self.options, core.clock.now()) {
            if let Some(guard) = LockGuard::new(lease, Arc::clone(core)).taken() {
                return Come::Held(guard);
            }
        }
        Come::Ask(None)
    }

    /// Waits for its turn in the process.
    async fn stand_in_line(&self, place: Place<'_>) -> Result<Turn> {
        let core = self.core;
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
                turn = &mut turn => return turn.ok_or_else(|| self.failed(closed())),
                () = sleep_until(&*core.clock, self.deadline) => {
                    return Err(self.failed(self.timed_out(core.clock.now() + timing::GRACE).await));
                }
                () = stopped => {}
            }
        }
    }

    /// Has the store count from the floor on.
    async fn raise(&self) -> Result<()> {
        let core = self.core;
        let raised = async { core.backend.raise_tokens(self.name, self.options.store_floor()?).await };
        tokio::select! {
            biased;
            () = core.closed.cancelled() => Err(self.failed(closed())),
            raised = raised => raised.map_err(|error| self.failed(error)),
        }
    }

    /// Waits for the store to come back. False: there is no time for that.
    async fn pause(&self, pause: Duration) -> bool {
        let core = self.core;
        tokio::select! {
            biased;
            () = core.closed.cancelled() => false,
            () = sleep_until(&*core.clock, self.deadline) => false,
            () = core.clock.sleep_until(core.clock.now() + pause) => true,
        }
    }

    fn request(&self, permit: Option<Permit>, lease: Duration) -> Request {
        let claim = self.core.claim(self.name.clone(), lease, self.options, self.value.cloned());
        Request::begin(self.core, claim, self.waits(), permit)
    }

    fn waits(&self) -> bool {
        self.verb == Verb::Lock && !self.options.wait.is_some_and(|wait| wait.is_zero())
    }

    /// The error, as the caller is told it.
    pub(crate) fn failed(&self, error: Error) -> Error {
        self.core.context(error, self.verb.name(), Some(self.name))
    }

    fn too_slow(&self) -> Error {
        let lease = humantime::format_duration(self.core.lease(self.options));
        let wrong = format!(
            "granted {TOO_LATE} times, and each time the lease of {lease} was over before the answer came; take a longer one"
        );
        Error::new(ErrorKind::Unavailable, wrong)
    }

    /// The error at the end of a wait, no later than `end`. It says who holds the lock, if this process does or the
    /// store answers in time; of a store that is away nobody knows what it did.
    async fn timed_out(&self, end: Instant) -> Error {
        let wait = self.options.wait.unwrap_or_default();
        if let Some(holder) = self.core.queue.holder(self.name) {
            return Error::timeout(wait, Some(holder));
        }
        let answer = async {
            let Some(Asked { told, heard }) = self.asked.as_deref() else { return std::future::pending().await };
            loop {
                // Made before the question, so that no notification falls in between.
                let heard = heard.notified();
                if let Some(told) = told.get() {
                    return told.clone();
                }
                heard.await;
            }
        };
        let answer = tokio::select! {
            biased;
            answer = answer => Some(answer),
            () = self.core.clock.sleep_until(end) => None,
        };
        match answer {
            Some(Ok(holder)) => Error::timeout(wait, holder),
            Some(Err(error)) if matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) => {
                Error::unanswered(wait, Some(error))
            }
            Some(Err(_)) => Error::timeout(wait, None),
            None if timing::question(wait) >= timing::SILENCE => Error::unanswered(wait, None),
            // A busy store, as likely as not.
            None => Error::timeout(wait, None),
        }
    }

    /// Asks who holds the lock, a little before the wait is over: the answer is there by then, and a store that is slow
    /// is not taken for one that is away.
    async fn ask_in_time(&self) -> Infallible {
        if let (Some(deadline), Some(asked)) = (self.deadline, &self.asked) {
            let wait = self.options.wait.unwrap_or_default();
            self.core.clock.sleep_until(deadline.saturating_sub(timing::question(wait))).await;
            let answer = self.core.who_holds.ask(&self.core.backend, self.name).await;
            let _ = asked.told.set(answer);
            asked.heard.notify_waiters();
        }
        std::future::pending().await
    }
}
