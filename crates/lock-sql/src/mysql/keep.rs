//! How a hold goes on without its owner.

use std::time::Duration;

use lock_core::{Claim, Kept, Result};

use super::hand_over::KEPT;
use super::{MySqlLock, changed, hex};
use crate::keys::micros;
use crate::server::Again;

impl MySqlLock {
    pub(super) async fn keep_for(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        // Or what lands late would take the lock for this owner when the kept hold is over.
        self.ask_no_more(&claim.owner).await?;
        let (key, owner) = (hex(&self.prefix.key(&claim.name)), hex(claim.owner.as_str()));
        let values = [("{key}", &key), ("{owner}", &owner), ("{rest}", &micros(rest).to_string())];
        let answer = self.run(&self.statements.keep, values, KEPT.0, Again::Yes).await?;
        // If not now, perhaps an earlier try did it.
        let kept = changed(&answer, KEPT.1) > 0 || self.is_kept(claim).await?;
        self.forget(&claim.owner);
        if kept { Ok(Kept::Kept) } else { answer.not_kept() }
    }

    async fn is_kept(&self, claim: &Claim) -> Result<bool> {
        let holder = self.holder_of(&claim.name).await?;
        Ok(holder.is_some_and(|holder| holder.kept && holder.owner == claim.owner))
    }
}
