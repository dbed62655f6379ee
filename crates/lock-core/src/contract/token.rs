//! Fencing tokens: the numbers that order grants, and a helper for whoever checks them.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

use crate::contract::{Error, ErrorKind, Result};

/// The number by which a store orders the grants of one name: an etcd revision, a ZooKeeper `czxid`, a counter.
///
/// At most [`StoreToken::MAX`], so that a [`FencingToken`] made of it fits a signed 64-bit column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreToken(u64);

impl StoreToken {
    /// The highest number a store may give.
    pub const MAX: u64 = (1 << 55) - 1;

    /// No grant's number.
    pub(crate) const NONE: Self = Self(0);

    /// Takes the store's number.
    ///
    /// # Errors
    /// [`ErrorKind::Unknown`] above [`StoreToken::MAX`]: the store did grant, but the grant cannot be used.
    pub fn new(number: u64) -> Result<Self> {
        if number > Self::MAX {
            return Err(Error::new(
                ErrorKind::Unknown,
                format!("the store's token {number} is above {}, the highest that fits", Self::MAX),
            ));
        }
        Ok(Self(number))
    }

    /// The store's number.
    pub const fn get(self) -> u64 {
        self.0
    }
}

/// A number that is higher at every later acquisition of the same name. Pass it to what the lock protects, and let that
/// refuse a token lower than the highest it has seen: then a holder that was paused and does not know that it lost the
/// lock can do no harm.
///
/// It is the store's number × 256 plus how often the grant was handed over inside the process, and fits a signed 64-bit
/// column.
///
/// A format that serde knows has it as that number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(u64);

impl FencingToken {
    /// The token of a grant by the store.
    pub const fn new(store: StoreToken) -> Self {
        Self::handed_over(store, 0)
    }

    /// The store's number above which every fencing token is above `floor`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for one above 2^62: a store that counts from there has no room left.
    pub(crate) fn store_of(floor: u64) -> Result<StoreToken> {
        if floor > 1 << 62 {
            let message = format!("tokens cannot be raised above {floor}: {} is the highest floor", 1_u64 << 62);
            return Err(Error::new(ErrorKind::Invalid, message));
        }
        Ok(StoreToken(floor >> 8))
    }

    /// The token of the holder to whom a grant was handed over as the `turn`th.
    pub(crate) const fn handed_over(store: StoreToken, turn: u8) -> Self {
        Self(store.0 << 8 | turn as u64)
    }

    /// The token as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The store's own part, for those who guard writes in the same store.
    pub const fn store(self) -> StoreToken {
        StoreToken(self.0 >> 8)
    }
}

impl From<FencingToken> for u64 {
    fn from(token: FencingToken) -> u64 {
        token.0
    }
}

impl From<FencingToken> for i64 {
    /// Never wraps: see [`StoreToken::MAX`].
    fn from(token: FencingToken) -> i64 {
        token.0 as i64
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What a protected resource does with tokens, in one value: it lets a token pass that is not older than any it has
/// seen.
///
/// Reads must present the token too: a writer that read under a newer token must not be overtaken by an older one.
/// A resource that outlives the process keeps the highest token with its data, compared and written in one step.
#[derive(Debug, Default)]
pub struct Fence(AtomicU64);

impl Fence {
    /// A fence that has seen no token yet.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Lets `token`, a [`FencingToken`] or what came of one over a network, pass, and from now on none that is older.
    ///
    /// # Errors
    /// [`StaleToken`] with both numbers if a newer one was seen.
    pub fn check(&self, token: impl Into<u64>) -> std::result::Result<(), StaleToken> {
        let token = token.into();
        let newest = self.0.fetch_max(token, Ordering::AcqRel);
        if token < newest { Err(StaleToken { presented: token, newest }) } else { Ok(()) }
    }
}

/// A token was presented that is older than one already seen: its holder lost the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("fencing token {presented} is stale: {newest} was seen already")]
pub struct StaleToken {
    /// The token that was refused.
    pub presented: u64,
    /// The newest one seen.
    pub newest: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_kept_over_the_whole_range() {
        let numbers = [0, 1, 1 << 31, (1 << 31) + 1, 1 << 53, (1 << 53) + 1, StoreToken::MAX];
        for pair in numbers.windows(2) {
            let [low, high] = [pair[0], pair[1]].map(|n| FencingToken::new(StoreToken::new(n).unwrap()));
            assert!(low < high && i64::from(low) < i64::from(high) && i64::from(low) >= 0);
            assert_eq!(high.store().get(), pair[1]);
        }
        assert!(StoreToken::new(StoreToken::MAX + 1).is_err());
    }

    #[test]
    fn a_fence_names_both_tokens() {
        let fence = Fence::new();
        fence.check(7_u64).unwrap();
        fence.check(7_u64).unwrap();
        assert_eq!(fence.check(6_u64), Err(StaleToken { presented: 6, newest: 7 }));
    }
}
