//! How a lock is given back, and how nothing is left of a claim whose session is gone.

use lock_core::{Claim, Error, ErrorKind, Result, Unlocked};

use super::connection::Identity;
use super::statements::literal;
use super::{PostgresSessionLock, arguments};
use crate::server::{Again, Read};

impl PostgresSessionLock {
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<Unlocked> {
        let Some(place) = self.claims.get(&claim.owner) else { return self.undo(claim, None, Again::No).await };
        let mut kept = place.session.lock().await;
        let mut asked = false;
        if let (Some(&(_, key)), Some(session)) = (place.granted.get(), kept.as_mut().filter(|kept| kept.works())) {
            asked = true;
            let text = format!("{}{key}, {}, NULL)", self.statements.release, literal(claim.owner.as_str()));
            if let Ok(rows) = self.ask(session, &self.statements.release, text).await
                && let Some(row) = rows.first()
            {
                let was_held: bool = row.read(0)?;
                self.claims.settle(&claim.owner);
                if let Some(session) = kept.take() {
                    self.sessions.give_back(session);
                }
                return Ok(if was_held { Unlocked::Released } else { Unlocked::NotHeld });
            }
        }
        kept.take();
        drop(kept);
        let undone = self.undo(claim, Some(place.identity), Again::No).await;
        // The request that was not answered may have been done.
        undone.map_err(|error| if asked { error.after_something_was_done() } else { error })
    }

    /// Ends the session that asked for this claim, or the one that the database knows of, and waits until it has ended. So
    /// nothing of it is held, and nothing that is on its way to it is done later. Then the lock is freed.
    pub(super) async fn undo(&self, claim: &Claim, session: Option<Identity>, again: Again) -> Result<Unlocked> {
        let (pid, began_us) = (session.map(|session| session.pid), session.map(|session| session.began_us));
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str(), pid, began_us);
        let answer = self.server.run(&self.statements.undo, arguments, again).await?;
        let was_held: Option<bool> = answer.rows.first().map_or(Ok(None), |row| row.read(0))?;
        let Some(was_held) = was_held else {
            let message = format!("the server {} takes its time to end a session; try again", self.server.shown);
            return Err(Error::new(ErrorKind::Unavailable, message));
        };
        self.claims.settle(&claim.owner);
        Ok(if was_held { Unlocked::Released } else { Unlocked::NotHeld })
    }
}
