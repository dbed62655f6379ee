//! When the server was last shown that this client lives, which it has to know of a client with waiters.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use tokio::time::Instant;

use crate::waiters::TICK;

/// In a cluster, of each slot.
#[derive(Debug, Default)]
pub(crate) struct Life(Mutex<HashMap<Option<u16>, Instant>>);

impl Life {
    fn shown_at<T>(&self, change: impl FnOnce(&mut HashMap<Option<u16>, Instant>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Is it time to show it? Each call in a script costs, so that not every request does.
    pub(crate) fn is_due(&self, slot: Option<u16>) -> bool {
        self.shown_at(|shown| shown.get(&slot).is_none_or(|shown| shown.elapsed() >= TICK))
    }

    /// A request that was made then, and answered, has shown it.
    pub(crate) fn shown(&self, slot: Option<u16>, asked: Instant) {
        self.shown_at(|shown| shown.insert(slot, asked));
    }

    /// The server may be another, which knows nothing of us.
    pub(crate) fn forget(&self) {
        self.shown_at(HashMap::clear);
    }
}
