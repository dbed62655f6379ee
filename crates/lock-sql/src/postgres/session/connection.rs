//! How a session is opened, and what it answers.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use sqlx::ConnectOptions;
use sqlx::postgres::PgRow;

use super::super::error::Postgres;
use super::PostgresSessionLock;
use crate::server::{Read, Said};
use crate::session;

/// Which process of the server a session is. The operating system gives its number to others later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) pid: i32,
    pub(super) began_us: i64,
}

pub(super) type Session = session::Session<Postgres, Identity>;

impl PostgresSessionLock {
    /// Connects, and learns which session it is before it asks for any lock.
    pub(super) async fn open_session(&self, idle_ms: i64) -> Result<Session> {
        let (open, shown) = (&self.statements.open, &self.server.shown);
        let options = self.connecting.clone().options([("idle_session_timeout", idle_ms)]).disable_statement_logging();
        let connecting = |error| Said::of::<Postgres>(&error).connecting(shown, error);
        let (life, idle) = (self.sessions.lives.here(), Duration::from_millis(idle_ms.unsigned_abs()));
        let unknown = Identity { pid: 0, began_us: 0 };
        let mut session = Session::connect(&options, life, idle, unknown).await.map_err(connecting)?;
        let (rows, _) = session.ask(open, open.to_string()).await.map_err(connecting)?;
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
}

/// The numbers that a function answered, as many as are asked for.
pub(super) fn numbers<const N: usize>(rows: &[PgRow]) -> Result<[Option<i64>; N]> {
    let row = rows.last().ok_or_else(|| Error::new(ErrorKind::Unknown, "the server answered nothing"))?;
    row.read(0)
}
