//! Locks in an SQLite file, for the processes of one host.

mod checkpoint;
mod connection;
mod doctor;
mod error;
mod factory;
mod host_clock;
mod queue;
mod statements;
mod store;
mod sweep;
#[cfg(test)]
mod tests;
mod wake;

use std::collections::HashSet;
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, ListQuery, LockName,
    LockStatus, OwnerId, Page, Renewal, Result, Scope, StoreToken, Unlocked,
};
use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::rows::{Prefix, duration, holder, micros};
use crate::sweep::Sweeper;
pub use factory::{SqliteFactory, SqliteOptions, default_path};
use statements::{Ask, GRANT, HOLDER, INSPECT, LEAVE, LIST, RAISE, RELEASE, RENEW};
use store::{Answer, Failure, Store};
use wake::Wake;

/// How many leases one statement prolongs: it keeps other writers waiting meanwhile.
const RENEWED_AT_ONCE: usize = 256;

/// Behind every ticket: for who has none.
const END_OF_LINE: i64 = i64::MAX;

/// Locks in an SQLite file, which the processes of one host share.
///
/// Leases go by the host's clock since its start, so that setting the wall clock has no effect. Waiters are served in
/// the order in which they came, and are woken by whoever releases. If the file is removed or replaced, every hold in
/// it is lost, and noticed as lost at the next renewal.
///
/// The first grant makes the file and its tables. `inspect`, `list`, `evict` and `doctor` never do: where there is no
/// file, or one without these tables, they are an error of the kind [`ErrorKind::Refused`].
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

    fn new(store: Store, prefix: &str) -> Self {
        Self { store: Arc::new(store), prefix: Prefix::new(prefix), wake: Wake::new(), sweeper: Sweeper::default() }
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

    /// Takes the lock, if it is free and nobody with an earlier ticket waits for it.
    async fn grant(&self, claim: &Claim, ticket: i64) -> Result<Option<Grant>, Failure> {
        self.sweep_if_due();
        let key = self.key(&claim.name);
        let lease_us = micros(claim.lease);
        let ask = Ask {
            statement: GRANT,
            key: &key,
            owner: claim.owner.as_str(),
            lease_us,
            number: ticket,
            makes: true,
            ..Ask::default()
        };
        let answer = self.store.run(ask).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        let token = StoreToken::new(row.get::<i64, _>("token") as u64)?;
        Ok(Some(Grant::new(token, answer.sent + duration(lease_us))))
    }

    /// Ends the hold of this owner, and tells the next in line. None: it holds nothing.
    async fn release(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Unlocked>, Failure> {
        let key = self.key(name);
        let owner = owner.as_str();
        let answer = self.store.run(Ask { statement: RELEASE, key: &key, owner, ..Ask::default() }).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        if let Some(wake) = row.get("wake") {
            self.told(self.tell(&key, owner, wake).await)?;
        }
        Ok(Some(if row.get("in_time") { Unlocked::Released } else { Unlocked::NotHeld }))
    }

    /// The lock is free already: that a waiter could not be told only means that it notices at its next tick.
    fn told(&self, told: Result<(), Failure>) -> Result<(), Failure> {
        match told {
            Err(Failure::Error(error)) => {
                tracing::debug!(%error, "the next in line was not told");
                Ok(())
            }
            told => told,
        }
    }

    async fn unlock_or_leave(&self, claim: &Claim) -> Result<Unlocked, Failure> {
        if let Some(unlocked) = self.release(&claim.name, &claim.owner).await? {
            return Ok(unlocked);
        }
        let (key, owner) = (self.key(&claim.name), claim.owner.as_str());
        self.store.run(Ask { statement: LEAVE, key: &key, owner, ..Ask::default() }).await?;
        // We may have been told that it is our turn, or have released without telling anybody in an earlier try.
        self.told(self.wake_next(&key, owner).await)?;
        Ok(Unlocked::NotHeld)
    }

    async fn renew_some(&self, claims: &[Claim]) -> Result<Vec<Renewal>, Failure> {
        let leases: Vec<_> =
            claims.iter().map(|claim| (self.key(&claim.name), claim.owner.as_str(), micros(claim.lease))).collect();
        let leases = serde_json::to_string(&leases).expect("text and numbers are JSON");
        let answer =
            self.store.run(Ask { statement: RENEW, text: Some(&leases), many: true, ..Ask::default() }).await?;
        let held: HashSet<&str> = answer.rows.iter().map(|row| row.get("owner")).collect();
        let renewal = |claim: &Claim| match held.contains(claim.owner.as_str()) {
            true => Renewal::Held { valid_until: answer.sent + duration(micros(claim.lease)) },
            false => Renewal::NotHeld,
        };
        Ok(claims.iter().map(renewal).collect())
    }

    fn status(&self, row: &SqliteRow) -> Result<LockStatus> {
        let foreign = |what: &str| {
            let path = self.store.path.display();
            Error::new(ErrorKind::Refused, format!("the file {path} has a row whose {what} is none of ours"))
        };
        let name = self.prefix.name(row.get("name")).ok_or_else(|| foreign("name"))?;
        let holder = holder_in(row)?;
        let waiters: Vec<String> = serde_json::from_str(row.get("waiters")).map_err(|_| foreign("waiters"))?;
        Ok(LockStatus::new(name, holder, waiters.iter().map(|owner| OwnerId::from_store(owner))))
    }
}

fn holder_in(row: &SqliteRow) -> Result<Option<Holder>> {
    let Some(owner) = row.get::<Option<&str>, _>("owner") else { return Ok(None) };
    let left: i64 = row.get("left_us");
    // Of another boot there is no start to count from: its last renewal is all that is known.
    let held = row.get::<Option<i64>, _>("held_us").unwrap_or(row.get::<i64, _>("lease_us") - left);
    holder(owner, held, left, row.get("token")).map(Some)
}

#[async_trait]
impl DistributedLock for SqliteLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("sqlite", Scope::Host);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.min_lease = Duration::from_millis(10);
        capabilities.answers_within = self.store.busy;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.store.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        match self.grant(claim, END_OF_LINE).await {
            Err(Failure::Replaced) => self.grant(claim, END_OF_LINE).await,
            answer => answer,
        }
        .map_err(|failure| self.as_error(failure))
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        loop {
            if let Some(grant) = self.try_lock(claim).await? {
                return Ok(grant);
            }
            match self.wait_in_line(claim).await {
                Err(Failure::Replaced | Failure::Unmade(_)) => continue,
                answer => return answer.map_err(|failure| self.as_error(failure)),
            }
        }
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        match self.unlock_or_leave(claim).await {
            // The file that is there now has neither a hold nor a ticket of this owner.
            Err(Failure::Replaced | Failure::Unmade(_)) => Ok(Unlocked::NotHeld),
            answer => answer.map_err(|failure| self.as_error(failure)),
        }
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::with_capacity(claims.len());
        for some in claims.chunks(RENEWED_AT_ONCE) {
            match self.renew_some(some).await {
                Ok(renewals) => answers.extend(renewals.into_iter().map(Ok)),
                Err(Failure::Replaced | Failure::Unmade(_)) => {
                    answers.extend(some.iter().map(|_| Ok(Renewal::NotHeld)));
                }
                Err(Failure::Error(error)) => answers.extend(vec![Err(error); some.len()]),
            }
        }
        answers
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let key = self.key(name);
        let answer = self.run_again(Ask { statement: INSPECT, key: &key, ..Ask::default() }).await?;
        match answer.rows.first() {
            Some(row) => self.status(row),
            None => Ok(LockStatus::free(name.clone())),
        }
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        let key = self.key(name);
        let answer = self.run_again(Ask { statement: HOLDER, key: &key, ..Ask::default() }).await?;
        answer.rows.first().map_or(Ok(None), holder_in)
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        let (from, end) = self.prefix.range(&query.prefix);
        let after = query.after.as_ref().map(|name| self.key(name)).unwrap_or_default();
        let ask = Ask {
            statement: LIST,
            key: &from,
            owner: &after,
            number: query.fetch_size() as i64,
            text: Some(&end),
            many: true,
            ..Ask::default()
        };
        let answer = self.run_again(ask).await?;
        let mut locks: Vec<_> = answer.rows.iter().map(|row| self.status(row)).collect::<Result<_>>()?;
        let next = query.cut(&mut locks, |lock| &lock.name);
        Ok(Page::new(locks, next))
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
        while let Some(holder) = self.holder(name).await? {
            match self.release(name, &holder.owner).await {
                Ok(Some(Unlocked::Released)) => return Ok(Some(holder)),
                Ok(_) | Err(Failure::Replaced | Failure::Unmade(_)) => {}
                Err(Failure::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        let key = self.key(name);
        let number = above.get() as i64;
        self.run_again(Ask { statement: RAISE, key: &key, number, makes: true, ..Ask::default() }).await.map(drop)
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.sweeper.stop();
        self.store.close().await
    }
}
