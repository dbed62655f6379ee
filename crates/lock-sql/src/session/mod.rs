//! Locks by sessions of a server: what those of PostgreSQL and of MySQL have in common.
//!
//! A claim has a session, a connection of its own. In it the server's own lock on the name is taken, and a note of the
//! hold is written. Which session of the server that is, is known before it is asked for a lock: a claim that was given
//! up, or without an answer, is undone over another connection, which ends that session with all that is still on its
//! way to it.

mod acquire;
mod connection;
mod held;
mod sessions;

use std::fmt;
use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Grant, Holder, Instant, LockName, Renewal, Result, Unlocked};

pub(crate) use acquire::{DRIFT, LOOK, take, wait};
pub(crate) use connection::{Failed, Session};
pub(crate) use held::{end_hold, give_back, keep, renew_all};
pub(crate) use sessions::{Claims, Place, Sessions};

use crate::server::{Again, Answered, Dialect, Server, Statement};

/// A session of this store's server.
pub(crate) type SessionOf<L> = Session<<L as BySessions>::Dialect, <L as BySessions>::Identity>;

/// What one of its requests was answered.
pub(crate) type AnsweredBy<L> = Answered<<<L as BySessions>::Dialect as Dialect>::Database>;

/// What a session does that was asked to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// Something else: it has not come to that yet, or it never will.
    Other,
    Wait,
    /// Nothing more: it has answered.
    Nothing,
}

/// What a request to take a lock was answered.
pub(crate) enum Taken<K> {
    Granted { grant: Grant, key: K },
    Busy,
}

/// A store whose locks are those that its sessions have.
pub(crate) trait BySessions: Sized {
    type Dialect: Dialect;
    /// Which session of the server one is.
    type Identity: Copy + fmt::Debug + 'static;
    /// What the server calls a lock that it granted.
    type Key: Copy + fmt::Debug + 'static;

    fn server(&self) -> &Server<Self::Dialect>;

    fn sessions(&self) -> &Sessions<Self::Dialect, Self::Identity>;

    fn claims(&self) -> &Claims<Self::Dialect, Self::Identity, Self::Key>;

    fn sweep_if_due(&self);

    /// Connects, for who may be idle for so long.
    ///
    /// # Errors
    /// Whatever the kind, no lock was asked for.
    async fn open(&self, idle: Duration) -> Result<SessionOf<Self>>;

    /// Takes the lock in this session, if need be after a wait. The lease counts from `began`, if the connection had to
    /// be made.
    async fn request(
        &self,
        session: &mut SessionOf<Self>,
        claim: &Claim,
        began: Option<Instant>,
        waits: bool,
    ) -> Result<Taken<Self::Key>, Failed>;

    /// What this session does that waits since then, with a request of this mark; none: it has ended. Has it be seen
    /// for whom it waits.
    async fn look(&self, claim: &Claim, session: Self::Identity, mark: &str, since: Instant) -> Result<Option<Does>>;

    /// The statement that gives the lock back in its session, and its text.
    fn release(&self, claim: &Claim, key: Self::Key) -> (&Statement, String);

    /// What that, or another one that ends the session's part in the lock, was answered: whether the owner had it.
    fn had_it(answered: &AnsweredBy<Self>) -> Result<bool>;

    /// Ends the session that asked for this claim, or the one that the database knows of, and waits until it has ended.
    /// So nothing of it is held, and nothing that is on its way to it is done later. Then the lock is freed.
    async fn undo(&self, claim: &Claim, session: Option<Self::Identity>, again: Again) -> Result<Unlocked>;

    /// Says, for a minute at least, that somebody else than its owner ended this hold.
    async fn mark_evicted(&self, claim: &Claim) -> Result<()>;

    /// Was that said of this hold?
    async fn was_evicted(&self, claim: &Claim) -> Result<bool>;

    /// Prolongs the hold of this session. None: it has ended.
    async fn renew_in(
        &self,
        session: &mut SessionOf<Self>,
        claim: &Claim,
        key: Self::Key,
    ) -> Result<Option<Instant>, Failed>;

    /// Prolongs a hold whose session has ended: nobody else is granted the lock while its note lasts.
    async fn renew_alone(&self, claim: &Claim) -> Result<Renewal>;

    async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>>;

    fn not_ended(&self) -> Error {
        let message = format!("the server {} takes its time to end a session; try again", self.server().shown);
        Error::new(ErrorKind::Unavailable, message)
    }
}

/// What is said of something that lends a session for a request to one client and then to another.
pub(crate) fn lent() -> Error {
    let message = "something between us and the server lends connections; go past it, or use mode=row";
    Error::new(ErrorKind::Unknown, message)
}

/// Of whoever was to wait for as long as it takes.
pub(crate) fn waited_in_vain() -> Error {
    Error::new(ErrorKind::Unknown, "the server denied a lock for which it was to wait")
}
