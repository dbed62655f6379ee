//! How a hold goes on without its owner.

use std::time::Duration;

use lock_core::{Claim, Kept, Result};

use super::SqliteLock;
use super::statements::{Ask, KEEP};
use super::store::Failure;
use crate::keys::micros;

impl SqliteLock {
    pub(super) async fn keep_for(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let kept = match self.change_owner(claim, rest).await {
            Ok(true) => true,
            // Perhaps an earlier try did it.
            Ok(false) => self.is_kept(claim).await?,
            // The file that is there now has no hold of this owner.
            Err(Failure::Replaced | Failure::Unmade(_)) => false,
            Err(Failure::Error(error)) => return Err(error),
        };
        if !kept {
            return Ok(Kept::NotHeld);
        }
        self.store.make_last().await?;
        Ok(Kept::Kept)
    }

    /// Answers whether the owner held the lock.
    async fn change_owner(&self, claim: &Claim, rest: Duration) -> Result<bool, Failure> {
        let (key, owner) = (self.key(&claim.name), claim.owner.as_str());
        let ask = Ask { statement: KEEP, key: &key, owner, lease_us: micros(rest), ..Ask::default() };
        let answer = self.store.run(ask).await?;
        let Some(row) = answer.rows.first() else { return Ok(false) };
        if let Some(wake) = row.get("wake") {
            // It looks when the hold ends now. All others in line look soon enough.
            self.told(self.tell(&key, owner, wake).await)?;
        }
        Ok(true)
    }

    async fn is_kept(&self, claim: &Claim) -> Result<bool> {
        let holder = self.holder_of(&claim.name).await?;
        Ok(holder.is_some_and(|holder| holder.kept && holder.owner == claim.owner))
    }
}
