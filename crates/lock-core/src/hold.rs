//! One grant of the store, as long as this process has it: who has a turn, until when, and how it ended. Whether it is
//! held is a question to the clock, and an end is final.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use crate::options::LockOptions;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::telemetry::Telemetry;
use crate::{Claim, Clock, FencingToken, Grant, Holder, Instant};

/// Why a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Its time was over by our clock.
    Expired,
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
            Self::NotHeld => "the store says that it is not held any more",
            Self::Released => "it was released",
            Self::Shutdown => "the locks were shut down",
        }
    }
}

/// The part of a lease that we do not use: the margin for clocks of different rate, and for the time it takes to tell
/// the holder.
pub(crate) fn margin(lease: Duration) -> Duration {
    (lease / 10).min(Duration::from_secs(1))
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
}

/// What the keeper has to do about a hold next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Course {
    /// Until when it holds.
    pub(crate) until: Instant,
    /// Is it renewed before?
    pub(crate) renew: bool,
}

/// One grant of the store.
pub(crate) struct Hold {
    pub(crate) claim: Claim,
    /// The keeper's key for it.
    pub(crate) id: u64,
    pub(crate) options: LockOptions,
    grant: Grant,
    since: Instant,
    clock: Arc<dyn Clock>,
    telemetry: Telemetry,
    state: Mutex<State>,
    /// Somebody's turn ended.
    pub(crate) changed: Notify,
}

impl Hold {
    /// A hold that was granted by `since`, now.
    pub(crate) fn new(
        claim: Claim,
        grant: Grant,
        id: u64,
        options: LockOptions,
        clock: Arc<dyn Clock>,
        telemetry: Telemetry,
        since: Instant,
    ) -> Self {
        let until = usable(grant.valid_until, &claim);
        let turn = Turn { number: 0, limit: options.max_hold.map(|longest| since + longest) };
        let state = Mutex::new(State::Running { until, at_risk: false, turn });
        Self { claim, id, options, grant, since, clock, telemetry, state, changed: Notify::new() }
    }

    pub(crate) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(crate) async fn sleep_until(&self, at: Instant) {
        self.clock.sleep_until(at).await;
    }

    pub(crate) fn token(&self, turn: u8) -> FencingToken {
        FencingToken::handed_over(self.grant.token, turn)
    }

    /// The state at `now`, which is a fresh reading of the clock: time that has run out is noticed here, whether or not
    /// a timer has fired.
    fn state(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Running { until, turn, .. } = *state
            && now >= earlier(until, turn.limit)
        {
            self.finish(&mut state, turn, End::Expired);
        }
        state
    }

    fn finish(&self, state: &mut State, turn: Turn, end: End) {
        *state = State::Ended(end);
        let (name, owner, token) = (&self.claim.name, &self.claim.owner, self.token(turn.number));
        if end == End::Released {
            tracing::debug!(%name, %owner, %token, "released");
        } else {
            tracing::warn!(%name, %owner, %token, reason = end.reason(), "lock lost");
        }
        self.telemetry.lost(end);
        self.changed.notify_waiters();
    }

    /// Ends it; answers how it had ended before, if it had.
    pub(crate) fn end(&self, end: End) -> Option<End> {
        let mut state = self.state(self.now());
        match *state {
            State::Ended(before) => Some(before),
            State::Running { turn, .. } => {
                self.finish(&mut state, turn, end);
                None
            }
        }
    }

    /// Passes it on: from now on it is the turn that is answered, and no other's. Not if it is at risk, or was handed
    /// over as often or as long as is allowed.
    pub(crate) fn hand_over(&self) -> Option<u8> {
        let now = self.now();
        let mut state = self.state(now);
        let State::Running { until, at_risk, turn } = &mut *state else { return None };
        let over = self.since + self.options.hand_over_for;
        if *at_risk || self.is_late(*until, now) || turn.number >= self.options.hand_overs || now >= over {
            return None;
        }
        turn.number += 1;
        turn.limit = self.options.max_hold.map(|longest| now + longest);
        let number = turn.number;
        drop(state);
        self.changed.notify_waiters();
        Some(number)
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&self) -> Option<End> {
        match *self.state(self.now()) {
            State::Ended(end) => Some(end),
            State::Running { .. } => None,
        }
    }

    /// A renewal was confirmed. One that comes after the lease was over, by our clock, changes nothing: the holder was
    /// told already. Answers what comes next, or `None` if it ended.
    pub(crate) fn confirm(&self, valid_until: Instant) -> Option<Course> {
        let mut state = self.state(self.now());
        let State::Running { until, at_risk, turn } = &mut *state else { return None };
        *until = (*until).max(usable(valid_until, &self.claim));
        *at_risk = false;
        Some(self.course(*until, turn.limit))
    }

    /// A renewal failed.
    pub(crate) fn risk(&self) {
        if let State::Running { at_risk, .. } = &mut *self.state(self.now())
            && !std::mem::replace(at_risk, true)
        {
            self.telemetry.at_risk();
        }
    }

    /// Until when it holds and whether it is renewed, if it holds at `now`, which is a fresh reading of the clock.
    pub(crate) fn what_next(&self, now: Instant) -> Option<Course> {
        match *self.state(now) {
            State::Running { until, turn, .. } => Some(self.course(until, turn.limit)),
            State::Ended(_) => None,
        }
    }

    /// It as an operator would see it, if it holds.
    pub(crate) fn holder(&self) -> Option<Holder> {
        let now = self.now();
        let until = self.what_next(now)?.until;
        Some(Holder {
            owner: self.claim.owner.clone(),
            held_for: now.saturating_duration_since(self.since),
            remaining: until.saturating_duration_since(now),
            token: self.grant.token,
        })
    }

    fn course(&self, until: Instant, limit: Option<Instant>) -> Course {
        let renew = self.options.hold_for.is_none() && limit.is_none_or(|limit| until < limit);
        Course { until: earlier(until, limit), renew }
    }

    /// Until when this turn holds, if it does, and whether that is at risk.
    pub(crate) fn turn(&self, number: u8, now: Instant) -> Option<(Instant, bool)> {
        match *self.state(now) {
            State::Running { until, at_risk, turn } if turn.number == number => {
                let until = earlier(until, turn.limit);
                Some((until, at_risk || self.is_late(until, now)))
            }
            _ => None,
        }
    }

    /// A lease that is renewed in time always has more than a quarter left.
    fn is_late(&self, until: Instant, now: Instant) -> bool {
        self.options.hold_for.is_none() && until.saturating_duration_since(now) < self.claim.lease / 4
    }
}

/// The one place where the margin is taken off.
fn usable(valid_until: Instant, claim: &Claim) -> Instant {
    valid_until.saturating_sub(margin(claim.lease))
}

fn earlier(until: Instant, limit: Option<Instant>) -> Instant {
    limit.map_or(until, |limit| until.min(limit))
}
