//! Locks by sessions: the line is PostgreSQL's own, that of an advisory lock, and no request waits for the disk.
//!
//! Each claim has a session, a connection of its own, which takes the advisory lock on the hash of the name and writes
//! a note of its hold, in a table that is not logged (`schema.sql`). Why that is a lock by the contract:
//!
//! - **One at a time.** A grant needs both: the advisory lock, which one session has at a time; and that the note has
//!   no owner or is over. It is written by the statement that grants, so that the row decides between two who come at
//!   once.
//! - **A lease, not a connection.** A server cannot tell a crash of the client from a connection that something in
//!   between reset, while the client lives and believes. So the end of a session frees the advisory lock, and the note
//!   keeps others out until the lease is over. The next in line has its turn then.
//! - **Cut off.** The server ends a session that was idle for longer than its lease (`idle_session_timeout`, set before
//!   anything is asked, and kept at the lease of the claim), so that a client that is stopped keeps no line waiting. A
//!   request is one message, so that half of one does not keep the server from seeing that the session is idle.
//! - **`valid_until`** counts from the sending of the request that granted or renewed, and the note from when it was
//!   done. A grant that had to wait is dated by (the sending) + (the time of the grant − the time of the request's
//!   beginning), both by the server's clock, as on other stores; after five seconds, another request confirms it
//!   instead.
//! - **Undone is gone.** Which process a session is, and when that began, is known before it is asked for a lock. A
//!   claim that was given up, or without an answer, is undone over another connection: that process is ended, with all
//!   that is still on its way to it, and only when it is gone the note is freed. A session of which a request to take a
//!   lock was given up is never used again.
//! - **Tokens** are a base and a sequence, drawn when the lock was had. The base is raised to the server's clock by
//!   each client that connects, and never lowered; it is read with each grant. After a crash the sequence may have
//!   fallen back by what it counted in the last second: the first session after it leaps over that (`open`), which it
//!   knows by the notes' table, that is then empty.
//! - **A hold outlives its session.** If that breaks, or its runtime ends, the note is renewed, and freed, over other
//!   connections; whoever is next looks ten times a second.
//! - **A hold that is kept** is a note without a session. The note is changed before the advisory lock is let go. So
//!   whoever has that lock next finds a hold that lasts, and looks ten times a second.
//!
//! Not promised: exclusion over a crash or a fail-over of the server. It forgets the notes, and ends all sessions: who
//! held is told at the next renewal.

mod acquire;
mod connection;
mod doctor;
mod factory;
mod keep;
mod release;
mod renew;
mod statements;
mod status;
mod sweep;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, Instant, Kept, ListQuery,
    LockName, LockStatus, LockValue, Page, Proclaimed, Renewal, Result, Scope, StoreToken, Unlocked,
};
use sqlx::postgres::PgConnectOptions;

use super::arguments::arguments;
use super::error::Postgres;
use crate::keys::Prefix;
use crate::server::{Again, Read, Server, ServerOptions, Statement};
use crate::session::{
    AnsweredBy, BySessions, Claims, Does, Failed, Sessions, Taken, end_hold, give_back, renew_all, take, waited_in_vain,
};
use crate::sweep::Sweeper;
use connection::{Identity, Session};
pub(super) use statements::SCHEMA;
use statements::{Statements, literal};

/// Locks in a PostgreSQL database, version 14 or later, by sessions of the server: the mode `session`.
///
/// It takes one connection for each name that is held or waited for, and no request waits for the disk. Waiters stand
/// in the line of an advisory lock. A restart of the server after a crash forgets who holds what.
///
/// These locks are others than those of [`PostgresLock`](crate::PostgresLock): tables are of one mode, that of their
/// first user, and a client of the other mode is refused.
#[derive(Clone)]
pub struct PostgresSessionLock {
    /// For all but taking and holding.
    server: Arc<Server<Postgres>>,
    /// How a session connects.
    connecting: PgConnectOptions,
    statements: Arc<Statements>,
    prefix: Prefix,
    sessions: Arc<Sessions<Postgres, Identity>>,
    claims: Arc<Claims<Postgres, Identity, i64>>,
    sweeper: Arc<Sweeper>,
    /// Where the tables are, quoted where it must be.
    schema: String,
}

impl fmt::Debug for PostgresSessionLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("PostgresSessionLock");
        f.field("server", &self.server.shown).field("schema", &self.schema).field("prefix", &self.prefix);
        f.finish_non_exhaustive()
    }
}

impl PostgresSessionLock {
    /// Connects to the server of a URL such as `postgres://user:password@db.internal/app`, in bounded time, and makes
    /// the tables if they are missing. [`ServerOptions`] has more to choose.
    ///
    /// # Errors
    /// As [`PostgresSessionLock::with`].
    ///
    /// # Cancel safety
    /// Nothing is held yet. The tables may have been made.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        Self::with(ServerOptions::new(url)?.prefix(prefix)).await
    }

    /// What sets for how long this session may be idle; nothing if that is as it should be.
    fn set_idle(&self, session: &Session, lease: Duration) -> String {
        match idle(lease) == session.idle {
            true => String::new(),
            false => format!("SET idle_session_timeout = {}; ", idle_ms(lease)),
        }
    }

    /// Has all tokens be above this number, or else above the server's clock.
    async fn raise(&self, above: Option<StoreToken>) -> Result<()> {
        let arguments = arguments!(above.map(|above| above.get() as i64));
        self.server.run(&self.statements.raise, arguments, Again::Yes).await.map(drop)
    }
}

/// For how many milliseconds a session may be idle that holds for so long, or wants to. The server takes no more than
/// 32 bits, and 0 for no limit.
fn idle_ms(lease: Duration) -> i64 {
    let millis = lease.as_nanos().div_ceil(1_000_000);
    i64::from(i32::try_from(millis).unwrap_or(i32::MAX)).max(1)
}

fn idle(lease: Duration) -> Duration {
    Duration::from_millis(idle_ms(lease).unsigned_abs())
}

impl BySessions for PostgresSessionLock {
    type Dialect = Postgres;
    type Identity = Identity;
    type Key = i64;

    fn server(&self) -> &Server<Postgres> {
        &self.server
    }

    fn sessions(&self) -> &Sessions<Postgres, Identity> {
        &self.sessions
    }

    fn claims(&self) -> &Claims<Postgres, Identity, i64> {
        &self.claims
    }

    fn sweep_if_due(&self) {
        self.sweep();
    }

    async fn open(&self, idle: Duration) -> Result<Session> {
        self.open_session(idle_ms(idle)).await
    }

    async fn request(
        &self,
        session: &mut Session,
        claim: &Claim,
        began: Option<Instant>,
        waits: bool,
    ) -> Result<Taken<i64>, Failed> {
        self.request_in(session, claim, began, waits).await
    }

    async fn look(&self, claim: &Claim, session: Identity, mark: &str, _since: Instant) -> Result<Option<Does>> {
        self.look_at(claim, session, mark).await
    }

    fn release(&self, claim: &Claim, key: i64) -> (&Statement, String) {
        let shows = claim.value.is_some();
        let release = if shows { &self.statements.release_showing } else { &self.statements.release };
        (release, format!("{release}{key}, {}, NULL)", literal(claim.owner.as_str())))
    }

    fn had_it((rows, _): &AnsweredBy<Self>) -> Result<bool> {
        let row = rows.first().ok_or_else(|| Error::new(ErrorKind::Unknown, "the server answered nothing"))?;
        row.read(0)
    }

    async fn undo(&self, claim: &Claim, session: Option<Identity>, again: Again) -> Result<Unlocked> {
        self.end(claim, session, again).await
    }

    async fn mark_evicted(&self, claim: &Claim) -> Result<()> {
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str());
        self.server.run(&self.statements.mark_evicted, arguments, Again::Yes).await.map(drop)
    }

    async fn was_evicted(&self, claim: &Claim) -> Result<bool> {
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str());
        let answer = self.server.run(&self.statements.was_evicted, arguments, Again::Yes).await?;
        Ok(!answer.rows.is_empty())
    }

    async fn renew_in(&self, session: &mut Session, claim: &Claim, key: i64) -> Result<Option<Instant>, Failed> {
        self.prolong(session, claim, key).await
    }

    async fn renew_alone(&self, claim: &Claim) -> Result<Renewal> {
        self.prolong_alone(claim).await
    }

    async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        self.who_holds(name).await
    }
}

#[async_trait]
impl DistributedLock for PostgresSessionLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("postgres", Scope::Network);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.keeps = true;
        capabilities.values = true;
        capabilities.min_lease = Duration::from_millis(100);
        capabilities.answers_within = self.server.timeout;
        capabilities.more_with = Some("mode=row");
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.server.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        take(self, claim, false).await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        take(self, claim, true).await?.ok_or_else(waited_in_vain)
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        give_back(self, claim).await
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        renew_all(self, claims).await
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
        self.who_holds(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.page(query).await
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        end_hold(self, name).await
    }

    async fn raise_tokens(&self, _name: &LockName, above: StoreToken) -> Result<()> {
        self.raise(Some(above)).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.sweeper.stop();
        self.sessions.close().await;
        self.server.close().await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_never_idle_for_less_than_its_lease_nor_without_end() {
        let millis = |lease| idle_ms(lease);
        assert_eq!(millis(Duration::ZERO), 1);
        assert_eq!(millis(Duration::from_micros(1_500_001)), 1501);
        assert_eq!(millis(Duration::from_secs(30)), 30_000);
        assert_eq!(millis(Duration::MAX), i64::from(i32::MAX));
    }
}
