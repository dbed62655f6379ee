//! Readers of one process share a grant: whoever comes while others of them have it comes in to them without a request,
//! for a bounded time, and not past a task of the process that waits to have the lock alone. The last who goes gives it
//! back to the store.
//!
//! How many have a grant is counted by its hold, since several grants may be held at the same time; only the latest is
//! still open to others. Nobody waits here: who may not come in asks the store itself, whose line is the only one in which
//! all modes stand.

use std::sync::Arc;

use super::line::{Holding, Line};
use super::{Leave, Queue};
use crate::contract::options::LockOptions;
use crate::contract::{Instant, LockName};
use crate::engine::Lease;
use crate::engine::hold::{End, Hold};

/// The grant that readers may still come in to.
pub(super) struct Reading {
    lease: Lease,
    /// How many did.
    joined: u8,
}

impl Reading {
    pub(super) fn is(&self, hold: &Arc<Hold>) -> bool {
        Arc::ptr_eq(&self.lease.hold, hold)
    }

    /// Nobody has it any more, as the store says.
    pub(super) fn end(self) {
        self.lease.hold.end(End::NotHeld);
    }
}

impl<G, A> Line<G, A> {
    /// Does a task wait to have the lock alone, or have it?
    fn is_wanted_alone(&self) -> bool {
        self.holding.is_some() || self.asks || self.alone > 0 || self.somebody_waits()
    }

    fn join(&mut self, options: &LockOptions, now: Instant) -> Option<Lease> {
        if self.is_wanted_alone() {
            return None;
        }
        let Reading { lease, joined } = self.reading.as_deref_mut()?;
        let hold = &lease.hold;
        let open = *joined < options.hand_overs && hold.options.can_share(options) && hold.lets_in(now);
        if !open || !hold.come_in() {
            return None;
        }
        *joined += 1;
        Some(lease.clone())
    }
}

impl<G, A> Queue<G, A> {
    /// A reader comes: what it shares with others, or `None` if it is to ask the store.
    pub(crate) fn join(&self, name: &LockName, options: &LockOptions, now: Instant) -> Option<Lease> {
        self.in_line(name, |line| line.join(options, now)).flatten()
    }

    /// The store granted the lock to a reader, and others may share it. Whoever was believed to have it alone, since an
    /// earlier grant, has lost it.
    pub(crate) fn reads(self: &Arc<Self>, lease: &Lease) {
        let (hold, options) = (&lease.hold, &lease.hold.options);
        // The time of one with a `max_hold` is its own.
        let shares = options.hand_overs > 0 && options.max_hold.is_none() && options.can_share(options);
        let is_over = |alone: &mut Holding| alone.lease.hold.token(0) < hold.token(0);
        let (alone, next, before) = {
            let mut lines = self.shard(lease.name());
            let line = lines.line(lease.name());
            let alone = line.holding.take_if(is_over);
            let before = shares.then(|| line.reading.replace(Box::new(Reading { lease: lease.clone(), joined: 0 })));
            let next = line.promote();
            if line.is_unused() {
                lines.forget(lease.name());
            }
            (alone, next, before)
        };
        if let Some(alone) = alone {
            alone.lease.hold.end(End::NotHeld);
        }
        drop(before);
        self.ask(lease.name(), next);
    }

    /// A reader goes.
    pub(super) fn leave_reading(&self, lease: &Lease) -> Leave {
        let hold = &lease.hold;
        let held = hold.runs(lease.turn, hold.now());
        if !hold.go_out() {
            return Leave::Kept { held };
        }
        let closed = self.in_line(lease.name(), |line| line.reading.take_if(|reading| reading.is(hold)));
        drop(closed);
        Leave::Release(hold.end(End::Released))
    }
}
