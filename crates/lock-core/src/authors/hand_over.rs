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
        self.valid_until_by(None, granted_us, heard, lease)
    }

    /// The same by a later request of this client's, of which it knows as much, whoever that was for. The rates of two
    /// clocks differ, and what is between this request and the grant is seconds, where a waiter may have stood in line for
    /// days. The grant may have been made before it, but never before the waiter's own request was sent.
    pub fn valid_until_by(&self, later: Option<Self>, granted_us: i64, heard: Instant, lease: Duration) -> Instant {
        let Self { sent, store_us } = later.unwrap_or(*self);
        let between = Duration::from_micros(granted_us.abs_diff(store_us));
        let granted = if granted_us >= store_us { sent + between } else { sent.saturating_sub(between) };
        granted.max(self.sent).min(heard) + lease
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

    /// The store's clock is a thousandth too fast, and the message comes late, as where the process was stopped.
    #[test]
    fn a_long_wait_adds_no_drift_up() {
        let day = 86_400;
        let store_us = |seconds: u64| 1_000_000_000 + i64::try_from((seconds - 10) * 1_001_000).unwrap();
        let look = InLine { sent: at(day), store_us: store_us(day) };
        let (granted, heard) = (store_us(day + 3), at(day + 500));
        assert_eq!(ASKED().valid_until(granted, heard, LEASE), at(day + 3) + Duration::from_micros(86_393_000) + LEASE);
        let valid_until = ASKED().valid_until_by(Some(look), granted, heard, LEASE);
        assert_eq!(valid_until, at(day + 3) + Duration::from_millis(3) + LEASE);
        // It was granted before that look, of which the answer came first.
        let valid_until = ASKED().valid_until_by(Some(look), store_us(day - 3), heard, LEASE);
        assert_eq!(valid_until, at(day - 3).saturating_sub(Duration::from_millis(3)) + LEASE);
    }

    #[test]
    fn a_grant_never_counts_from_before_the_sending() {
        let look = InLine { sent: at(20), store_us: 2_000_000_000 };
        assert_eq!(ASKED().valid_until_by(Some(look), 0, at(25), LEASE), at(10) + LEASE);
        // The store's clock was set back.
        assert_eq!(ASKED().valid_until(999_000_000, at(17), LEASE), at(10) + LEASE);
        assert_eq!(ASKED().valid_until(i64::MIN, at(17), LEASE), at(10) + LEASE);
    }
}
