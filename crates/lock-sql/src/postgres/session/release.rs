//! How nothing is left of a claim whose session is gone.

use lock_core::{Claim, Result, Unlocked};

use super::connection::Identity;
use super::{PostgresSessionLock, arguments};
use crate::server::{Again, Read};
use crate::session::BySessions;

impl PostgresSessionLock {
    /// Ends the session that asked for this claim, or the one that the note names, and then frees the lock.
    pub(super) async fn end(&self, claim: &Claim, session: Option<Identity>, again: Again) -> Result<Unlocked> {
        let (pid, began_us) = (session.map(|session| session.pid), session.map(|session| session.began_us));
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str(), pid, began_us);
        let answer = self.server.run(&self.statements.undo, arguments, again).await?;
        let was_held: Option<bool> = answer.rows.first().map_or(Ok(None), |row| row.read(0))?;
        let Some(was_held) = was_held else { return Err(self.not_ended()) };
        self.claims.settle(&claim.owner);
        Ok(if was_held { Unlocked::Released } else { Unlocked::NotHeld })
    }
}
