//! Errors that every store has.

use crate::contract::{Error, ErrorKind};

impl Error {
    /// What is asked of a backend after its [`close`](crate::DistributedLock::close).
    pub fn closed() -> Self {
        Self::new(ErrorKind::Closed, "these locks were closed")
    }

    /// The error of a request of which an earlier part took effect, or may have: it is not sure any more that nothing was
    /// done, so that what is refused is [`Unknown`](ErrorKind::Unknown).
    #[must_use]
    pub fn after_something_was_done(self) -> Self {
        if self.is_refused() { self.of_kind(ErrorKind::Unknown) } else { self }
    }

    /// A hold was to be kept and is not there, and an earlier request for that was not answered: it may have been kept by
    /// that one, and be over by now.
    pub fn kept_or_not() -> Self {
        let message = "the first request was not answered: the hold was kept by it until now, or was over before";
        Self::new(ErrorKind::Unknown, message)
    }

    /// What needs a cargo feature of the crate that is off, such as "TLS".
    pub fn not_built_in(what: &str, feature: &str) -> Self {
        let message = format!("{what} is not built in: switch on the cargo feature {feature:?}");
        Self::new(ErrorKind::Unsupported, message)
    }
}
