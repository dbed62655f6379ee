//! Errors that every store has.

use crate::contract::{Error, ErrorKind};

impl Error {
    /// What is asked of a backend after its [`close`](crate::DistributedLock::close).
    pub fn closed() -> Self {
        Self::new(ErrorKind::Closed, "these locks were closed")
    }

    /// What needs a cargo feature of the crate that is off, such as "TLS".
    pub fn not_built_in(what: &str, feature: &str) -> Self {
        let message = format!("{what} is not built in: switch on the cargo feature {feature:?}");
        Self::new(ErrorKind::Unsupported, message)
    }
}
