//! Several locks at once, for programs without a runtime.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Leases, LockName, Result};

use super::Inner;

/// A handle for several locks that are taken together; see [`All`](crate::All).
#[derive(Clone)]
pub struct All {
    all: crate::All,
    inner: Arc<Inner>,
}

impl All {
    pub(super) fn new(all: crate::All, inner: &Arc<Inner>) -> Self {
        Self { all, inner: Arc::clone(inner) }
    }

    options! {
        All, all,
        lease: Duration, wait: impl Into<Option<Duration>>, outage: Duration, max_hold: impl Into<Option<Duration>>,
        fair: bool, token_floor: u64, hand_overs: u8, hand_over_for: Duration
    }

    /// And this lock, to be read; see [`All::and_read`](crate::All::and_read).
    pub fn and_read<N>(mut self, name: N) -> Self
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        self.all = self.all.and_read(name);
        self
    }

    /// And so many of the permits of this semaphore; see [`All::and_permits`](crate::All::and_permits).
    pub fn and_permits<N>(mut self, name: N, take: u32, of: u32) -> Self
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        self.all = self.all.and_permits(name, take, of);
        self
    }

    /// Waits until all locks are granted, or until [`All::wait`] is over.
    ///
    /// # Errors
    /// As [`All::lock`](crate::All::lock); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn lock(&self) -> Result<AllGuard> {
        let guard = self.inner.block_on(self.all.lock())?;
        Ok(AllGuard { guard, inner: Arc::clone(&self.inner) })
    }

    /// Takes all locks now or none.
    ///
    /// # Errors
    /// As [`All::try_lock`](crate::All::try_lock); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn try_lock(&self) -> Result<Option<AllGuard>> {
        let guard = self.inner.block_on(self.all.try_lock())?;
        Ok(guard.map(|guard| AllGuard { guard, inner: Arc::clone(&self.inner) }))
    }

    /// Runs `section` with all locks held. Nothing can end a section that blocks: one that is long checks its
    /// [leases](Leases::check) between its steps.
    ///
    /// # Errors
    /// As [`All::lock`]; [`ErrorKind::Lost`] if a lock was not held to the section's end. What the section did may stand,
    /// and may have overlapped with another holder unless the resource checks the fencing token.
    ///
    /// # If the reply is lost
    /// A release whose reply is lost is repeated in the background: the section was covered to its end, and its result is
    /// returned.
    pub fn run<T>(&self, section: impl FnOnce(Leases) -> T) -> Result<T> {
        let guard = self.lock()?;
        let output = section(guard.leases());
        match guard.unlock() {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            _ => Ok(output),
        }
    }
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::All").field(&self.all).finish()
    }
}

/// Several locks that are held together; see [`AllGuard`](crate::AllGuard). What can be asked about them is on
/// [`Leases`], to which this derefs. Dropped, they are released in the background.
#[must_use = "the locks are released when their guard is dropped"]
pub struct AllGuard {
    guard: crate::AllGuard,
    inner: Arc<Inner>,
}

impl AllGuard {
    /// A view of the holds that other threads can have.
    pub fn leases(&self) -> Leases {
        self.guard.leases()
    }

    /// Releases all locks.
    ///
    /// # Errors
    /// As [`AllGuard::unlock`](crate::AllGuard::unlock). [`ErrorKind::Invalid`] inside a tokio runtime: the locks are then
    /// released in the background.
    pub fn unlock(self) -> Result<()> {
        self.inner.block_on(self.guard.unlock())
    }

    /// Waits so long for the loss of one of the locks. Is one lost?
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn lost_within(&self, time: Duration) -> Result<bool> {
        self.inner.block_on(async { Ok(tokio::time::timeout(time, self.guard.lost()).await.is_ok()) })
    }
}

impl Deref for AllGuard {
    type Target = Leases;

    fn deref(&self) -> &Leases {
        &self.guard
    }
}

impl fmt::Debug for AllGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::AllGuard").field(&self.guard).finish()
    }
}
