//! A number of permits that all processes share, for programs without a runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Lease, Result};

use super::{Inner, LockGuard};

/// A handle for a semaphore; see [`Semaphore`](crate::Semaphore).
#[derive(Clone)]
pub struct Semaphore {
    semaphore: crate::Semaphore,
    inner: Arc<Inner>,
}

impl Semaphore {
    pub(super) fn new(semaphore: crate::Semaphore, inner: &Arc<Inner>) -> Self {
        Self { semaphore, inner: Arc::clone(inner) }
    }

    options! {
        Semaphore, semaphore,
        lease: Duration, wait: impl Into<Option<Duration>>, outage: Duration, max_hold: impl Into<Option<Duration>>,
        fair: bool, token_floor: u64, hand_overs: u8, hand_over_for: Duration
    }

    /// Waits for a permit, or until [`Semaphore::wait`] is over.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`](crate::Semaphore::acquire); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn acquire(&self) -> Result<LockGuard> {
        self.acquire_many(1)
    }

    /// Waits for so many permits, or until [`Semaphore::wait`] is over. They are one hold.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_many`](crate::Semaphore::acquire_many); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn acquire_many(&self, permits: u32) -> Result<LockGuard> {
        LockGuard::taken(&self.inner, self.semaphore.acquire_many(permits))
    }

    /// Takes a permit now or not at all.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire`](crate::Semaphore::try_acquire); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn try_acquire(&self) -> Result<Option<LockGuard>> {
        self.try_acquire_many(1)
    }

    /// Takes so many permits now or none.
    ///
    /// # Errors
    /// As [`Semaphore::try_acquire_many`](crate::Semaphore::try_acquire_many); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio
    /// runtime.
    pub fn try_acquire_many(&self, permits: u32) -> Result<Option<LockGuard>> {
        LockGuard::tried(&self.inner, self.semaphore.try_acquire_many(permits))
    }

    /// Runs `section` with a permit: as [`Mutex::run`](super::Mutex::run).
    ///
    /// # Errors
    /// As [`Mutex::run`](super::Mutex::run).
    pub fn run<T>(&self, section: impl FnOnce(Lease) -> T) -> Result<T> {
        self.acquire()?.section(section)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Semaphore").field(&self.semaphore).finish()
    }
}
