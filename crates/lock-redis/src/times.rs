//! By which answer of a server a grant is timed that a message tells of.
//!
//! A message has the server's time alone. An answer has both: when its request was sent by our clock, and what time it
//! then was for the server. Two clocks drift apart, so that an answer of an hour ago is off by what they drifted in that
//! hour. While somebody waits, each look brings a new answer, and a grant is timed by the last one before it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::InLine;

/// The last answers, in a cluster of each slot.
#[derive(Debug, Default)]
pub(crate) struct Times(Mutex<HashMap<Option<u16>, Last>>);

/// The last one, and the one before: a grant may be older than the look that was on its way with its message.
type Last = [Option<InLine>; 2];

impl Times {
    fn last(&self) -> MutexGuard<'_, HashMap<Option<u16>, Last>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn told(&self, slot: Option<u16>, answer: InLine) {
        let mut all = self.last();
        let [last, before] = all.entry(slot).or_default();
        *before = last.replace(answer);
    }

    /// The last answer before a grant of this time; at the earliest the one that put its owner into the line.
    pub(crate) fn before(&self, slot: Option<u16>, granted_us: i64, entered: InLine) -> InLine {
        let last = self.last().get(&slot).copied().unwrap_or_default();
        let fits = |told: &InLine| told.sent >= entered.sent && told.store_us <= granted_us;
        last.into_iter().flatten().find(fits).unwrap_or(entered)
    }

    /// The server may be another, with another clock; or nobody waits any more.
    pub(crate) fn forget(&self) {
        self.last().clear();
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
    fn a_grant_is_timed_by_the_last_answer_before_it() {
        let times = Times::default();
        let by = |granted: i64| times.before(None, granted * 1_000_000, told(10)).store_us / 1_000_000;
        assert_eq!(by(15), 10);
        [20, 30, 40].into_iter().for_each(|seconds| times.told(None, told(seconds)));
        assert_eq!([45, 35, 25].map(by), [40, 30, 10]);
        times.told(Some(1), told(44));
        assert_eq!(by(45), 40);
        // Who entered the line since then knows better.
        assert_eq!(times.before(None, 60_000_000, told(50)).store_us, 50_000_000);
        times.forget();
        assert_eq!(by(45), 10);
    }
}
