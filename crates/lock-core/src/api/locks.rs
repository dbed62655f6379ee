//! The locks of one store, as an application uses them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::api::{All, Election, Latch, Mutex, Once, RateLimiter, RwLock, Semaphore};
use crate::contract::claim::Identity;
use crate::contract::options::{LockOptions, setters};
use crate::contract::{
    Capabilities, DistributedLock, Error, FencingToken, Finding, Holder, ListQuery, LockName, LockStatus, Mode,
    OwnerId, Page, Result,
};
use crate::engine::core::Core;
use crate::engine::{Lease, Observer};

/// The locks of one store. Cloning is cheap: clones share the connection, the keeper that renews and the janitor that
/// cleans up.
///
/// Both are tasks on the runtime on which a lock was first acquired. That runtime must be running for leases to be
/// renewed: a thread that blocks a current-thread runtime for longer than a lease loses its locks, and knows it.
#[derive(Clone)]
pub struct Locks {
    core: Arc<Core>,
    options: LockOptions,
}

impl Locks {
    /// The locks of this store, with the defaults: a lease of 30 s (or what the store can give that is nearest to that),
    /// renewed; waits without end; labelled with the program's name.
    pub fn new(backend: Arc<dyn DistributedLock>) -> Self {
        let identity = Identity::new(&Identity::default_label()).expect("the default label is a label");
        Self::assemble(backend, identity, LockOptions::default())
    }

    /// The locks of this store, with other defaults.
    pub fn builder(backend: Arc<dyn DistributedLock>) -> LocksBuilder {
        LocksBuilder { backend, label: None, options: LockOptions::default() }
    }

    fn assemble(backend: Arc<dyn DistributedLock>, identity: Identity, options: LockOptions) -> Self {
        let options = options.no_shorter_than(backend.capabilities().min_lease);
        Self { core: Arc::new(Core::new(backend, identity)), options }
    }

    /// A handle for the lock of this name, a text or a [`LockName`], with these locks' defaults. No I/O; a text that
    /// cannot be a name is reported when the lock is acquired.
    pub fn mutex<N>(&self, name: N) -> Mutex
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Mutex::new(Arc::clone(&self.core), name.try_into().map_err(Into::into), self.options)
    }

    /// A handle for several locks that are taken together, all or none, with these locks' defaults. Whoever names the same
    /// locks in another order never waits for this in a circle. No I/O; what is wrong is reported when they are acquired.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
    /// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
    /// let guard = locks.all(["accounts/7", "accounts/3"]).lock().await?;
    /// for lease in guard.iter() {
    ///     println!("{}: {}", lease.name(), lease.fencing_token());
    /// }
    /// guard.unlock().await
    /// # }
    /// ```
    pub fn all<N>(&self, names: impl IntoIterator<Item = N>) -> All
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        let names = names.into_iter().map(|name| name.try_into().map_err(Into::into)).collect();
        All::new(Arc::clone(&self.core), names, self.options)
    }

    /// A handle for the read-write lock of this name, with these locks' defaults: many read, or one writes. To write is to hold
    /// the [`mutex`](Self::mutex) of that name. No I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what cannot be a name; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the store has no
    /// read-write locks.
    pub fn rw_lock<N>(&self, name: N) -> Result<RwLock>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        RwLock::new(Arc::clone(&self.core), name.try_into().map_err(Into::into)?, self.options)
    }

    /// A handle for the semaphore of this name, of which so many permits are held at a time at most, with these locks' defaults.
    /// No I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what cannot be a name, for no permits and for more than
    /// [`Mode::MOST_PERMITS`](crate::Mode::MOST_PERMITS); [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the store has no semaphores.
    pub fn semaphore<N>(&self, name: N, permits: u32) -> Result<Semaphore>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Semaphore::new(Arc::clone(&self.core), name.try_into().map_err(Into::into)?, permits, self.options)
    }

    /// Makes the permits of a [semaphore](Self::semaphore) that is in use so many. More are granted at once to those who wait;
    /// of fewer nobody loses one who has it. `false`: it is not in use, and the first who asks for it says how many there are.
    /// Programs that go on to ask for the old number get an error that names both.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what cannot be a name or a number, for what is in use as a lock, and for fewer permits than
    /// somebody waits for; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the store has no semaphores; else as the store says.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have been done. The same after a lost reply, which is an error. It may be repeated.
    pub async fn resize(&self, name: &str, permits: u32) -> Result<bool> {
        self.core.check_open("resize")?;
        let name = LockName::new(name)?;
        let resized = async {
            LockOptions { mode: Mode::Permits { take: 1, of: permits }, ..self.options }
                .check_mode(&self.core.capabilities)?;
            self.core.backend.resize(&name, permits).await
        };
        resized.await.map_err(|error| self.core.context(error, "resize", Some(&name)))
    }

    /// A handle for a rate of so many permits in this time, which all who use the name keep together. No I/O.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what cannot be a name or a rate; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the store
    /// limits no rates.
    pub fn rate_limiter<N>(&self, name: N, permits: u32, per: Duration) -> Result<RateLimiter>
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        RateLimiter::new(Arc::clone(&self.core), name.try_into().map_err(Into::into)?, permits, per, self.options)
    }

    /// A handle for the latch of this name, which opens when so many parties have arrived. No I/O; what is wrong is reported
    /// when it is used.
    pub fn latch<N>(&self, name: N, parties: u32) -> Latch
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Latch::new(Arc::clone(&self.core), name.try_into().map_err(Into::into), parties, self.options)
    }

    /// A job of this name, which one of all who think that it is time runs. No I/O; what is wrong is reported when it is run.
    pub fn once<N>(&self, name: N) -> Once
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Once::new(Arc::clone(&self.core), name.try_into().map_err(Into::into), self.options)
    }

    /// The election of this name. No I/O; what is wrong is reported by the campaign.
    pub fn election<N>(&self, name: N) -> Election
    where
        N: TryInto<LockName>,
        N::Error: Into<Error>,
    {
        Election::new(Arc::clone(&self.core), name.try_into().map_err(Into::into), self.options)
    }

    /// Sees who holds a lock, from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what cannot be a name; [`ErrorKind::Closed`](crate::ErrorKind::Closed) after a shutdown.
    pub fn observe(&self, name: &str) -> Result<Observer> {
        self.core.check_open("observe")?;
        Ok(Observer::new(Arc::clone(&self.core), LockName::new(name)?))
    }

    /// Runs `section` with the lock of this name held, and drops it at the loss: [`Mutex::run`] with these locks'
    /// defaults.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
    /// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
    /// let sent = locks.run("invoices/2026-11", async |lease| lease.fencing_token().get() > 0).await?;
    /// assert!(sent);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`Mutex::run`].
    ///
    /// # Cancel safety
    /// As [`Mutex::run`].
    pub async fn run<T>(&self, name: &str, section: impl AsyncFnOnce(Lease) -> T) -> Result<T> {
        self.mutex(name).run(section).await
    }

    /// What the store can do.
    pub fn capabilities(&self) -> &Capabilities {
        &self.core.capabilities
    }

    /// The store itself.
    pub fn backend(&self) -> &Arc<dyn DistributedLock> {
        &self.core.backend
    }

    /// Who holds a lock, and who waits for it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what cannot be a name; else as the store says.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn inspect(&self, name: &str) -> Result<LockStatus> {
        self.core.check_open("inspect")?;
        let name = LockName::new(name)?;
        let answer = self.core.backend.inspect(&name).await;
        answer.map_err(|error| self.core.context(error, "inspect", Some(&name)))
    }

    /// The locks that are held or waited for, a page at a time.
    ///
    /// # Errors
    /// As the store says.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.core.check_open("list")?;
        let answer = self.core.backend.list(query).await;
        answer.map_err(|error| self.core.context(error, "list", None))
    }

    /// Ends the hold on a lock by force, whoever's it is, and answers whose it was. The owner learns of it as a loss,
    /// at its next renewal at the latest; until then two may believe that they hold the lock. Of several who hold it together
    /// all lose it, and the first is answered.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what cannot be a name; else as the store says.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have been done. The same after a lost reply, which is an error.
    pub async fn evict(&self, name: &str) -> Result<Option<Holder>> {
        self.core.check_open("evict")?;
        let name = LockName::new(name)?;
        let answer = self.core.backend.evict(&name).await;
        answer.map_err(|error| self.core.context(error, "evict", Some(&name)))
    }

    /// Ends the hold of this owner by force, and no other's: of several who share a lock or have permits, only this one loses
    /// its own. [`inspect`](Self::inspect) names the owners.
    ///
    /// # Errors
    /// As [`evict`](Self::evict).
    ///
    /// # Cancel safety
    /// As [`evict`](Self::evict).
    pub async fn evict_owner(&self, name: &str, owner: &OwnerId) -> Result<Option<Holder>> {
        self.core.check_open("evict")?;
        let name = LockName::new(name)?;
        let answer = self.core.backend.evict_owner(&name, owner).await;
        answer.map_err(|error| self.core.context(error, "evict", Some(&name)))
    }

    /// Every acquisition of this lock that begins after this has answered has a fencing token above that one: for a
    /// resource that has seen tokens from where clocks do not reach. Changes nothing if they are above it already. Stores that count for
    /// many locks at once, ZooKeeper and etcd, raise the tokens of their whole prefix.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for what cannot be a name, and above 2^62;
    /// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the store cannot do it; else as the store says.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have been done. The same after a lost reply, which is an error. It may be repeated.
    pub async fn raise_tokens(&self, name: &str, above: impl Into<u64>) -> Result<()> {
        self.core.check_open("raise_tokens")?;
        let name = LockName::new(name)?;
        let raised = async { self.core.backend.raise_tokens(&name, FencingToken::store_of(above.into())?).await };
        raised.await.map_err(|error| self.core.context(error, "raise_tokens", Some(&name)))
    }

    /// Settings of the store that void a promise.
    ///
    /// # Errors
    /// As the store says.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        self.core.check_open("doctor")?;
        self.core.backend.doctor().await.map_err(|error| self.core.context(error, "doctor", None))
    }

    /// Ends these locks, for all clones: every hold is lost at once and released, every acquisition under way ends with
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed), and the store's connections are closed. Reports what could not be released within
    /// `deadline`; that is free when its lease is over. A store that stalls meanwhile may later do a request to acquire that was
    /// given up, and then that lock is free a lease after that.
    ///
    /// # Cancel safety
    /// Dropped, the releases go on in the background, and it may be called again.
    pub async fn shutdown(&self, deadline: Duration) -> ShutdownReport {
        ShutdownReport { unreleased: self.core.shutdown(deadline).await }
    }
}

impl fmt::Debug for Locks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Locks").field("backend", &self.core.backend).field("options", &self.options).finish()
    }
}

/// What a shutdown could not do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "says which locks are still held in the store"]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Locks that the store did not confirm as released.
    pub unreleased: Vec<LockName>,
}

/// Chooses the defaults of [`Locks`]. They are checked by [`LocksBuilder::build`].
#[derive(Debug)]
pub struct LocksBuilder {
    backend: Arc<dyn DistributedLock>,
    label: Option<String>,
    options: LockOptions,
}

impl LocksBuilder {
    pub(crate) fn with_options(mut self, options: LockOptions) -> Self {
        self.options = options;
        self
    }

    /// How the application calls itself in the store, before the host's name: 1 to 64 bytes without control characters,
    /// `@` and `#`.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into());
        self
    }

    setters!();

    /// Checks the choices.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) naming the option that is out of bounds; [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) where the store
    /// cannot do it.
    pub fn build(self) -> Result<Locks> {
        let capabilities = self.backend.capabilities();
        self.options.no_shorter_than(capabilities.min_lease).check(&capabilities)?;
        let identity = Identity::new(&self.label.unwrap_or_else(Identity::default_label))?;
        Ok(Locks::assemble(self.backend, identity, self.options))
    }
}
