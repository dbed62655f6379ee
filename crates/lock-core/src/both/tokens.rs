//! Which of two stores' tokens a hold has.

use std::str::FromStr;

use crate::contract::{Error, ErrorKind, Result, StoreToken};

/// So far above the old store's tokens the new store's are raised, at least, in microseconds: about nine years.
pub(super) const FAR: u64 = 1 << 48;

/// Whose tokens holds in two stores have: see [`Both`](crate::Both).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokensOf {
    /// `from`: the old store's, until some client has the new store's. While there are clients of the old store alone.
    #[default]
    From,
    /// `to`: the new store's, which are raised above the old store's. While there are clients of the new store alone.
    To,
}

impl FromStr for TokensOf {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "from" => Ok(Self::From),
            "to" => Ok(Self::To),
            _ => Err(Error::new(ErrorKind::Invalid, "tokens are those of a store: write from or to")),
        }
    }
}

impl TokensOf {
    /// The number above which the new store's tokens have to be, if the old store's is this one. It is the same for years
    /// on end, so that hardly ever anything is to be raised.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there is no such number: the tokens were raised on purpose, over and over.
    pub(super) fn floor(self, old: StoreToken) -> Result<Option<StoreToken>> {
        if self == Self::From {
            return Ok(None);
        }
        let floor = (old.get() / FAR + 2) * FAR;
        if floor >= StoreToken::MAX {
            let wrong = format!("the old store's token {} is too high to raise the new store's above it", old.get());
            return Err(Error::new(ErrorKind::Invalid, wrong));
        }
        StoreToken::new(floor).map(Some)
    }

    /// The token of a hold with these two.
    pub(super) fn choose(self, old: StoreToken, new: StoreToken) -> StoreToken {
        let is_far_above = new.get().saturating_sub(old.get()) > FAR / 2;
        if self == Self::To || is_far_above { new } else { old }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(number: u64) -> StoreToken {
        StoreToken::new(number).unwrap()
    }

    /// Microseconds since 1970, in 2026.
    const NOW: u64 = 1_795_000_000_000_000;

    #[test]
    fn what_was_raised_is_known_for_years() {
        for old in [1, FAR - 1, FAR, NOW] {
            let floor = TokensOf::To.floor(token(old)).unwrap().unwrap();
            assert_eq!(TokensOf::From.floor(token(old)).unwrap(), None);
            assert!(floor.get() > old + FAR && floor.get().is_multiple_of(FAR));
            let (later, new) = (token(old + FAR / 2), token(floor.get() + 1));
            assert_eq!([TokensOf::From, TokensOf::To].map(|tokens| tokens.choose(later, new)), [new, new]);
        }
        assert_eq!(TokensOf::To.floor(token(StoreToken::MAX - FAR)).unwrap_err().kind(), ErrorKind::Invalid);
    }

    #[test]
    fn before_that_the_tokens_are_the_old_stores() {
        let year = 365 * 24 * 3600 * 1_000_000;
        for new in [NOW - year, NOW, NOW + year] {
            assert_eq!(TokensOf::From.choose(token(NOW), token(new)), token(NOW));
        }
    }
}
