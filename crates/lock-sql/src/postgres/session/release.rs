//! How a lock is given back, and how nothing is left of a claim whose session is gone.

use lock_core::{Claim, Error, ErrorKind, Result, Unlocked};

use super::connection::Identity;
use super::sessions::Place;
use super::statements::literal;
use super::{PostgresSessionLock, arguments};
use crate::server::{Again, Read, Statement};

/// What a session was answered that had a lock until then.
pub(super) enum Parted {
    Answered(bool),
    /// Nothing, or nothing that was heard, if it was `asked` at all. The session is of no use any more.
    Silent {
        asked: bool,
    },
}

impl PostgresSessionLock {
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<Unlocked> {
        let Some(place) = self.claims.get(&claim.owner) else { return self.undo(claim, None, Again::No).await };
        let shows = claim.value.is_some();
        let statement = if shows { &self.statements.release_showing } else { &self.statements.release };
        let asked = match self.part(claim, &place, statement, "NULL)").await? {
            Parted::Answered(true) => return Ok(Unlocked::Released),
            Parted::Answered(false) => return Ok(Unlocked::NotHeld),
            Parted::Silent { asked } => asked,
        };
        let undone = self.undo(claim, Some(place.identity), Again::No).await;
        // The request that was not answered may have been done.
        undone.map_err(|error| if asked { error.after_something_was_done() } else { error })
    }

    /// Calls a procedure that ends this session's part in its lock, with the rest of its arguments.
    pub(super) async fn part(&self, claim: &Claim, place: &Place, statement: &Statement, rest: &str) -> Result<Parted> {
        let mut kept = place.session.lock().await;
        let mut asked = false;
        if let (Some(&(_, key)), Some(session)) = (place.granted.get(), kept.as_mut().filter(|kept| kept.works())) {
            asked = true;
            let text = format!("{statement}{key}, {}, {rest}", literal(claim.owner.as_str()));
            if let Ok(rows) = self.ask(session, statement, text).await
                && let Some(row) = rows.first()
            {
                let answer = row.read(0)?;
                self.claims.settle(&claim.owner);
                if let Some(session) = kept.take() {
                    self.sessions.give_back(session);
                }
                return Ok(Parted::Answered(answer));
            }
        }
        kept.take();
        Ok(Parted::Silent { asked })
    }

    /// Ends the session that asked for this claim, or the one that the database knows of, and waits until it has ended. So
    /// nothing of it is held, and nothing that is on its way to it is done later. Then the lock is freed.
    pub(super) async fn undo(&self, claim: &Claim, session: Option<Identity>, again: Again) -> Result<Unlocked> {
        let (pid, began_us) = (session.map(|session| session.pid), session.map(|session| session.began_us));
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str(), pid, began_us);
        let answer = self.server.run(&self.statements.undo, arguments, again).await?;
        let was_held: Option<bool> = answer.rows.first().map_or(Ok(None), |row| row.read(0))?;
        let Some(was_held) = was_held else { return Err(self.not_ended()) };
        self.claims.settle(&claim.owner);
        Ok(if was_held { Unlocked::Released } else { Unlocked::NotHeld })
    }

    pub(super) fn not_ended(&self) -> Error {
        let message = format!("the server {} takes its time to end a session; try again", self.server.shown);
        Error::new(ErrorKind::Unavailable, message)
    }
}
