//! Locks in a MySQL or MariaDB database, for every host that reaches it.

mod acquire;
mod arguments;
mod bell;
mod changes;
mod decide;
mod doctor;
mod error;
mod factory;
mod hand_over;
mod keep;
mod line;
mod modes;
mod rates;
mod release;
mod renew;
mod session;
mod statements;
mod status;
mod sweep;
mod together;
mod value;
mod waiters;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Finding, Grant, Holder, Kept, ListQuery, LockName, LockStatus,
    LockValue, Mode, Modes, OwnerId, Page, Proclaimed, Renewal, Reservation, Reserved, Result, Scope, StoreToken,
    Unlocked, Waiters,
};
use sqlx::mysql::MySqlConnectOptions;

use crate::keys::Prefix;
use crate::server::{Again, Answer, Server, ServerOptions, Statement, Unsettled};
use crate::sweep::Sweeper;
pub(crate) use arguments::{Argument, Text, arguments};
pub(crate) use error::{MySql, number_of};
pub use factory::MySqlFactory;
use line::Line;
pub use session::MySqlSessionLock;
pub(crate) use statements::NOW;
use statements::Statements;

/// Locks in a MySQL or MariaDB database.
///
/// A lock is a row, taken and released by one statement each while nobody waits. Leases go by the server's clock. Waiters
/// stand in line in a table; a release hands the lock to the first who lives, and rings its client's bell.
///
/// A hold that outlives its owner is the same row, with another owner. What owners show stands in a table of its own, which
/// is added to the tables of an earlier release when a client connects; clients of both releases can share them.
#[derive(Clone)]
pub struct MySqlLock {
    pub(crate) server: Arc<Server<MySql>>,
    statements: Arc<Statements>,
    pub(crate) prefix: Prefix,
    sweeper: Arc<Sweeper>,
    unsettled: Arc<Unsettled>,
    line: Arc<Line>,
    waiters: Arc<Waiters<String>>,
    /// This client as the database knows it; 0 if it does not.
    client: Arc<AtomicI64>,
    /// How to connect for a bell.
    bell: Arc<MySqlConnectOptions>,
}

impl fmt::Debug for MySqlLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("MySqlLock");
        f.field("server", &self.server.shown).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl MySqlLock {
    /// Connects to the server of a URL such as `mysql://user:password@db.internal/app`, in bounded time, and makes the
    /// tables if they are missing. [`ServerOptions`] has more to choose.
    ///
    /// # Errors
    /// As [`MySqlLock::with`].
    ///
    /// # Cancel safety
    /// Nothing is held yet. The tables may have been made.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        Self::with(ServerOptions::new(url)?.prefix(prefix)).await
    }
}

impl MySqlLock {
    /// Runs a script with these values, which is done after so many statements.
    async fn run<const N: usize>(
        &self,
        template: &Statement,
        values: [(&str, &String); N],
        done_after: usize,
        again: Again,
    ) -> Result<Answer<sqlx::MySql>> {
        self.server.run_script(template, script(template, values), done_after, again).await
    }
}

#[async_trait]
impl DistributedLock for MySqlLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("mysql", Scope::Network);
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
        match self.holder_of(name).await? {
            Some(holder) if holder.mode != Mode::Exclusive => self.end_some(name, Some(owner)).await,
            Some(holder) if holder.owner == *owner => self.end_hold(name).await,
            _ => Ok(None),
        }
    }

    async fn resize(&self, name: &LockName, permits: u32) -> Result<bool> {
        self.set_permits(name, permits).await
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        let (key, above) = (self.prefix.key(name), above.get() as i64);
        self.server.run(&self.statements.make, arguments!(key.as_str()), Again::Yes).await?;
        self.server.run(&self.statements.raise, arguments!(above, key.as_str(), above), Again::Yes).await.map(drop)
    }

    async fn reserve(&self, name: &LockName, wanted: &Reservation) -> Result<Reserved> {
        self.reserve_time(name, wanted).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.waiters.stop();
        self.be_known_as(0);
        self.sweeper.stop();
        self.server.close().await;
        Ok(())
    }
}

/// How many rows this statement of a request changed.
pub(crate) fn changed(answer: &Answer<sqlx::MySql>, statement: usize) -> u64 {
    answer.results.get(statement).map_or(0, sqlx::mysql::MySqlQueryResult::rows_affected)
}

/// The inserted id that it answered.
fn inserted(answer: &Answer<sqlx::MySql>, statement: usize) -> u64 {
    answer.results.get(statement).map_or(0, sqlx::mysql::MySqlQueryResult::last_insert_id)
}

/// Text as it stands in a script: bytes, which no collation touches, and nothing in it ends it.
fn hex(text: &str) -> String {
    let digits: String = text.bytes().map(|byte| format!("{byte:02x}")).collect();
    format!("x'{digits}'")
}

/// A script with these values.
fn script<const N: usize>(template: &str, values: [(&str, &String); N]) -> String {
    values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_value_ends_it() {
        let text = script("{key}, {owner}", [("{key}", &hex("a'; {owner}\\")), ("{owner}", &hex("\u{f6}"))]);
        assert_eq!(text, "x'61273b207b6f776e65727d5c', x'c3b6'");
    }
}
