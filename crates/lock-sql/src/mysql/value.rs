//! What a hold shows.
//!
//! A value is written before its owner tries to take the lock or enters the line, as a row of that owner. So it is there
//! from the grant on, whoever hands the lock over, and nobody sees it before. What an owner that died leaves behind is swept.

use lock_core::{Claim, LockValue, OwnerId, Proclaimed, Result};

use super::{MySqlLock, arguments, changed};
use crate::server::Again;

impl MySqlLock {
    /// Before the owner can be granted the lock.
    pub(super) async fn show(&self, claim: &Claim, key: &str) -> Result<()> {
        let Some(value) = &claim.value else { return Ok(()) };
        let arguments = arguments!(claim.owner.as_str(), key, value.as_str());
        self.server.run(&self.statements.show, arguments, Again::Yes).await.map(drop)
    }

    /// Deletes what an owner showed that holds nothing any more: if that fails, it is swept.
    pub(super) async fn hide(&self, owner: &OwnerId) {
        if let Err(error) = self.server.run(&self.statements.hide, arguments!(owner.as_str()), Again::Yes).await {
            tracing::debug!(%error, "a value stays for now, which nobody sees");
        }
    }

    pub(super) async fn show_instead(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        let key = self.prefix.key(&claim.name);
        let arguments = arguments!(value.as_str(), self.server.said_us(), key.as_str(), claim.owner.as_str());
        let answer = self.server.run(&self.statements.proclaim, arguments, Again::Yes).await?;
        // Rows that were found count as well.
        Ok(if changed(&answer, 0) > 0 { Proclaimed::Shown } else { Proclaimed::NotHeld })
    }
}
