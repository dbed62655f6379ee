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

    /// What needs a cargo feature of the crate that is off, such as "TLS".
    pub fn not_built_in(what: &str, feature: &str) -> Self {
        let message = format!("{what} is not built in: switch on the cargo feature {feature:?}");
        Self::new(ErrorKind::Unsupported, message)
    }
}
