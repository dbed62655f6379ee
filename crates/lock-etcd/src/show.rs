//! How a holder shows another value.

use lock_core::{Claim, Error, ErrorKind, LockValue, Proclaimed, Result};

use crate::Shared;
use crate::connection::Again;
use crate::error::{Failure, in_doubt, leaving, nonsense};
use crate::ledger::{Ledger, Stage};
use crate::requests::{found, get_key, revision, unchanged};
use crate::session::transact;
use crate::standing::Standing;

impl Shared {
    /// Puts another value, if the key was last put when we know it was: so a request that lands late does not bring back
    /// what was shown before.
    pub(crate) async fn proclaim(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        let id = self.keys.id(claim);
        let Some(own) = self.ledger.get(&id) else { return Ok(Proclaimed::NotHeld) };
        let entry = match &own.stage {
            Stage::Held(entry) => entry,
            Stage::Leaving { held: true, .. } => return Err(leaving()),
            _ => return Ok(Proclaimed::NotHeld),
        };
        if own.spot.shows.is_none() {
            return Err(Error::new(ErrorKind::Invalid, "this lock was taken without a value"));
        }
        let (key, mut put) = (entry.key.as_str(), own.put(entry));
        loop {
            let txn = unchanged(key, put).and_then([own.session.put(key, value.as_str())]).or_else([get_key(key)]);
            let answer = match transact(&self.connection, Again::Yes, txn).await {
                Ok(answer) => answer,
                Err(Failure::LeaseGone) => {
                    self.lose(&own.session);
                    return Ok(Proclaimed::NotHeld);
                }
                // What filled the store may have been done.
                Err(Failure::Full(error)) => return Err(in_doubt(error)),
                Err(failure) => return Err(failure.into()),
            };
            if answer.succeeded() {
                self.ledger.was_put(&id, revision(&answer)?);
                return Ok(Proclaimed::Shown);
            }
            let there = found(&answer)?.pop().ok_or_else(nonsense)?.pop();
            let Some(there) = there.filter(|there| there.create_revision() == entry.created) else {
                self.ledger.not_held(&id, entry);
                return Ok(Proclaimed::NotHeld);
            };
            if Standing::is_kept_by(&own.spot.line, &there, &claim.owner) {
                return Ok(Proclaimed::NotHeld);
            }
            // The answer to an earlier one was lost.
            put = there.mod_revision();
            self.ledger.was_put(&id, put);
            if there.value() == value.as_str().as_bytes() && there.lease() == own.session.lease {
                return Ok(Proclaimed::Shown);
            }
        }
    }
}

impl Ledger {
    fn was_put(&self, id: &str, at: i64) {
        if let Some(own) = self.state().own.get_mut(id) {
            own.put = own.put.max(at);
        }
    }
}
