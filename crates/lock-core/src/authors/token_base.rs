//! Tokens of stores that count for themselves.

use std::time::Duration;

use crate::contract::{Result, StoreToken};

/// What makes tokens of the numbers of a store that counts for itself: they begin above the clock, as those of every
/// other store do. Then a resource that has seen one store's tokens accepts the next store's.
///
/// It is made once for a prefix, kept in the store, and never lowered: else tokens would not rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBase(i64);

impl TokenBase {
    /// So far behind the clock, a base is raised though others use it.
    pub const FAR_BEHIND: Duration = Duration::from_secs(10);

    /// The base that was made when the store counted `number`, at this time since 1970.
    pub fn made_at(time: Duration, number: i64) -> Self {
        Self(i64::try_from(time.as_micros()).unwrap_or(i64::MAX).saturating_sub(number))
    }

    /// By how much tokens are above the store's numbers, to be kept beside what was numbered from it.
    pub fn above(self) -> i64 {
        self.0
    }

    /// The base by which tokens are so much [above](Self::above) the store's numbers.
    pub fn with_above(above: i64) -> Self {
        Self(above)
    }

    /// Is a base to be raised to the clock that is behind it by so much, when a client first uses it? If nobody else uses
    /// it: the application may have been elsewhere meanwhile, and had higher tokens there. And if it is far behind, though
    /// others then have to read it anew.
    pub fn is_stale(behind: Duration, alone: bool) -> bool {
        behind > Self::FAR_BEHIND || alone && !behind.is_zero()
    }

    /// The token of what the store numbered so.
    ///
    /// # Errors
    /// As [`StoreToken::new`].
    pub fn token(self, number: i64) -> Result<StoreToken> {
        StoreToken::new(u64::try_from(self.0.saturating_add(number)).unwrap_or_default())
    }

    /// The store's number of what has this token.
    pub fn number(self, token: StoreToken) -> i64 {
        (token.get() as i64).saturating_sub(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_of_a_base_begin_above_its_time_and_rise() {
        let base = TokenBase::made_at(Duration::from_secs(1_700_000_000), 5000);
        let (first, next) = (base.token(5001).unwrap(), base.token(5002).unwrap());
        assert_eq!(first.get(), 1_700_000_000_000_001);
        assert!(first < next);
        assert_eq!(base.number(next), 5002);
        assert!(TokenBase::made_at(Duration::MAX, 0).token(1).is_err());
    }

    #[test]
    fn a_base_behind_the_clock_is_stale_to_who_is_alone_and_far_behind_to_anybody() {
        let (little, far) = (Duration::from_micros(1), TokenBase::FAR_BEHIND + Duration::from_micros(1));
        assert!(TokenBase::is_stale(little, true) && !TokenBase::is_stale(little, false));
        assert!(TokenBase::is_stale(far, false) && !TokenBase::is_stale(Duration::ZERO, true));
    }
}
