//! Until when a lock is ours that its last holder handed to us.

use std::time::Duration;

use crate::contract::Instant;

/// What a waiter's request to stand in line was answered, by which it tells when a grant that comes later began.
#[derive(Clone, Copy, Debug)]
pub struct InLine {
    /// When the request was sent, by our clock.
    pub sent: Instant,
    /// What time it was for the store when it did the request, in microseconds.
    pub store_us: i64,
}

impl InLine {
    /// Until when a lock is valid that the store gave to this waiter at `granted_us` by its clock, for so long; and that
    /// we knew of at `heard`.
    ///
    /// Nobody asked for such a grant at the moment it was made, so that there is no sending to count it from, as rule 5
    /// of the [contract](crate::DistributedLock#the-contract) has it. The message of it has the store's time, and so
    /// had the answer to the request. The request was done after it was sent: on our clock, the grant was made no
    /// sooner than that much after the sending as the store's clock says lay between them. (A message may come late,
    /// so that its arrival says too little.) Should the store's clock have been set meanwhile, forward, the lock would
    /// seem to be valid for longer than it is; but in any case it was granted before we heard of it.
    pub fn valid_until(&self, granted_us: i64, heard: Instant, lease: Duration) -> Instant {
        let later = u64::try_from(granted_us.saturating_sub(self.store_us)).unwrap_or_default();
        (self.sent + Duration::from_micros(later)).min(heard) + lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    /// Sent at 10 s by our clock, done at 1000 s by the store's.
    const ASKED: fn() -> InLine = || InLine { sent: at(10), store_us: 1_000_000_000 };

    #[test]
    fn a_grant_counts_from_the_sending_and_the_time_in_line() {
        assert_eq!(ASKED().valid_until(1_005_000_000, at(17), LEASE), at(15) + LEASE);
        // However late we hear of it.
        assert_eq!(ASKED().valid_until(1_005_000_000, at(500), LEASE), at(15) + LEASE);
    }

    #[test]
    fn a_grant_never_counts_from_after_its_arrival() {
        // The store's clock was set forward by an hour.
        assert_eq!(ASKED().valid_until(4_605_000_000, at(17), LEASE), at(17) + LEASE);
        assert_eq!(ASKED().valid_until(i64::MAX, at(17), LEASE), at(17) + LEASE);
    }

    #[test]
    fn a_grant_never_counts_from_before_the_sending() {
        // The store's clock was set back.
        assert_eq!(ASKED().valid_until(999_000_000, at(17), LEASE), at(10) + LEASE);
        assert_eq!(ASKED().valid_until(i64::MIN, at(17), LEASE), at(10) + LEASE);
    }
}
