//! How a lock is taken, at once or in line.

use lock_core::{Claim, Grant, Mode, Result, StoreToken};

use super::SqliteLock;
use super::statements::{Ask, GRANT};
use super::store::Failure;
use crate::keys::{duration, micros};

/// Behind every ticket: for who has none.
pub(super) const END_OF_LINE: i64 = i64::MAX;

impl SqliteLock {
    /// Takes the lock now, or leaves nothing behind.
    pub(super) async fn take_or_leave(&self, claim: &Claim) -> Result<Option<Grant>> {
        let mut taken = self.take(claim).await;
        if matches!(taken, Ok(None)) {
            taken = self.own_or_kind(claim).await;
        }
        if claim.value.is_some() && matches!(taken, Ok(None)) {
            self.hide(&claim.name, &claim.owner).await;
        }
        taken
    }

    pub(super) async fn take(&self, claim: &Claim) -> Result<Option<Grant>> {
        match self.grant(claim, END_OF_LINE).await {
            Err(Failure::Replaced) => self.grant(claim, END_OF_LINE).await,
            answer => answer,
        }
        .map_err(|failure| self.as_error(failure))
    }

    pub(super) async fn take_in_turn(&self, claim: &Claim) -> Result<Grant> {
        loop {
            if let Some(grant) = self.take(claim).await? {
                return Ok(grant);
            }
            match self.wait_in_line(claim).await {
                Err(Failure::Replaced | Failure::Unmade(_)) => continue,
                answer => return answer.map_err(|failure| self.as_error(failure)),
            }
        }
    }

    /// Takes the lock, if it is free and nobody with an earlier ticket waits for it.
    pub(super) async fn grant(&self, claim: &Claim, ticket: i64) -> Result<Option<Grant>, Failure> {
        self.sweep_if_due();
        if claim.mode != Mode::Exclusive {
            return self.grant_beside(claim, ticket).await;
        }
        self.show(claim).await?;
        self.grant_as(claim, claim.owner.as_str(), ticket).await
    }

    /// Takes it under this name, if nobody has it.
    pub(super) async fn grant_as(&self, claim: &Claim, owner: &str, ticket: i64) -> Result<Option<Grant>, Failure> {
        let key = self.key(&claim.name);
        let lease_us = micros(claim.lease);
        let ask = Ask { statement: GRANT, key: &key, owner, lease_us, number: ticket, makes: true, ..Ask::default() };
        let answer = match self.store.run(ask).await {
            Err(failure) if claim.value.is_some() => return Err(failure.with_a_ticket()),
            answer => answer?,
        };
        let Some(row) = answer.rows.first() else { return Ok(None) };
        let token = StoreToken::new(row.get::<i64>("token") as u64)?;
        Ok(Some(Grant::new(token, answer.sent + duration(lease_us))))
    }
}
