//! One claim on its way: from its first byte to a guard, or to nothing being left of it.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{self, Handle};

use crate::contract::options::LockOptions;
use crate::contract::{Claim, Error, Grant, Instant, Result};
use crate::engine::core::{Core, closed, sleep_until};
use crate::engine::{LockGuard, Owner, queue, timing};

/// The right to ask the store and to wait for the answer, with others of the process or alone.
pub(crate) type Permit = queue::Permit<LockGuard, Request>;

/// The queue in the process, of guards and of requests.
pub(crate) type Queue = queue::Queue<LockGuard, Request>;
pub(crate) type Turn = queue::Turn<LockGuard, Request>;
pub(crate) type Place<'a> = queue::Place<'a, LockGuard, Request>;

type Answering = Pin<Box<dyn Future<Output = Result<Option<Grant>>> + Send>>;

/// A request for a lock that is under way. Whoever waits for it may give it to another task to go on with.
pub(crate) struct Request {
    /// Dropped before the claim is undone.
    answer: Answering,
    pending: Pending,
    permit: Option<Permit>,
    /// Set once a task has to wait for the answer.
    waits: Option<Waits>,
}

/// A task that waits for an answer.
struct Waits {
    since: Instant,
    /// Where: the request's timers and connections are of no use elsewhere.
    runtime: Option<runtime::Id>,
}

/// What became of it.
pub(crate) enum Outcome {
    Granted(LockGuard),
    Busy,
    /// Granted, but over before we knew.
    TooLate,
    /// Granted with a token that is not above the floor, and given back.
    TooLow(Option<Permit>),
    /// There is time until then to ask who holds the lock.
    TimedOut(Instant),
    /// After a task had waited for it for as long as it `took`; with the right to ask again.
    Failed {
        error: Error,
        took: Duration,
        permit: Option<Permit>,
    },
}

enum Answer {
    Of(Result<Option<Grant>>),
    Closed,
    TimedOut,
}

impl Request {
    pub(crate) fn begin(core: &Arc<Core>, claim: Claim, waits: bool, permit: Option<Permit>) -> Self {
        let pending = Pending::arm(Arc::clone(core), claim.clone());
        let backend = Arc::clone(&core.backend);
        let answer = Box::pin(async move {
            if waits { backend.lock(&claim).await.map(Some) } else { backend.try_lock(&claim).await }
        });
        Self { answer, pending, permit, waits: None }
    }

    /// May the task that runs now go on with it?
    pub(crate) fn is_at_home(&self) -> bool {
        self.waits.as_ref().is_some_and(|waits| waits.runtime == here())
    }

    /// Waits for the answer. Dropped before that, the next task in line goes on with it; if there is none, it is
    /// undone.
    pub(crate) async fn answer(
        self,
        deadline: Option<Instant>,
        options: &LockOptions,
        owner: Option<&Owner>,
    ) -> Outcome {
        let mut passing = PassOn { request: Some(self), options };
        let request = passing.request.as_mut().expect("just put in");
        let Self { answer, pending: Pending { core, .. }, waits, .. } = request;
        let has_to_wait = async {
            *waits = Some(Waits { since: core.clock.now(), runtime: here() });
            std::future::pending().await
        };
        let answer = tokio::select! {
            biased;
            answer = answer => Answer::Of(answer),
            never = has_to_wait => match never {},
            () = core.closed.cancelled() => Answer::Closed,
            () = sleep_until(&*core.clock, deadline) => Answer::TimedOut,
        };
        let answer = match answer {
            Answer::Of(answer) => answer,
            Answer::Closed => return Outcome::Failed { error: closed(), took: Duration::ZERO, permit: None },
            Answer::TimedOut => {
                let core = Arc::clone(core);
                let late = core.clock.now() + timing::GRACE;
                if let Some(request) = passing.pass() {
                    request.give_up(late).await;
                }
                return Outcome::TimedOut(late);
            }
        };
        let Some(Self { mut pending, permit, answer: asked, waits }) = passing.request.take() else {
            return Outcome::Busy;
        };
        drop(asked);
        match answer {
            Ok(Some(grant)) if options.is_too_low(grant.token) => {
                let late = pending.core.clock.now() + timing::GRACE;
                pending.undo(late).await;
                Outcome::TooLow(permit)
            }
            Ok(Some(grant)) => {
                let claim = pending.claim.take().expect("nothing was undone");
                // Until the end of this function it counts as under way: a shutdown meanwhile waits.
                match pending.core.guard(claim, grant, options, owner, permit) {
                    Ok(guard) => Outcome::Granted(guard),
                    Err(over) => {
                        let clock = Arc::clone(&pending.core.clock);
                        tokio::select! {
                            biased;
                            released = over.unlock() => tracing::debug!(?released, "granted too late"),
                            // The background takes over.
                            () = clock.sleep_until(clock.now() + timing::GRACE) => {}
                        }
                        Outcome::TooLate
                    }
                }
            }
            Ok(None) => {
                pending.claim = None;
                Outcome::Busy
            }
            Err(error) => {
                let now = pending.core.clock.now();
                let took = waits.map_or(Duration::ZERO, |waits| now.saturating_duration_since(waits.since));
                if error.is_refused() {
                    pending.claim = None;
                } else {
                    pending.undo(now + timing::GRACE).await;
                }
                Outcome::Failed { error, took, permit }
            }
        }
    }

    /// Leaves it to the janitor, with the right to ask.
    pub(crate) fn abandon(self) -> Option<Permit> {
        self.permit
    }

    /// Undoes whatever the store did, and lets the next one ask.
    async fn give_up(self, late: Instant) {
        let Self { answer, pending, permit, .. } = self;
        drop(answer);
        drop(permit);
        pending.undo(late).await;
    }
}

/// An acquisition that passes to the next in line when it is dropped.
struct PassOn<'a> {
    request: Option<Request>,
    options: &'a LockOptions,
}

impl PassOn<'_> {
    /// Gives it to the next. Gives it back if there is none, or if it is not what the others wait for.
    fn pass(&mut self) -> Option<Request> {
        let request = self.request.take()?;
        let core = Arc::clone(&request.pending.core);
        // What panicked would panic again, in the hands of everybody in turn.
        if !request.permit.as_ref().is_some_and(Permit::is_for_others) || core.is_closed() || std::thread::panicking() {
            return Some(request);
        }
        let Some(claim) = &request.pending.claim else { return Some(request) };
        let name = claim.name.clone();
        core.queue.pass_on(&name, self.options, request)
    }
}

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        drop(self.pass());
    }
}

fn here() -> Option<runtime::Id> {
    Handle::try_current().ok().map(|runtime| runtime.id())
}

/// A claim about which the store may have heard, from before the first byte leaves until it is known what came of it:
/// dropped before that, it goes to the janitor.
pub(super) struct Pending {
    core: Arc<Core>,
    pub(super) claim: Option<Claim>,
}

impl Pending {
    pub(super) fn arm(core: Arc<Core>, claim: Claim) -> Self {
        core.begin();
        Self { core, claim: Some(claim) }
    }

    /// Undoes whatever the store did: here if it answers until then, else in the background.
    pub(super) async fn undo(mut self, late: Instant) {
        let Some(claim) = &self.claim else { return };
        let undone = tokio::select! {
            biased;
            answer = self.core.backend.unlock(claim) => answer.is_ok(),
            () = self.core.clock.sleep_until(late) => false,
        };
        if undone {
            self.claim = None;
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(claim) = self.claim.take() {
            self.core.janitor.release(claim);
        }
        self.core.settle();
    }
}
