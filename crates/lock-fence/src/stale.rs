//! The refusal of a late access.

use std::error::Error as _;

use lock_core::{Error, ErrorKind};

/// An access was refused: a later holder of the lock came before it.
///
/// It is the source of an [`Error`] of kind [`ErrorKind::Stale`], where [`Stale::of`] finds it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{resource}: fencing token {presented} is stale: {newest} was seen already")]
pub struct Stale {
    /// What was protected: the lock's name, a file, or a path.
    pub resource: String,
    /// The token that was refused.
    pub presented: u64,
    /// The highest token that was seen.
    pub newest: u64,
}

impl Stale {
    /// The refusal that this error tells of, if it does.
    pub fn of(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }
}

impl From<Stale> for Error {
    fn from(stale: Stale) -> Self {
        let (presented, newest) = (stale.presented, stale.newest);
        let message = format!(
            "fencing token {presented} was refused, as {newest} was seen already: the lock was lost; begin again with a \
             new acquisition"
        );
        Self::new(ErrorKind::Stale, message).with_source(stale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_names_both_tokens() {
        let stale = Stale { resource: "orders/42".to_owned(), presented: 7, newest: 9 };
        let error = Error::from(stale.clone());
        assert_eq!(error.kind(), ErrorKind::Stale);
        assert!(error.to_string().contains("token 7 was refused, as 9 was seen"), "{error}");
        assert_eq!(Stale::of(&error), Some(&stale));
        assert_eq!(Stale::of(&Error::new(ErrorKind::Lost, "")), None);
    }
}
