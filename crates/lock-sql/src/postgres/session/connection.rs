//! A session: a connection over which one lock at a time is asked for and held.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use sqlx::postgres::{PgConnectOptions, PgRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgConnection};
use tokio::time::{Instant, timeout};

use super::super::error::Postgres;
use crate::keys::SENT;
use crate::server::{Life, Next, Read, Said, Statement, caught, read_all};

/// A session that was idle for so long is asked whether it still works, and has so long for its answer.
const DOUBTFUL: (Duration, Duration) = (Duration::from_secs(5), Duration::from_millis(500));

/// A session that was idle for so long is closed.
const OLD: Duration = Duration::from_secs(300);

/// Which process of the server a session is. The operating system gives its number to others later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: i32,
    pub(super) began_us: i64,
}

pub(super) struct Session {
    connection: PgConnection,
    pub(super) identity: Identity,
    /// After so many milliseconds without a request, the server ends it.
    pub(super) idle_ms: i64,
    life: Arc<Life>,
    since: Instant,
    /// A request was given up, and its answer may still come. The next request reads it first.
    unread: bool,
    /// How many marks were made.
    marks: u32,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl Session {
    /// Connects, and learns which session it is before it asks for any lock.
    ///
    /// # Errors
    /// Whatever the kind, no lock was asked for.
    pub(super) async fn open(
        options: &PgConnectOptions,
        life: Arc<Life>,
        idle_ms: i64,
        open: &Statement,
        shown: &str,
    ) -> Result<Self> {
        let options = options.clone().options([("idle_session_timeout", idle_ms)]).disable_statement_logging();
        let connecting = |error| Said::of::<Postgres>(&error).connecting(shown, error);
        let connection = caught(options.connect()).await.map_err(connecting)?;
        let (identity, since) = (Identity { pid: 0, began_us: 0 }, Instant::now());
        let mut session = Self { connection, identity, idle_ms, life, since, unread: false, marks: 0 };
        let rows = session.ask(open, open.to_string()).await.map_err(connecting)?;
        let [pid, began_us, idle] = numbers(&rows)?;
        if idle != Some(idle_ms) {
            let message = format!(
                "the server {shown}: something between us and the server lends connections, or keeps their settings from it; \
                 go past it, or use mode=row"
            );
            return Err(Error::new(ErrorKind::Unsupported, message));
        }
        let pid = pid.and_then(|pid| i32::try_from(pid).ok());
        let (Some(pid), Some(began_us)) = (pid, began_us) else {
            let message = format!("the server {shown} does not tell which session this is");
            return Err(Error::new(ErrorKind::Unavailable, message));
        };
        session.identity = Identity { pid, began_us };
        Ok(session)
    }

    /// Sends this text as one message, which the server reads as a whole or not at all: a session of which only half a
    /// request arrived would not be idle. If the future is dropped, it may still be done, but before what is asked next.
    pub(super) async fn ask(&mut self, shown: &Statement, text: String) -> sqlx::Result<Vec<PgRow>> {
        tracing::trace!(target: SENT, statement = &**shown);
        let was_unread = std::mem::replace(&mut self.unread, true);
        let mut answer = (Vec::new(), Vec::new());
        let asked = self.connection.fetch_many(sqlx::raw_sql(AssertSqlSafe(text)));
        caught(read_all::<sqlx::Postgres>(asked, &mut answer)).await?;
        self.unread = was_unread;
        Ok(answer.0)
    }

    /// What a request begins with, so that others see whether the session has come to it.
    pub(super) fn mark(&mut self) -> String {
        self.marks += 1;
        format!("/*{}*/", self.marks)
    }

    /// Can it be asked anything? Not if its runtime has ended.
    pub(super) fn works(&self) -> bool {
        self.life.runs()
    }

    /// May another lock be asked for over it? Not if a request of it was ever given up.
    pub(super) fn is_clean(&self) -> bool {
        !self.unread && self.works()
    }

    /// Is it of no use to whoever comes next, or soon to be ended by the server?
    pub(super) fn is_old(&self) -> bool {
        let idle_ms = self.idle_ms.unsigned_abs();
        self.since.elapsed() >= OLD.min(Duration::from_millis(idle_ms) / 2) || !self.is_clean()
    }

    pub(super) fn is_of_here(&self) -> bool {
        self.life.is_here()
    }

    /// From now on nobody uses it.
    pub(super) fn rests(&mut self) {
        self.since = Instant::now();
    }

    /// Asks whether it works, if it was idle for long.
    pub(super) async fn still_works(&mut self) -> bool {
        self.since.elapsed() < DOUBTFUL.0
            || timeout(DOUBTFUL.1, caught(self.connection.ping())).await.is_ok_and(|answer| answer.is_ok())
    }

    pub(super) async fn close(self) {
        // It is gone either way.
        let _ = timeout(DOUBTFUL.1, caught(self.connection.close())).await;
    }
}

/// Why a session did not answer, and whether it is of no use any more.
pub(super) struct Failed {
    pub(super) error: Error,
    pub(super) broken: bool,
}

impl Failed {
    pub(super) fn of(error: sqlx::Error, shown: &str) -> Self {
        let said = Said::of::<Postgres>(&error);
        Self { error: said.into_error(shown, error), broken: said.next == Next::Leave }
    }
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self { error, broken: false }
    }
}

/// The numbers that a function answered, as many as are asked for.
pub(super) fn numbers<const N: usize>(rows: &[PgRow]) -> Result<[Option<i64>; N]> {
    let row = rows.last().ok_or_else(|| Error::new(ErrorKind::Unknown, "the server answered nothing"))?;
    row.read(0)
}
