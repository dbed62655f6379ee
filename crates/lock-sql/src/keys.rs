//! What all the databases here share: how a lock's row is called, and what its columns mean.

use std::time::Duration;

use lock_core::{Holder, LockName, Mode, OwnerId, Reserved, Result, Slots, StoreToken};

use crate::modes::as_only_reader;

/// The target of the event that each statement of a request is, when it is sent.
pub(crate) const SENT: &str = "lock_sql::sent";

/// The same of those that delete old rows beside the requests.
pub(crate) const SWEPT: &str = "lock_sql::swept";

/// What all keys of some locks begin with.
#[derive(Clone, Debug)]
pub(crate) struct Prefix(String);

impl Prefix {
    /// Escaped, so that the first slash of a key ends its prefix and no two pairs of prefix and name share a key.
    pub(crate) fn new(prefix: &str) -> Self {
        Self(prefix.replace('%', "%25").replace('/', "%2F") + "/")
    }

    pub(crate) fn key(&self, name: &LockName) -> String {
        format!("{}{name}", self.0)
    }

    /// The key of the rate limiter of this name, whose row is among those of locks. No prefix has a `%` before these letters, so it
    /// is no lock's.
    pub(crate) fn rate_key(&self, name: &LockName) -> String {
        format!("{}%rate/{name}", self.0.trim_end_matches('/'))
    }

    pub(crate) fn name(&self, key: &str) -> Option<LockName> {
        LockName::new(key.strip_prefix(&self.0)?).ok()
    }

    /// The first key of all whose names begin with `names`, and the first one behind them. Not a pattern: in a name,
    /// `%` and `_` are what they are.
    pub(crate) fn range(&self, names: &str) -> (String, String) {
        let from = format!("{}{names}", self.0);
        let mut end = from.clone();
        while let Some(last) = end.pop() {
            // The range skips what lies between two characters; UTF-8 sorts as the characters do.
            if let Some(next) = (last..=char::MAX).nth(1) {
                end.push(next);
                break;
            }
        }
        (from, end)
    }
}

/// A lease in microseconds; one too long for that is as good as endless.
pub(crate) fn micros(lease: Duration) -> i64 {
    // An expiry is a sum of a time and a lease: it must fit too.
    i64::try_from(lease.as_micros()).unwrap_or(i64::MAX).min(i64::MAX / 4)
}

/// The time of so many microseconds; none if they are negative.
pub(crate) fn duration(micros: i64) -> Duration {
    Duration::from_micros(micros.try_into().unwrap_or(0))
}

/// What came of a reservation, by the microseconds until whoever asked goes on.
pub(crate) fn reserved(fits: bool, wait_us: i64) -> Reserved {
    if fits { Reserved::In(duration(wait_us)) } else { Reserved::TooLate(duration(wait_us)) }
}

/// A holder as its row has it, with the microseconds since its grant and until the end of its lease.
pub(crate) fn holder(owner: &str, held_us: i64, left_us: i64, token: i64) -> Result<Holder> {
    let (owner, reads) = as_only_reader(owner).map_or((owner, false), |reader| (reader, true));
    let owner = OwnerId::from_store(owner);
    let holder = Holder::new(owner, StoreToken::new(token as u64)?, duration(held_us), duration(left_us));
    Ok(if reads { holder.with_mode(Mode::Shared, Slots::default()) } else { holder })
}

/// The owner as it stands in the store: whose hold is kept is no owner any more.
pub(crate) fn in_the_store(holder: &Holder) -> OwnerId {
    if holder.kept { holder.owner.kept() } else { holder.owner.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_told_apart() {
        let name = |text| LockName::new(text).unwrap();
        assert_eq!(Prefix::new("a/b").key(&name("c")), "a%2Fb/c");
        assert_ne!(Prefix::new("a/b").key(&name("c")), Prefix::new("a").key(&name("b/c")));
        assert_eq!(Prefix::new("a").name("a/b/c"), Some(name("b/c")));
        assert_eq!(Prefix::new("a").name("b/c"), None);
        let rate = Prefix::new("a").rate_key(&name("b"));
        assert_eq!(Prefix::new("a").name(&rate), None);
        assert_ne!(Prefix::new("a%rate").key(&name("b")), rate);
    }

    #[test]
    fn a_range_ends_behind_all_that_begin_so() {
        for (names, end) in [
            ("a", "t/b"),
            ("a%", "t/a&"),
            ("a\u{10ffff}", "t/b"),
            ("\u{d7ff}", "t/\u{e000}"),
            ("\u{10ffff}", "t0"),
            ("", "t0"),
        ] {
            assert_eq!(Prefix::new("t").range(names), (format!("t/{names}"), end.to_owned()));
        }
        let (from, end) = Prefix::new("t").range("é");
        assert!("t/é" >= from.as_str() && "t/éz" < end.as_str());
    }
}
