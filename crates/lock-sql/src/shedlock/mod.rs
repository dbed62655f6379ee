//! [ShedLock](https://github.com/lukas-krecan/ShedLock)'s table, joined: the jobs of Java programs and our locks
//! exclude each other, so that a fleet can move from one to the other a service at a time.
//!
//! ShedLock has a row for each job: its `name`, `lock_until`, `locked_at` and `locked_by`. A client takes the row if
//! `lock_until` is over, prolongs its hold, and ends it, by the database's time and in one statement each. Only
//! `locked_by` tells whose the row is. Rows stay.
//!
//! **A lock is two holds.** Our own lock decides among ours, as it does elsewhere: it has the line, the tokens and the
//! values, and it refuses requests that come late. Its holder takes the row besides, with the whole text of the owner
//! as `locked_by`. The lock is held by whoever has both.
//!
//! 1. **Acquire**: our lock first, then the row. If another has the row, `try_lock` gives our lock back. `lock` keeps
//!    it, and so its turn, and looks at the row again and again. The statement that takes the row demands that the
//!    owner holds our lock. It locks our row until it commits. So a request that lands after the release does nothing.
//! 2. **Renew**: our lock first, then the row. So the row never ends before our lock. If one is lost, the other is
//!    given up.
//! 3. **Release**: the row first, so that the next in our line finds it free. If a request to take the row may still be
//!    on its way, the row comes last: after our lock is released, that request can do nothing. Whoever ends a hold has
//!    seen it, and names its `locked_at`: a request that lands late leaves later holds, as those of the same host.
//! 4. **Keep**: the row first, then our lock, so that nobody finds the row free while our lock is kept. Both then have
//!    another owner, `kept#` and the first owner's text. What that one asks late finds that the row is another's.
//! 5. **Evict**: the row first, whoever has it, then our lock, by the same owner.
//!
//! Whoever has the row is shown as the holder. An owner that has only our lock is shown as the first in line.
//!
//! `table.rs` is what is asked of the table, `layout.rs` what the table has to be like, `postgres.rs` and `mysql.rs`
//! are the statements. The verbs are in `acquire.rs`, `renew.rs`, `release.rs` and `status.rs`.

mod acquire;
mod layout;
#[cfg(feature = "mysql")]
mod mysql;
#[cfg(feature = "postgres")]
mod postgres;
mod release;
mod renew;
mod status;
mod table;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, Kept, ListQuery, LockName,
    LockStatus, LockValue, Modes, Notice, OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result,
    StoreToken, Unlocked, warn_of,
};

pub(crate) use layout::TableName;
use release::Ending;
use table::Table;

/// The shortest lease: a lock takes two requests.
const SHORTEST: Duration = Duration::from_millis(100);

/// Our locks, each of which also holds its row in this table.
#[derive(Debug)]
struct Shedlock<B, T> {
    ours: B,
    table: T,
    ending: Ending,
}

impl<B: DistributedLock, T: Table> Shedlock<B, T> {
    /// Logs the settings that void a promise.
    async fn new(ours: B, table: T) -> Self {
        warn_of(&table.findings().await.unwrap_or_default(), &table.layout().server);
        Self { ours, table, ending: Ending::default() }
    }
}

#[async_trait]
#[deny(clippy::missing_trait_methods)]
impl<B: DistributedLock, T: Table> DistributedLock for Shedlock<B, T> {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = self.ours.capabilities();
        capabilities.min_lease = capabilities.min_lease.max(SHORTEST);
        // Who takes the row tells nobody.
        capabilities.prompt_loss = false;
        capabilities.tells_changes = false;
        capabilities.modes = Modes::NONE;
        capabilities.takes_all = false;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.ours.clock()
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.try_both(claim).await
    }

    /// One after the other, since each lock has a row in its table.
    async fn try_lock_all(&self, _claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        Err(Error::new(ErrorKind::Unsupported, "ShedLock's rows are taken one after the other"))
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.wait_for_both(claim).await
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        self.give_back(claim).await
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        self.renew_both(claims).await
    }

    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        self.keep_both(claim, rest).await
    }

    async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        self.ours.proclaim(claim, value).await
    }

    fn changes(&self, name: &LockName) -> BoxStream<'static, ()> {
        self.ours.changes(name)
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        self.ours.notices()
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

    /// Its table knows of one holder.
    async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        match self.holder(name).await? {
            Some(holder) if holder.owner == *owner => self.evict(name).await,
            _ => Ok(None),
        }
    }

    async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        self.ours.resize(name, permits).await
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        self.ours.raise_tokens(name, above).await
    }

    async fn reserve(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.ours.reserve(name, wanted).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        let mut found = self.ours.doctor().await?;
        found.extend(self.table.findings().await?);
        Ok(found)
    }

    async fn close(&self) -> Result<()> {
        self.ours.close().await
    }
}
