//! Where a check keeps its marks that is made before the write, and not by what is written to.

mod memory;
#[cfg(feature = "redis")]
mod redis;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod sql;

use std::sync::Arc;

use lock_core::Result;

use crate::Access;

pub use memory::MemoryMarks;
#[cfg(feature = "redis")]
pub use redis::RedisMarks;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub use sql::SqlMarks;

/// Marks, the highest tokens that were seen, by the names of locks.
///
/// A check at the door of a server, such as that of HTTP requests, asks them. They are apart from the data, so such a
/// check does not bind the write that follows it: see the `http` module for what it leaves open.
pub trait Marks: Send + Sync {
    /// Refuses this access if a later holder was seen, and otherwise raises the mark, both in one step. How it does so
    /// is said at [`Access`]. With several slots, either all their marks are raised or none.
    ///
    /// # Errors
    /// - [`ErrorKind::Stale`](lock_core::ErrorKind::Stale): a later holder was seen.
    ///   [`Stale::of`](crate::Stale::of) has both tokens.
    /// - Otherwise as the store of the marks says. The access is not to go on then: nobody knows whether it is late.
    ///
    /// # Cancel safety
    /// After a drop the mark may have been raised, which harms nobody: the access would have done so too. The same is
    /// true after a lost reply. The call may be repeated.
    fn check(&self, access: &Access) -> impl Future<Output = Result<()>> + Send;
}

impl<M: Marks> Marks for Arc<M> {
    fn check(&self, access: &Access) -> impl Future<Output = Result<()>> + Send {
        M::check(self, access)
    }
}
