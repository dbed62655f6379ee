//! The handle for a number of permits that all processes share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::options::{LockOptions, setters};
use crate::contract::{LockName, Mode, Result};
use crate::engine::acquisition::{Acquisition, Verb};
use crate::engine::core::Core;
use crate::engine::{Lease, LockGuard};

/// A handle for a semaphore: of its permits no more are held at a time than there are, over all processes. Made by
/// [`Locks::semaphore`](crate::Locks::semaphore). Making and cloning it costs no I/O, and holds nothing.
///
/// Each permit that is held is a lease, renewed and lost as a lock is: a crashed holder's is free when its lease is over.
/// It has a number, its [slot](crate::Lease::slot), which nobody else has meanwhile. The line is in the order of arrival: who
/// wants several permits waits at its head until they are there, and those behind wait too.
///
/// The first who asks says how many permits there are, and as long as one is held or waited for another number is an error
/// that names both. [`Locks::resize`](crate::Locks::resize) changes it.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
/// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
/// let exports = locks.semaphore("exports", 2)?;
/// let (one, other) = (exports.acquire().await?, exports.acquire().await?);
/// assert_eq!((one.slot(), other.slot()), (Some(0), Some(1)));
/// assert!(exports.try_acquire().await?.is_none());
/// one.unlock().await?;
/// other.unlock().await
/// # }
/// ```
#[derive(Clone)]
pub struct Semaphore {
    core: Arc<Core>,
    name: std::result::Result<LockName, String>,
    permits: u32,
    options: LockOptions,
}

impl Semaphore {
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where the store has none, [`Invalid`](crate::ErrorKind::Invalid) for the number.
    pub(crate) fn new(core: Arc<Core>, name: LockName, permits: u32, options: LockOptions) -> Result<Self> {
        let semaphore = Self { core, name: Ok(name), permits, options };
        let checked = semaphore.taking(1).check_mode(&semaphore.core.capabilities);
        checked.map_err(|error| semaphore.core.context(error, "semaphore", semaphore.name.as_ref().ok()))?;
        Ok(semaphore)
    }

    setters!();

    /// Waits for a permit, or until [`Semaphore::wait`] is over.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) also where the name is in use as a lock or with another
    /// number of permits.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # If the reply is lost
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn acquire(&self) -> Result<LockGuard> {
        self.acquire_many(1).await
    }

    /// Waits for so many permits, or until [`Semaphore::wait`] is over. They are one hold: renewed, lost and given back
    /// together.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]; [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for none and for more than there are.
    ///
    /// # Cancel safety
    /// As [`Mutex::lock`](crate::Mutex::lock).
    ///
    /// # If the reply is lost
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn acquire_many(&self, permits: u32) -> Result<LockGuard> {
        self.acquisition(&self.taking(permits), Verb::Lock)?.lock().await
    }

    /// Takes a permit now or not at all: `None` means that all are held, or that somebody waits where the store is fair.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`], bounded as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # If the reply is lost
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>> {
        self.try_acquire_many(1).await
    }

    /// Takes so many permits now or none.
    ///
    /// # Errors
    /// As [`Semaphore::acquire_many`], bounded as [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # Cancel safety
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    ///
    /// # If the reply is lost
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_acquire_many(&self, permits: u32) -> Result<Option<LockGuard>> {
        self.acquisition(&self.taking(permits), Verb::TryLock)?.run().await
    }

    /// Runs `section` with a permit, and drops it at the loss. It gets a view of the hold, with its slot and fencing token.
    ///
    /// # Errors
    /// As [`Semaphore::acquire`]; [`ErrorKind::Lost`](crate::ErrorKind::Lost) as [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    /// Dropping it drops the section and gives the permit back in the background.
    pub async fn run<T>(&self, section: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        self.acquire().await?.section(section).await
    }

    fn taking(&self, take: u32) -> LockOptions {
        LockOptions { mode: Mode::Permits { take, of: self.permits }, ..self.options }
    }

    fn acquisition<'a>(&'a self, options: &'a LockOptions, verb: Verb) -> Result<Acquisition<'a>> {
        Acquisition::begin(&self.core, self.name.as_ref(), options, None, verb)
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Semaphore");
        shown.field("name", &self.name).field("permits", &self.permits).field("options", &self.options).finish()
    }
}
