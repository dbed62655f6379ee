//! What time it is for the server, as far as it tells.
//!
//! memcached counts whole seconds: a task of its own sets a number once in a second, by a clock that is never set back
//! while the server runs. So what it tells is up to two seconds behind. After a pause it is behind by as much as that
//! lasted, until that task had its turn. A request that waited in front of a paused server may be done before that.
//! So no lease is told to the server as a time from now: an item expires at a second of this clock that the client
//! names, by all that it was told before.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Instant, Result};

/// By how many seconds what the server tells may be behind its own clock.
pub(crate) const BEHIND: u64 = 2;

/// For how long a reading counts. After that the two clocks may have drifted apart.
const LASTING: Duration = Duration::from_secs(60);

/// The last second that memcached knows: it reads such numbers with 32 bits.
pub(crate) const LAST: u64 = i32::MAX as u64;

/// What a server told of its clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ServerTime {
    /// The best reading of this minute and of the last one: by how much the server's clock is above ours, at least.
    ahead: [Option<i64>; 2],
    /// When this minute began.
    began: Option<Instant>,
}

impl ServerTime {
    /// The server told this second, and we heard of it then.
    pub(crate) fn heard(&mut self, second: u64, at: Instant) {
        if self.began.is_none_or(|began| at.saturating_duration_since(began) > LASTING) {
            self.ahead = [None, self.ahead[0]];
            self.began = Some(at);
        }
        let ahead = microseconds(Duration::from_secs(second)) - microseconds(at.since_origin());
        self.ahead[0] = self.ahead[0].max(Some(ahead));
    }

    /// The second that it was at the server at this time, or a later one than that.
    pub(crate) fn second_at(&self, at: Instant) -> u64 {
        let ahead = self.ahead[0].max(self.ahead[1]);
        let time = ahead.map_or(0, |ahead| ahead.saturating_add(microseconds(at.since_origin())));
        u64::try_from(time / 1_000_000).unwrap_or_default()
    }
}

/// When an item has to expire, so that it stands for this time, if it was at most this second when that began.
///
/// # Errors
/// [`ErrorKind::Refused`] past the [last](LAST) second.
pub(crate) fn expiry(second: u64, time: Duration) -> Result<u64> {
    let whole = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    let until = second.saturating_add(BEHIND).saturating_add(whole);
    if until < LAST {
        return Ok(until);
    }
    let wrong = "memcached's clock ends in 2038, before this lease does; look at the server's clock";
    Err(Error::new(ErrorKind::Refused, wrong))
}

fn microseconds(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(milliseconds))
    }

    #[test]
    fn a_clock_that_a_pause_left_behind_is_known_from_before() {
        let mut time = ServerTime::default();
        assert_eq!(time.second_at(at(9_000)), 0);
        time.heard(1_000, at(5_000));
        // It was paused, and tells what it knew before.
        time.heard(1_000, at(12_500));
        assert_eq!(time.second_at(at(12_500)), 1_007);
        // What is heard later tells of what was before.
        time.heard(1_010, at(13_000));
        assert_eq!(time.second_at(at(12_500)), 1_009);
    }

    #[test]
    fn old_readings_count_no_more() {
        let mut time = ServerTime::default();
        time.heard(1_000, at(0));
        // The server's clock is slower than ours, by far.
        for minute in 1..=4 {
            time.heard(1_000 + 58 * minute, at(61_000 * minute));
        }
        assert_eq!(time.second_at(at(244_000)), 1_000 + 58 * 3 + 61);
    }

    #[test]
    fn an_item_stands_for_longer_than_its_lease() {
        assert_eq!(expiry(1_000, Duration::from_millis(1)).unwrap(), 1_003);
        assert_eq!(expiry(1_000, Duration::from_secs(30)).unwrap(), 1_032);
        for too_long in [Duration::MAX, Duration::from_secs(LAST)] {
            assert!(expiry(1_000, too_long).is_err());
        }
    }
}
