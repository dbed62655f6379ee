//! How a lock is given back, and what may still be on its way undone.

use lock_core::{Claim, LockName, Mode, OwnerId, Result, Unlocked};

use super::hand_over::HANDED_OVER;
use super::line::Place;
use super::{MySqlLock, arguments, changed, hex, inserted};
use crate::server::{Again, Answer};

impl MySqlLock {
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<Unlocked> {
        let has_line = self.unsettled.contains(&claim.owner) || self.line.place(&claim.owner).is_some();
        self.ask_no_more(&claim.owner).await?;
        let unlocked = match claim.mode {
            Mode::Exclusive => self.release(&claim.name, &claim.owner, has_line).await?.unwrap_or(Unlocked::NotHeld),
            _ => self.release_beside(claim, has_line).await?,
        };
        self.forget(&claim.owner);
        if claim.value.is_some() {
            self.hide(&claim.owner).await;
        }
        Ok(unlocked)
    }

    /// From now on the owner is not granted the lock, and not in line for it, whatever is still on its way.
    pub(super) async fn ask_no_more(&self, owner: &OwnerId) -> Result<()> {
        let is_unsettled = self.unsettled.contains(owner);
        if is_unsettled {
            let mark = mark(owner);
            self.server.run(&self.statements.give_up, arguments!(mark.as_str()), Again::Yes).await?;
        }
        if is_unsettled || self.line.place(owner) == Some(Place::Waits) {
            // First: then nobody hands it the lock any more.
            self.leave(owner).await?;
        }
        Ok(())
    }

    /// When the owner holds nothing any more.
    pub(super) fn forget(&self, owner: &OwnerId) {
        self.unsettled.forget(owner);
        self.line.forget(owner);
    }

    pub(super) async fn leave(&self, owner: &OwnerId) -> Result<()> {
        self.server.run(&self.statements.leave, arguments!(owner.as_str()), Again::Yes).await.map(drop)
    }

    /// Ends the hold of this owner. None: it holds nothing.
    pub(super) async fn release(&self, name: &LockName, owner: &OwnerId, has_line: bool) -> Result<Option<Unlocked>> {
        let key = self.prefix.key(name);
        // Sent again, these would say that the lock was not held.
        if !has_line && let Some(unlocked) = self.free(&key, owner.as_str()).await? {
            return Ok(Some(unlocked));
        }
        let values = [("{key}", &hex(&key)), ("{owner}", &hex(owner.as_str()))];
        let answer = self.run(&self.statements.pass_on, values, HANDED_OVER.0, Again::No).await?;
        let has_it = changed(&answer, HANDED_OVER.1) > 0;
        // Who held it is gone, or who waited before those who hold it together.
        self.serve_others(&key, &answer).await;
        Ok(has_it.then(|| unlocked(inserted(&answer, HANDED_OVER.1))))
    }

    /// As `serve_beside`, for who has ended its hold in any case.
    pub(super) async fn serve_others(&self, key: &str, answer: &Answer<sqlx::MySql>) {
        if let Err(error) = self.serve_beside(key, answer).await {
            // Whoever waits looks by itself.
            tracing::debug!(%error, "the lock could not be handed on yet");
        }
    }

    /// Ends the hold under this name, if nobody may be in line.
    pub(super) async fn free(&self, key: &str, owner: &str) -> Result<Option<Unlocked>> {
        let answer = self.server.run(&self.statements.release, arguments!(key, owner), Again::No).await?;
        Ok((changed(&answer, 0) > 0).then(|| unlocked(inserted(&answer, 0))))
    }
}

/// What stands in `gone` for an owner: see `schema.sql`.
pub(super) fn mark(owner: &OwnerId) -> String {
    let owner = owner.as_str();
    let sum = owner.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
    format!("{sum:02x}{owner}")
}

/// Did the lease still run?
fn unlocked(in_time: u64) -> Unlocked {
    if in_time == 0 { Unlocked::NotHeld } else { Unlocked::Released }
}
