//! How our lock and the row are taken, at once or in line.

use std::time::Duration;

use lock_core::{Claim, DistributedLock, Error, ErrorKind, Grant, OwnerId, Renewal, Result};
use tokio::time::sleep;

use super::Shedlock;
use super::table::{Table, Taken};

/// How long a row is looked at that one of ours has who is about to free it: somebody evicted it, or it gave up.
const MOMENTS: [Duration; 3] = [Duration::from_millis(2), Duration::from_millis(5), Duration::from_millis(10)];

/// How long a row that another has is left alone, at first, and in the end: nobody tells when it comes free early.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

impl<B: DistributedLock, T: Table> Shedlock<B, T> {
    pub(super) async fn try_both(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.table.layout().check(&claim.name)?;
        let Some(grant) = self.ours.try_lock(claim).await? else { return Ok(None) };
        let mut moments = MOMENTS.into_iter();
        loop {
            let busy = match self.take(claim).await? {
                Taken::Ours => return Ok(Some(grant)),
                // Its lease was over by then: nothing is held, and whoever asked finds that by the clock.
                Taken::NotHeld if self.ours.clock().now() >= grant.valid_until => return Ok(Some(grant)),
                Taken::NotHeld => None,
                Taken::Busy { by, .. } => by,
            };
            match moments.next().filter(|_| busy.is_some_and(|by| is_of_our_kind(&by))) {
                Some(moment) => sleep(moment).await,
                None => break,
            }
        }
        self.give_back(claim).await.map_err(Error::after_something_was_done)?;
        Ok(None)
    }

    pub(super) async fn wait_for_both(&self, claim: &Claim) -> Result<Grant> {
        self.table.layout().check(&claim.name)?;
        let mut grant = self.ours.lock(claim).await?;
        loop {
            if let Some(granted) = self.wait_for_row(claim, grant).await? {
                return Ok(granted);
            }
            // Our lock was lost meanwhile.
            sleep(PAUSES.0).await;
            grant = self.ours.lock(claim).await.map_err(Error::after_something_was_done)?;
        }
    }

    /// Waits for the row with our lock in hand. None: that was lost.
    async fn wait_for_row(&self, claim: &Claim, grant: Grant) -> Result<Option<Grant>> {
        let clock = self.ours.clock();
        let (mut valid_until, mut pause) = (grant.valid_until, PAUSES.0);
        let mut has_waited = false;
        loop {
            let left = match self.take(claim).await? {
                Taken::Ours if !has_waited => return Ok(Some(grant)),
                Taken::Ours => break,
                Taken::Busy { left, .. } => left,
                Taken::NotHeld => return Ok(None),
            };
            has_waited = true;
            let renewal_due = valid_until.saturating_sub(claim.lease / 3 * 2);
            let until_renewal = renewal_due.saturating_duration_since(clock.now());
            if until_renewal.is_zero() {
                match self.ours.renew(std::slice::from_ref(claim)).await.pop() {
                    Some(Ok(Renewal::Held { valid_until: later })) => valid_until = later,
                    Some(Err(error)) => return Err(error.after_something_was_done()),
                    _ => return Ok(None),
                }
            } else {
                sleep(left.min(pause).min(until_renewal).max(PAUSES.0)).await;
                pause = (pause * 2).min(PAUSES.1);
            }
        }
        // Whoever waited gets a whole lease of both.
        match self.renew_both(std::slice::from_ref(claim)).await.pop() {
            Some(Ok(Renewal::Held { valid_until })) => Ok(Some(Grant::new(grant.token, valid_until))),
            Some(Err(error)) => Err(error.after_something_was_done()),
            _ => Ok(None),
        }
    }

    /// Takes the row. If the server says that this cannot be, our lock is given back.
    async fn take(&self, claim: &Claim) -> Result<Taken> {
        let error = match self.table.take(claim).await {
            Ok(taken) => return Ok(taken),
            Err(error) => error,
        };
        let is_final = matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Refused | ErrorKind::Unsupported);
        if is_final && self.ours.unlock(claim).await.is_ok() {
            return Err(error);
        }
        Err(error.after_something_was_done())
    }
}

/// Is it an owner as ours are, that has not kept its hold?
fn is_of_our_kind(owner: &OwnerId) -> bool {
    owner.label().is_some() && owner.before_it_kept().is_none()
}
