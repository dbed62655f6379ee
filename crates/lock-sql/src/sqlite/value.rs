//! What a hold shows.
//!
//! A value is written before its owner tries to take the lock, as a row of that owner. So it is there from the grant on,
//! and nobody sees it before. What an owner that died leaves behind is swept.

use lock_core::{Claim, LockName, LockValue, OwnerId, Proclaimed, Result};

use super::SqliteLock;
use super::statements::{Ask, HIDE, PROCLAIM, SHOW};
use super::store::Failure;

impl SqliteLock {
    /// Before an attempt to take the lock.
    pub(super) async fn show(&self, claim: &Claim) -> Result<(), Failure> {
        let Some(value) = &claim.value else { return Ok(()) };
        let (key, owner) = (self.key(&claim.name), claim.owner.as_str());
        let ask = Ask { statement: SHOW, key: &key, owner, text: Some(value.as_str()), makes: true, ..Ask::default() };
        self.store.run(ask).await.map(drop)
    }

    /// Deletes what an owner showed, that holds nothing any more: if that fails, it is swept.
    pub(super) async fn hide(&self, name: &LockName, owner: &OwnerId) {
        let key = self.key(name);
        let ask = Ask { statement: HIDE, key: &key, owner: owner.as_str(), ..Ask::default() };
        if let Err(Failure::Error(error)) = self.store.run(ask).await {
            tracing::debug!(%error, "a value stays for now, which nobody sees");
        }
    }

    pub(super) async fn show_instead(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        let (key, owner) = (self.key(&claim.name), claim.owner.as_str());
        let ask = Ask { statement: PROCLAIM, key: &key, owner, text: Some(value.as_str()), ..Ask::default() };
        match self.store.run(ask).await {
            Ok(answer) if answer.rows.is_empty() => Ok(Proclaimed::NotHeld),
            Ok(_) => Ok(Proclaimed::Shown),
            // The file that is there now has no hold of this owner.
            Err(Failure::Replaced | Failure::Unmade(_)) => Ok(Proclaimed::NotHeld),
            Err(Failure::Error(error)) => Err(error),
        }
    }
}
