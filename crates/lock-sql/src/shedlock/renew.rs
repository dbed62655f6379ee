//! How both are prolonged, many at once.

use futures_util::future::join_all;
use lock_core::{Claim, DistributedLock, Renewal, Result};

use super::Shedlock;
use super::table::Table;

impl<B: DistributedLock, T: Table> Shedlock<B, T> {
    pub(super) async fn renew_both(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut renewals = self.ours.renew(claims).await;
        let (mut held, mut lost) = (Vec::new(), Vec::new());
        for (at, renewal) in renewals.iter().enumerate().take(claims.len()) {
            match renewal {
                Ok(Renewal::Held { .. }) => held.push(at),
                Ok(Renewal::NotHeld) => lost.push(at),
                _ => {}
            }
        }
        join_all(lost.into_iter().map(|at| self.leave_row(&claims[at]))).await;
        if held.is_empty() {
            return renewals;
        }
        let of_held: Vec<_> = held.iter().map(|&at| claims[at].clone()).collect();
        let prolonged = self.table.prolong(&of_held).await;
        for (at, prolonged) in held.into_iter().zip(prolonged) {
            match prolonged {
                Ok(true) => {}
                Ok(false) => renewals[at] = self.without_row(&claims[at], renewals[at].clone()).await,
                Err(error) => renewals[at] = Err(error),
            }
        }
        renewals
    }

    /// Our lock was lost, and others of ours need not wait for the end of the row.
    async fn leave_row(&self, claim: &Claim) {
        if let Err(error) = self.free_row(&claim.name, &claim.owner).await {
            tracing::debug!(%error, "a row stays until its time is over");
        }
    }

    /// Our lock was renewed, and the row was not the owner's any more.
    async fn without_row(&self, claim: &Claim, renewal: Result<Renewal>) -> Result<Renewal> {
        let row = self.table.look(&claim.name).await?.row;
        if row.is_some_and(|row| row.by == claim.owner.kept()) {
            // The hold is about to be kept, and our lock is still as it was.
            return renewal;
        }
        // Whoever releases it has freed the row first.
        if !self.ending.has(&claim.owner)
            && let Err(error) = self.give_back(claim).await
        {
            tracing::debug!(%error, "a lock without its row stays until its lease is over");
        }
        Ok(Renewal::NotHeld)
    }
}
