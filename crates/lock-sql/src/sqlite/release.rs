//! How a lock is given back, and the next in line told.

use lock_core::{Claim, LockName, Mode, OwnerId, Result, Unlocked};

use super::SqliteLock;
use super::statements::{Ask, LEAVE, RELEASE};
use super::store::Failure;

impl SqliteLock {
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<Unlocked> {
        let unlocked = self.unlock_or_leave(claim).await;
        if claim.value.is_some() && unlocked.is_ok() {
            self.hide(&claim.name, &claim.owner).await;
        }
        match unlocked {
            // The file that is there now has neither a hold nor a ticket of this owner.
            Err(Failure::Replaced | Failure::Unmade(_)) => Ok(Unlocked::NotHeld),
            answer => answer.map_err(|failure| self.as_error(failure)),
        }
    }

    /// Ends the hold of this owner, and tells the next in line. None: it holds nothing.
    pub(super) async fn release(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Unlocked>, Failure> {
        let key = self.key(name);
        let owner = owner.as_str();
        self.release_by(RELEASE, &key, owner).await
    }

    /// The same by this statement.
    pub(super) async fn release_by(
        &self,
        statement: &'static str,
        key: &str,
        owner: &str,
    ) -> Result<Option<Unlocked>, Failure> {
        let answer = self.store.run(Ask { statement, key, owner, ..Ask::default() }).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        if let Some(wake) = row.get("wake") {
            self.told(self.tell(key, owner, wake).await)?;
        }
        Ok(Some(if row.get("in_time") { Unlocked::Released } else { Unlocked::NotHeld }))
    }

    async fn unlock_or_leave(&self, claim: &Claim) -> Result<Unlocked, Failure> {
        let released = match claim.mode {
            Mode::Exclusive => self.release(&claim.name, &claim.owner).await?,
            mode => self.release_beside(&claim.name, &claim.owner, mode).await?,
        };
        if let Some(unlocked) = released {
            return Ok(unlocked);
        }
        self.leave(claim).await?;
        let (key, owner) = (self.key(&claim.name), claim.owner.as_str());
        // We may have been told that it is our turn, or have released without telling anybody in an earlier try.
        self.told(self.wake_next(&key, owner).await)?;
        Ok(Unlocked::NotHeld)
    }

    /// Gives the ticket back.
    pub(super) async fn leave(&self, claim: &Claim) -> Result<(), Failure> {
        let (key, owner) = (self.key(&claim.name), claim.owner.as_str());
        self.store.run(Ask { statement: LEAVE, key: &key, owner, ..Ask::default() }).await.map(drop)
    }

    /// The lock is free already: that a waiter could not be told only means that it notices at its next tick.
    pub(super) fn told(&self, told: Result<(), Failure>) -> Result<(), Failure> {
        match told {
            Err(Failure::Error(error)) => {
                tracing::debug!(%error, "the next in line was not told");
                Ok(())
            }
            told => told,
        }
    }
}
