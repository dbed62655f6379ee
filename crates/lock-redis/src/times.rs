//! By which answer of a server a grant is timed that a message tells of.
//!
//! A message has the server's time alone. An answer has both: when its request was sent by our clock, and what time it
//! then was for the server. Two clocks drift apart, so that an answer of an hour ago is off by what they drifted in that
//! hour. While somebody waits, each look brings a new answer, and a grant is timed by the last one.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::InLine;

/// The last answer, in a cluster of each slot.
#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<HashMap<Option<u16>, InLine>>);

impl Times {
    fn all(&self) -> MutexGuard<'_, HashMap<Option<u16>, InLine>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn told(&self, slot: Option<u16>, answer: InLine) {
        self.all().insert(slot, answer);
    }

    /// The last answer, if it was asked for after the one that put a waiter into the line.
    pub(crate) fn last(&self, slot: Option<u16>, entered: &InLine) -> Option<InLine> {
        self.all().get(&slot).copied().filter(|last| last.sent >= entered.sent)
    }

    /// The server may be another, with another clock; or nobody waits any more.
    pub(crate) fn forget(&self) {
        self.all().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::Instant;

    use super::*;

    fn told(seconds: u64) -> InLine {
        InLine { sent: Instant::from_origin(Duration::from_secs(seconds)), store_us: seconds as i64 * 1_000_000 }
    }

    #[test]
    fn a_grant_is_timed_by_the_last_answer() {
        let times = Times::default();
        let last = || times.last(None, &told(10)).map(|last| last.store_us / 1_000_000);
        assert_eq!(last(), None);
        [20, 30].into_iter().for_each(|seconds| times.told(None, told(seconds)));
        times.told(Some(1), told(44));
        assert_eq!(last(), Some(30));
        // Who entered the line since then knows better.
        assert!(times.last(None, &told(50)).is_none());
        times.forget();
        assert_eq!(last(), None);
    }
}
