//! A lock that many read and one writes, for programs without a runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Lease, Result};

use super::{Inner, LockGuard};

/// A handle for a lock that any number hold together to read, or one alone to write; see [`RwLock`](crate::RwLock).
#[derive(Clone)]
pub struct RwLock {
    lock: crate::RwLock,
    inner: Arc<Inner>,
}

impl RwLock {
    pub(super) fn new(lock: crate::RwLock, inner: &Arc<Inner>) -> Self {
        Self { lock, inner: Arc::clone(inner) }
    }

    options! {
        RwLock, lock,
        lease: Duration, wait: impl Into<Option<Duration>>, outage: Duration, max_hold: impl Into<Option<Duration>>,
        fair: bool, token_floor: u64, hand_overs: u8, hand_over_for: Duration
    }

    /// Waits until it may read, or until [`RwLock::wait`] is over.
    ///
    /// # Errors
    /// As [`RwLock::read`](crate::RwLock::read); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn read(&self) -> Result<LockGuard> {
        LockGuard::taken(&self.inner, self.lock.read())
    }

    /// Waits until it may write, or until [`RwLock::wait`] is over.
    ///
    /// # Errors
    /// As [`RwLock::read`].
    pub fn write(&self) -> Result<LockGuard> {
        LockGuard::taken(&self.inner, self.lock.write())
    }

    /// Reads now or not at all.
    ///
    /// # Errors
    /// As [`RwLock::try_read`](crate::RwLock::try_read); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn try_read(&self) -> Result<Option<LockGuard>> {
        LockGuard::tried(&self.inner, self.lock.try_read())
    }

    /// Writes now or not at all.
    ///
    /// # Errors
    /// As [`RwLock::try_read`].
    pub fn try_write(&self) -> Result<Option<LockGuard>> {
        LockGuard::tried(&self.inner, self.lock.try_write())
    }

    /// Runs `section` while it may read: as [`Mutex::run`](super::Mutex::run).
    ///
    /// # Errors
    /// As [`Mutex::run`](super::Mutex::run).
    pub fn run_read<T>(&self, section: impl FnOnce(Lease) -> T) -> Result<T> {
        self.read()?.section(section)
    }

    /// Runs `section` while it may write: as [`Mutex::run`](super::Mutex::run).
    ///
    /// # Errors
    /// As [`Mutex::run`](super::Mutex::run).
    pub fn run_write<T>(&self, section: impl FnOnce(Lease) -> T) -> Result<T> {
        self.write()?.section(section)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::RwLock").field(&self.lock).finish()
    }
}
