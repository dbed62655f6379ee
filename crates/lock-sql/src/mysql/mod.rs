//! Locks in a MySQL or MariaDB database, for every host that reaches it.

mod doctor;
mod error;
mod factory;
mod poll;
mod statements;
mod sweep;
mod turns;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, ListQuery, LockName,
    LockStatus, OwnerId, Page, Renewal, Result, Scope, StoreToken, Unlocked,
};
use sqlx::mysql::{MySqlArguments, MySqlRow};

use crate::rows::{Prefix, duration, holder, micros};
use crate::server::{Again, Read, Server, ServerOptions, Statement, Unsettled};
use crate::sweep::Sweeper;
use error::MySql;
pub use factory::MySqlFactory;
use statements::{RENEWED_AT_ONCE, Statements};
use turns::Turns;

/// Behind every ticket: for who has none.
const END_OF_LINE: i64 = i64::MAX;

const GAVE_UP: &str = "this owner has given up; each acquisition needs an owner of its own";

/// The parameters of a statement. Text goes as bytes, which no collation touches.
macro_rules! arguments {
    () => {
        sqlx::mysql::MySqlArguments::default()
    };
    ($($value:expr),+) => {{
        let mut arguments = sqlx::mysql::MySqlArguments::default();
        $($crate::mysql::Argument::add_to($value, &mut arguments);)+
        arguments
    }};
}
use arguments;

/// What a statement can be given.
trait Argument {
    fn add_to(self, arguments: &mut MySqlArguments);
}

impl Argument for &[u8] {
    fn add_to(self, arguments: &mut MySqlArguments) {
        sqlx::Arguments::add(arguments, self).expect("bytes can be sent");
    }
}

impl Argument for &str {
    fn add_to(self, arguments: &mut MySqlArguments) {
        self.as_bytes().add_to(arguments);
    }
}

impl Argument for i64 {
    fn add_to(self, arguments: &mut MySqlArguments) {
        sqlx::Arguments::add(arguments, self).expect("numbers can be sent");
    }
}

/// Locks in a MySQL or MariaDB database.
///
/// A lock is a row, taken and released by one statement each. Leases go by the server's clock. Nothing wakes a waiter:
/// it asks, soon at first and then at longer and longer intervals; of the tasks of one client that want the same lock,
/// the first does. Claims that are [`fair`](Claim::fair), and those that were passed over often, draw tickets and are
/// served in their order.
pub struct MySqlLock {
    server: Arc<Server<MySql>>,
    statements: Arc<Statements>,
    prefix: Prefix,
    sweeper: Sweeper,
    unsettled: Unsettled,
    turns: Turns,
}

impl fmt::Debug for MySqlLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("MySqlLock");
        f.field("server", &self.server.shown).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// What a waiter goes by.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// How long the lock is held; none: it is free.
    left_us: Option<i64>,
    /// How often it was granted.
    turns: i64,
    /// How many are before our ticket.
    ahead: i64,
}

impl Seen {
    /// Is the lock free, and nobody before us?
    fn is_free(&self) -> bool {
        self.left_us.is_none() && self.ahead == 0
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

    /// Takes the lock, if its row is there, it is free, and nobody is in line: before the ticket, or for sure.
    async fn grant(&self, claim: &Claim, key: &str, ticket: Option<i64>) -> Result<Option<Grant>> {
        self.sweep_if_due();
        let (owner, lease) = (claim.owner.as_str(), micros(claim.lease));
        let (statement, arguments) = match ticket {
            None => (&self.statements.grant, arguments!(owner, owner, lease, lease, owner, key, owner, owner)),
            Some(ticket) => (
                &self.statements.grant_in_line,
                arguments!(key, owner, owner, owner, lease, lease, owner, key, owner, owner, key, ticket, owner),
            ),
        };
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = match self.server.run(statement, arguments, Again::Yes).await {
            Ok(answer) => answer,
            Err(error) => {
                if error.is_refused() {
                    on_its_way.settle();
                }
                return Err(error);
            }
        };
        if !answer.twice {
            on_its_way.settle();
        }
        if answer.result.rows_affected() == 0 {
            return Ok(None);
        }
        let token = StoreToken::new(answer.result.last_insert_id())?;
        Ok(Some(Grant::new(token, answer.sent + duration(lease))))
    }

    /// What there is to see of the lock; none if it has no row.
    async fn look(&self, claim: &Claim, key: &str, ticket: i64) -> Result<Option<Seen>> {
        let owner = claim.owner.as_str();
        let answer =
            self.server.run(&self.statements.look, arguments!(key, ticket, owner, owner, key), Again::Yes).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        if row.read::<i64, _>("gone")? > 0 {
            return Err(Error::new(ErrorKind::Refused, GAVE_UP));
        }
        let mut seen = Seen { left_us: row.read("left_us")?, turns: row.read("turns")?, ahead: row.read("ahead")? };
        let lease_us: i64 = row.read("lease_us")?;
        if seen.left_us.is_some_and(|left| left > lease_us) {
            self.server.run(&self.statements.shorten, arguments!(key), Again::Yes).await?;
            seen.left_us = Some(lease_us);
        }
        Ok(Some(seen))
    }

    /// Takes the lock, or answers why not.
    async fn try_once(&self, claim: &Claim, key: &str, mut ticket: Option<i64>) -> Result<Result<Grant, Seen>> {
        // The lease counts from here, also where a row has to be made first.
        let latest = self.server.clock.now() + duration(micros(claim.lease));
        loop {
            if let Some(grant) = self.grant(claim, key, ticket).await? {
                return Ok(Ok(Grant::new(grant.token, grant.valid_until.min(latest))));
            }
            match self.look(claim, key, ticket.unwrap_or(END_OF_LINE)).await? {
                // The line that there may have been is none.
                Some(seen) if seen.is_free() && ticket.is_none() => ticket = Some(END_OF_LINE),
                Some(seen) => return Ok(Err(seen)),
                None => drop(self.server.run(&self.statements.make, arguments!(key), Again::Yes).await?),
            }
        }
    }

    /// Ends the hold of this owner. None: it holds nothing.
    async fn release(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Unlocked>> {
        let key = self.prefix.key(name);
        let arguments = arguments!(key.as_str(), owner.as_str());
        // Sent again, it would say that the lock was not held.
        let answer = self.server.run(&self.statements.release, arguments, Again::No).await?;
        Ok(match (answer.result.rows_affected(), answer.result.last_insert_id()) {
            (0, _) => None,
            (_, 0) => Some(Unlocked::NotHeld),
            _ => Some(Unlocked::Released),
        })
    }

    /// Prolongs leases of the same length. A batch that was prolonged as a whole is done; in another, each claim is
    /// asked for alone, since the server does not say which it was.
    async fn renew_some(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let lease = micros(claims[0].lease);
        let prolong = async |statement: &Statement, some: &[Claim], as_many: usize| {
            let mut arguments = arguments!(lease, lease);
            // Filled up with the last one, so that the statement is always the same.
            let filled = || (0..as_many).map(|at| &some[at.min(some.len() - 1)]);
            filled().for_each(|claim| self.prefix.key(&claim.name).as_str().add_to(&mut arguments));
            filled().for_each(|claim| claim.owner.as_str().add_to(&mut arguments));
            let answer = self.server.run(statement, arguments, Again::Yes).await?;
            let held = Renewal::Held { valid_until: answer.sent + duration(lease) };
            Ok::<_, Error>((held, answer.result.rows_affected() == some.len() as u64))
        };
        let (held, all) = prolong(&self.statements.renew, claims, RENEWED_AT_ONCE).await?;
        if all {
            return Ok(vec![held; claims.len()]);
        }
        let mut renewals = Vec::with_capacity(claims.len());
        for claim in claims {
            let (held, is_held) = prolong(&self.statements.renew_one, std::slice::from_ref(claim), 1).await?;
            renewals.push(if is_held { held } else { Renewal::NotHeld });
        }
        Ok(renewals)
    }

    /// What a caller is told: of several requests, one before the last may have done something.
    fn told(&self, claim: &Claim, error: Error) -> Error {
        if self.unsettled.contains(&claim.owner) { error.after_something_was_done() } else { error }
    }

    fn status(&self, row: &MySqlRow, waiters: &mut HashMap<String, Vec<OwnerId>>) -> Result<LockStatus> {
        let key = self.text(row, "name")?.ok_or_else(|| self.foreign())?;
        let name = self.prefix.name(&key).ok_or_else(|| self.foreign())?;
        Ok(LockStatus::new(name, self.holder_in(row)?, waiters.remove(&key).unwrap_or_default()))
    }

    fn holder_in(&self, row: &MySqlRow) -> Result<Option<Holder>> {
        let Some(owner) = self.text(row, "owner")? else { return Ok(None) };
        holder(&owner, row.read("held_us")?, row.read("left_us")?, row.read("token")?).map(Some)
    }

    /// Who waits for the locks from this key to that.
    async fn waiters(&self, from: &str, to: &str) -> Result<HashMap<String, Vec<OwnerId>>> {
        let answer = self.server.run(&self.statements.waiters, arguments!(from, to), Again::Yes).await?;
        let mut waiters: HashMap<_, Vec<_>> = HashMap::new();
        for row in &answer.rows {
            let (Some(key), Some(owner)) = (self.text(row, "name")?, self.text(row, "owner")?) else { continue };
            waiters.entry(key).or_default().push(OwnerId::from_store(&owner));
        }
        Ok(waiters)
    }

    fn text(&self, row: &MySqlRow, column: &str) -> Result<Option<String>> {
        let bytes: Option<Vec<u8>> = row.read(column)?;
        bytes.map(|bytes| String::from_utf8(bytes).map_err(|_| self.foreign())).transpose()
    }

    fn foreign(&self) -> Error {
        let server = &self.server.shown;
        Error::new(
            ErrorKind::Refused,
            format!("the server {server}: a row has a name or an owner that is none of ours"),
        )
    }
}

#[async_trait]
impl DistributedLock for MySqlLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("mysql", Scope::Network);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.min_lease = Duration::from_millis(10);
        capabilities.answers_within = self.server.timeout;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.server.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        let tried = self.try_once(claim, &self.prefix.key(&claim.name), None).await;
        let grant = tried.map_err(|error| self.told(claim, error))?.ok();
        if grant.is_none() && self.unsettled.contains(&claim.owner) {
            // Nobody undoes what was denied, and its first copy may land yet.
            self.unlock(claim).await.map_err(Error::after_something_was_done)?;
        }
        Ok(grant)
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        let key = self.prefix.key(&claim.name);
        // Who has a ticket stands in the line of all clients instead.
        let _turn = if claim.fair { None } else { Some(self.turns.wait(&key).await) };
        let granted = async {
            match self.try_once(claim, &key, None).await? {
                Ok(grant) => Ok(grant),
                Err(seen) => self.wait_for(claim, &key, seen).await,
            }
        };
        granted.await.map_err(|error| self.told(claim, error))
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        let owner = claim.owner.as_str();
        if self.unsettled.contains(&claim.owner) {
            for undo in [&self.statements.give_up, &self.statements.leave] {
                self.server.run(undo, arguments!(owner), Again::Yes).await?;
            }
        }
        let unlocked = self.release(&claim.name, &claim.owner).await?;
        self.unsettled.forget(&claim.owner);
        Ok(unlocked.unwrap_or(Unlocked::NotHeld))
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::with_capacity(claims.len());
        for same in claims.chunk_by(|one, next| one.lease == next.lease) {
            for some in same.chunks(RENEWED_AT_ONCE) {
                match self.renew_some(some).await {
                    Ok(renewals) => answers.extend(renewals.into_iter().map(Ok)),
                    Err(error) => answers.extend(vec![Err(error); some.len()]),
                }
            }
        }
        answers
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let key = self.prefix.key(name);
        let waiters = self.waiters(&key, &key).await?.remove(&key).unwrap_or_default();
        Ok(LockStatus::new(name.clone(), self.holder(name).await?, waiters))
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        let key = self.prefix.key(name);
        let answer = self.server.run(&self.statements.holder, arguments!(key.as_str()), Again::Yes).await?;
        answer.rows.first().map_or(Ok(None), |row| self.holder_in(row))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        let (from, end) = self.prefix.range(&query.prefix);
        let (from, end) = (from.as_str(), end.as_str());
        let after = query.after.as_ref().map(|name| self.prefix.key(name)).unwrap_or_default();
        let after = after.as_str();
        let arguments = arguments!(from, after, end, from, after, end, query.fetch_size() as i64);
        let answer = self.server.run(&self.statements.list, arguments, Again::Yes).await?;
        let (Some(first), Some(last)) = (answer.rows.first(), answer.rows.last()) else { return Ok(Page::default()) };
        let key = |row| self.text(row, "name").map(Option::unwrap_or_default);
        let mut waiters = self.waiters(&key(first)?, &key(last)?).await?;
        let mut locks: Vec<_> = answer.rows.iter().map(|row| self.status(row, &mut waiters)).collect::<Result<_>>()?;
        let next = query.cut(&mut locks, |lock| &lock.name);
        Ok(Page::new(locks, next))
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
        while let Some(holder) = self.holder(name).await? {
            if self.release(name, &holder.owner).await? == Some(Unlocked::Released) {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        let (key, above) = (self.prefix.key(name), above.get() as i64);
        self.server.run(&self.statements.make, arguments!(key.as_str()), Again::Yes).await?;
        self.server.run(&self.statements.raise, arguments!(above, key.as_str(), above), Again::Yes).await.map(drop)
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.sweeper.stop();
        self.server.close().await;
        Ok(())
    }
}
