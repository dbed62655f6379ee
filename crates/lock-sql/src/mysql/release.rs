//! How a lock is given back, and what may still be on its way undone.

use lock_core::{Claim, LockName, OwnerId, Result, Unlocked};

use super::{MySqlLock, arguments};
use crate::server::Again;

impl MySqlLock {
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<Unlocked> {
        let owner = claim.owner.as_str();
        if self.unsettled.contains(&claim.owner) {
            for undo in [&self.statements.give_up, &self.statements.leave] {
                self.server.run(undo, arguments!(owner), Again::Yes).await?;
            }
        }
        let unlocked = self.release(&claim.name, &claim.owner).await?;
        self.unsettled.forget(&claim.owner);
        Ok(unlocked.unwrap_or(Unlocked::NotHeld))
    }

    /// Ends the hold of this owner. None: it holds nothing.
    pub(super) async fn release(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Unlocked>> {
        let key = self.prefix.key(name);
        let arguments = arguments!(key.as_str(), owner.as_str());
        // Sent again, it would say that the lock was not held.
        let answer = self.server.run(&self.statements.release, arguments, Again::No).await?;
        Ok(match (answer.result.rows_affected(), answer.result.last_insert_id()) {
            (0, _) => None,
            (_, 0) => Some(Unlocked::NotHeld),
            _ => Some(Unlocked::Released),
        })
    }
}
