//! The store: a map of locks, each with a line.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use foldhash::fast::RandomState;
use tokio::sync::Notify;

use crate::contract::{
    Claim, Clock, Error, ErrorKind, Grant, Holder, Instant, Kept, ListQuery, LockName, LockStatus, LockValue, Mode,
    OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result, Slots, StoreToken, Unlocked, Waiter,
};

/// Room for so many holders is kept for the next lock.
const FEW: usize = 4;

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
    /// The empty list of a lock that was forgotten: the next lock uses its memory.
    spare: Vec<Holding>,
    /// One counter for all names: a name that is forgotten when nobody uses it still gets higher tokens later.
    tokens: u64,
    /// Until when the lines of rate limiters are taken, in microseconds of the store's time.
    taken: HashMap<LockName, u64, RandomState>,
    /// How many there were after the last clean-up.
    taken_kept: usize,
    /// How far a test has moved the store's time ahead of the clock.
    ahead: Duration,
}

/// A lock that is in use: somebody holds it.
#[derive(Debug, Default)]
struct Lock {
    holdings: Vec<Holding>,
    line: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Holding {
    owner: OwnerId,
    value: Option<LockValue>,
    mode: Mode,
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
    fn new(claim: &Claim, token: u64, slots: Slots, now: Now) -> Self {
        let token = StoreToken::new(token).expect("no process counts that far");
        let grant = Grant::new(token, now.ours + claim.lease).with_slots(slots);
        let (owner, value, mode) = (claim.owner.clone(), claim.value.clone(), claim.mode);
        Self { owner, value, mode, grant, since: now.stores, expires: now.stores + claim.lease }
    }

    fn holder(&self, now: Now) -> Holder {
        Holder::new(
            self.owner.clone(),
            self.grant.token,
            now.stores.saturating_duration_since(self.since),
            self.expires.saturating_duration_since(now.stores),
        )
        .with_value(self.value.clone())
        .with_mode(self.mode, self.grant.slots.clone())
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

    pub(super) fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        let (mut state, now) = self.state();
        let State { locks, tokens, spare, .. } = &mut *state;
        if let Some(lock) = locks.get_mut(&claim.name)
            && lock.settle(tokens, now)
        {
            return lock.join(claim, tokens, now);
        }
        let mut lock = Lock { holdings: std::mem::take(spare), ..Lock::default() };
        let grant = lock.hold(claim, tokens, now);
        locks.insert(claim.name.clone(), lock);
        Ok(Some(grant))
    }

    /// All or none. Whoever has some of them already keeps these, with the same grants.
    pub(super) fn try_lock_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        let (mut state, now) = self.state();
        for claim in claims {
            let Some(lock) = state.settle(&claim.name, now) else { continue };
            if lock.held_by(&claim.owner).is_none() {
                lock.holdings.first().map_or(Ok(()), |holding| claim.mode.check_kind(holding.mode))?;
                return Ok(None);
            }
        }
        let State { locks, tokens, .. } = &mut *state;
        claims.iter().map(|claim| locks.entry(claim.name.clone()).or_default().join(claim, tokens, now)).collect()
    }

    pub(super) fn reserve(&self, name: &LockName, wanted: &Reservation) -> Reserved {
        /// So many are not looked through for those that have passed.
        const SOME: usize = 64;
        let (mut state, now) = self.state();
        let now = now.stores.since_origin().as_micros() as u64;
        let (taken, answer) = wanted.decide(state.taken.get(name).copied().unwrap_or_default(), now);
        if taken <= now {
            state.taken.remove(name);
            return answer;
        }
        state.taken.insert(name.clone(), taken);
        if state.taken.len() > state.taken_kept.max(SOME) * 2 {
            state.taken.retain(|_, taken| *taken > now);
            state.taken_kept = state.taken.len();
        }
        answer
    }

    pub(super) async fn lock(&self, claim: &Claim) -> Result<Grant> {
        if let Some(grant) = self.try_lock(claim)? {
            return Ok(grant);
        }
        loop {
            let (granted, expires) = match self.stand_in_line(claim)? {
                Ok(grant) => return Ok(grant),
                Err(waiting) => waiting,
            };
            tokio::select! {
                () = granted.notified() => {}
                // A holder may never say a word again: then its lease's end is what there is to wait for.
                () = self.clock.sleep_until(expires) => {}
            }
        }
    }

    /// The grant, or what to wait for.
    fn stand_in_line(&self, claim: &Claim) -> Result<std::result::Result<Grant, (Arc<Notify>, Instant)>> {
        let (mut state, now) = self.state();
        let State { locks, tokens, ahead, .. } = &mut *state;
        let used = locks.get_mut(&claim.name).and_then(|lock| lock.settle(tokens, now).then_some(lock));
        let Some(lock) = used else {
            drop(state);
            // Free, with nobody in line: between two looks somebody may have taken it all the same.
            return Ok(self.try_lock(claim)?.ok_or_else(|| (Arc::default(), now.ours)));
        };
        if let Some(waiting) = lock.line.iter().find(|waiting| waiting.claim.owner == claim.owner) {
            return Ok(Err((Arc::clone(&waiting.granted), lock.next_end(now).saturating_sub(*ahead))));
        }
        if let Some(grant) = lock.join(claim, tokens, now)? {
            return Ok(Ok(grant));
        }
        let granted = Arc::new(Notify::new());
        lock.line.push_back(Waiting { claim: claim.clone(), granted: Arc::clone(&granted) });
        Ok(Err((granted, lock.next_end(now).saturating_sub(*ahead))))
    }

    pub(super) fn unlock(&self, claim: &Claim) -> Unlocked {
        let (mut state, now) = self.state();
        let State { locks, tokens, spare, .. } = &mut *state;
        let Some(lock) = locks.get_mut(&claim.name) else { return Unlocked::NotHeld };
        lock.settle(tokens, now);
        let is_held = match lock.held_by(&claim.owner) {
            Some(at) => {
                lock.holdings.swap_remove(at);
                true
            }
            None => {
                lock.line.retain(|waiting| waiting.claim.owner != claim.owner);
                false
            }
        };
        if !lock.settle(tokens, now)
            && let Some(unused) = locks.remove(&claim.name)
            && unused.holdings.capacity() <= FEW
        {
            *spare = unused.holdings;
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
        state.settle(&claim.name, now)?.holdings.iter_mut().find(|holding| holding.owner == claim.owner)
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
        let Some(lock) = state.settle(name, now) else { return LockStatus::free(name.clone()) };
        let waiters = lock.line.iter().map(|waiting| Waiter::new(waiting.claim.owner.clone(), waiting.claim.mode));
        LockStatus::new(name.clone(), lock.holdings.iter().map(|holding| holding.holder(now)), waiters)
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
        let evicted = std::mem::take(&mut state.settle(name, now)?.holdings);
        state.settle(name, now);
        evicted.first().map(|holding| holding.holder(now))
    }

    pub(super) fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Option<Holder> {
        let (mut state, now) = self.state();
        let lock = state.settle(name, now)?;
        let evicted = lock.held_by(owner).map(|at| lock.holdings.swap_remove(at))?;
        state.settle(name, now);
        Some(evicted.holder(now))
    }

    pub(super) fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        let (mut state, now) = self.state();
        let Some(lock) = state.settle(name, now) else { return Ok(false) };
        let waiting = lock.line.iter_mut().map(|waiting| &mut waiting.claim.mode);
        resized(lock.holdings.iter_mut().map(|holding| &mut holding.mode), waiting, permits)?;
        state.settle(name, now);
        Ok(true)
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

/// Makes all of them such as of so many permits.
fn resized<'a>(
    held: impl Iterator<Item = &'a mut Mode>,
    waiting: impl Iterator<Item = &'a mut Mode>,
    permits: u32,
) -> Result<()> {
    let waiting: Vec<_> = waiting.collect();
    let most = waiting.iter().map(|mode| mode.weight()).max().unwrap_or_default();
    if most > permits {
        return Err(Mode::too_few(permits, most));
    }
    for mode in held.chain(waiting) {
        let Mode::Permits { of, .. } = mode else {
            return Err(Error::new(ErrorKind::Invalid, "it is in use as a lock, which has no permits"));
        };
        *of = permits;
    }
    Ok(())
}

impl Lock {
    /// What has run out is gone, and the first in line have what is free. Does anybody use it?
    fn settle(&mut self, tokens: &mut u64, now: Now) -> bool {
        self.holdings.retain(|holding| holding.expires > now.stores);
        while self.line.front().is_some_and(|first| first.claim.mode.fits(modes(&self.holdings)))
            && let Some(first) = self.line.pop_front()
        {
            self.hold(&first.claim, tokens, now);
            first.granted.notify_one();
        }
        !self.holdings.is_empty()
    }

    /// What this claim is granted beside the others: now, or before.
    fn join(&mut self, claim: &Claim, tokens: &mut u64, now: Now) -> Result<Option<Grant>> {
        if let Some(at) = self.held_by(&claim.owner) {
            return Ok(Some(self.holdings[at].grant.clone()));
        }
        if let Some(held) = modes(&self.holdings).next() {
            claim.mode.check_kind(held)?;
        }
        let fits = self.line.is_empty() && claim.mode.fits(modes(&self.holdings));
        Ok(fits.then(|| self.hold(claim, tokens, now)))
    }

    fn hold(&mut self, claim: &Claim, tokens: &mut u64, now: Now) -> Grant {
        let taken = self.holdings.iter().flat_map(|holding| holding.grant.slots.as_slice().iter().copied());
        let slots = Slots::free(claim.mode, taken);
        let holding = Holding::new(claim, next(tokens, now), slots, now);
        let grant = holding.grant.clone();
        self.holdings.push(holding);
        grant
    }

    fn held_by(&self, owner: &OwnerId) -> Option<usize> {
        self.holdings.iter().position(|holding| holding.owner == *owner)
    }

    /// When the next lease is over, by the store's time.
    fn next_end(&self, now: Now) -> Instant {
        self.holdings.iter().map(|holding| holding.expires).min().unwrap_or(now.stores)
    }
}

fn modes(holdings: &[Holding]) -> impl Iterator<Item = Mode> {
    holdings.iter().map(|holding| holding.mode)
}
