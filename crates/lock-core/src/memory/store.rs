//! The store: a map of locks, each with a line.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use crate::contract::{
    Claim, Clock, Grant, Holder, Instant, Kept, ListQuery, LockName, LockStatus, LockValue, OwnerId, Page, Proclaimed,
    Renewal, StoreToken, Unlocked,
};

#[derive(Debug)]
pub(super) struct Store {
    clock: Arc<dyn Clock>,
    /// What the wall clock showed at the clock's origin.
    origin: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    locks: HashMap<LockName, Lock, RandomState>,
    /// One counter for all names: a name that is forgotten when nobody uses it still gets higher tokens later.
    tokens: u64,
    /// How far a test has moved the store's time ahead of the clock.
    ahead: Duration,
}

#[derive(Debug, Default)]
struct Lock {
    holding: Option<Holding>,
    line: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Holding {
    owner: OwnerId,
    value: Option<LockValue>,
    grant: Grant,
    since: Instant,
    /// By the store's time.
    expires: Instant,
}

#[derive(Debug)]
struct Waiting {
    claim: Claim,
    granted: Arc<Notify>,
}

/// The readings of the time that a verb needs.
#[derive(Clone, Copy)]
struct Now {
    ours: Instant,
    stores: Instant,
    /// As the time since 1970.
    wall: Duration,
}

impl State {
    /// The lock of this name as it stands now: what has run out is gone, and the first in line has what is free.
    fn settle(&mut self, name: &LockName, now: Now) -> Option<&mut Lock> {
        if !self.locks.get_mut(name)?.settle(&mut self.tokens, now) {
            self.locks.remove(name);
        }
        self.locks.get_mut(name)
    }
}

/// The next token: above the clock, as the tokens of other stores are.
fn next(tokens: &mut u64, now: Now) -> u64 {
    *tokens = (*tokens + 1).max(now.wall.as_micros() as u64);
    *tokens
}

impl Holding {
    fn new(claim: &Claim, token: u64, now: Now) -> Self {
        let token = StoreToken::new(token).expect("no process counts that far");
        let grant = Grant::new(token, now.ours + claim.lease);
        let (owner, value) = (claim.owner.clone(), claim.value.clone());
        Self { owner, value, grant, since: now.stores, expires: now.stores + claim.lease }
    }

    fn holder(&self, now: Now) -> Holder {
        Holder::new(
            self.owner.clone(),
            self.grant.token,
            now.stores.saturating_duration_since(self.since),
            self.expires.saturating_duration_since(now.stores),
        )
        .with_value(self.value.clone())
    }
}

impl Store {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let origin = wall.saturating_sub(clock.now().since_origin());
        Self { clock, origin, state: Mutex::default() }
    }

    pub(super) fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    fn state(&self) -> (MutexGuard<'_, State>, Now) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let ours = self.clock.now();
        let now = Now { ours, stores: ours + state.ahead, wall: self.origin + ours.since_origin() };
        (state, now)
    }

    pub(super) fn try_lock(&self, claim: &Claim) -> Option<Grant> {
        let (mut state, now) = self.state();
        let State { locks, tokens, .. } = &mut *state;
        if let Some(lock) = locks.get_mut(&claim.name)
            && lock.settle(tokens, now)
        {
            return lock.grant_of(&claim.owner);
        }
        let token = next(tokens, now);
        let holding = Holding::new(claim, token, now);
        let grant = holding.grant;
        locks.insert(claim.name.clone(), Lock { holding: Some(holding), line: VecDeque::new() });
        Some(grant)
    }

    pub(super) async fn lock(&self, claim: &Claim) -> Grant {
        if let Some(grant) = self.try_lock(claim) {
            return grant;
        }
        loop {
            let (granted, expires) = match self.stand_in_line(claim) {
                Ok(grant) => return grant,
                Err(waiting) => waiting,
            };
            tokio::select! {
                () = granted.notified() => {}
                // The holder may never say a word again: then its lease's end is what there is to wait for.
                () = self.clock.sleep_until(expires) => {}
            }
        }
    }

    /// The grant, or what to wait for.
    fn stand_in_line(&self, claim: &Claim) -> Result<Grant, (Arc<Notify>, Instant)> {
        let (mut state, now) = self.state();
        let ahead = state.ahead;
        let Some(lock) = state.settle(&claim.name, now) else {
            drop(state);
            // Free, with nobody in line: between two looks somebody may have taken it all the same.
            return self.try_lock(claim).ok_or_else(|| (Arc::default(), now.ours));
        };
        if let Some(grant) = lock.grant_of(&claim.owner) {
            return Ok(grant);
        }
        let granted = match lock.line.iter().find(|waiting| waiting.claim.owner == claim.owner) {
            Some(waiting) => Arc::clone(&waiting.granted),
            None => {
                let granted = Arc::new(Notify::new());
                let waiting = Waiting { claim: claim.clone(), granted: Arc::clone(&granted) };
                lock.line.push_back(waiting);
                granted
            }
        };
        let expires = lock.holding.as_ref().map_or(now.stores, |holding| holding.expires);
        Err((granted, expires.saturating_sub(ahead)))
    }

    pub(super) fn unlock(&self, claim: &Claim) -> Unlocked {
        let (mut state, now) = self.state();
        let State { locks, tokens, .. } = &mut *state;
        let Some(lock) = locks.get_mut(&claim.name) else { return Unlocked::NotHeld };
        let mut is_used = lock.settle(tokens, now);
        let is_held = lock.grant_of(&claim.owner).is_some();
        if is_held {
            lock.holding = None;
            is_used = lock.settle(tokens, now);
        } else {
            lock.line.retain(|waiting| waiting.claim.owner != claim.owner);
        }
        if !is_used {
            locks.remove(&claim.name);
        }
        if is_held { Unlocked::Released } else { Unlocked::NotHeld }
    }

    pub(super) fn renew(&self, claims: &[Claim]) -> Vec<Renewal> {
        let (mut state, now) = self.state();
        let mut renew = |claim: &Claim| {
            let holding = Self::held(&mut state, claim, now)?;
            holding.expires = now.stores + claim.lease;
            holding.grant.valid_until = now.ours + claim.lease;
            Some(holding.grant.valid_until)
        };
        let answer = |claim| renew(claim).map_or(Renewal::NotHeld, |valid_until| Renewal::Held { valid_until });
        claims.iter().map(answer).collect()
    }

    /// What is held by this owner.
    fn held<'a>(state: &'a mut State, claim: &Claim, now: Now) -> Option<&'a mut Holding> {
        state.settle(&claim.name, now)?.holding.as_mut().filter(|holding| holding.owner == claim.owner)
    }

    pub(super) fn keep(&self, claim: &Claim, rest: Duration) -> Kept {
        let (mut state, now) = self.state();
        if let Some(holding) = Self::held(&mut state, claim, now) {
            holding.owner = claim.owner.kept();
            holding.expires = now.stores + rest;
            // Whoever waits looks when it ends, which may be sooner than the lease was over.
            let line = state.locks.get(&claim.name).map(|lock| &lock.line);
            line.into_iter().flatten().for_each(|waiting| waiting.granted.notify_one());
            return Kept::Kept;
        }
        let kept = Claim { owner: claim.owner.kept(), ..claim.clone() };
        if Self::held(&mut state, &kept, now).is_some() { Kept::Kept } else { Kept::NotHeld }
    }

    pub(super) fn proclaim(&self, claim: &Claim, value: &LockValue) -> Proclaimed {
        let (mut state, now) = self.state();
        match Self::held(&mut state, claim, now) {
            Some(holding) => {
                holding.value = Some(value.clone());
                Proclaimed::Shown
            }
            None => Proclaimed::NotHeld,
        }
    }

    pub(super) fn inspect(&self, name: &LockName) -> LockStatus {
        let (mut state, now) = self.state();
        let lock = state.settle(name, now);
        let holder = lock.as_ref().and_then(|lock| lock.holding.as_ref()).map(|holding| holding.holder(now));
        let waiters = lock.map_or_else(Vec::new, |lock| lock.line.iter().map(|w| w.claim.owner.clone()).collect());
        LockStatus::new(name.clone(), holder, waiters)
    }

    pub(super) fn list(&self, query: &ListQuery) -> Page {
        let mut names: Vec<LockName> = {
            let (state, _) = self.state();
            state.locks.keys().filter(|name| query.selects(name)).cloned().collect()
        };
        names.sort_unstable();
        let statuses = names.iter().map(|name| self.inspect(name)).filter(|status| status.holder().is_some());
        let mut locks: Vec<_> = statuses.take(query.fetch_size()).collect();
        let next = query.cut(&mut locks, |lock| &lock.name);
        Page::new(locks, next)
    }

    pub(super) fn evict(&self, name: &LockName) -> Option<Holder> {
        let (mut state, now) = self.state();
        let evicted = state.settle(name, now)?.holding.take()?;
        state.settle(name, now);
        Some(evicted.holder(now))
    }

    pub(super) fn raise_tokens(&self, above: StoreToken) {
        let (mut state, _) = self.state();
        state.tokens = state.tokens.max(above.get());
    }

    /// Moves the store's time ahead of the clock, as a step of a server's clock does.
    pub(super) fn advance(&self, duration: Duration) {
        self.state().0.ahead += duration;
        let (mut state, now) = self.state();
        let names: Vec<_> = state.locks.keys().cloned().collect();
        for name in names {
            state.settle(&name, now);
        }
    }
}

impl Lock {
    /// What has run out is gone, and the first in line has what is free. Does anybody use it?
    fn settle(&mut self, tokens: &mut u64, now: Now) -> bool {
        if self.holding.as_ref().is_some_and(|holding| holding.expires <= now.stores) {
            self.holding = None;
        }
        if self.holding.is_none()
            && let Some(first) = self.line.pop_front()
        {
            self.holding = Some(Holding::new(&first.claim, next(tokens, now), now));
            first.granted.notify_one();
        }
        self.holding.is_some()
    }

    fn grant_of(&self, owner: &OwnerId) -> Option<Grant> {
        self.holding.as_ref().filter(|holding| holding.owner == *owner).map(|holding| holding.grant)
    }
}
