//! The handle for a lock that many read and one writes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::options::{LockOptions, setters};
use crate::contract::{LockName, Mode, Result};
use crate::engine::acquisition::{Acquisition, Verb};
use crate::engine::core::Core;
use crate::engine::{Lease, LockGuard};

/// A handle for a lock that any number hold together to read, or one alone to write: its name and the options of its
/// acquisitions. Made by [`Locks::rw_lock`](crate::Locks::rw_lock). Making and cloning it costs no I/O, and holds nothing.
///
/// To write is to hold the [`Mutex`](crate::Mutex) of that name: both keep each other out, and other programs that know only
/// the mutex. The line is in the order of arrival: who comes to read waits behind those who wait to write.
///
/// Tasks of one process that use the same [`Locks`](crate::Locks) or its clones share what the store granted one of
/// them: who comes to read while others of them do gets a guard at once and without a request, with the same owner and
/// fencing token. The store sees one holder, which it gets back when the last of the guards goes, and all of them are
/// told of a risk or a loss. So that nobody who writes is kept waiting by it, a grant lets readers in
///
/// - for [`RwLock::hand_over_for`] after it came, 10 ms by default, and never for longer than 100 ms or a twentieth of
///   the lease; and at most [`RwLock::hand_overs`] of them,
/// - while no task of this process waits to write,
/// - if they have the same options, and neither [`RwLock::fair`] nor [`RwLock::max_hold`].
///
/// This process cannot see who waits elsewhere. A writer elsewhere waits for the readers who held the lock when it
/// came, and for those whom a grant lets in within that time; never for one who comes later. With [`RwLock::fair`] it
/// waits for the former alone.
///
/// It is not re-entrant, and nobody gets from reading to writing without letting go: two who both wait for that would wait
/// for ever.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
/// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
/// let catalog = locks.rw_lock("catalog")?;
/// let (one, other) = (catalog.read().await?, catalog.read().await?);
/// assert!(catalog.try_write().await?.is_none());
/// one.unlock().await?;
/// other.unlock().await?;
/// catalog.write().await?.unlock().await
/// # }
/// ```
#[derive(Clone)]
pub struct RwLock {
    core: Arc<Core>,
    name: std::result::Result<LockName, String>,
    options: LockOptions,
}

impl RwLock {
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where the store has none.
    pub(crate) fn new(core: Arc<Core>, name: LockName, options: LockOptions) -> Result<Self> {
        let checked = LockOptions { mode: Mode::Shared, ..options }.check_mode(&core.capabilities);
        checked.map_err(|error| core.context(error, "rw_lock", Some(&name)))?;
        Ok(Self { core, name: Ok(name), options })
    }

    setters!();

    /// Waits until it may read, or until [`RwLock::wait`] is over. It may share the hold of others of this process who read, and
    /// is then answered without a request; else it has a lease of its own in the store.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) also where the name is in use as a semaphore.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # If the reply is lost
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn read(&self) -> Result<LockGuard> {
        self.acquisition(&self.reading(), Verb::Lock)?.lock().await
    }

    /// Waits until it may write, or until [`RwLock::wait`] is over: as [`Mutex::lock`](crate::Mutex::lock) of that name.
    ///
    /// # Errors
    /// As [`RwLock::read`].
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # If the reply is lost
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn write(&self) -> Result<LockGuard> {
        self.acquisition(&self.options, Verb::Lock)?.lock().await
    }

    /// Reads now or not at all: `None` means that somebody writes, or waits where the store is fair. It may share as
    /// [`RwLock::read`] does.
    ///
    /// # Errors
    /// As [`RwLock::read`], bounded as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # If the reply is lost
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_read(&self) -> Result<Option<LockGuard>> {
        self.acquisition(&self.reading(), Verb::TryLock)?.run().await
    }

    /// Writes now or not at all: as [`Mutex::try_lock`](crate::Mutex::try_lock) of that name.
    ///
    /// # Errors
    /// As [`RwLock::try_read`].
    ///
    /// # Cancel safety
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # If the reply is lost
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_write(&self) -> Result<Option<LockGuard>> {
        self.acquisition(&self.options, Verb::TryLock)?.run().await
    }

    /// Runs `section` while it may read, and drops it at the loss. It gets a view of the hold.
    ///
    /// # Errors
    /// As [`RwLock::read`]; [`ErrorKind::Lost`](crate::ErrorKind::Lost) as [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    /// Dropping it drops the section and releases in the background.
    pub async fn run_read<T>(&self, section: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        self.read().await?.section(section).await
    }

    /// Runs `section` while it may write, and drops it at the loss. It gets a view of the hold, with the fencing token.
    ///
    /// # Errors
    /// As [`RwLock::run_read`].
    ///
    /// # Cancel safety
    /// As [`RwLock::run_read`].
    pub async fn run_write<T>(&self, section: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        self.write().await?.section(section).await
    }

    fn reading(&self) -> LockOptions {
        LockOptions { mode: Mode::Shared, ..self.options }
    }

    fn acquisition<'a>(&'a self, options: &'a LockOptions, verb: Verb) -> Result<Acquisition<'a>> {
        Acquisition::begin(&self.core, self.name.as_ref(), options, None, verb)
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").field("name", &self.name).field("options", &self.options).finish()
    }
}
