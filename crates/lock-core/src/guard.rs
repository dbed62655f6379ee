//! What a holder has in its hands.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;

use crate::lease::End;
use crate::locks::Core;
use crate::{Error, ErrorKind, Lease, Result, Unlocked};

/// A lock that is held. Everything one can ask about the hold is on [`Lease`], to which this derefs.
///
/// Dropping the guard hands the release to a background task: it neither blocks nor panics, on any thread, with or
/// without a runtime. [`LockGuard::unlock`] is better where the answer matters: it says whether the lock was held to the
/// end. A process that ends right after a drop should await [`Locks::shutdown`](crate::Locks::shutdown), else the lock
/// is free only when its lease is over.
#[must_use = "the lock is released when its guard is dropped"]
pub struct LockGuard {
    lease: Lease,
    core: Arc<Core>,
    /// Is there something to release at the drop?
    armed: bool,
}

impl LockGuard {
    pub(crate) fn new(lease: Lease, core: Arc<Core>) -> Self {
        Self { lease, core, armed: true }
    }

    /// A view of the hold that other tasks can have.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Runs `section` as long as the lock is held, and drops it at the loss.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock was not held to the section's end. What the section did before may stand, and
    /// may have overlapped with another holder unless the resource checks the fencing token.
    ///
    /// # Cancel safety
    /// Dropping it drops the section; the lock stays held by the guard.
    pub async fn run<F: Future>(&self, section: F) -> Result<F::Output> {
        if self.lease.is_held() {
            tokio::select! {
                biased;
                () = self.lease.lost() => {}
                output = section => {
                    if self.lease.is_held() {
                        return Ok(output);
                    }
                }
            }
        }
        let reason = self.lease.0.ended().unwrap_or(End::Expired).reason();
        Err(self.core.context(Error::new(ErrorKind::Lost, reason), "run", Some(self.lease.name())))
    }

    /// Releases the lock, and tells whether it was held until now: [`Unlocked::NotHeld`] means that it was lost before.
    ///
    /// # Errors
    /// As the store says. The lock may still be held then; the release is repeated in the background until the store
    /// answers or the lease is over.
    ///
    /// # Cancel safety
    /// Dropped at any point, the release is finished in the background.
    ///
    /// # If the reply is lost
    /// That is an error too, and the background repeats the release, which can touch no later holder.
    pub async fn unlock(mut self) -> Result<Unlocked> {
        let before = self.lease.0.end(End::Released);
        self.core.keeper.forget(self.lease.0.id);
        if matches!(before, Some(End::NotHeld | End::Shutdown)) {
            self.armed = false;
            return Ok(Unlocked::NotHeld);
        }
        let claim = &self.lease.0.claim;
        self.core.check_process("unlock")?;
        let answer = self.core.backend.unlock(claim).await;
        match answer {
            Ok(answer) => {
                self.armed = false;
                Ok(if before.is_none() { answer } else { Unlocked::NotHeld })
            }
            Err(error) => Err(self.core.context(error, "unlock", Some(self.lease.name()))),
        }
    }
}

impl Deref for LockGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        if !self.armed {
            return;
        }
        let before = self.lease.0.end(End::Released);
        self.core.keeper.forget(self.lease.0.id);
        if !matches!(before, Some(End::NotHeld | End::Shutdown)) {
            self.core.janitor.release(self.lease.0.claim.clone());
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockGuard({:?})", self.lease)
    }
}
