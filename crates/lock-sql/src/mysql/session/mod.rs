//! Locks by sessions: the line is the server's own, that of `GET_LOCK`, and no request waits for the disk.
//!
//! Each claim has a session, a connection of its own, which takes the server's lock on a hash of the name and writes a
//! note of its hold, in a table in memory (`schema.sql`). Why that is a lock by the contract:
//!
//! - **One at a time.** A grant needs both: the server's lock, which one session has at a time; and that there is no
//!   note, which one statement looks for and writes. So the table decides between two who come at once.
//! - **A lease, not a connection.** A server cannot tell a crash of the client from a connection that something in
//!   between reset, while the client lives and believes. So the end of a session frees the server's lock, and the note
//!   keeps others out until the lease is over. The next in line has its turn then.
//! - **Cut off.** The server ends a session that was idle for longer than its lease (`wait_timeout`, in whole seconds,
//!   set before anything is asked, and kept at the lease of the claim), so that a client that is stopped keeps no line
//!   waiting. A request of which only half arrived ends it after as long (`net_read_timeout`).
//! - **`valid_until`** counts from the sending of the request that granted or renewed, and the note from when it was
//!   done. A grant that had to wait is confirmed by a renewal, from whose sending it counts.
//! - **First come, first served.** A server's lock that is given back is handed, in one step, to who has waited for
//!   longest: it is never free while somebody waits, so nobody can come between.
//! - **Undone is gone.** Which session it is, is known before it is asked for a lock: its number, which no other has
//!   until the server is started anew, and the *floor* of tokens, which is another one then. A claim that was given up,
//!   or without an answer, is undone over another connection: that session is ended, with all that is still on its way
//!   to it, and only when it is gone the note is deleted. A session of which a request to take a lock was given up is
//!   never used again.
//! - **What a session does** others see by locks of its own, which it has for as long as it lives, and while it waits.
//!   (The list of processes would say it as well; but for that, MariaDB makes a file each time.)
//! - **Tokens** are what the table of notes counts. It forgets that when the server ends; so no token counts that is
//!   not below a limit on the disk, which is raised far ahead, and the first client after a start has the table count
//!   on from that limit, or from the server's clock. So does the first after a replica took over: it has the floor of
//!   its primary, and perhaps not all that this counted.
//! - **A hold outlives its session.** If that breaks, or its runtime ends, the note is renewed, and deleted, over other
//!   connections; whoever is next looks ten times a second.
//! - **A hold that is kept** is a note without a session. The note is changed before the server's lock is let go. So
//!   whoever has that lock next finds a hold that lasts, and looks ten times a second.
//!
//! Not promised: exclusion over an end or a fail-over of the server. It forgets the notes, and ends all sessions: who
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
mod tokens;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Finding, Grant, Holder, Instant, Kept, ListQuery, LockName,
    LockStatus, LockValue, Page, Proclaimed, Renewal, Result, Scope, StoreToken, Unlocked,
};
use sqlx::mysql::MySqlConnectOptions;

use super::{MySql, arguments, changed, hex, script};
use crate::keys::Prefix;
use crate::server::{Again, Answer, Server, ServerOptions, Statement};
use crate::session::{
    AnsweredBy, BySessions, Claims, Does, Failed, Sessions, Taken, end_hold, give_back, renew_all, take, waited_in_vain,
};
use crate::sweep::Sweeper;
use connection::{Identity, Key, Session};
pub(super) use statements::SCHEMA;
use statements::Statements;
use tokens::Ceiling;

/// Locks in a MySQL or MariaDB database by sessions of the server: the mode `session`.
///
/// It takes one connection for each name that is held or waited for, and no request waits for the disk. Waiters stand
/// in the line of the server's own lock. A restart of the server forgets who holds what.
///
/// These locks are others than those of [`MySqlLock`](crate::MySqlLock): tables are of one mode, that of their first
/// user, and a client of the other mode is refused.
#[derive(Clone)]
pub struct MySqlSessionLock {
    /// For all but taking and holding.
    server: Arc<Server<MySql>>,
    /// How a session connects.
    connecting: Arc<MySqlConnectOptions>,
    statements: Arc<Statements>,
    prefix: Prefix,
    sessions: Arc<Sessions<MySql, Identity>>,
    claims: Arc<Claims<MySql, Identity, Key>>,
    sweeper: Arc<Sweeper>,
    /// What the names of the server's locks are hashed with, which are those of all its databases.
    space: Arc<str>,
    ceiling: Arc<Mutex<Ceiling>>,
}

impl fmt::Debug for MySqlSessionLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("MySqlSessionLock");
        f.field("server", &self.server.shown).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl MySqlSessionLock {
    /// Connects to the server of a URL such as `mysql://user:password@db.internal/app`, in bounded time, and makes the
    /// tables if they are missing. [`ServerOptions`] has more to choose.
    ///
    /// # Errors
    /// As [`MySqlSessionLock::with`].
    ///
    /// # Cancel safety
    /// Nothing is held yet. The tables may have been made.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        Self::with(ServerOptions::new(url)?.prefix(prefix)).await
    }

    /// Runs a script with these values, all of it.
    async fn run<const N: usize>(
        &self,
        template: &Statement,
        values: [(&str, &String); N],
        again: Again,
    ) -> Result<Answer<sqlx::MySql>> {
        self.server.run_script(template, script(template, values), usize::MAX, again).await
    }
}

impl BySessions for MySqlSessionLock {
    type Dialect = MySql;
    type Identity = Identity;
    type Key = Key;

    fn server(&self) -> &Server<MySql> {
        &self.server
    }

    fn sessions(&self) -> &Sessions<MySql, Identity> {
        &self.sessions
    }

    fn claims(&self) -> &Claims<MySql, Identity, Key> {
        &self.claims
    }

    fn sweep_if_due(&self) {
        self.sweep();
    }

    async fn open(&self, idle: Duration) -> Result<Session> {
        self.open_session(idle).await
    }

    async fn request(
        &self,
        session: &mut Session,
        claim: &Claim,
        began: Option<Instant>,
        waits: bool,
    ) -> Result<Taken<Key>, Failed> {
        self.request_in(session, claim, began, waits).await
    }

    async fn look(&self, claim: &Claim, session: Identity, _mark: &str, since: Instant) -> Result<Option<Does>> {
        self.look_at(claim, session, since).await
    }

    fn release(&self, claim: &Claim, key: Key) -> (&Statement, String) {
        (&self.statements.release, self.release_text(claim, key))
    }

    fn had_it(answered: &AnsweredBy<Self>) -> Result<bool> {
        release::had_it(answered)
    }

    async fn undo(&self, claim: &Claim, session: Option<Identity>, again: Again) -> Result<Unlocked> {
        self.end(claim, session, again).await
    }

    async fn mark_evicted(&self, claim: &Claim) -> Result<()> {
        let key = self.key(&claim.name).text();
        let arguments = arguments!(claim.owner.as_str(), key.as_str());
        self.server.run(&self.statements.mark_evicted, arguments, Again::Yes).await.map(drop)
    }

    async fn was_evicted(&self, claim: &Claim) -> Result<bool> {
        let key = self.key(&claim.name).text();
        let arguments = arguments!(claim.owner.as_str(), key.as_str());
        let answer = self.server.run(&self.statements.was_evicted, arguments, Again::Yes).await?;
        Ok(!answer.rows.is_empty())
    }

    async fn renew_in(&self, session: &mut Session, claim: &Claim, key: Key) -> Result<Option<Instant>, Failed> {
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
impl DistributedLock for MySqlSessionLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("mysql", Scope::Network);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.keeps = true;
        capabilities.values = true;
        capabilities.min_lease = Duration::from_secs(1);
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
        self.raise(above).await
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
