//! The line of one name: who has the lock, who asks for it, and who waits, in the order in which they came.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use super::readers::Reading;
use super::{Turn, Whose};
use crate::contract::LockName;
use crate::contract::options::LockOptions;
use crate::engine::hold::Hold;
use crate::engine::{Lease, Owner};

/// Some of the lines.
pub(super) struct Lines<G, A> {
    of: HashMap<LockName, Line<G, A>, RandomState>,
    next: u64,
    /// Nobody waits here any more.
    pub(super) closed: bool,
}

pub(super) struct Line<G, A> {
    pub(super) holding: Option<Holding>,
    /// Somebody asks the store, and those who wait wait for the answer.
    pub(super) asks: bool,
    /// By their numbers, which rise.
    pub(super) waiting: BTreeMap<u64, Waiter<G, A>>,
    /// Of those, the numbers that have an owner.
    owned: BTreeSet<(usize, u64)>,
    /// Owners whose acquisition stands in the store's line, with those of theirs who wait for its answer.
    fair: BTreeMap<usize, BTreeMap<u64, Waiter<G, A>>>,
    /// How many others stand there, each by itself.
    pub(super) alone: usize,
    /// What readers share.
    pub(super) reading: Option<Box<Reading>>,
}

pub(super) struct Holding {
    pub(super) lease: Lease,
    owner: Option<Owner>,
    pub(super) guards: usize,
}

pub(super) struct Waiter<G, A> {
    pub(super) options: LockOptions,
    pub(super) owner: Option<Owner>,
    pub(super) turn: oneshot::Sender<Turn<G, A>>,
}

impl Holding {
    pub(super) fn is(&self, hold: &Arc<Hold>) -> bool {
        Arc::ptr_eq(&self.lease.hold, hold)
    }

    pub(super) fn runs(&self) -> bool {
        let Lease { hold, turn } = &self.lease;
        hold.runs(*turn, hold.now())
    }

    pub(super) fn is_of(&self, owner: Option<&Owner>) -> bool {
        owner.is_some_and(|owner| self.owner.as_ref().is_some_and(|mine| mine.key() == owner.key()))
    }
}

impl<G, A> Default for Lines<G, A> {
    fn default() -> Self {
        Self { of: HashMap::default(), next: 0, closed: false }
    }
}

impl<G, A> Default for Line<G, A> {
    fn default() -> Self {
        Self {
            holding: None,
            asks: false,
            waiting: BTreeMap::new(),
            owned: BTreeSet::new(),
            fair: BTreeMap::new(),
            alone: 0,
            reading: None,
        }
    }
}

impl<G, A> Lines<G, A> {
    /// The number of the next who waits.
    pub(super) fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The line of a name, made if there is none; whoever leaves it unused calls [`Lines::forget`].
    pub(super) fn line(&mut self, name: &LockName) -> &mut Line<G, A> {
        self.of.entry(name.clone()).or_default()
    }

    pub(super) fn holding(&self, name: &LockName) -> Option<&Holding> {
        self.of.get(name)?.holding.as_ref()
    }

    pub(super) fn in_line<T>(&mut self, name: &LockName, act: impl FnOnce(&mut Line<G, A>) -> T) -> Option<T> {
        let line = self.of.get_mut(name)?;
        let result = act(line);
        if line.is_unused() {
            self.forget(name);
        }
        Some(result)
    }

    pub(super) fn forget(&mut self, name: &LockName) {
        self.of.remove(name);
    }

    /// From now on nobody waits; answers who did.
    pub(super) fn close(&mut self) -> Vec<Waiter<G, A>> {
        self.closed = true;
        self.of.values_mut().flat_map(Line::drain_all).collect()
    }

    /// How many names there are, and how many wait.
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.of.len(), self.of.values().map(|line| line.waiting.len()).sum())
    }
}

impl<G, A> Line<G, A> {
    pub(super) fn first(&self) -> Option<&Waiter<G, A>> {
        self.waiting.values().next()
    }

    pub(super) fn pop_first(&mut self) -> Option<Waiter<G, A>> {
        let number = *self.waiting.keys().next()?;
        self.give_up(number)
    }

    /// Who is to ask the store now, if somebody is.
    pub(super) fn promote(&mut self) -> Option<Waiter<G, A>> {
        if self.holding.is_some() || self.asks {
            return None;
        }
        let next = self.pop_first()?;
        self.asks = true;
        Some(next)
    }

    pub(super) fn wait(&mut self, number: u64, waiting: Waiter<G, A>, whose: &Whose) {
        match whose {
            // Alone nobody waits here.
            Whose::Line | Whose::Nobody => {
                self.owned.extend(waiting.owner.as_ref().map(|owner| (owner.key(), number)));
                self.waiting.insert(number, waiting);
            }
            Whose::Owner(owner) => drop(self.fair.entry(owner.key()).or_default().insert(number, waiting)),
        }
    }

    /// Leaves the line, from wherever in it.
    pub(super) fn give_up(&mut self, number: u64) -> Option<Waiter<G, A>> {
        if let Some(waiting) = self.waiting.remove(&number) {
            if let Some(owner) = &waiting.owner {
                self.owned.remove(&(owner.key(), number));
            }
            return Some(waiting);
        }
        self.fair.values_mut().find_map(|theirs| theirs.remove(&number))
    }

    /// The lock has a holder, with so many guards besides its own. The owner's other tasks have it as well. Answers
    /// them, and who had it before.
    pub(super) fn hold(
        &mut self,
        lease: Lease,
        owner: Option<Owner>,
        others: usize,
    ) -> (Vec<Waiter<G, A>>, Option<Holding>) {
        let mut as_well = Vec::new();
        if let Some(owner) = &owner {
            let theirs: Vec<_> = self.owned.range((owner.key(), 0)..=(owner.key(), u64::MAX)).copied().collect();
            as_well.extend(theirs.into_iter().filter_map(|(_, number)| self.give_up(number)));
        }
        let guards = 1 + others + as_well.len();
        (as_well, self.holding.replace(Holding { lease, owner, guards }))
    }

    /// An owner is about to stand in the store's line; not if it does already.
    pub(super) fn begin_fair(&mut self, owner: &Owner) -> bool {
        let begins = !self.fair.contains_key(&owner.key());
        if begins {
            self.fair.insert(owner.key(), BTreeMap::new());
        }
        begins
    }

    /// It does no more; answers those of its tasks who waited.
    pub(super) fn end_fair(&mut self, owner: &Owner) -> Vec<Waiter<G, A>> {
        self.fair.remove(&owner.key()).into_iter().flat_map(BTreeMap::into_values).collect()
    }

    /// The next of its tasks is to ask; without one it stands there no more.
    pub(super) fn promote_fair(&mut self, owner: &Owner) -> Option<Waiter<G, A>> {
        let next = self.fair.get_mut(&owner.key())?.pop_first();
        if next.is_none() {
            self.fair.remove(&owner.key());
        }
        next.map(|(_, waiting)| waiting)
    }

    /// Everybody who waits for who asks.
    pub(super) fn drain(&mut self) -> Vec<Waiter<G, A>> {
        self.owned.clear();
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    fn drain_all(&mut self) -> Vec<Waiter<G, A>> {
        let mut all = self.drain();
        all.extend(self.fair.values_mut().flat_map(std::mem::take).map(|(_, waiting)| waiting));
        all
    }

    /// Does somebody wait here, or an owner in the store's line?
    pub(super) fn somebody_waits(&self) -> bool {
        !self.waiting.is_empty() || !self.fair.is_empty()
    }

    pub(super) fn is_unused(&self) -> bool {
        self.holding.is_none() && !self.asks && self.alone == 0 && self.reading.is_none() && !self.somebody_waits()
    }
}
