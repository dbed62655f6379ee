//! What a holder has in its hands.

use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::{Error, ErrorKind, Instant, Kept, LockValue, Proclaimed, Result, Unlocked};
use crate::engine::Lease;
use crate::engine::core::Core;
use crate::engine::hold::End;
use crate::engine::queue::Leave;
use crate::engine::telemetry::Began;

/// A lock that is held. Everything one can ask about the hold is on [`Lease`], to which this derefs.
///
/// Dropping the guard hands the release to a background task: it neither blocks nor panics, on any thread, with or
/// without a runtime. [`LockGuard::unlock`] is better where the answer matters: it says whether the lock was held to
/// the end. A process that ends right after a drop should await [`Locks::shutdown`](crate::Locks::shutdown), else the
/// lock is free only when its lease is over.
#[must_use = "the lock is released when its guard is dropped"]
pub struct LockGuard {
    lease: Lease,
    core: Arc<Core>,
    phase: Phase,
    /// A task has it, which was not only sent it.
    in_hands: bool,
    /// How long since the grant the lock is held at least, also when the guard has gone.
    keep_for: Option<Duration>,
    began: Began,
}

/// What there is to give back when it goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// All of it.
    Held,
    /// The hold in the store: nobody in the process has it.
    InStore,
    /// Nothing.
    Over,
}

impl LockGuard {
    /// One that is to be sent to a task.
    pub(crate) fn new(lease: Lease, core: Arc<Core>) -> Self {
        Self { lease, core, phase: Phase::Held, in_hands: false, keep_for: None, began: Began::now() }
    }

    /// One that whoever asked the store has in its hands.
    pub(crate) fn granted(lease: Lease, core: Arc<Core>) -> Self {
        Self { lease, core, phase: Phase::Held, in_hands: true, keep_for: None, began: Began::now() }
    }

    /// A task has it in its hands now. `None` if it is over already.
    pub(crate) fn taken(mut self) -> Option<Self> {
        let hold = &self.lease.hold;
        let course = hold.take(self.lease.turn)?;
        if let Some(course) = course {
            self.core.keeper.keep(hold, course, hold.now());
        }
        self.in_hands = true;
        Some(self)
    }

    /// When it goes, the lock is held on until this much time has passed since the grant, or not. It is nobody's who waits in
    /// this process or who has it too: only for what [stands alone](crate::contract::options::LockOptions::alone).
    pub(crate) fn keep_for(&mut self, keep_for: Option<Duration>) {
        self.keep_for = keep_for;
    }

    fn keep_until(&self) -> Option<Instant> {
        self.keep_for.map(|keep_for| self.lease.hold.since() + keep_for)
    }

    /// Shows another value.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if it is not held any more; else as the store says.
    pub(crate) async fn proclaim(&self, value: Result<LockValue>) -> Result<()> {
        let told = async {
            self.core.check_open("proclaim")?;
            match self.core.backend.proclaim(&self.lease.hold.claim, &value?).await? {
                Proclaimed::Shown => Ok(()),
                Proclaimed::NotHeld => {
                    self.lease.hold.end(End::NotHeld);
                    Err(Error::new(ErrorKind::Lost, End::NotHeld.reason()))
                }
            }
        };
        told.await.map_err(|error| self.core.context(error, "proclaim", Some(self.lease.name())))
    }

    /// A view of the hold that other tasks can have.
    pub fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// Runs `section` as long as the lock is held, and drops it at the loss.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`](crate::ErrorKind::Lost) if the lock was not held to the section's end. What the section did
    /// before may stand, and may have overlapped with another holder unless the resource checks the fencing token.
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
        Err(self.core.context(Error::new(ErrorKind::Lost, self.lease.loss()), "run", Some(self.lease.name())))
    }

    /// Releases the lock. A task of this process that waits for it has it next, without a request to the store; one of
    /// several guards of an [`Owner`](crate::Owner) leaves it to the others. In both cases the store is not asked: that the
    /// lock was held until now is what our clock says, and an eviction of which the store has not told is overlooked.
    ///
    /// # Errors
    /// - [`ErrorKind::Lost`] if the lock was not held until now: what was done under it may have overlapped with another
    ///   holder. An error, and no value that says so, since whoever writes `unlock().await?` would overlook that.
    /// - Else as the store says. The lock may still be held then; the release is repeated in the background until the
    ///   store answers.
    ///
    /// # Cancel safety
    /// Dropped at any point, the release is finished in the background.
    ///
    /// # If the reply is lost
    /// That is an error too, and the background repeats the release, which can touch no later holder.
    pub async fn unlock(mut self) -> Result<()> {
        let before = match self.leave() {
            Leave::HandedOver => return Ok(()),
            Leave::Kept { held: true } => return self.core.check_process("unlock"),
            Leave::Kept { held: false } => return Err(self.lost(self.lease.loss())),
            Leave::Release(before) => before,
        };
        if self.phase == Phase::Over {
            return Err(self.lost(self.lease.loss()));
        }
        self.core.check_process("unlock")?;
        let was_held = self.release().await;
        let was_held = was_held.map_err(|error| self.core.context(error, "unlock", Some(self.lease.name())))?;
        self.phase = Phase::Over;
        self.core.released(&self.lease.hold);
        match before {
            None if was_held => Ok(()),
            None => Err(self.lost(End::NotHeld.reason())),
            Some(before) => Err(self.lost(before.reason())),
        }
    }

    /// Runs a section, and releases the lock at its end.
    pub(crate) async fn section<T>(self, section: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        let output = self.run(section(self.lease())).await?;
        self.finish().await?;
        Ok(output)
    }

    /// The same at the end of a section that the lock covered: only its loss is an error. What else fails is repeated in the
    /// background.
    pub(crate) async fn finish(self) -> Result<()> {
        match self.unlock().await {
            Err(error) if error.kind() != ErrorKind::Lost => {
                tracing::debug!(?error, "the release goes on in the background");
                Ok(())
            }
            finished => finished,
        }
    }

    /// Gives it back to the store, or has the store keep it; answers whether it was held.
    async fn release(&self) -> Result<bool> {
        let (backend, hold) = (&self.core.backend, &self.lease.hold);
        let rest = self.keep_until().map(|until| until.saturating_duration_since(hold.now()));
        match rest.filter(|rest| !rest.is_zero()) {
            None => Ok(backend.unlock(&hold.claim).await? == Unlocked::Released),
            Some(rest) => Ok(backend.keep(&hold.claim, rest).await? == Kept::Kept),
        }
    }

    fn lost(&self, why: &str) -> Error {
        self.core.context(Error::new(ErrorKind::Lost, why), "unlock", Some(self.lease.name()))
    }

    /// Leaves the queue in the process. After this it holds nothing there, and perhaps something in the store.
    fn leave(&mut self) -> Leave {
        let left = self.core.queue.leave(&self.lease, |lease| Self::new(lease, Arc::clone(&self.core)));
        let hold = &self.lease.hold;
        // What was lost is to be done again, and nobody is kept from that.
        if !matches!(left, Leave::Release(None)) {
            self.keep_for = None;
        }
        self.core.telemetry.held(self.began);
        self.phase = match left {
            Leave::Kept { .. } => {
                if self.in_hands {
                    hold.put_down(self.lease.turn);
                }
                Phase::Over
            }
            Leave::HandedOver => {
                self.core.telemetry.handed_over();
                // The next turn may be longer than the keeper knows of.
                if hold.options.max_hold.is_some()
                    && let now = hold.now()
                    && let Some(course) = hold.what_next(now)
                {
                    self.core.keeper.keep(hold, course, now);
                }
                Phase::Over
            }
            Leave::Release(Some(End::NotHeld | End::Shutdown)) => {
                self.core.keeper.forget(hold.id);
                Phase::Over
            }
            // Until the store has answered, a shutdown finds it with the keeper.
            Leave::Release(_) => Phase::InStore,
        };
        left
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
        if self.phase == Phase::Held {
            self.leave();
        }
        if self.phase == Phase::InStore {
            let claim = self.lease.hold.claim.clone();
            match self.keep_until() {
                None => self.core.janitor.release(claim),
                Some(until) => self.core.janitor.keep(claim, until),
            }
            self.core.released(&self.lease.hold);
        }
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LockGuard({:?})", self.lease)
    }
}
