//! A store that is away, as one acquisition sees it: whoever waits for a lock rides out what ends in time.

use std::time::Duration;

use crate::contract::{Error, ErrorKind, Instant};
use crate::engine::timing::Pauses;

/// From the first failure on.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    since: Option<Instant>,
    pauses: Pauses,
}

impl Outage {
    /// The store failed now; `back` says that it was there since it failed before. How long to wait before the next
    /// request; `None` if the store was away for long enough, or is not away.
    pub(crate) fn pause(&mut self, error: &Error, back: bool, now: Instant, patience: Duration) -> Option<Duration> {
        if !matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown) {
            return None;
        }
        if self.since.is_none() || back {
            (self.since, self.pauses) = (Some(now), Pauses::default());
        }
        let left = patience.saturating_sub(now.saturating_duration_since(self.since?));
        if left.is_zero() {
            return None;
        }
        Some(self.pauses.next().min(left))
    }

    /// Another saw it first.
    pub(crate) fn heard_of(&mut self, since: Option<Instant>) {
        self.since = since.or(self.since);
    }

    pub(crate) fn since(&self) -> Option<Instant> {
        self.since
    }

    /// The error at the end of it.
    pub(crate) fn told(&self, error: Error, now: Instant) -> Error {
        let away = self.since.map(|since| now.saturating_duration_since(since)).unwrap_or_default();
        if away.as_secs() == 0 { error } else { error.after_outage(Duration::from_secs(away.as_secs())) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    fn at(seconds: u64) -> Instant {
        Instant::from_origin(Duration::from_secs(seconds))
    }

    #[test]
    fn an_outage_is_ridden_out_for_so_long_and_no_longer() {
        let (mut outage, away) = (Outage::default(), Error::new(ErrorKind::Unavailable, "away"));
        let first = outage.pause(&away, false, at(102), PATIENCE).unwrap();
        assert!(first < Pauses::FIRST);
        assert!(outage.pause(&away, false, at(111), PATIENCE).unwrap() > first / 2);
        assert_eq!(outage.pause(&away, false, at(112), PATIENCE), None);
        assert_eq!(outage.told(away.clone(), at(112)).to_string(), "store unavailable: for 10s now: away");
        // It stood in line meanwhile.
        assert!(outage.pause(&away, true, at(123), PATIENCE).is_some());
    }

    #[test]
    fn what_is_no_outage_is_told_at_once() {
        let refused = Error::new(ErrorKind::Refused, "no");
        assert_eq!(Outage::default().pause(&refused, false, at(2), PATIENCE), None);
        assert_eq!(Outage::default().told(refused, at(2)).to_string(), "refused by the store: no");
        let away = Error::new(ErrorKind::Unknown, "cut");
        assert_eq!(Outage::default().pause(&away, false, at(2), Duration::ZERO), None);
    }
}
