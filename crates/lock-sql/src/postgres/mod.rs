//! Locks in a PostgreSQL database, for every host that reaches it.

mod doctor;
mod error;
mod factory;
mod statements;
mod watch;

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, InLine, ListQuery, LockName,
    LockStatus, News, OwnerId, Page, Renewal, Result, Scope, StoreToken, Unlocked, Waiters, Waiting,
};
use sqlx::postgres::{PgConnectOptions, PgRow};

use crate::rows::{Prefix, duration, holder, micros};
use crate::server::{Again, Answer, Read, Server, ServerOptions, Unsettled};
use crate::sweep::{Sweeper, Swept};
use error::Postgres;
pub use factory::PostgresFactory;
use statements::{SWEPT_AT_ONCE, Statements};

/// How many leases one statement prolongs: it keeps others from these locks meanwhile.
const RENEWED_AT_ONCE: usize = 500;

/// The parameters of a statement.
macro_rules! arguments {
    () => {
        sqlx::postgres::PgArguments::default()
    };
    ($($value:expr),+) => {{
        use sqlx::Arguments as _;
        let mut arguments = sqlx::postgres::PgArguments::default();
        $(arguments.add($value).expect("numbers and text can be sent");)+
        arguments
    }};
}
use arguments;

/// Locks in a PostgreSQL database.
///
/// A lock is a row. Waiters stand in a table; a release hands the lock to the first who lives in the same transaction,
/// and tells it by a notification. Leases go by the server's clock. No connection is kept for a lock, nor for a waiter:
/// a client has a bounded pool, and one more connection to listen while anybody waits.
#[derive(Clone)]
pub struct PostgresLock {
    server: Arc<Server<Postgres>>,
    statements: Arc<Statements>,
    prefix: Prefix,
    unsettled: Arc<Unsettled>,
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

/// What an attempt was answered.
enum Acquired {
    Granted(Grant),
    /// Held by another for so many microseconds more, with this token.
    Busy {
        left_us: i64,
        token: i64,
        in_line: InLine,
    },
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

    async fn acquire(&self, claim: &Claim, key: &str, place: Option<(i64, u64)>) -> Result<Acquired> {
        self.sweep_if_due();
        let lease_us = micros(claim.lease);
        let (client, place) = (place.map(|place| place.0), place.map_or(0, |place| place.1 as i64));
        let arguments = arguments!(key, claim.owner.as_str(), lease_us, client, place);
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = self.server.run(&self.statements.acquire, arguments, Again::Yes).await;
        let answer = match answer {
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
        let [token, left_us, now_us, held]: [Option<i64>; 4] = the_row(&answer)?.read(0)?;
        match (token, left_us) {
            (Some(token), Some(left_us)) => Ok(Acquired::Granted(Grant::new(
                StoreToken::new(token as u64)?,
                answer.sent + duration(left_us.min(lease_us)),
            ))),
            (None, Some(left_us)) => Ok(Acquired::Busy {
                left_us,
                token: held.unwrap_or_default(),
                in_line: InLine { sent: answer.sent, store_us: now_us.unwrap_or_default() },
            }),
            _ => Err(Error::new(
                ErrorKind::Refused,
                "this owner has given up; each acquisition needs an owner of its own",
            )),
        }
    }

    /// Ends the hold of this owner, or its waiting. None: it holds nothing.
    async fn release(&self, name: &LockName, owner: &OwnerId, gives_up: bool) -> Result<Option<Unlocked>> {
        let alone = self.listens.is_some();
        let arguments = arguments!(self.prefix.key(name), owner.as_str(), gives_up, alone);
        // Sent again, it would say that the lock was not held.
        let answer = self.server.run(&self.statements.release, arguments, Again::No).await?;
        let in_time: Option<bool> = the_row(&answer)?.read(0)?;
        Ok(in_time.map(|in_time| if in_time { Unlocked::Released } else { Unlocked::NotHeld }))
    }

    async fn renew_some(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let keys: Vec<_> = claims.iter().map(|claim| self.prefix.key(&claim.name)).collect();
        let owners: Vec<_> = claims.iter().map(|claim| claim.owner.as_str()).collect();
        let leases: Vec<_> = claims.iter().map(|claim| micros(claim.lease)).collect();
        let answer = self.server.run(&self.statements.renew, arguments!(keys, owners, leases), Again::Yes).await?;
        let held: HashSet<&str> = answer.rows.iter().map(|row| row.read("owner")).collect::<Result<_>>()?;
        let renewal = |claim: &Claim| match held.contains(claim.owner.as_str()) {
            true => Renewal::Held { valid_until: answer.sent + duration(micros(claim.lease)) },
            false => Renewal::NotHeld,
        };
        Ok(claims.iter().map(renewal).collect())
    }

    fn sweep_if_due(&self) {
        self.sweeper.consider(|| {
            let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
            move |apart| sweep(Arc::clone(&server), Arc::clone(&statements), micros(apart)).boxed()
        });
    }

    fn status(&self, row: &PgRow) -> Result<LockStatus> {
        let name = self.prefix.name(row.read("name")?).ok_or_else(|| {
            let server = &self.server.shown;
            Error::new(ErrorKind::Refused, format!("the server {server}: a row has a name that is none of ours"))
        })?;
        let holder = match row.read::<Option<&str>, _>("owner")? {
            Some(owner) => Some(holder(owner, row.read("held_us")?, row.read("left_us")?, row.read("token")?)?),
            None => None,
        };
        let waiters: Vec<String> = row.read("waiters")?;
        Ok(LockStatus::new(name, holder, waiters.iter().map(|owner| OwnerId::from_store(owner))))
    }
}

/// Looks at the next rows of each table, unless the first of them was looked at just now.
async fn sweep(server: Arc<Server<Postgres>>, statements: Arc<Statements>, apart: i64) -> Result<Option<Swept>> {
    let mut swept = Swept { looked_at: SWEPT_AT_ONCE, deleted: 0 };
    for (number, statement) in statements.sweep.iter().enumerate() {
        let apart = if number == 0 { apart } else { 0 };
        let answer = server.run_beside(statement, arguments!(apart)).await?;
        match answer.rows.first() {
            Some(row) => swept.deleted += row.read::<i64, _>("deleted")?.unsigned_abs(),
            None if number == 0 => return Ok(None),
            None => {}
        }
    }
    Ok(Some(swept))
}

/// The next news, without grants from before the one that was seen when the lock was another's: they were over by then,
/// though this process may have been stopped and hear of them only now.
async fn later_than(held: i64, waiting: &mut Waiting<String>) -> News {
    loop {
        match waiting.news().await {
            News::Granted { token, .. } if token as i64 <= held => {}
            news => return news,
        }
    }
}

/// The row of a statement that always answers one.
fn the_row(answer: &Answer<sqlx::Postgres>) -> Result<&PgRow> {
    answer.rows.first().ok_or_else(|| Error::new(ErrorKind::Unknown, "the server answered nothing"))
}

#[async_trait]
impl DistributedLock for PostgresLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("postgres", Scope::Network);
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
        if let Acquired::Granted(grant) = self.acquire(claim, &self.prefix.key(&claim.name), None).await? {
            return Ok(Some(grant));
        }
        if self.unsettled.contains(&claim.owner) {
            // Nobody undoes what was denied, and its first copy may land yet.
            self.unlock(claim).await.map_err(Error::after_something_was_done)?;
        }
        Ok(None)
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        let key = self.prefix.key(&claim.name);
        // Before the request, so that no notification comes too early.
        let mut waiting = self.waiters.register(claim, key.clone());
        let mut may_wait = false;
        loop {
            let client = self.known_as();
            let told = client.map(|client| (client, waiting.number()));
            let acquired = self.acquire(claim, &key, told).await;
            let acquired = acquired.map_err(|error| if may_wait { error.after_something_was_done() } else { error });
            let (left_us, held, in_line) = match acquired? {
                Acquired::Granted(grant) => return Ok(grant),
                Acquired::Busy { left_us, token, in_line } => (left_us, token, in_line),
            };
            may_wait = true;
            self.waiters.ensure_task(watch::TURNS.0, || {
                self.be_known_as(0);
                watch::keep_watching(self.clone())
            });
            if client.is_some() {
                waiting.entered(Some(duration(left_us)));
            }
            match later_than(held, &mut waiting).await {
                News::Granted { token, at_us, arrived } => {
                    let valid_until = waiting.valid_until(&in_line, at_us, arrived, duration(micros(claim.lease)));
                    return Ok(Grant::new(StoreToken::new(token)?, valid_until));
                }
                News::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        let gives_up = self.unsettled.contains(&claim.owner);
        let unlocked = self.release(&claim.name, &claim.owner, gives_up).await?;
        self.unsettled.forget(&claim.owner);
        Ok(unlocked.unwrap_or(Unlocked::NotHeld))
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::with_capacity(claims.len());
        for some in claims.chunks(RENEWED_AT_ONCE) {
            match self.renew_some(some).await {
                Ok(renewals) => answers.extend(renewals.into_iter().map(Ok)),
                Err(error) => answers.extend(vec![Err(error); some.len()]),
            }
        }
        answers
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let answer = self.server.run(&self.statements.inspect, arguments!(self.prefix.key(name)), Again::Yes).await?;
        self.status(the_row(&answer)?)
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        let answer = self.server.run(&self.statements.holder, arguments!(self.prefix.key(name)), Again::Yes).await?;
        let held =
            |row: &PgRow| holder(row.read("owner")?, row.read("held_us")?, row.read("left_us")?, row.read("token")?);
        answer.rows.first().map(held).transpose()
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        let (from, end) = self.prefix.range(&query.prefix);
        let after = query.after.as_ref().map(|name| self.prefix.key(name)).unwrap_or_default();
        let arguments = arguments!(from, after, end, query.fetch_size() as i64);
        let answer = self.server.run(&self.statements.list, arguments, Again::Yes).await?;
        let mut locks: Vec<_> = answer.rows.iter().map(|row| self.status(row)).collect::<Result<_>>()?;
        let next = query.cut(&mut locks, |lock| &lock.name);
        Ok(Page::new(locks, next))
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
        while let Some(holder) = self.holder(name).await? {
            if self.release(name, &holder.owner, false).await? == Some(Unlocked::Released) {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        let arguments = arguments!(self.prefix.key(name), above.get() as i64);
        self.server.run(&self.statements.raise, arguments, Again::Yes).await.map(drop)
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
