//! Errors that every store has.

use crate::contract::{Error, ErrorKind};

impl Error {
    /// What is asked of a backend after its [`close`](crate::DistributedLock::close).
    pub fn closed() -> Self {
        Self::new(ErrorKind::Closed, "these locks were closed")
    }
}
