//! So many permits in a time for all processes together, for programs without a runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Result;

use super::Inner;

/// A handle for a rate; see [`RateLimiter`](crate::RateLimiter).
#[derive(Clone)]
pub struct RateLimiter {
    limiter: crate::RateLimiter,
    inner: Arc<Inner>,
}

impl RateLimiter {
    pub(super) fn new(limiter: crate::RateLimiter, inner: &Arc<Inner>) -> Self {
        Self { limiter, inner: Arc::clone(inner) }
    }

    options! { RateLimiter, limiter, wait: impl Into<Option<Duration>>, block: u32 }

    /// Waits until so many permits are there, or until [`RateLimiter::wait`] is over.
    ///
    /// # Errors
    /// As [`RateLimiter::acquire`](crate::RateLimiter::acquire); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn acquire(&self, permits: u32) -> Result<()> {
        self.inner.block_on(self.limiter.acquire(permits))
    }

    /// Takes so many permits now, or none.
    ///
    /// # Errors
    /// As [`RateLimiter::try_acquire`](crate::RateLimiter::try_acquire); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn try_acquire(&self, permits: u32) -> Result<bool> {
        self.inner.block_on(self.limiter.try_acquire(permits))
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::RateLimiter").field(&self.limiter).finish()
    }
}
