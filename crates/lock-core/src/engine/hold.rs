//! One grant of the store, as long as this process has it: who has a turn, until when, and how it ended. Whether it is
//! held is a question to the clock, and an end is final.
//!
//! An end is told (to the log, to the metrics, to whoever listens) after the state is unlocked again: that is code of
//! others, which may block or come back here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use tokio::sync::Notify;

use crate::contract::options::LockOptions;
use crate::contract::{Claim, Clock, Evidence, FencingToken, Grant, Holder, Instant};
use crate::engine::sync::{Mutex, MutexGuard, PoisonError};
use crate::engine::telemetry::Telemetry;
use crate::engine::timing;

/// Why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its time was over by our clock.
    Expired,
    /// It was held for as long as it may be.
    Overdue,
    /// The store said that another holds it, or nobody.
    NotHeld,
    /// The guard gave it back.
    Released,
    /// The `Locks` were shut down.
    Shutdown,
}

impl End {
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Expired => "its lease ran out before it was renewed",
            Self::Overdue => "it was held for as long as it may be",
            Self::NotHeld => "the store says that it is not held any more",
            Self::Released => "it was released",
            Self::Shutdown => "the locks were shut down",
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Running {
        /// Until when it counts, by what the store granted.
        until: Instant,
        at_risk: bool,
        turn: Turn,
    },
    Ended(End),
}

/// One guard's time, of the several that a grant may be handed to in turn.
#[derive(Clone, Copy, Debug)]
struct Turn {
    number: u8,
    /// The end of this turn, whatever the store grants.
    limit: Option<Instant>,
    /// How many of its guards are in the hands of a task.
    in_hands: usize,
    /// A renewal was left out for that.
    unrenewed: bool,
}

/// What the keeper has to do about a hold next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// Until when it holds.
    pub(crate) until: Instant,
    /// Is it renewed before?
    pub(crate) renew: bool,
}

/// The process that a hold is in.
#[derive(Clone)]
pub(crate) struct Process {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) telemetry: Telemetry,
    /// `None` if a fork has the hold, too.
    pub(crate) id: Option<u32>,
}

/// One grant of the store.
pub(crate) struct Hold {
    pub(crate) claim: Claim,
    /// The keeper's key for it.
    pub(crate) id: u64,
    pub(crate) options: LockOptions,
    grant: Grant,
    since: Instant,
    process: Process,
    state: Mutex<State>,
    /// Its release was answered, or is the janitor's.
    settled: AtomicBool,
    /// How many readers share it; if it is a reader's.
    readers: AtomicUsize,
    /// Somebody's turn ended, or a renewal was answered.
    pub(crate) changed: Notify,
}

impl Hold {
    /// A hold that was granted by `since`, now.
    pub(crate) fn new(
        claim: Claim,
        grant: Grant,
        id: u64,
        options: LockOptions,
        process: Process,
        since: Instant,
    ) -> Self {
        let until = usable(grant.valid_until, &claim);
        let limit = options.max_hold.map(|longest| since + longest);
        // Whoever asked for it has it.
        let turn = Turn { number: 0, limit, in_hands: 1, unrenewed: false };
        let state = Mutex::new(State::Running { until, at_risk: false, turn });
        let (settled, readers, changed) = (AtomicBool::new(false), AtomicUsize::new(1), Notify::new());
        Self { claim, id, options, grant, since, process, state, settled, readers, changed }
    }

    pub(crate) fn now(&self) -> Instant {
        self.process.clock.now()
    }

    /// When it was granted, or a little later.
    pub(crate) fn since(&self) -> Instant {
        self.since
    }

    pub(crate) async fn sleep_until(&self, at: Instant) {
        self.process.clock.sleep_until(at).await;
    }

    /// The permits that it has.
    pub(crate) fn slots(&self) -> &[u32] {
        self.grant.slots.as_slice()
    }

    pub(crate) fn evidence(&self) -> &[Evidence] {
        &self.grant.evidence
    }

    pub(crate) fn token(&self, turn: u8) -> FencingToken {
        FencingToken::handed_over(self.grant.token, turn)
    }

    /// Nobody has to see to its release any more.
    pub(crate) fn settle(&self) {
        self.settled.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::SeqCst)
    }

    fn locked(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does this to the state at `now`, which is a fresh reading of the clock: time that has run out is noticed here,
    /// whether or not a timer has fired.
    fn at<T>(&self, now: Instant, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.locked();
        let before = *state;
        if let State::Running { until, turn, .. } = before
            && now >= earlier(until, turn.limit)
        {
            let is_overdue = turn.limit.is_some_and(|limit| limit <= until);
            *state = State::Ended(if is_overdue { End::Overdue } else { End::Expired });
        }
        let result = act(&mut state);
        let after = *state;
        drop(state);
        if let (State::Running { turn, .. }, State::Ended(end)) = (before, after) {
            self.tell(turn, end);
        }
        result
    }

    fn tell(&self, turn: Turn, end: End) {
        let (name, owner, token) = (&self.claim.name, &self.claim.owner, self.token(turn.number));
        if end == End::Released {
            tracing::debug!(%name, %owner, %token, "released");
        } else {
            tracing::warn!(%name, %owner, %token, reason = end.reason(), "lock lost");
        }
        self.process.telemetry.lost(end);
        self.changed.notify_waiters();
    }

    /// Ends it; answers how it had ended before, if it had.
    pub(crate) fn end(&self, end: End) -> Option<End> {
        self.at(self.now(), |state| match *state {
            State::Ended(before) => Some(before),
            State::Running { .. } => {
                *state = State::Ended(end);
                None
            }
        })
    }

    /// Passes it on: from now on it is the turn that is answered, and no other's. Not if it is at risk, or was handed
    /// over as often or as long as is allowed. Whoever calls this says so by [`Hold::handed_over`], when it may.
    pub(crate) fn hand_over(&self) -> Option<u8> {
        let now = self.now();
        let mut state = self.locked();
        let State::Running { until, at_risk, turn } = &mut *state else { return None };
        let over = earlier(self.since + self.options.hand_over_for, turn.limit);
        if *at_risk || self.is_late(*until, now) || turn.number >= self.options.hand_overs || now >= over {
            return None;
        }
        let limit = self.options.max_hold.map(|longest| now + longest);
        *turn = Turn { number: turn.number + 1, limit, in_hands: 0, unrenewed: turn.unrenewed };
        Some(turn.number)
    }

    /// Tells those who had the turn before.
    pub(crate) fn handed_over(&self) {
        self.changed.notify_waiters();
    }

    /// May another reader come in at `now`? Tells nobody.
    pub(crate) fn lets_in(&self, now: Instant) -> bool {
        let State::Running { until, at_risk, .. } = *self.locked() else { return false };
        let over = self.since + timing::sharing(self.claim.lease, self.options.hand_over_for);
        !at_risk && !self.is_late(until, now) && now < over
    }

    /// Another reader has it; not if the last has gone.
    pub(crate) fn come_in(&self) -> bool {
        let more = |readers| (readers > 0).then_some(readers + 1);
        self.readers.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// A reader goes. Was it the last?
    pub(crate) fn go_out(&self) -> bool {
        self.readers.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// A task has a guard of this turn in its hands. `None` if the turn is over; else what comes next, if that was left
    /// out for want of a task.
    pub(crate) fn take(&self, number: u8) -> Option<Option<Course>> {
        self.at(self.now(), |state| match state {
            State::Running { until, turn, .. } if turn.number == number => {
                turn.in_hands += 1;
                let unrenewed = std::mem::take(&mut turn.unrenewed);
                Some(unrenewed.then(|| self.course(*until, turn.limit)))
            }
            _ => None,
        })
    }

    /// A guard of this turn goes, and leaves it to the others.
    pub(crate) fn put_down(&self, number: u8) {
        if let State::Running { turn, .. } = &mut *self.locked()
            && turn.number == number
        {
            turn.in_hands = turn.in_hands.saturating_sub(1);
        }
    }

    /// Is it held at `now`? Changes nothing and tells nobody, so that this may be asked with something locked.
    pub(crate) fn runs(&self, number: u8, now: Instant) -> bool {
        match *self.locked() {
            State::Running { until, turn, .. } => turn.number == number && now < earlier(until, turn.limit),
            State::Ended(_) => false,
        }
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&self) -> Option<End> {
        self.at(self.now(), |state| match *state {
            State::Ended(end) => Some(end),
            State::Running { .. } => None,
        })
    }

    /// A renewal was confirmed. One that comes after the lease was over, by our clock, changes nothing: the holder was
    /// told already. Answers what comes next, or `None` if it ended.
    pub(crate) fn confirm(&self, valid_until: Instant) -> Option<Course> {
        let course = self.at(self.now(), |state| {
            let State::Running { until, at_risk, turn } = state else { return None };
            *until = (*until).max(usable(valid_until, &self.claim));
            *at_risk = false;
            Some(self.course(*until, turn.limit))
        });
        if course.is_some() {
            self.changed.notify_waiters();
        }
        course
    }

    /// A renewal failed.
    pub(crate) fn risk(&self) {
        let is_new = self.at(self.now(), |state| match state {
            State::Running { at_risk, .. } => !std::mem::replace(at_risk, true),
            State::Ended(_) => false,
        });
        if is_new {
            self.process.telemetry.at_risk();
            self.changed.notify_waiters();
        }
    }

    /// A renewal is due: the same as [`Hold::what_next`], but what was passed to tasks none of which has taken it yet is
    /// not renewed until one does. Who never looks must not keep the lock from everybody. Tells nobody.
    pub(crate) fn renewal_due(&self, now: Instant) -> Option<Course> {
        match &mut *self.locked() {
            State::Running { until, turn, .. } if now < earlier(*until, turn.limit) => {
                let course = self.course(*until, turn.limit);
                let in_hands = turn.in_hands > 0;
                turn.unrenewed |= course.renew && !in_hands;
                Some(Course { renew: course.renew && in_hands, ..course })
            }
            _ => None,
        }
    }

    /// Was it given back, and the store has not answered yet?
    pub(crate) fn is_releasing(&self) -> bool {
        matches!(*self.locked(), State::Ended(End::Released)) && !self.is_settled()
    }

    /// Until when it holds and whether it is renewed, if it holds at `now`, which is a fresh reading of the clock.
    pub(crate) fn what_next(&self, now: Instant) -> Option<Course> {
        self.at(now, |state| match *state {
            State::Running { until, turn, .. } => Some(self.course(until, turn.limit)),
            State::Ended(_) => None,
        })
    }

    /// It as an operator would see it, if it holds.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let now = self.now();
        let until = self.what_next(now)?.until;
        let holder = Holder::new(
            self.claim.owner.clone(),
            self.grant.token,
            now.saturating_duration_since(self.since),
            until.saturating_duration_since(now),
        );
        Some(holder.with_mode(self.claim.mode, self.grant.slots.clone()))
    }

    fn course(&self, until: Instant, limit: Option<Instant>) -> Course {
        let renew = self.options.hold_for.is_none() && limit.is_none_or(|limit| until < limit);
        Course { until: earlier(until, limit), renew }
    }

    /// Until when this turn holds, if it does, and whether that is at risk.
    pub(crate) fn turn(&self, number: u8, now: Instant) -> Option<(Instant, bool)> {
        // A fork has a copy of this memory, and none of the locks.
        if self.process.id.is_some_and(|id| id != std::process::id()) {
            return None;
        }
        self.at(now, |state| match *state {
            State::Running { until, at_risk, turn } if turn.number == number => {
                let until = earlier(until, turn.limit);
                Some((until, at_risk || self.is_late(until, now)))
            }
            _ => None,
        })
    }

    fn is_late(&self, until: Instant, now: Instant) -> bool {
        self.options.hold_for.is_none() && until.saturating_duration_since(now) < timing::late(self.claim.lease)
    }
}

/// The one place where the margin is taken off.
fn usable(valid_until: Instant, claim: &Claim) -> Instant {
    valid_until.saturating_sub(timing::margin(claim.lease))
}

fn earlier(until: Instant, limit: Option<Instant>) -> Instant {
    limit.map_or(until, |limit| until.min(limit))
}
