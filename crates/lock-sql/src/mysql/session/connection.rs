//! Which session of the server a connection is, and what the server calls a lock.

use std::time::Duration;

use lock_core::{Error, ErrorKind, LockName, Result};
use sha2::{Digest, Sha256};

use super::super::error::MySql;
use super::MySqlSessionLock;
use crate::server::{Read, Said};
use crate::session;

/// The server takes no more seconds than that on every system.
const LONGEST: u64 = 2_147_483;

/// Which session of the server it is. The number is no other's until the server starts anew, and then the floor is
/// another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(super) id: i64,
    /// What tokens are above since the server started.
    pub(super) floor: i64,
}

pub(super) type Session = session::Session<MySql, Identity>;

/// What the server calls the lock of a name: a hash, for its own are short, and to it `A` is `a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key(u128);

impl Key {
    pub(super) fn new(space: &str, key: &str) -> Self {
        let mut hash = Sha256::new();
        hash.update(space);
        hash.update([0]);
        hash.update(key);
        let mut bytes = [0; 16];
        bytes.iter_mut().zip(hash.finalize()).for_each(|(byte, hashed)| *byte = hashed);
        Self(u128::from_be_bytes(bytes))
    }

    /// Forty characters.
    pub(super) fn text(self) -> String {
        format!("oarlock_{:032x}", self.0)
    }
}

/// For how long a session may be idle that holds for so long, or wants to: whole seconds, and never no limit.
pub(super) fn idle(lease: Duration) -> Duration {
    let seconds = lease.as_secs().saturating_add(u64::from(lease.subsec_nanos() > 0));
    Duration::from_secs(seconds.clamp(1, LONGEST))
}

impl MySqlSessionLock {
    pub(super) fn key(&self, name: &LockName) -> Key {
        Key::new(&self.space, &self.prefix.key(name))
    }

    /// Connects, and learns which session it is before it asks for any lock.
    pub(super) async fn open_session(&self, lease: Duration) -> Result<Session> {
        let (open, shown, idle) = (&self.statements.open, &self.server.shown, idle(lease));
        let connecting = |error| Said::of::<MySql>(&error).connecting(shown, error);
        let (life, unknown) = (self.sessions.lives.here(), Identity { id: 0, floor: 0 });
        let mut session = Session::connect(&self.connecting, life, idle, unknown).await.map_err(connecting)?;
        let text = open.replace("{idle}", &idle.as_secs().to_string());
        loop {
            let (rows, _) = session.ask(open, text.clone()).await.map_err(connecting)?;
            let row = rows.first().ok_or_else(|| {
                Error::new(ErrorKind::Unavailable, format!("the server {shown} does not tell which session this is"))
            })?;
            let is_shown = row.read::<Option<i64>, _>("is_shown")? == Some(1);
            if u64::try_from(row.read::<i64, _>("idle")?) != Ok(idle.as_secs()) || !is_shown {
                return Err(self.lent_sessions());
            }
            if let Some(floor) = row.read("floor")? {
                session.identity = Identity { id: row.read("id")?, floor };
                return Ok(session);
            }
            self.begin().await?;
        }
    }

    /// Can a session be told from others, and be ended?
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if not.
    pub(super) async fn try_a_session(&self) -> Result<()> {
        let session = self.open_session(Duration::ZERO).await?;
        match self.end_session(session.identity).await? {
            true => Ok(()),
            false => Err(self.lent_sessions()),
        }
    }

    fn lent_sessions(&self) -> Error {
        let message = format!(
            "the server {}: something between us and the server lends connections, or keeps their settings from it; go past it, \
             or use mode=row",
            self.server.shown
        );
        Error::new(ErrorKind::Unsupported, message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_never_idle_for_less_than_its_lease_nor_without_end() {
        let seconds = |lease| idle(lease).as_secs();
        assert_eq!(seconds(Duration::ZERO), 1);
        assert_eq!(seconds(Duration::from_secs(30)), 30);
        assert_eq!(seconds(Duration::from_nanos(30_000_000_001)), 31);
        assert_eq!(seconds(Duration::MAX), LONGEST);
    }

    #[test]
    fn names_that_the_server_takes_for_one_have_different_locks() {
        let text = |space, key| Key::new(space, key).text();
        assert_ne!(text("a.oarlock", "x"), text("a.oarlock", "X"));
        assert_ne!(text("a.oarlock", "x"), text("b.oarlock", "x"));
        assert_ne!(text("ab", "c"), text("a", "bc"));
        assert_eq!(text("a", "x").len(), 40);
        assert!(text("a", "x").bytes().all(|byte| byte == b'_' || byte.is_ascii_digit() || byte.is_ascii_lowercase()));
    }
}
