//! How a lock is taken, if it is free and nobody is before us.

use lock_core::{Claim, Error, ErrorKind, Grant, Result, StoreToken};

use super::{MySqlLock, arguments};
use crate::keys::{duration, micros};
use crate::server::{Again, Read};

/// Behind every ticket: for who has none.
pub(super) const END_OF_LINE: i64 = i64::MAX;

pub(super) const GAVE_UP: &str = "this owner has given up; each acquisition needs an owner of its own";

/// What a waiter goes by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// How long the lock is held; none: it is free.
    pub(super) left_us: Option<i64>,
    /// How often it was granted.
    pub(super) turns: i64,
    /// How many are before our ticket.
    pub(super) ahead: i64,
}

impl Seen {
    /// Is the lock free, and nobody before us?
    pub(super) fn is_free(&self) -> bool {
        self.left_us.is_none() && self.ahead == 0
    }
}

impl MySqlLock {
    pub(super) async fn take(&self, claim: &Claim) -> Result<Option<Grant>> {
        let tried = self.try_once(claim, &self.prefix.key(&claim.name), None).await;
        let grant = tried.map_err(|error| self.told(claim, error))?.ok();
        if grant.is_none() && self.unsettled.contains(&claim.owner) {
            // Nobody undoes what was denied, and its first copy may land yet.
            self.give_back(claim).await.map_err(Error::after_something_was_done)?;
        }
        Ok(grant)
    }

    pub(super) async fn take_in_turn(&self, claim: &Claim) -> Result<Grant> {
        let key = self.prefix.key(&claim.name);
        // Who has a ticket stands in the line of all clients instead.
        let _turn = if claim.fair { None } else { Some(self.turns.wait(&key).await) };
        let granted = async {
            match self.try_once(claim, &key, None).await? {
                Ok(grant) => Ok(grant),
                Err(seen) => self.wait_for(claim, &key, seen).await,
            }
        };
        granted.await.map_err(|error| self.told(claim, error))
    }

    /// Takes the lock, if its row is there, it is free, and nobody is in line: before the ticket, or for sure.
    pub(super) async fn grant(&self, claim: &Claim, key: &str, ticket: Option<i64>) -> Result<Option<Grant>> {
        self.sweep_if_due();
        let (owner, lease) = (claim.owner.as_str(), micros(claim.lease));
        let (statement, arguments) = match ticket {
            None => (&self.statements.grant, arguments!(owner, owner, lease, lease, owner, key, owner, owner)),
            Some(ticket) => (
                &self.statements.grant_in_line,
                arguments!(key, owner, owner, owner, lease, lease, owner, key, owner, owner, key, ticket, owner),
            ),
        };
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = on_its_way.answered(self.server.run(statement, arguments, Again::Yes).await)?;
        if answer.result.rows_affected() == 0 {
            return Ok(None);
        }
        let token = StoreToken::new(answer.result.last_insert_id())?;
        Ok(Some(Grant::new(token, answer.sent + duration(lease))))
    }

    /// What there is to see of the lock; none if it has no row.
    pub(super) async fn look(&self, claim: &Claim, key: &str, ticket: i64) -> Result<Option<Seen>> {
        let owner = claim.owner.as_str();
        let answer =
            self.server.run(&self.statements.look, arguments!(key, ticket, owner, owner, key), Again::Yes).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        if row.read::<i64, _>("gone")? > 0 {
            return Err(Error::new(ErrorKind::Refused, GAVE_UP));
        }
        let mut seen = Seen { left_us: row.read("left_us")?, turns: row.read("turns")?, ahead: row.read("ahead")? };
        let lease_us: i64 = row.read("lease_us")?;
        if seen.left_us.is_some_and(|left| left > lease_us) {
            self.server.run(&self.statements.shorten, arguments!(key), Again::Yes).await?;
            seen.left_us = Some(lease_us);
        }
        Ok(Some(seen))
    }

    /// Takes the lock, or answers why not.
    pub(super) async fn try_once(
        &self,
        claim: &Claim,
        key: &str,
        mut ticket: Option<i64>,
    ) -> Result<Result<Grant, Seen>> {
        // The lease counts from here, also where a row has to be made first.
        let latest = self.server.clock.now() + duration(micros(claim.lease));
        loop {
            if let Some(grant) = self.grant(claim, key, ticket).await? {
                return Ok(Ok(Grant::new(grant.token, grant.valid_until.min(latest))));
            }
            match self.look(claim, key, ticket.unwrap_or(END_OF_LINE)).await? {
                // The line that there may have been is none.
                Some(seen) if seen.is_free() && ticket.is_none() => ticket = Some(END_OF_LINE),
                Some(seen) => return Ok(Err(seen)),
                None => drop(self.server.run(&self.statements.make, arguments!(key), Again::Yes).await?),
            }
        }
    }

    /// What a caller is told: of several requests, one before the last may have done something.
    fn told(&self, claim: &Claim, error: Error) -> Error {
        if self.unsettled.contains(&claim.owner) { error.after_something_was_done() } else { error }
    }
}
