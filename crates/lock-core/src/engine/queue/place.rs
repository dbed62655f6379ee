//! What those have who came to the queue: a place in line, or the right to ask the store. Each goes to the next when it
//! is dropped.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::{Queue, Turn};
use crate::contract::{Error, Instant, LockName};
use crate::engine::Owner;
use crate::engine::telemetry;

/// A place in the line of a name. Dropped, it is given up.
pub(crate) struct Place<'a, G, A> {
    pub(super) queue: &'a Queue<G, A>,
    pub(super) name: &'a LockName,
    pub(super) number: u64,
    pub(super) told: oneshot::Receiver<Turn<G, A>>,
    pub(super) _counted: telemetry::Waiting,
}

impl<G, A> Place<'_, G, A> {
    /// Waits for its turn. `None` if it was sent away without one.
    pub(crate) async fn turn(mut self) -> Option<Turn<G, A>> {
        (&mut self.told).await.ok()
    }
}

impl<G, A> Drop for Place<'_, G, A> {
    fn drop(&mut self) {
        // Once it was told, it is nobody's place any more.
        if !self.told.is_terminated() {
            let left = self.queue.in_line(self.name, |line| line.give_up(self.number));
            drop(left);
        }
    }
}

/// Who waits for the answer to a request, besides who asks.
#[derive(Clone)]
pub(crate) enum Whose {
    /// All who wait for the lock in this process.
    Line,
    /// The other tasks of this owner; each of the others stands in the store's line itself.
    Owner(Owner),
    /// Nobody. It is only known that somebody asks, and waits.
    Nobody,
}

/// The right to ask the store and to wait for the answer, with others or alone. Dropped without one, it goes to the next of
/// them.
pub(crate) struct Permit<G, A> {
    queue: Option<Arc<Queue<G, A>>>,
    name: LockName,
    whose: Whose,
}

impl<G, A> Permit<G, A> {
    pub(super) fn new(queue: &Arc<Queue<G, A>>, name: &LockName, whose: Whose) -> Self {
        Self { queue: Some(Arc::clone(queue)), name: name.clone(), whose }
    }

    /// Do others wait for the answer?
    pub(crate) fn is_for_others(&self) -> bool {
        !matches!(self.whose, Whose::Nobody)
    }

    pub(super) fn used(mut self) -> Whose {
        self.queue = None;
        self.whose.clone()
    }

    /// The store failed, and has been away since then, if it is away.
    pub(crate) fn failed(mut self, error: &Error, since: Option<Instant>) {
        if let Some(queue) = self.queue.take() {
            queue.stop_asking(&self.name, &self.whose, Some((error, since)));
        }
    }
}

impl<G, A> Drop for Permit<G, A> {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.stop_asking(&self.name, &self.whose, None);
        }
    }
}
