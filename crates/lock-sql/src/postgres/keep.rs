//! How a hold goes on without its owner, and how its owner shows something else with it.

use std::time::Duration;

use lock_core::{Claim, Kept, LockValue, Proclaimed, Result};

use super::release::perhaps_done;
use super::statements::the_row;
use super::{PostgresLock, arguments};
use crate::keys::micros;
use crate::server::{Again, Read};

impl PostgresLock {
    pub(super) async fn keep_on(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let (key, owner, alone) = (self.prefix.key(&claim.name), claim.owner.as_str(), self.listens.is_some());
        // Nobody releases it after this, which would refuse what is on its way.
        let gives_up = self.unsettled.contains(&claim.owner);
        let arguments = arguments!(key, owner, micros(rest), gives_up, alone);
        let answer = self.server.run(&self.statements.keep, arguments, Again::Yes).await.map_err(perhaps_done)?;
        if !the_row(&answer)?.read::<bool, _>(0)? {
            return answer.not_kept();
        }
        self.unsettled.forget(&claim.owner);
        Ok(Kept::Kept)
    }

    pub(super) async fn show(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        let (key, said_us) = (self.prefix.key(&claim.name), self.server.said_us());
        let arguments = arguments!(key, claim.owner.as_str(), value.as_str(), said_us);
        let answer = self.server.run(&self.statements.proclaim, arguments, Again::Yes).await?;
        let is_shown = the_row(&answer)?.read(0)?;
        Ok(if is_shown { Proclaimed::Shown } else { Proclaimed::NotHeld })
    }
}
