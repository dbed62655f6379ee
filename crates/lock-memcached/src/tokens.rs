//! What tokens are counted from.
//!
//! A token is the CAS number that memcached gave to the write by which its lock was taken, plus a number of the prefix:
//! what it is *above*. The server draws CAS numbers for all writes from one counter, so a later grant has a higher one.
//! A restart sets that counter back, and forgets the item with the number, as `flush_all` and an eviction do. So who
//! makes that item anew makes it of the server's clock, in microseconds, and nobody is granted a lock before the clock
//! shows the second that was taken for it. What was granted before is below that, as long as
//!
//! - the clock of the server's host is not set back over a restart, and
//! - the server does fewer than a million writes a second, on average, between two times at which that item is made.
//!
//! Whoever takes a lock and would get a token below the server's clock raises the number first. So tokens are never
//! below it.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result, TokenBase};

use crate::server_time::BEHIND;
use crate::wire::Item;

/// The item with what tokens are counted from, as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Base {
    /// It was made just now, and has nothing in it.
    New,
    /// By so much tokens are above CAS numbers, from this second on.
    Set { above: i64, from: u64 },
}

impl Base {
    /// # Errors
    /// [`ErrorKind::Refused`] if it is something else.
    pub(crate) fn read(item: &Item) -> Result<Self> {
        if item.value.is_empty() {
            return Ok(Self::New);
        }
        let text = std::str::from_utf8(&item.value).ok();
        let numbers = text.and_then(|text| text.split_once(' '));
        let numbers = numbers.and_then(|(above, from)| Some((above.parse().ok()?, from.parse().ok()?)));
        let wrong = "at the key of the tokens stands something else; look at it, and delete it";
        numbers.map(|(above, from)| Self::Set { above, from }).ok_or_else(|| Error::new(ErrorKind::Refused, wrong))
    }

    /// Made anew at this second, when this CAS number was drawn.
    pub(crate) fn made(second: u64, cas: u64) -> Self {
        let from = second + BEHIND;
        Self::Set { above: above(from, cas), from }
    }

    /// Raised to this second, when this CAS number was drawn.
    pub(crate) fn raised(second: u64, cas: u64) -> Self {
        Self::Set { above: above(second, cas), from: second }
    }

    /// As it is stored.
    pub(crate) fn text(self) -> String {
        match self {
            Self::New => String::new(),
            Self::Set { above, from } => format!("{above} {from}"),
        }
    }
}

/// Is a token by this number below the server's clock?
pub(crate) fn is_behind(base: i64, second: u64, cas: u64) -> bool {
    base < above(second, cas)
}

fn above(second: u64, cas: u64) -> i64 {
    let number = i64::try_from(cas).unwrap_or(i64::MAX);
    TokenBase::made_at(Duration::from_secs(second), number).above()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Base> {
        Base::read(&Item { value: text.into(), ..Item::default() })
    }

    fn token(base: Base, cas: i64) -> u64 {
        let Base::Set { above, .. } = base else { panic!("it is new") };
        TokenBase::with_above(above).token(cas).unwrap().get()
    }

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        for base in [Base::New, Base::made(1_700_000_000, 7), Base::Set { above: -5, from: 0 }] {
            assert_eq!(read(&base.text()).unwrap(), base);
        }
        for bad in ["x", "1", "1 ", "1 2 3", "1 -2"] {
            assert_eq!(read(bad).unwrap_err().kind(), ErrorKind::Refused, "{bad:?}");
        }
    }

    /// A restart: the counter of CAS numbers begins again, and the clock tells the same second.
    #[test]
    fn tokens_rise_over_a_restart_within_a_second() {
        let second = 1_700_000_000;
        let before = Base::raised(second, 5_000);
        // What was granted by the time that the clock shows the next second, a write each microsecond.
        let last = token(before, 5_000 + 1_999_999);
        let Base::Set { from, .. } = Base::made(second, 3) else { panic!("it is new") };
        assert!(from > second + 1 && token(Base::made(second, 3), 4) > last);
    }

    #[test]
    fn a_base_is_behind_when_the_clock_has_gone_on() {
        let Base::Set { above, from } = Base::made(1_700_000_000, 7) else { panic!("it is new") };
        assert!(!is_behind(above, from, 8) && is_behind(above, from + 1, 8));
        assert!(!is_behind(above, from + 1, 1_000_007) && above < super::above(from + 1, 8));
    }
}
