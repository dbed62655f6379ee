//! One acquisition's lease: whether it is held is a question to the clock, and a loss is final.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::{Claim, Clock, FencingToken, Grant, Instant, LockName, OwnerId};

/// The three states of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LeaseState {
    /// The lease runs, and its renewals are on time.
    Held,
    /// A renewal failed or is late; the lease still runs. A good time to stop starting things.
    AtRisk,
    /// Not held any more: lost, or released. Final.
    Lost,
}

/// Why a lease ended.
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

/// How long a lease is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Term {
    /// As long as it is held.
    Open,
    /// Until then, and it is lost then.
    Until(Instant),
    /// Never: a fixed hold.
    Fixed,
}

/// Until when a hold counts, by what the store granted. The one place where the margin is taken off.
fn usable(valid_until: Instant, claim: &Claim, term: Term) -> Instant {
    let until = valid_until.saturating_sub(margin(claim.lease));
    if let Term::Until(end) = term { until.min(end) } else { until }
}

#[derive(Clone, Copy, Debug)]
enum State {
    Running { until: Instant, at_risk: bool },
    Ended(End),
}

pub(crate) struct Shared {
    pub(crate) claim: Claim,
    pub(crate) token: FencingToken,
    /// The keeper's key for it.
    pub(crate) id: u64,
    pub(crate) term: Term,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    ended: Notify,
}

impl Shared {
    pub(crate) fn new(claim: Claim, grant: Grant, id: u64, term: Term, clock: Arc<dyn Clock>) -> Self {
        let until = usable(grant.valid_until, &claim, term);
        Self {
            token: FencingToken::new(grant.token),
            claim,
            id,
            term,
            clock,
            state: Mutex::new(State::Running { until, at_risk: false }),
            ended: Notify::new(),
        }
    }

    /// The state as of now: time that has run out is noticed here, whether or not a timer has fired.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state_at(self.clock.now())
    }

    fn state_at(&self, now: Instant) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let State::Running { until, .. } = *state
            && now >= until
        {
            self.finish(&mut state, End::Expired);
        }
        state
    }

    fn finish(&self, state: &mut State, end: End) {
        *state = State::Ended(end);
        if end == End::Released {
            tracing::debug!(name = %self.claim.name, owner = %self.claim.owner, token = %self.token, "released");
        } else {
            let reason = end.reason();
            tracing::warn!(name = %self.claim.name, owner = %self.claim.owner, token = %self.token, reason, "lock lost");
        }
        self.ended.notify_waiters();
    }

    /// Ends it; answers how it had ended before, if it had.
    pub(crate) fn end(&self, end: End) -> Option<End> {
        let mut state = self.state();
        match *state {
            State::Ended(before) => Some(before),
            State::Running { .. } => {
                self.finish(&mut state, end);
                None
            }
        }
    }

    /// How it ended, if it did.
    pub(crate) fn ended(&self) -> Option<End> {
        match *self.state() {
            State::Ended(end) => Some(end),
            State::Running { .. } => None,
        }
    }

    /// A renewal was confirmed. One that comes after the lease was over, by our clock, changes nothing: the holder was
    /// told already. Answers until when it holds now, or `None` if it ended.
    pub(crate) fn confirm(&self, valid_until: Instant) -> Option<Instant> {
        let mut state = self.state();
        let State::Running { until, .. } = *state else { return None };
        let until = until.max(usable(valid_until, &self.claim, self.term));
        *state = State::Running { until, at_risk: false };
        Some(until)
    }

    /// A renewal failed.
    pub(crate) fn risk(&self) {
        if let State::Running { at_risk, .. } = &mut *self.state() {
            *at_risk = true;
        }
    }

    /// Until when it holds, if it does at `now`, which is a fresh reading of the clock.
    pub(crate) fn until(&self, now: Instant) -> Option<Instant> {
        match *self.state_at(now) {
            State::Running { until, .. } => Some(until),
            State::Ended(_) => None,
        }
    }
}

/// A view of a hold: cheap to clone and to hand to other tasks. It does not keep the lock; the
/// [`LockGuard`](crate::LockGuard) does.
#[derive(Clone)]
pub struct Lease(pub(crate) Arc<Shared>);

impl Lease {
    /// Is the lock held at this moment, by the clock? After a pause of any length the first answer is right already.
    pub fn is_held(&self) -> bool {
        self.0.until(self.0.clock.now()).is_some()
    }

    /// The state at this moment.
    pub fn state(&self) -> LeaseState {
        let now = self.0.clock.now();
        match *self.0.state_at(now) {
            State::Ended(_) => LeaseState::Lost,
            State::Running { at_risk: true, .. } => LeaseState::AtRisk,
            State::Running { until, .. } => {
                // A lease that is renewed in time always has more than a quarter left.
                let left = until.saturating_duration_since(now);
                let renewed = self.0.term != Term::Fixed;
                if renewed && left < self.0.claim.lease / 4 { LeaseState::AtRisk } else { LeaseState::Held }
            }
        }
    }

    /// How long the lock is held from now on, if no renewal comes.
    pub fn remaining(&self) -> Duration {
        let now = self.0.clock.now();
        self.0.until(now).map_or(Duration::ZERO, |until| until.saturating_duration_since(now))
    }

    /// The fencing token of this acquisition. It stays readable after the loss, so that a late write is refused by what
    /// checks it, not let pass without.
    pub fn fencing_token(&self) -> FencingToken {
        self.0.token
    }

    /// The lock.
    pub fn name(&self) -> &LockName {
        &self.0.claim.name
    }

    /// The owner of this acquisition.
    pub fn owner(&self) -> &OwnerId {
        &self.0.claim.owner
    }

    /// Ends when the lock is not held any more: at a loss, before the store can grant it to another, or at its release.
    ///
    /// # Cancel safety
    /// May be dropped and called again at any time.
    pub async fn lost(&self) {
        loop {
            let ended = self.0.ended.notified();
            // Asked after the notification is armed, so that none falls in between; and by the clock, so that it does
            // not matter whether the keeper still runs.
            let Some(until) = self.0.until(self.0.clock.now()) else { return };
            tokio::select! {
                () = ended => {}
                () = self.0.clock.sleep_until(until) => {}
            }
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("name", self.name())
            .field("owner", self.owner())
            .field("token", &self.0.token)
            .field("state", &self.state())
            .finish()
    }
}
