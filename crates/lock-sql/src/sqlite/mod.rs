//! Locks in an SQLite file, for the processes of one host.

mod acquire;
mod batch;
mod checkpoint;
mod connection;
mod doctor;
mod error;
mod host_clock;
mod keep;
mod mode_statements;
mod modes;
mod options;
mod queue;
mod rates;
mod release;
mod renew;
mod row;
mod statements;
mod status;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod together;
mod value;
mod waiters;
mod wake;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, Kept, ListQuery, LockName,
    LockStatus, LockValue, Modes, OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result, Scope, StoreToken,
    Unlocked,
};

use crate::keys::Prefix;
use crate::sweep::Sweeper;
pub use options::{SqliteFactory, SqliteOptions, default_path};
use statements::{Ask, RAISE};
use store::{Answer, Failure, Store};
use wake::Wake;

/// Locks in an SQLite file, which the processes of one host share.
///
/// Leases go by the host's clock since its start, so that setting the wall clock has no effect. Waiters are served in
/// the order in which they came, and are woken by whoever releases. If the file is removed or replaced, every hold in
/// it is lost, and noticed as lost at the next renewal.
///
/// The first grant makes the file and its tables. `inspect`, `list`, `evict` and `doctor` never do: where there is no
/// file, or one without these tables, they are an error of the kind [`ErrorKind::Refused`]. (Whoever opens a file of an
/// earlier release adds the table of values; earlier releases can go on using the file.)
///
/// A kept hold is on the disk when `keep` has answered, so it survives the end of every process and a crash of the host.
/// After a restart of the host it goes on by the wall clock. If that has gone back meanwhile, by more than the hold has
/// lasted, the hold lasts for its whole time from the start of the host: rather too long than run again what was to run
/// once.
///
/// The file must be on a local disk. Removing it by hand, with its `-wal` and `-shm`, ends all holds.
pub struct SqliteLock {
    store: Arc<Store>,
    prefix: Prefix,
    wake: Wake,
    sweeper: Sweeper,
}

impl fmt::Debug for SqliteLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteLock")
            .field("path", &self.store.path)
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl SqliteLock {
    /// Opens the file. The first grant makes it, in a folder that exists. [`SqliteOptions`] has more to choose.
    ///
    /// # Errors
    /// As [`SqliteOptions::open`].
    ///
    /// # Cancel safety
    /// Nothing is held yet, and nothing was made.
    pub async fn open(path: impl AsRef<Path>, prefix: &str) -> Result<Self> {
        SqliteOptions::new(path).prefix(prefix).open().await
    }

    fn new(store: Arc<Store>, prefix: &str) -> Self {
        Self { store, prefix: Prefix::new(prefix), wake: Wake::new(), sweeper: Sweeper::default() }
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.store.path
    }

    fn key(&self, name: &LockName) -> String {
        self.prefix.key(name)
    }

    /// Runs a statement, once more if the file was replaced.
    async fn run_again(&self, ask: Ask<'_>) -> Result<Answer> {
        match self.store.run(ask).await {
            Err(Failure::Replaced) => self.store.run(ask).await.map_err(|failure| self.as_error(failure)),
            answer => answer.map_err(|failure| self.as_error(failure)),
        }
    }

    fn as_error(&self, failure: Failure) -> Error {
        match failure {
            Failure::Error(error) | Failure::Unmade(error) => error,
            // Whatever was done was done in a file that nobody sees any more.
            Failure::Replaced => Error::new(
                ErrorKind::Unavailable,
                format!("the file {} was replaced meanwhile; try again", self.store.path.display()),
            ),
        }
    }
}

#[async_trait]
impl DistributedLock for SqliteLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("sqlite", Scope::Host);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.numbers_grants = true;
        capabilities.keeps = true;
        capabilities.values = true;
        capabilities.modes = Modes::ALL;
        capabilities.takes_all = true;
        capabilities.limits_rates = true;
        capabilities.min_lease = Duration::from_millis(10);
        capabilities.answers_within = self.store.busy;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.store.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.take_or_leave(claim).await
    }

    async fn try_lock_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        self.take_all(claims).await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.take_in_turn(claim).await
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        self.give_back(claim).await
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        self.renew_all(claims).await
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        self.keep_for(claim, rest).await
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        self.show_instead(claim, value).await
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.status_of(name).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.holder_of(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.page(query).await
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        self.end_hold(name).await
    }

    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        self.end_one(name, owner).await
    }

    async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        self.set_permits(name, permits).await
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        let key = self.key(name);
        let number = above.get() as i64;
        self.run_again(Ask { statement: RAISE, key: &key, number, makes: true, ..Ask::default() }).await.map(drop)
    }

    async fn reserve(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.reserve_time(name, wanted).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.sweeper.stop();
        self.store.close().await
    }
}
