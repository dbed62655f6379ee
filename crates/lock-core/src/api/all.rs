//! Several locks at once: all of them or none.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{join_all, select_all};

use crate::contract::options::{LockOptions, setters};
use crate::contract::{Error, ErrorKind, Instant, LockName, Mode, Result};
use crate::engine::acquisition::{Acquisition, Verb};
use crate::engine::core::Core;
use crate::engine::together::together;
use crate::engine::{Lease, LockGuard};

/// A handle for several locks that are taken together: their names and the options of their acquisitions. Making and
/// cloning it costs no I/O, and holds nothing.
///
/// The locks are taken one after the other in the order of their names, whatever the order in which they are given, so
/// that those who want the same locks never wait for each other in a circle. Who waits for one of them holds those
/// before it. So name together only what is needed together, and keep sections short.
///
/// While all of them are free, one request takes them, where the store can do that
/// ([`Capabilities::takes_all`](crate::Capabilities::takes_all)) and all are locks for one holder.
///
/// Each lock is for one holder, unless it is added to be [read](Self::and_read), or for some of its
/// [permits](Self::and_permits):
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
/// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
/// let export = locks.all(["accounts/7"]).and_read("catalog").and_permits("exports", 1, 5);
/// let guard = export.lock().await?;
/// assert_eq!(guard.get("exports").and_then(|lease| lease.slot()), Some(0));
/// guard.unlock().await
/// # }
/// ```
///
/// Whoever takes single locks besides, one while it holds another, is not part of that order, and can wait in a circle
/// with this.
#[derive(Clone)]
pub struct All {
    core: Arc<Core>,
    /// In the order of their names, each once.
    locks: std::result::Result<Vec<(LockName, Mode)>, String>,
    options: LockOptions,
}

impl All {
    pub(crate) fn new(core: Arc<Core>, names: Result<Vec<LockName>>, options: LockOptions) -> Self {
        let all = Self { core, locks: Ok(Vec::new()), options };
        match names {
            Ok(names) => names.into_iter().fold(all, |all, name| all.and(Ok(name), Mode::Exclusive)),
            Err(error) => all.and(Err(error), Mode::Exclusive),
        }
    }

    /// And this lock, to be read: beside others who read it, see [`RwLock`](crate::RwLock).
    pub fn and_read<N>(self, name: N) -> Self
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        self.and(name.try_into().map_err(Into::into), Mode::Shared)
    }

    /// And so many of the permits of this semaphore, of which there are so many: see [`Semaphore`](crate::Semaphore).
    pub fn and_permits<N>(self, name: N, take: u32, of: u32) -> Self
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        self.and(name.try_into().map_err(Into::into), Mode::Permits { take, of })
    }

    fn and(mut self, name: Result<LockName>, mode: Mode) -> Self {
        let added = self.locks.and_then(|mut locks| {
            let name = name.map_err(|error| error.message().to_owned())?;
            match locks.binary_search_by(|(known, _)| known.cmp(&name)) {
                Err(at) => locks.insert(at, (name, mode)),
                Ok(at) if locks[at].1 == mode => {}
                Ok(at) => {
                    let other = locks[at].1;
                    return Err(format!("{:?} is wanted {other} and {mode}: name it once", name.as_str()));
                }
            }
            Ok(locks)
        });
        self.locks = added;
        self
    }

    setters!();

    /// Waits until all locks are granted, or until [`All::wait`] is over, which bounds all of it. If a lock is lost while
    /// another is waited for, the rest is given back, and it begins anew with what is left of the wait.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock). Then none of them is held, or the release goes on in the background.
    ///
    /// # Cancel safety
    /// May be dropped at any point: what was granted is given back in the background.
    ///
    /// # If the reply is lost
    /// As [`Mutex::lock`](crate::Mutex::lock).
    pub async fn lock(&self) -> Result<AllGuard> {
        let locks = self.locks("lock")?;
        let deadline = self.options.wait.map(|wait| self.core.clock.now() + wait);
        if let Some(guard) = self.together(locks, deadline).await {
            return Ok(guard);
        }
        loop {
            if let Some(guard) = self.take(locks, deadline).await? {
                return Ok(guard);
            }
        }
    }

    /// Takes all locks now or none: `None` means that one of them is held by another, or waited for where the store is
    /// fair. The others are given back by then.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock). Then none of them is held, or the release goes on in the background.
    ///
    /// # Cancel safety
    /// May be dropped at any point: what was granted is given back in the background.
    ///
    /// # If the reply is lost
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock).
    pub async fn try_lock(&self) -> Result<Option<AllGuard>> {
        let locks = self.locks("try_lock")?;
        let deadline = self.options.wait.map(|wait| self.core.clock.now() + wait);
        if let Some(guard) = self.together(locks, deadline).await {
            return Ok(Some(guard));
        }
        let mut held = Vec::with_capacity(locks.len());
        for (name, mode) in locks {
            let options = self.options_of(*mode, deadline);
            match Acquisition::begin(&self.core, Ok(name), &options, None, Verb::TryLock)?.run().await? {
                Some(guard) => held.push(guard),
                None => {
                    join_all(held.into_iter().map(LockGuard::unlock)).await;
                    return Ok(None);
                }
            }
        }
        Ok(Some(AllGuard::new(held)))
    }

    /// Runs `section` with all locks held, and drops it as soon as one is lost. It gets a view of the holds, with a fencing
    /// token for each.
    ///
    /// # Errors
    /// As [`Mutex::run`](crate::Mutex::run).
    ///
    /// # Cancel safety
    /// Dropping it drops the section and releases the locks in the background.
    ///
    /// # If the reply is lost
    /// As [`Mutex::run`](crate::Mutex::run).
    pub async fn run<T>(&self, section: impl AsyncFnOnce(Leases) -> T) -> Result<T> {
        let guard = self.lock().await?;
        let output = guard.run(section(guard.leases())).await?;
        match guard.unlock().await {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            // The section was covered to its end; the release goes on in the background.
            Ok(()) | Err(_) => Ok(output),
        }
    }

    fn locks(&self, verb: &'static str) -> Result<&[(LockName, Mode)]> {
        let wrong = |wrong: &str| Err(self.core.context(Error::new(ErrorKind::Invalid, wrong), verb, None));
        match &self.locks {
            Ok(locks) if locks.is_empty() => wrong("no lock is named: `all` needs at least one"),
            Ok(locks) => Ok(locks),
            Err(told) => wrong(told),
        }
    }

    /// For one of the locks, with what is left of the wait.
    fn options_of(&self, mode: Mode, deadline: Option<Instant>) -> LockOptions {
        let wait = deadline.map(|deadline| deadline.saturating_duration_since(self.core.clock.now()));
        LockOptions { wait, mode, ..self.options }
    }

    /// All in one request, if they are free and the store can do that.
    async fn together(&self, locks: &[(LockName, Mode)], deadline: Option<Instant>) -> Option<AllGuard> {
        if locks.len() < 2 || locks.iter().any(|(_, mode)| *mode != Mode::Exclusive) {
            return None;
        }
        let names = locks.iter().map(|(name, _)| name.clone()).collect();
        // A wait of zero bounds nothing: one request has to be let through.
        let deadline = deadline.filter(|deadline| *deadline > self.core.clock.now());
        together(&self.core, names, &self.options, deadline).await.map(AllGuard::new)
    }

    /// One after the other; `None` if one was lost meanwhile.
    async fn take(&self, locks: &[(LockName, Mode)], deadline: Option<Instant>) -> Result<Option<AllGuard>> {
        let mut held = AllGuard::new(Vec::with_capacity(locks.len()));
        for (name, mode) in locks {
            let options = self.options_of(*mode, deadline);
            let acquisition = Acquisition::begin(&self.core, Ok(name), &options, None, Verb::Lock)?;
            let guard = tokio::select! {
                biased;
                guard = acquisition.lock() => guard.map_err(|error| self.within_the_whole(error, name))?,
                () = held.lost() => return Ok(None),
            };
            held.push(guard);
        }
        Ok(held.is_held().then_some(held))
    }

    /// The wait of one lock is what the others left of it; told is what was asked for.
    fn within_the_whole(&self, error: Error, name: &LockName) -> Error {
        match (error.kind(), self.options.wait) {
            (ErrorKind::Timeout, Some(wait)) => {
                self.core.context(Error::timeout(wait, error.holder().cloned()), "lock", Some(name))
            }
            _ => error,
        }
    }
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("All").field("locks", &self.locks).field("options", &self.options).finish()
    }
}

/// Several locks that are held together. What can be asked about them is on [`Leases`], to which this derefs. Dropped,
/// it gives all back in the background.
#[must_use = "the locks are released when their guard is dropped"]
pub struct AllGuard {
    guards: Vec<LockGuard>,
    leases: Leases,
}

impl AllGuard {
    fn new(guards: Vec<LockGuard>) -> Self {
        let leases = Leases(guards.iter().map(|guard| guard.lease()).collect());
        Self { guards, leases }
    }

    fn push(&mut self, guard: LockGuard) {
        self.leases.0.push(guard.lease());
        self.guards.push(guard);
    }

    /// A view of the holds that other tasks can have.
    pub fn leases(&self) -> Leases {
        self.leases.clone()
    }

    /// Runs `section` as long as all locks are held, and drops it as soon as one is lost.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if one was not held to the section's end. What the section did before may stand, and may have
    /// overlapped with another holder unless the resource checks the fencing token.
    ///
    /// # Cancel safety
    /// Dropping it drops the section; the locks stay held by the guard.
    pub async fn run<F: Future>(&self, section: F) -> Result<F::Output> {
        self.check()?;
        tokio::select! {
            biased;
            () = self.lost() => {}
            output = section => {
                self.check()?;
                return Ok(output);
            }
        }
        Err(self.check().err().unwrap_or_else(|| Error::new(ErrorKind::Lost, "one of the locks was lost")))
    }

    /// Releases all locks.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if one of them was not held until now; else the first error of the store. A release that failed is
    /// repeated in the background.
    ///
    /// # Cancel safety
    /// Dropped at any point, the releases are finished in the background.
    ///
    /// # If the reply is lost
    /// As [`LockGuard::unlock`].
    pub async fn unlock(self) -> Result<()> {
        let released = join_all(self.guards.into_iter().map(LockGuard::unlock)).await;
        let mut errors: Vec<_> = released.into_iter().filter_map(Result::err).collect();
        let worst = errors.iter().position(|error| error.kind() == ErrorKind::Lost).unwrap_or(0);
        if errors.is_empty() { Ok(()) } else { Err(errors.swap_remove(worst)) }
    }
}

impl From<LockGuard> for AllGuard {
    /// One lock alone.
    fn from(guard: LockGuard) -> Self {
        Self::new(vec![guard])
    }
}

impl Deref for AllGuard {
    type Target = Leases;

    fn deref(&self) -> &Leases {
        &self.leases
    }
}

impl fmt::Debug for AllGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AllGuard").field(&self.leases).finish()
    }
}

/// A view of several holds: cheap to hand to other tasks. It does not keep the locks; the [`AllGuard`] does.
#[derive(Clone, Debug)]
pub struct Leases(Vec<Lease>);

impl Leases {
    /// Are all locks held at this moment, by the clock?
    pub fn is_held(&self) -> bool {
        self.0.iter().all(Lease::is_held)
    }

    /// The same as an error, for sections that check it between their steps.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`], saying which and why.
    pub fn check(&self) -> Result<()> {
        let told =
            |lease: &Lease| Err(Error::new(ErrorKind::Lost, format!("{:?}: {}", lease.name().as_str(), lease.loss())));
        self.0.iter().find(|lease| !lease.is_held()).map_or(Ok(()), told)
    }

    /// How long all locks are held from now on, if no renewal comes.
    pub fn remaining(&self) -> Duration {
        self.0.iter().map(Lease::remaining).min().unwrap_or_default()
    }

    /// The hold on the lock of this name, with its fencing token; `None` if it is none of these.
    pub fn get(&self, name: &str) -> Option<&Lease> {
        self.0.iter().find(|lease| lease.name().as_str() == name)
    }

    /// The holds, in the order of the locks' names.
    pub fn iter(&self) -> std::slice::Iter<'_, Lease> {
        self.0.iter()
    }

    /// Ends at the next news of one of the holds, from this call on: see [`Lease::changed`].
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub fn changed(&self) -> impl Future<Output = ()> + Send + '_ {
        let news: Vec<_> = self.0.iter().map(|lease| Box::pin(lease.changed())).collect();
        async {
            if news.is_empty() {
                return std::future::pending().await;
            }
            select_all(news).await;
        }
    }

    /// Ends when one of the locks is not held any more: at a loss, before the store can grant it to another, or at its
    /// release.
    ///
    /// # Cancel safety
    /// May be dropped and called again at any time.
    pub async fn lost(&self) {
        if self.0.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.0.iter().map(|lease| Box::pin(lease.lost()))).await;
    }
}

impl From<Lease> for Leases {
    /// One hold alone.
    fn from(lease: Lease) -> Self {
        Self(vec![lease])
    }
}

impl<'a> IntoIterator for &'a Leases {
    type Item = &'a Lease;
    type IntoIter = std::slice::Iter<'a, Lease>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}
