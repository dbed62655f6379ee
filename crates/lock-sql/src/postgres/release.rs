//! How a lock is given back.

use lock_core::{Claim, LockName, OwnerId, Result, Unlocked};

use super::statements::the_row;
use super::{PostgresLock, arguments};
use crate::server::{Again, Read};

impl PostgresLock {
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<Unlocked> {
        let gives_up = self.unsettled.contains(&claim.owner);
        let unlocked = self.release(&claim.name, &claim.owner, gives_up).await?;
        self.unsettled.forget(&claim.owner);
        Ok(unlocked.unwrap_or(Unlocked::NotHeld))
    }

    /// Ends the hold of this owner, or its waiting. None: it holds nothing.
    pub(super) async fn release(&self, name: &LockName, owner: &OwnerId, gives_up: bool) -> Result<Option<Unlocked>> {
        let alone = self.listens.is_some();
        let arguments = arguments!(self.prefix.key(name), owner.as_str(), gives_up, alone);
        // Sent again, it would say that the lock was not held.
        let answer = self.server.run(&self.statements.release, arguments, Again::No).await?;
        let in_time: Option<bool> = the_row(&answer)?.read(0)?;
        Ok(in_time.map(|in_time| if in_time { Unlocked::Released } else { Unlocked::NotHeld }))
    }
}
