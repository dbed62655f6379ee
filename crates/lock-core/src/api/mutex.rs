//! The handle for one lock: a name and options.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::options::{LockOptions, setters};
use crate::contract::{Error, ErrorKind, LockName, LockValue, Result, SHOW};
use crate::engine::acquisition::{Acquisition, Verb};
use crate::engine::core::Core;
use crate::engine::{Lease, LockGuard, Owner};

/// A handle for one lock: its name and the options of its acquisitions. Making and cloning it costs no I/O, and holds
/// nothing.
///
/// Without an [`owner`](Mutex::owner) it is not re-entrant: an acquisition while another of the same handle holds the
/// lock waits like any other.
///
/// Tasks of one process that use the same [`Locks`](crate::Locks) or its clones wait in a queue in the process, first
/// come, first served; one of them asks the store. A lock that is released passes to the next of them without a
/// request, as often and as long as [`Mutex::hand_overs`] and [`Mutex::hand_over_for`] let it, then it goes back to the
/// store.
#[derive(Clone)]
pub struct Mutex {
    core: Arc<Core>,
    name: std::result::Result<LockName, String>,
    options: LockOptions,
    owner: Option<Owner>,
    value: Option<std::result::Result<LockValue, String>>,
}

impl Mutex {
    pub(crate) fn new(core: Arc<Core>, name: Result<LockName>, options: LockOptions) -> Self {
        Self { core, name: name.map_err(|error| error.message().to_owned()), options, owner: None, value: None }
    }

    setters!();

    /// Take the lock for a fixed time instead: it is never renewed, and lost when the time is up.
    pub fn hold_for(mut self, hold: Duration) -> Self {
        self.options.hold_for = Some(hold);
        self
    }

    /// Acquire it for this owner, who gets it again while it has it. See [`Owner`].
    pub fn owner(mut self, owner: &Owner) -> Self {
        self.owner = Some(owner.clone());
        self
    }

    /// Show this with the hold to everybody who looks, from the grant on: see [`Holder::value`](crate::Holder::value). Such an
    /// acquisition asks the store itself, shares no grant with others of this process, and has no [`owner`](Self::owner).
    pub fn value<V>(mut self, value: V) -> Self
    where
        V: TryInto<LockValue>,
        V::Error: Into<Error>,
    {
        self.value = Some(value.try_into().map_err(|error| error.into().message().to_owned()));
        self.options.alone = true;
        self
    }

    /// The lock's name, if it is one.
    pub fn name(&self) -> Option<&LockName> {
        self.name.as_ref().ok()
    }

    /// Waits until the lock is granted, or until [`Mutex::wait`] is over.
    ///
    /// # Errors
    /// - [`ErrorKind::Timeout`] when the wait is over. The error names the holder: the store is asked a little before, and
    ///   may take up to 100 ms more.
    /// - [`ErrorKind::Invalid`] and [`ErrorKind::Unsupported`] for a name, a value or an option.
    /// - [`ErrorKind::Unknown`] also when the wait is over and the store has not answered that question for half a second or
    ///   more: it may be away, and nobody knows what came of the claim. It is undone in the background.
    /// - [`ErrorKind::Unavailable`], [`ErrorKind::Refused`], [`ErrorKind::Unknown`] as the store says. A store that is
    ///   away for longer than [`Mutex::outage`] is an error, not a longer wait.
    /// - [`ErrorKind::Closed`] after a shutdown.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the place in the queue, and the lock if it was granted just then, are given back in
    /// the background.
    ///
    /// # If the reply is lost
    /// That is an [`ErrorKind::Unknown`]; whatever the store did is undone, here or in the background.
    pub async fn lock(&self) -> Result<LockGuard> {
        self.acquisition(Verb::Lock)?.lock().await
    }

    /// Runs `section` with the lock held, and drops it at the loss. It gets a view of the hold, with the fencing token.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
    /// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
    /// let token = locks.mutex("orders/42").run(async |lease| lease.fencing_token()).await?;
    /// # let _ = token; Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::lock`]; [`ErrorKind::Lost`], saying why, if the lock was not held to the section's end. What the
    /// section did before may stand, and may have overlapped with another holder unless the resource checks the fencing
    /// token.
    ///
    /// # Cancel safety
    /// Dropping it drops the section and releases the lock in the background.
    ///
    /// # If the reply is lost
    /// As [`Mutex::lock`] for the acquisition. A release whose reply is lost is repeated in the background: the section
    /// was covered to its end, and its result is returned.
    pub async fn run<T>(&self, section: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        self.lock().await?.section(section).await
    }

    /// Takes the lock now or not at all: `None` means that it is held by another, or waited for where the store is
    /// fair.
    ///
    /// # Errors
    /// As [`Mutex::lock`]. [`Mutex::wait`] bounds it too, without one the store's own bound on requests does.
    ///
    /// # Cancel safety
    /// May be dropped at any point: a lock that was granted just then is given back in the background.
    ///
    /// # If the reply is lost
    /// That is an [`ErrorKind::Unknown`]; whatever the store did is undone, here or in the background.
    pub async fn try_lock(&self) -> Result<Option<LockGuard>> {
        self.acquisition(Verb::TryLock)?.run().await
    }

    /// Checks everything that needs no store.
    fn acquisition(&self, verb: Verb) -> Result<Acquisition<'_>> {
        let (name, owner) = (self.name.as_ref(), self.owner.as_ref());
        let acquisition = Acquisition::begin(&self.core, name, &self.options, owner, verb)?;
        let Some(value) = &self.value else { return Ok(acquisition) };
        let wrong = match value {
            Err(wrong) => Error::new(ErrorKind::Invalid, wrong.as_str()),
            Ok(_) if !self.core.capabilities.values => self.core.capabilities.cannot(SHOW),
            Ok(_) if owner.is_some() => {
                Error::new(ErrorKind::Invalid, "an `owner` has one hold for all, which shows no `value`: leave one off")
            }
            Ok(value) => return Ok(acquisition.showing(value)),
        };
        Err(acquisition.failed(wrong))
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").field("name", &self.name).field("options", &self.options).finish()
    }
}
