//! The queue in the process: tasks that want one name stand in line here, first come first served. One of them asks the
//! store; what it got passes from task to task without a request, for a bounded time.
//!
//! Who no longer waits leaves the line at once, and whatever is sent to a waiter gives itself back when it is dropped:
//! so a waiter may be cancelled at any moment. While a shard is locked, nothing is sent, dropped, logged or counted:
//! all that may run code of others.

use std::fmt;
use std::sync::Arc;

use tokio::sync::oneshot;

use crate::contract::options::LockOptions;
use crate::contract::{Error, ErrorKind, Holder, Instant, LockName, Mode};
use crate::engine::hold::{End, Hold};
use crate::engine::sync::{Mutex, MutexGuard, PoisonError};
use crate::engine::telemetry::Telemetry;
use crate::engine::{Lease, Owner};

mod line;
mod place;
mod readers;

use line::{Holding, Lines, Waiter};
pub(crate) use place::{Permit, Place, Whose};

/// Names are spread over so many tables, each with a lock of its own.
const SHARDS: usize = 16;

/// The lines of all names. `G` is a guard, `A` an acquisition that asks the store.
pub(crate) struct Queue<G, A> {
    shards: [Mutex<Lines<G, A>>; SHARDS],
    telemetry: Telemetry,
}

/// What a waiter is told when it is its turn.
pub(crate) enum Turn<G, A> {
    /// It has the lock.
    Held(G),
    /// It is the one to ask the store.
    Ask(Permit<G, A>),
    /// It is the one to ask, and goes on with what another began.
    GoOn(A),
    /// The store failed whoever asked, and has been away since then, if it is away.
    Failed(Error, Option<Instant>),
}

/// What becomes of who comes.
pub(crate) enum Entry<'a, G, A> {
    /// Its owner has the lock already.
    Again(Lease),
    /// Another task has the lock, and this one does not wait.
    Busy,
    /// It asks the store; with a permit if it waits for the answer.
    Ask(Option<Permit<G, A>>),
    /// It waits for its turn.
    Wait(Place<'a, G, A>),
}

/// What becomes of a guard's lock when the guard goes.
pub(crate) enum Leave {
    /// Its owner has other guards. Was it held? Asked while they cannot go: one of them may release it right after.
    Kept { held: bool },
    /// The next task has it.
    HandedOver,
    /// It is to be released in the store; so it had ended before, if it had.
    Release(Option<End>),
}

/// Who wants a lock.
#[derive(Clone, Copy)]
pub(crate) struct Ticket<'a> {
    pub(crate) options: &'a LockOptions,
    pub(crate) owner: Option<&'a Owner>,
    pub(crate) waits: bool,
}

impl<G, A> Queue<G, A> {
    pub(crate) fn new(telemetry: Telemetry) -> Self {
        Self { shards: std::array::from_fn(|_| Mutex::default()), telemetry }
    }

    /// Sends everybody away who waits, and whoever comes later to wait: what they were to be told is dropped.
    pub(crate) fn close(&self) {
        for shard in &self.shards {
            let sent_away = locked(shard).close();
            drop(sent_away);
        }
    }

    fn shard(&self, name: &LockName) -> MutexGuard<'_, Lines<G, A>> {
        let sum = name.as_str().bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        locked(&self.shards[sum % SHARDS])
    }

    /// Does this to a line if there is one, and forgets it when nobody uses it any more.
    fn in_line<T>(&self, name: &LockName, act: impl FnOnce(&mut line::Line<G, A>) -> T) -> Option<T> {
        self.shard(name).in_line(name, act)
    }

    /// Somebody comes who wants the lock.
    pub(crate) fn enter<'a>(self: &'a Arc<Self>, name: &'a LockName, ticket: Ticket<'_>) -> Entry<'a, G, A> {
        // Whoever is to be fair to other processes stands in the store's line at once; but an owner only once.
        let alone = !ticket.waits || ticket.options.fair || ticket.options.alone;
        let whose = match ticket.owner.filter(|_| ticket.waits) {
            _ if !alone => Whose::Line,
            Some(owner) => Whose::Owner(owner.clone()),
            None => Whose::Nobody,
        };
        let mut lines = self.shard(name);
        let line = lines.line(name);
        let over = match &mut line.holding {
            Some(holding) if holding.runs() => {
                if holding.is_of(ticket.owner) {
                    holding.guards += 1;
                    return Entry::Again(holding.lease.clone());
                }
                if !ticket.waits {
                    return Entry::Busy;
                }
                None
            }
            // Lost, and its guard did not notice yet.
            holding => holding.take(),
        };
        let asks = match &whose {
            Whose::Line => {
                line.holding.is_none() && line.waiting.is_empty() && !std::mem::replace(&mut line.asks, true)
            }
            Whose::Owner(owner) => line.begin_fair(owner),
            Whose::Nobody => {
                line.alone += usize::from(ticket.waits);
                true
            }
        };
        if asks {
            // Of a hold that was lost, nobody else may tell those who wait for it.
            let next = line.promote();
            if line.is_unused() {
                lines.forget(name);
            }
            drop(lines);
            drop(over);
            self.ask(name, next);
            return Entry::Ask(ticket.waits.then(|| Permit::new(self, name, whose)));
        }
        let (turn, told) = oneshot::channel();
        let closed = lines.closed;
        let number = lines.next();
        let line = lines.line(name);
        let next = if closed {
            None
        } else {
            line.wait(number, Waiter { options: *ticket.options, owner: ticket.owner.cloned(), turn }, &whose);
            line.promote()
        };
        if line.is_unused() {
            lines.forget(name);
        }
        drop(lines);
        drop(over);
        self.ask(name, next);
        Entry::Wait(Place { queue: self, name, number, told, _counted: self.telemetry.waiting() })
    }

    /// The store granted the lock to who asked. Whoever was believed to have it has lost it.
    pub(crate) fn granted(
        self: &Arc<Self>,
        lease: &Lease,
        owner: Option<&Owner>,
        permit: Option<Permit<G, A>>,
        guard: impl Fn(Lease) -> G,
    ) {
        let whose = permit.map(Permit::used);
        let (as_well, before, read) = {
            let mut lines = self.shard(lease.name());
            let line = lines.line(lease.name());
            let mut as_well = match &whose {
                Some(Whose::Line) => {
                    line.asks = false;
                    Vec::new()
                }
                Some(Whose::Owner(owner)) => line.end_fair(owner),
                Some(Whose::Nobody) => {
                    line.alone -= 1;
                    Vec::new()
                }
                None => Vec::new(),
            };
            let (others, before) = line.hold(lease.clone(), owner.cloned(), as_well.len());
            as_well.extend(others);
            (as_well, before, line.reading.take())
        };
        if let Some(before) = before
            && !before.is(&lease.hold)
        {
            before.lease.hold.end(End::NotHeld);
        }
        if let Some(read) = read {
            read.end();
        }
        give(as_well, lease, &guard);
    }

    /// A guard goes.
    pub(crate) fn leave(self: &Arc<Self>, lease: &Lease, guard: impl Fn(Lease) -> G) -> Leave {
        let hold = &lease.hold;
        if hold.claim.mode == Mode::Shared {
            return self.leave_reading(lease);
        }
        let left = self.in_line(lease.name(), |line| {
            let holding = line.holding.as_mut().filter(|holding| holding.is(hold))?;
            if holding.guards > 1 {
                holding.guards -= 1;
                return Some(Left::Kept { held: hold.runs(lease.turn, hold.now()) });
            }
            if !line.asks
                && line.first().is_some_and(|first| hold.options.can_share(&first.options))
                && let Some(turn) = hold.hand_over()
            {
                let first = line.pop_first()?;
                let lease = Lease { hold: Arc::clone(hold), turn };
                let (as_well, before) = line.hold(lease.clone(), first.owner.clone(), 0);
                return Some(Left::HandedOver { lease, first, as_well, _before: before });
            }
            let before = line.holding.take();
            Some(Left::Free { next: line.promote(), _before: before })
        });
        match left.flatten() {
            Some(Left::Kept { held }) => Leave::Kept { held },
            Some(Left::HandedOver { lease, first, as_well, .. }) => {
                hold.handed_over();
                give([first], &lease, &guard);
                give(as_well, &lease, &guard);
                Leave::HandedOver
            }
            Some(Left::Free { next, .. }) => {
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
            let before = line.holding.take_if(|holding| holding.is(hold))?;
            Some((line.promote(), before))
        });
        self.ask(name, next.flatten().and_then(|(next, _)| next));
    }

    /// Who asked the store gives up: the first in line goes on with it. Gives it back if nobody can.
    pub(crate) fn pass_on(&self, name: &LockName, options: &LockOptions, asking: A) -> Option<A> {
        let next = self.in_line(name, |line| {
            let shares = line.first().is_some_and(|first| options.can_share(&first.options));
            if shares { line.pop_first() } else { None }
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
        let lease = self.shard(name).holding(name)?.lease.clone();
        lease.hold.holder()
    }

    fn ask(self: &Arc<Self>, name: &LockName, next: Option<Waiter<G, A>>) {
        if let Some(next) = next {
            drop(next.turn.send(Turn::Ask(Permit::new(self, name, Whose::Line))));
        }
    }

    /// Who had a permit got no lock. If the store failed, all who waited for the answer are told: each of them would
    /// learn the same, and knows how long it goes on. What is wrong with what one asks for is not the others'.
    fn stop_asking(self: &Arc<Self>, name: &LockName, whose: &Whose, failure: Option<(&Error, Option<Instant>)>) {
        let failure = failure.filter(|(error, _)| !matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported));
        let waited = self.in_line(name, |line| match whose {
            Whose::Line => {
                line.asks = false;
                if failure.is_some() && line.holding.is_none() { line.drain() } else { Vec::from_iter(line.promote()) }
            }
            Whose::Owner(owner) if failure.is_some() => line.end_fair(owner),
            Whose::Owner(owner) => Vec::from_iter(line.promote_fair(owner)),
            Whose::Nobody => {
                line.alone -= 1;
                Vec::new()
            }
        });
        for waiting in waited.into_iter().flatten() {
            let turn = match failure {
                Some((error, since)) => Turn::Failed(error.clone(), since),
                None => Turn::Ask(Permit::new(self, name, whose.clone())),
            };
            drop(waiting.turn.send(turn));
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

enum Left<G, A> {
    Kept { held: bool },
    HandedOver { lease: Lease, first: Waiter<G, A>, as_well: Vec<Waiter<G, A>>, _before: Option<Holding> },
    Free { next: Option<Waiter<G, A>>, _before: Option<Holding> },
}

fn give<G, A>(to: impl IntoIterator<Item = Waiter<G, A>>, lease: &Lease, guard: &impl Fn(Lease) -> G) {
    for waiting in to {
        drop(waiting.turn.send(Turn::Held(guard(lease.clone()))));
    }
}

impl<G, A> fmt::Debug for Queue<G, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sizes = self.shards.iter().map(|shard| locked(shard).sizes());
        let (names, waiting) = sizes.fold((0, 0), |sum, size| (sum.0 + size.0, sum.1 + size.1));
        f.debug_struct("Queue").field("names", &names).field("waiting", &waiting).finish()
    }
}
