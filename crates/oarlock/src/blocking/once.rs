//! A job that runs once, on one machine of many.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{ErrorKind, Lease, OnceRun, Result, Skipped};

use super::Inner;

/// A job which one of many processes runs; see [`Once`](crate::Once).
///
/// ```
/// # fn main() -> oarlock::Result<()> {
/// use oarlock::OnceRun;
/// let locks = oarlock::blocking::connect("memory:jobs")?;
/// let nightly = locks.once("nightly").slot("2026-11-22");
/// assert_eq!(nightly.run(|_| "sent")?, OnceRun::Ran("sent"));
/// let OnceRun::Skipped(skipped) = nightly.run(|_| "sent")? else { unreachable!() };
/// assert!(skipped.done);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "it is run by `run`, `try_run` or `begin`"]
pub struct Once {
    once: crate::Once,
    inner: Arc<Inner>,
}

impl Once {
    pub(super) fn new(once: crate::Once, inner: &Arc<Inner>) -> Self {
        Self { once, inner: Arc::clone(inner) }
    }

    options! {
        Once, once,
        slot: impl Into<String>, at_least: Duration, at_most: Duration, keep_on_failure: bool, lease: Duration
    }

    /// Runs `section` unless another runs it, or has done so. Nothing can end a section that blocks: one that is long
    /// checks its [lease](Lease::check) between its steps, most of all with [`Once::at_most`].
    ///
    /// # Errors
    /// As [`Once::run`](crate::Once::run): [`ErrorKind::Lost`] if the lock was not held to the section's end, and then
    /// another may run it. [`ErrorKind::Invalid`] inside a tokio runtime.
    ///
    /// # If the reply is lost
    /// As [`Once::run`](crate::Once::run).
    pub fn run<T>(&self, section: impl FnOnce(Lease) -> T) -> Result<OnceRun<T>> {
        self.attempt(section, |_| false)
    }

    /// The same with a section that may fail: see [`Once::keep_on_failure`](crate::Once::keep_on_failure). One that panics
    /// has failed.
    ///
    /// # Errors
    /// As [`Once::run`]. The section's own error is part of the answer.
    pub fn try_run<T, E>(
        &self,
        section: impl FnOnce(Lease) -> std::result::Result<T, E>,
    ) -> Result<OnceRun<std::result::Result<T, E>>> {
        self.attempt(section, std::result::Result::is_err)
    }

    fn attempt<T>(&self, section: impl FnOnce(Lease) -> T, failed: impl FnOnce(&T) -> bool) -> Result<OnceRun<T>> {
        let guard = match self.begin()? {
            Ok(guard) => guard,
            Err(skipped) => return Ok(OnceRun::Skipped(skipped)),
        };
        let output = section(guard.lease());
        match if failed(&output) { guard.failed() } else { guard.done() } {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            // It is said again in the background.
            _ => Ok(OnceRun::Ran(output)),
        }
    }

    /// Begins it unless another runs it, or has done so; for a job that is no section.
    ///
    /// # Errors
    /// As [`Once::begin`](crate::Once::begin); [`ErrorKind::Invalid`] inside a tokio runtime.
    ///
    /// # If the reply is lost
    /// As [`Once::begin`](crate::Once::begin).
    pub fn begin(&self) -> Result<std::result::Result<OnceGuard, Skipped>> {
        let begun = self.inner.block_on(self.once.begin())?;
        Ok(begun.map(|guard| OnceGuard { guard, inner: Arc::clone(&self.inner) }))
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Once").field(&self.once).finish()
    }
}

/// A job that has begun here; see [`OnceGuard`](crate::OnceGuard). Dropped, it has failed, which is said in the background.
#[must_use = "a job that is dropped has failed"]
pub struct OnceGuard {
    guard: crate::OnceGuard,
    inner: Arc<Inner>,
}

impl OnceGuard {
    /// A view of the hold that other threads can have.
    pub fn lease(&self) -> Lease {
        self.guard.lease()
    }

    /// It is done: all others skip it until its time is over.
    ///
    /// # Errors
    /// As [`OnceGuard::done`](crate::OnceGuard::done). [`ErrorKind::Invalid`] inside a tokio runtime: then it has failed.
    pub fn done(self) -> Result<()> {
        self.inner.block_on(self.guard.done())
    }

    /// It failed: see [`Once::keep_on_failure`](crate::Once::keep_on_failure).
    ///
    /// # Errors
    /// As [`OnceGuard::failed`](crate::OnceGuard::failed). [`ErrorKind::Invalid`] inside a tokio runtime: then that is said
    /// in the background.
    pub fn failed(self) -> Result<()> {
        self.inner.block_on(self.guard.failed())
    }

    /// It is to be run again, at once, by whoever comes.
    ///
    /// # Errors
    /// As [`OnceGuard::again`](crate::OnceGuard::again). [`ErrorKind::Invalid`] inside a tokio runtime: then it has failed.
    pub fn again(self) -> Result<()> {
        self.inner.block_on(self.guard.again())
    }

    /// Waits so long for the loss of the lock. Is it lost?
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn lost_within(&self, time: Duration) -> Result<bool> {
        self.inner.lost_within(&self.guard, time)
    }
}

impl Deref for OnceGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.guard
    }
}

impl fmt::Debug for OnceGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::OnceGuard").field(&self.guard).finish()
    }
}
