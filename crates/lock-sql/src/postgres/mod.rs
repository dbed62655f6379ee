//! Locks in a PostgreSQL database, for every host that reaches it.

mod acquire;
mod arguments;
mod batch;
mod doctor;
mod error;
mod factory;
mod keep;
mod modes;
mod rates;
mod release;
mod renew;
mod session;
mod statements;
mod status;
mod sweep;
mod together;
mod waiters;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Finding, Grant, Holder, Kept, ListQuery, LockName, LockStatus,
    LockValue, Modes, OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result, Scope, StoreToken, Unlocked,
    Waiters,
};
use sqlx::postgres::PgConnectOptions;

use crate::keys::Prefix;
use crate::server::{Again, Server, ServerOptions, Unsettled};
use crate::sweep::Sweeper;
use acquire::Takes;
pub(crate) use arguments::arguments;
pub(crate) use error::Postgres;
pub use factory::PostgresFactory;
use release::Releases;
pub use session::PostgresSessionLock;
use statements::Statements;
pub(crate) use statements::the_row;

/// Locks in a PostgreSQL database.
///
/// A lock is a row. Waiters stand in a table; a release hands the lock to the first who lives in the same transaction,
/// and tells it by a notification. Leases go by the server's clock. No connection is kept for a lock, nor for a waiter:
/// a client has a bounded pool, and one more connection to listen while anybody waits.
#[derive(Clone)]
pub struct PostgresLock {
    pub(crate) server: Arc<Server<Postgres>>,
    statements: Arc<Statements>,
    pub(crate) prefix: Prefix,
    unsettled: Arc<Unsettled>,
    takes: Arc<Takes>,
    releases: Arc<Releases>,
    waiters: Arc<Waiters<String>>,
    /// This client as the database knows it; 0 if it does not.
    client: Arc<AtomicI64>,
    sweeper: Arc<Sweeper>,
    /// How to connect in order to listen; none where that cannot be.
    listens: Option<PgConnectOptions>,
    timeout: Duration,
    /// Where the tables are, quoted where it must be; and whether that was chosen.
    schema: String,
    schema_is_chosen: bool,
}

impl fmt::Debug for PostgresLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("PostgresLock");
        f.field("server", &self.server.shown).field("schema", &self.schema).field("prefix", &self.prefix);
        f.finish_non_exhaustive()
    }
}

impl PostgresLock {
    /// Connects to the server of a URL such as `postgres://user:password@db.internal/app`, in bounded time, and makes
    /// the tables if they are missing. [`ServerOptions`] has more to choose.
    ///
    /// # Errors
    /// As [`PostgresLock::with`].
    ///
    /// # Cancel safety
    /// Nothing is held yet. The tables may have been made.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        Self::with(ServerOptions::new(url)?.prefix(prefix)).await
    }
}

#[async_trait]
impl DistributedLock for PostgresLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("postgres", Scope::Network);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.numbers_grants = true;
        capabilities.keeps = true;
        capabilities.values = true;
        capabilities.modes = Modes::ALL;
        capabilities.takes_all = true;
        capabilities.limits_rates = true;
        capabilities.min_lease = Duration::from_millis(10);
        capabilities.answers_within = self.server.timeout;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.server.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.take(claim).await
    }

    async fn try_lock_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        self.take_together(claims).await
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
        self.keep_on(claim, rest).await
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        self.show(claim, value).await
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
        let arguments = arguments!(self.prefix.key(name), above.get() as i64);
        self.server.run(&self.statements.raise, arguments, Again::Yes).await.map(drop)
    }

    async fn reserve(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.reserve_time(name, wanted).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.waiters.stop();
        self.sweeper.stop();
        self.be_known_as(0);
        self.server.close().await;
        Ok(())
    }
}
