//! How a hold goes on without its owner and its session, and how its owner shows something else with it.

use std::time::Duration;

use lock_core::{Claim, Kept, LockValue, Proclaimed, Result};

use super::super::statements::the_row;
use super::connection::Identity;
use super::statements::literal;
use super::{PostgresSessionLock, arguments};
use crate::keys::micros;
use crate::server::{Again, Read};
use crate::session::{BySessions, Parted, part};

impl PostgresSessionLock {
    pub(super) async fn keep_on(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let rest_us = micros(rest);
        let Some(place) = self.claims.get(&claim.owner) else { return self.keep_alone(claim, rest_us, None).await };
        let keep = |key| {
            let keep = &self.statements.keep;
            (keep, format!("{keep}{key}, {}, {rest_us}, NULL)", literal(claim.owner.as_str())))
        };
        let unheard = match part(self, claim, &place, keep).await? {
            Parted::Answered(true) => return Ok(Kept::Kept),
            Parted::Answered(false) => return Ok(Kept::NotHeld),
            Parted::Silent(unheard) => unheard,
        };
        let kept = self.keep_alone(claim, rest_us, Some(place.identity)).await;
        // The request that was not answered may have been done.
        kept.map_err(|error| if unheard.is_some() { error.after_something_was_done() } else { error })
    }

    /// The same over another connection, which ends the session.
    async fn keep_alone(&self, claim: &Claim, rest_us: i64, session: Option<Identity>) -> Result<Kept> {
        let (pid, began_us) = (session.map(|session| session.pid), session.map(|session| session.began_us));
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str(), rest_us, pid, began_us);
        let answer = self.server.run(&self.statements.keep_alone, arguments, Again::Yes).await?;
        let Some(is_kept) = the_row(&answer)?.read(0)? else { return Err(self.not_ended()) };
        self.claims.settle(&claim.owner);
        Ok(if is_kept { Kept::Kept } else { Kept::NotHeld })
    }

    pub(super) async fn show(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str(), value.as_str());
        let answer = self.server.run(&self.statements.show, arguments, Again::Yes).await?;
        let is_shown = the_row(&answer)?.read(0)?;
        Ok(if is_shown { Proclaimed::Shown } else { Proclaimed::NotHeld })
    }
}
