//! The same locks for programs without a tokio runtime. The names are those of the asynchronous API; each call blocks its
//! thread until it is done. A thread of this module renews what is held.
//!
//! ```
//! use std::time::Duration;
//!
//! # fn main() -> oarlock::Result<()> {
//! let locks = oarlock::blocking::connect("memory:")?;
//! let guard = locks.mutex("orders/42").wait(Duration::from_secs(5)).lock()?;
//! // Send the token along with each write, and check the hold between steps.
//! let token = guard.fencing_token();
//! guard.check()?;
//! guard.unlock()?;
//! # let _ = token;
//! # Ok(())
//! # }
//! ```
//!
//! Inside a tokio runtime, blocking would keep other tasks waiting, among them perhaps the one that holds the lock. There,
//! each call is an error of kind [`Invalid`](ErrorKind::Invalid). So it is inside `spawn_blocking`, where blocking would do
//! no harm: tokio does not tell such a thread from one that runs tasks. Take a thread of `std::thread`, or inside
//! `spawn_blocking` the asynchronous API, by `Handle::current().block_on(…)`.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    Config, Error, ErrorKind, Holder, Lease, ListQuery, LockName, LockStatus, LockValue, Owner, OwnerId, Page, Result,
    ShutdownReport,
};
use tokio::runtime::{Builder, Handle, Runtime};

/// The options of a handle, passed on to what is inside it.
macro_rules! options {
    ($of:ident, $inside:ident, $($name:ident: $kind:ty),+) => {$(
        #[doc = concat!("See [`", stringify!($of), "::", stringify!($name), "`](crate::", stringify!($of), "::", stringify!($name), ").")]
        pub fn $name(mut self, $name: $kind) -> Self {
            self.$inside = self.$inside.$name($name);
            self
        }
    )+};
}

mod all;
mod election;
mod latch;
mod once;
mod rate_limiter;
mod rw_lock;
mod semaphore;

pub use all::{All, AllGuard};
pub use election::{Election, Leadership, Observer};
pub use latch::Latch;
pub use once::{Once, OnceGuard};
pub use rate_limiter::RateLimiter;
pub use rw_lock::RwLock;
pub use semaphore::Semaphore;

/// How long the last handle waits, when it is dropped, for the releases of guards that were dropped.
const LAST_RELEASES: Duration = Duration::from_secs(2);

/// See [`connect`](crate::connect).
///
/// # Errors
/// As [`connect`](crate::connect); [`ErrorKind::Invalid`] inside a tokio runtime.
pub fn connect(url: &str) -> Result<Locks> {
    connect_with(Config::from_url(url)?)
}

/// See [`connect_with`](crate::connect_with).
///
/// # Errors
/// As [`connect`].
pub fn connect_with(config: Config) -> Result<Locks> {
    outside()?;
    let runtime = Builder::new_multi_thread().worker_threads(1).thread_name("oarlock").enable_all().build();
    let runtime = runtime.map_err(|error| {
        Error::new(ErrorKind::Unavailable, "a thread for the locks could not be started").with_source(error)
    })?;
    match runtime.block_on(crate::connect_with(config)) {
        Ok(locks) => Ok(Locks(Arc::new(Inner { locks, runtime: Some(runtime) }))),
        Err(error) => {
            // A look-up of a host's name that was given up would be waited for.
            runtime.shutdown_background();
            Err(error)
        }
    }
}

/// # Errors
/// [`ErrorKind::Invalid`] on a thread of a tokio runtime.
fn outside() -> Result<()> {
    // A thread that ends cannot tell, and must not block by a runtime either.
    if Handle::try_current().is_err_and(|error| error.is_missing_context()) {
        return Ok(());
    }
    let message = "blocking calls inside a tokio runtime would keep its tasks waiting, and spawn_blocking cannot be told \
                   from that; use the asynchronous API, inside spawn_blocking by Handle::block_on, or a thread of your own";
    Err(Error::new(ErrorKind::Invalid, message))
}

struct Inner {
    locks: crate::Locks,
    /// There until it is dropped.
    runtime: Option<Runtime>,
}

impl Inner {
    fn block_on<T>(&self, future: impl Future<Output = Result<T>>) -> Result<T> {
        outside()?;
        self.runtime.as_ref().map_or_else(|| Err(Error::closed()), |runtime| runtime.block_on(future))
    }

    fn lost_within(&self, lease: &Lease, time: Duration) -> Result<bool> {
        self.block_on(async { Ok(tokio::time::timeout(time, lease.lost()).await.is_ok()) })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let Some(runtime) = self.runtime.take() else { return };
        let locks = self.locks.clone();
        let end = move || {
            // Whatever could not be released is free when its lease is over.
            let _ = runtime.block_on(locks.shutdown(LAST_RELEASES));
            runtime.shutdown_background();
        };
        if outside().is_ok() {
            end();
        } else {
            // Where it must not wait, another thread does. Without one the leases end by themselves.
            let _ = std::thread::Builder::new().name("oarlock".to_owned()).spawn(end);
        }
    }
}

/// See [`Locks`](crate::Locks). Cheap to clone; the clones share one connection and one queue.
///
/// When the last clone and the last guard are dropped, dropped guards are released for up to two seconds;
/// [`Locks::shutdown`] says what became of them.
#[derive(Clone)]
pub struct Locks(Arc<Inner>);

impl Locks {
    /// A handle for the lock of this name; see [`Locks::mutex`](crate::Locks::mutex).
    pub fn mutex<N>(&self, name: N) -> Mutex
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Mutex { mutex: self.0.locks.mutex(name), inner: Arc::clone(&self.0) }
    }

    /// Several locks that are taken together, all or none; see [`Locks::all`](crate::Locks::all).
    pub fn all<N>(&self, names: impl IntoIterator<Item = N>) -> All
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        All::new(self.0.locks.all(names), &self.0)
    }

    /// A handle for the read-write lock of this name; see [`Locks::rw_lock`](crate::Locks::rw_lock).
    ///
    /// # Errors
    /// As [`Locks::rw_lock`](crate::Locks::rw_lock).
    pub fn rw_lock<N>(&self, name: N) -> Result<RwLock>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Ok(RwLock::new(self.0.locks.rw_lock(name)?, &self.0))
    }

    /// A handle for the semaphore of this name; see [`Locks::semaphore`](crate::Locks::semaphore).
    ///
    /// # Errors
    /// As [`Locks::semaphore`](crate::Locks::semaphore).
    pub fn semaphore<N>(&self, name: N, permits: u32) -> Result<Semaphore>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Ok(Semaphore::new(self.0.locks.semaphore(name, permits)?, &self.0))
    }

    /// A handle for a rate that all who use the name keep together; see [`Locks::rate_limiter`](crate::Locks::rate_limiter).
    ///
    /// # Errors
    /// As [`Locks::rate_limiter`](crate::Locks::rate_limiter).
    pub fn rate_limiter<N>(&self, name: N, permits: u32, per: Duration) -> Result<RateLimiter>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Ok(RateLimiter::new(self.0.locks.rate_limiter(name, permits, per)?, &self.0))
    }

    /// A handle for the latch of this name; see [`Locks::latch`](crate::Locks::latch).
    pub fn latch<N>(&self, name: N, parties: u32) -> Latch
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Latch::new(self.0.locks.latch(name, parties), &self.0)
    }

    /// Makes the permits of a semaphore that is in use so many; see [`Locks::resize`](crate::Locks::resize).
    ///
    /// # Errors
    /// As [`Locks::resize`](crate::Locks::resize); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn resize(&self, name: &str, permits: u32) -> Result<bool> {
        self.0.block_on(self.0.locks.resize(name, permits))
    }

    /// A job of this name, which one of all who think that it is time runs; see [`Locks::once`](crate::Locks::once).
    pub fn once<N>(&self, name: N) -> Once
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Once::new(self.0.locks.once(name), &self.0)
    }

    /// The election of this name; see [`Locks::election`](crate::Locks::election).
    pub fn election<N>(&self, name: N) -> Election
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Election::new(self.0.locks.election(name), &self.0)
    }

    /// Sees who holds a lock, from now on.
    ///
    /// # Errors
    /// As [`Locks::observe`](crate::Locks::observe); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn observe(&self, name: &str) -> Result<Observer> {
        Observer::new(&self.0, || self.0.locks.observe(name))
    }

    /// Runs `section` with the lock of this name held: [`Mutex::run`] with these locks' defaults.
    ///
    /// # Errors
    /// As [`Mutex::run`].
    pub fn run<T>(&self, name: &str, section: impl FnOnce(Lease) -> T) -> Result<T> {
        self.mutex(name).run(section)
    }

    /// Who holds a lock, and who waits for it.
    ///
    /// # Errors
    /// As [`Locks::inspect`](crate::Locks::inspect); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn inspect(&self, name: &str) -> Result<LockStatus> {
        self.0.block_on(self.0.locks.inspect(name))
    }

    /// The locks that are held or waited for, a page at a time.
    ///
    /// # Errors
    /// As [`Locks::list`](crate::Locks::list); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn list(&self, query: &ListQuery) -> Result<Page> {
        self.0.block_on(self.0.locks.list(query))
    }

    /// Ends a hold, whosoever it is; see [`Locks::evict`](crate::Locks::evict).
    ///
    /// # Errors
    /// As [`Locks::evict`](crate::Locks::evict); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn evict(&self, name: &str) -> Result<Option<Holder>> {
        self.0.block_on(self.0.locks.evict(name))
    }

    /// Ends the hold of this owner, and no other's; see [`Locks::evict_owner`](crate::Locks::evict_owner).
    ///
    /// # Errors
    /// As [`Locks::evict_owner`](crate::Locks::evict_owner); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn evict_owner(&self, name: &str, owner: &OwnerId) -> Result<Option<Holder>> {
        self.0.block_on(self.0.locks.evict_owner(name, owner))
    }

    /// Ends everything: waits no longer than `deadline` until what is held or on its way is released.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn shutdown(&self, deadline: Duration) -> Result<ShutdownReport> {
        self.0.block_on(async { Ok(self.0.locks.shutdown(deadline).await) })
    }

    /// The asynchronous handle, for all that this one has not. It must be used on a runtime that goes on for as long as it is
    /// used, and no longer than this handle or a clone of it: with the last of them, all that is held ends.
    pub fn as_async(&self) -> &crate::Locks {
        &self.0.locks
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Locks").field(&self.0.locks).finish()
    }
}

/// A handle for one lock; see [`Mutex`](crate::Mutex).
#[derive(Clone)]
pub struct Mutex {
    mutex: crate::Mutex,
    inner: Arc<Inner>,
}

impl Mutex {
    options! {
        Mutex, mutex,
        lease: Duration, wait: impl Into<Option<Duration>>, outage: Duration, max_hold: impl Into<Option<Duration>>,
        fair: bool, token_floor: u64, hand_overs: u8, hand_over_for: Duration, hold_for: Duration, owner: &Owner
    }

    /// See [`Mutex::value`](crate::Mutex::value).
    pub fn value<V>(mut self, value: V) -> Self
    where
        V: TryInto<LockValue>,
        V::Error: Into<Error>,
    {
        self.mutex = self.mutex.value(value);
        self
    }

    /// Waits until the lock is granted, or until [`Mutex::wait`] is over.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn lock(&self) -> Result<LockGuard> {
        LockGuard::taken(&self.inner, self.mutex.lock())
    }

    /// Takes the lock now or not at all.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`](crate::Mutex::try_lock); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn try_lock(&self) -> Result<Option<LockGuard>> {
        LockGuard::tried(&self.inner, self.mutex.try_lock())
    }

    /// Runs `section` with the lock held. Nothing can end a section that blocks: one that is long checks its
    /// [lease](Lease::check) between its steps.
    ///
    /// # Errors
    /// As [`Mutex::lock`]; [`ErrorKind::Lost`] if the lock was not held to the section's end. What the section did may
    /// stand, and may have overlapped with another holder unless the resource checks the fencing token.
    ///
    /// # If the reply is lost
    /// A release whose reply is lost is repeated in the background: the section was covered to its end, and its result is
    /// returned.
    pub fn run<T>(&self, section: impl FnOnce(Lease) -> T) -> Result<T> {
        self.lock()?.section(section)
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Mutex").field(&self.mutex).finish()
    }
}

/// A lock that is held; see [`LockGuard`](crate::LockGuard). Everything one can ask about the hold is on [`Lease`], to which
/// this derefs. Dropped, it is released in the background.
#[must_use = "the lock is released when its guard is dropped"]
pub struct LockGuard {
    guard: crate::LockGuard,
    inner: Arc<Inner>,
}

impl LockGuard {
    fn taken(inner: &Arc<Inner>, taking: impl Future<Output = Result<crate::LockGuard>>) -> Result<Self> {
        Ok(Self { guard: inner.block_on(taking)?, inner: Arc::clone(inner) })
    }

    fn tried(
        inner: &Arc<Inner>,
        trying: impl Future<Output = Result<Option<crate::LockGuard>>>,
    ) -> Result<Option<Self>> {
        Ok(inner.block_on(trying)?.map(|guard| Self { guard, inner: Arc::clone(inner) }))
    }

    /// Runs a section, and releases the lock.
    fn section<T>(self, section: impl FnOnce(Lease) -> T) -> Result<T> {
        let output = section(self.lease());
        match self.unlock() {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            _ => Ok(output),
        }
    }

    /// A view of the hold that other threads can have.
    pub fn lease(&self) -> Lease {
        self.guard.lease()
    }

    /// Releases the lock.
    ///
    /// # Errors
    /// As [`LockGuard::unlock`](crate::LockGuard::unlock). [`ErrorKind::Invalid`] inside a tokio runtime: the lock is then
    /// released in the background.
    pub fn unlock(self) -> Result<()> {
        self.inner.block_on(self.guard.unlock())
    }

    /// Waits so long for the loss of the lock. Is it lost?
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn lost_within(&self, time: Duration) -> Result<bool> {
        self.inner.lost_within(&self.guard, time)
    }
}

impl Deref for LockGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.guard
    }
}

impl fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::LockGuard").field(&self.guard).finish()
    }
}
