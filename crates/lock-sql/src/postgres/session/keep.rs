//! How a hold goes on without its owner and its session, and how its owner shows something else with it.

use std::time::Duration;

use lock_core::{Claim, Kept, LockValue, Proclaimed, Result};

use super::super::statements::the_row;
use super::connection::Identity;
use super::statements::literal;
use super::{PostgresSessionLock, arguments};
use crate::keys::micros;
use crate::server::{Again, Read};
use crate::session::{BySessions, keep};

impl PostgresSessionLock {
    pub(super) async fn keep_on(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let rest_us = micros(rest);
        let keeping = |key| {
            let keeps = &self.statements.keep;
            (keeps, format!("{keeps}{key}, {}, {rest_us}, NULL)", literal(claim.owner.as_str())))
        };
        keep(self, claim, keeping, async |session| self.keep_alone(claim, rest_us, session).await).await
    }

    /// The same over another connection, which ends the session.
    async fn keep_alone(&self, claim: &Claim, rest_us: i64, session: Option<Identity>) -> Result<Kept> {
        let (pid, began_us) = (session.map(|session| session.pid), session.map(|session| session.began_us));
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str(), rest_us, pid, began_us);
        let answer = self.server.run(&self.statements.keep_alone, arguments, Again::Yes).await?;
        let Some(is_kept) = the_row(&answer)?.read(0)? else { return Err(self.not_ended()) };
        self.claims.settle(&claim.owner);
        if is_kept { Ok(Kept::Kept) } else { answer.not_kept() }
    }

    pub(super) async fn show(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        let (name, said_us) = (self.prefix.key(&claim.name), self.server.said_us());
        let arguments = arguments!(name, claim.owner.as_str(), value.as_str(), said_us);
        let answer = self.server.run(&self.statements.show, arguments, Again::Yes).await?;
        let is_shown = the_row(&answer)?.read(0)?;
        Ok(if is_shown { Proclaimed::Shown } else { Proclaimed::NotHeld })
    }
}
