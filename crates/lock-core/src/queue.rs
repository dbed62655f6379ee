//! The queue in the process: tasks that want one name stand in line here, first come first served. One of them asks the
//! store; what it got passes from task to task without a request, for a bounded time.
//!
//! Who no longer waits leaves the line at once, and whatever is sent to a waiter gives itself back when it is dropped:
//! so a waiter may be cancelled at any moment. Nothing is sent or dropped while the queue is locked.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::hold::{End, Hold};
use crate::options::LockOptions;
use crate::sync::{Mutex, MutexGuard, PoisonError};
use crate::telemetry::{self, Telemetry};
use crate::{Holder, Lease, LockName, Owner};

mod place;

pub(crate) use place::{Permit, Place};

/// The lines of all names. `G` is a guard, `A` an acquisition that asks the store.
pub(crate) struct Queue<G, A> {
    lines: Mutex<Lines<G, A>>,
    telemetry: Telemetry,
}

struct Lines<G, A> {
    of: HashMap<LockName, Line<G, A>>,
    /// The number of the next who waits: it rises along each line.
    next: u64,
    /// Nobody waits here any more.
    closed: bool,
}

/// What a waiter is told when it is its turn.
pub(crate) enum Turn<G, A> {
    /// It has the lock.
    Held(G),
    /// It is the one to ask the store.
    Ask(Permit<G, A>),
    /// It is the one to ask, and goes on with what another began.
    GoOn(A),
}

/// What becomes of who comes.
pub(crate) enum Entry<'a, G, A> {
    /// Its owner has the lock already.
    Again(Lease),
    /// Another task has the lock, and this one does not wait.
    Busy,
    /// It asks the store; with a permit the others wait until it got an answer.
    Ask(Option<Permit<G, A>>),
    /// It waits for its turn.
    Wait(Place<'a, G, A>),
}

/// What becomes of a guard's lock when the guard goes.
pub(crate) enum Leave {
    /// Its owner has other guards.
    Kept,
    /// The next task has it.
    HandedOver,
    /// It is to be released in the store; so it had ended before, if it had.
    Release(Option<End>),
}

/// Who wants a lock.
#[derive(Clone, Copy)]
pub(crate) struct Wish<'a> {
    pub(crate) options: &'a LockOptions,
    pub(crate) owner: Option<&'a Owner>,
    pub(crate) waits: bool,
}

struct Line<G, A> {
    holding: Option<Holding>,
    /// How many hold a permit: one, or after a failure each that waited.
    asking: usize,
    waiting: VecDeque<Waiting<G, A>>,
}

struct Holding {
    lease: Lease,
    owner: Option<Owner>,
    guards: usize,
}

struct Waiting<G, A> {
    number: u64,
    options: LockOptions,
    owner: Option<Owner>,
    turn: oneshot::Sender<Turn<G, A>>,
    _counted: telemetry::Waiting,
}

impl Holding {
    fn is(&self, hold: &Arc<Hold>) -> bool {
        Arc::ptr_eq(&self.lease.hold, hold)
    }

    fn is_of(&self, owner: Option<&Owner>) -> bool {
        owner.is_some_and(|owner| self.owner.as_ref().is_some_and(|mine| mine.is(owner)))
    }
}

impl<G, A> Default for Line<G, A> {
    fn default() -> Self {
        Self { holding: None, asking: 0, waiting: VecDeque::new() }
    }
}

impl<G, A> Line<G, A> {
    /// Who is to ask the store now, if somebody is.
    fn promote(&mut self) -> Option<Waiting<G, A>> {
        if self.holding.is_some() || self.asking > 0 {
            return None;
        }
        let next = self.waiting.pop_front()?;
        self.asking += 1;
        Some(next)
    }

    fn give_up(&mut self, number: u64) -> Option<Waiting<G, A>> {
        let at = self.waiting.binary_search_by_key(&number, |waiting| waiting.number).ok()?;
        self.waiting.remove(at)
    }

    /// The lock has a holder. The owner's other tasks have it as well.
    fn seat(&mut self, lease: Lease, owner: Option<Owner>) -> Vec<Waiting<G, A>> {
        let mut holding = Holding { lease, owner, guards: 1 };
        let mut as_well = Vec::new();
        if holding.owner.is_some() {
            let all = std::mem::take(&mut self.waiting).into_iter();
            let (same, others): (_, Vec<_>) = all.partition(|waiting| holding.is_of(waiting.owner.as_ref()));
            (as_well, self.waiting) = (same, others.into());
            holding.guards += as_well.len();
        }
        self.holding = Some(holding);
        as_well
    }

    fn is_unused(&self) -> bool {
        self.holding.is_none() && self.asking == 0 && self.waiting.is_empty()
    }
}

impl<G, A> Queue<G, A> {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        Self { lines: Mutex::new(Lines { of: HashMap::new(), next: 0, closed: false }), telemetry }
    }

    /// Sends everybody away who waits, and whoever comes later to wait: what they were to be told is dropped.
    pub(crate) fn close(&self) {
        let mut lines = self.lines();
        lines.closed = true;
        let sent_away: Vec<_> = lines.of.values_mut().flat_map(|line| line.waiting.drain(..)).collect();
        drop(lines);
        drop(sent_away);
    }

    fn lines(&self) -> MutexGuard<'_, Lines<G, A>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does this to a line if there is one, and forgets it when nobody uses it any more.
    fn in_line<T>(&self, name: &LockName, act: impl FnOnce(&mut Line<G, A>) -> T) -> Option<T> {
        let mut lines = self.lines();
        let line = lines.of.get_mut(name)?;
        let result = act(line);
        if line.is_unused() {
            lines.of.remove(name);
        }
        Some(result)
    }

    /// Somebody comes who wants the lock.
    pub(crate) fn enter<'a>(self: &'a Arc<Self>, name: &'a LockName, wish: Wish<'_>) -> Entry<'a, G, A> {
        // Whoever is to be fair to other processes stands in the store's line at once.
        let alone = !wish.waits || wish.options.fair;
        let mut guard = self.lines();
        let lines = &mut *guard;
        let Some(line) = lines.of.get_mut(name) else {
            if alone {
                return Entry::Ask(None);
            }
            lines.of.insert(name.clone(), Line { asking: 1, ..Line::default() });
            return Entry::Ask(Some(Permit::new(self, name)));
        };
        match &mut line.holding {
            Some(holding) if holding.lease.is_held() => {
                if holding.is_of(wish.owner) {
                    holding.guards += 1;
                    return Entry::Again(holding.lease.clone());
                }
                if !wish.waits {
                    return Entry::Busy;
                }
            }
            // Lost, and its guard did not notice yet.
            holding => *holding = None,
        }
        if alone {
            return Entry::Ask(None);
        }
        let (turn, told) = oneshot::channel();
        let number = lines.next;
        let place = Place { queue: self, name, number, told };
        if lines.closed {
            return Entry::Wait(place);
        }
        lines.next += 1;
        let _counted = self.telemetry.waiting();
        line.waiting.push_back(Waiting { number, options: *wish.options, owner: wish.owner.cloned(), turn, _counted });
        let next = line.promote();
        drop(guard);
        self.ask(name, next);
        Entry::Wait(place)
    }

    /// The store granted the lock to who asked.
    pub(crate) fn granted(
        self: &Arc<Self>,
        lease: &Lease,
        owner: Option<&Owner>,
        permit: Option<Permit<G, A>>,
        guard: impl Fn(Lease) -> G,
    ) {
        let as_well = {
            let mut lines = self.lines();
            let line = lines.of.entry(lease.name().clone()).or_default();
            if let Some(permit) = permit {
                permit.used();
                line.asking -= 1;
            }
            line.seat(lease.clone(), owner.cloned())
        };
        give(as_well, lease, &guard);
    }

    /// A guard goes.
    pub(crate) fn leave(self: &Arc<Self>, lease: &Lease, guard: impl Fn(Lease) -> G) -> Leave {
        let hold = &lease.hold;
        let left = self.in_line(lease.name(), |line| {
            let holding = line.holding.as_mut().filter(|holding| holding.is(hold))?;
            if holding.guards > 1 {
                holding.guards -= 1;
                return Some(Left::Kept);
            }
            if line.asking == 0
                && line.waiting.front().is_some_and(|first| hold.options.can_share(&first.options))
                && let Some(turn) = hold.hand_over()
            {
                let first = line.waiting.pop_front()?;
                let lease = Lease { hold: Arc::clone(hold), turn };
                let as_well = line.seat(lease.clone(), first.owner.clone());
                return Some(Left::HandedOver { lease, first, as_well });
            }
            line.holding = None;
            Some(Left::Free(line.promote()))
        });
        match left.flatten() {
            Some(Left::Kept) => Leave::Kept,
            Some(Left::HandedOver { lease, first, as_well }) => {
                give([first], &lease, &guard);
                give(as_well, &lease, &guard);
                Leave::HandedOver
            }
            Some(Left::Free(next)) => {
                let before = hold.end(End::Released);
                self.ask(lease.name(), next);
                Leave::Release(before)
            }
            None => Leave::Release(hold.end(End::Released)),
        }
    }

    /// A hold ended although its guard did not go: the next asks the store.
    pub(crate) fn vacate(self: &Arc<Self>, hold: &Arc<Hold>) {
        let name = &hold.claim.name;
        let next = self.in_line(name, |line| {
            line.holding.take_if(|holding| holding.is(hold))?;
            line.promote()
        });
        self.ask(name, next.flatten());
    }

    /// Who asked the store gives up: the first in line goes on with it. Gives it back if nobody can.
    pub(crate) fn pass_on(&self, name: &LockName, options: &LockOptions, asking: A) -> Option<A> {
        let next = self.in_line(name, |line| {
            let shares = line.waiting.front().is_some_and(|first| options.can_share(&first.options));
            if shares { line.waiting.pop_front() } else { None }
        });
        match next.flatten() {
            // Cancelled just now, it passes it on when it is dropped.
            Some(next) => drop(next.turn.send(Turn::GoOn(asking))),
            None => return Some(asking),
        }
        None
    }

    /// Who of this process holds the lock.
    pub(crate) fn holder(&self, name: &LockName) -> Option<Holder> {
        let lines = self.lines();
        lines.of.get(name)?.holding.as_ref()?.lease.hold.holder()
    }

    fn ask(self: &Arc<Self>, name: &LockName, next: impl IntoIterator<Item = Waiting<G, A>>) {
        for next in next {
            drop(next.turn.send(Turn::Ask(Permit::new(self, name))));
        }
    }

    /// Who had a permit got no lock. After a failure of the store's each that waited asks for itself, and has an error
    /// of its own, or luck.
    fn stop_asking(self: &Arc<Self>, name: &LockName, failed: bool) {
        let next = self.in_line(name, |line| {
            line.asking -= 1;
            if failed && line.holding.is_none() {
                line.asking += line.waiting.len();
                return line.waiting.drain(..).collect();
            }
            Vec::from_iter(line.promote())
        });
        self.ask(name, next.into_iter().flatten());
    }
}

enum Left<G, A> {
    Kept,
    HandedOver { lease: Lease, first: Waiting<G, A>, as_well: Vec<Waiting<G, A>> },
    Free(Option<Waiting<G, A>>),
}

fn give<G, A>(to: impl IntoIterator<Item = Waiting<G, A>>, lease: &Lease, guard: &impl Fn(Lease) -> G) {
    for waiting in to {
        drop(waiting.turn.send(Turn::Held(guard(lease.clone()))));
    }
}

impl<G, A> fmt::Debug for Queue<G, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.lines();
        let waiting: usize = lines.of.values().map(|line| line.waiting.len()).sum();
        f.debug_struct("Queue").field("names", &lines.of.len()).field("waiting", &waiting).finish()
    }
}
