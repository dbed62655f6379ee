//! How a claim ends, and whatever of it may still be on its way.

use etcd_client::{Txn, TxnOp};
use lock_core::{Claim, Error, ErrorKind, Result, Unlocked};

use crate::Shared;
use crate::connection::Again;
use crate::error::in_doubt;
use crate::ledger::{Own, Stage};
use crate::requests::{deletions, found, get_key, pass, remove, revision};
use crate::session::transact;
use crate::undo::{Undone, sweep};
use crate::waiters::Entry;

impl Shared {
    /// Deletes a claim's key. If a request for it may still be on its way, that is made void, too.
    pub(crate) async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        let id = self.keys.id(claim);
        if self.ledger.get(&id).is_some() {
            return self.release(&id).await;
        }
        // It is not known here: then nothing of it is on its way either.
        let undone = sweep(&self.connection, &self.keys.line(&claim.name), claim.owner.as_str()).await?;
        Ok(self.has_gone(undone))
    }

    /// The same for a claim that is known here.
    pub(crate) async fn release(&self, id: &str) -> Result<Unlocked> {
        let Some(own) = self.ledger.leaving(id) else { return Ok(Unlocked::NotHeld) };
        let released = self.leave(&own).await;
        match &released {
            Ok(_) => self.ledger.remove(id),
            Err(error) if error.is_refused() => self.ledger.stays(id, &own),
            Err(_) => {}
        }
        released
    }

    async fn leave(&self, own: &Own) -> Result<Unlocked> {
        let released = match &own.stage {
            Stage::InDoubt => return self.undo(own).await,
            Stage::Held(entry) if *entry.key == own.spot.seat => self.delete(entry, remove(entry)).await?,
            Stage::Held(entry) => {
                match self.delete(entry, pass(entry, &self.keys.mark(&entry.key), &own.session)).await {
                    // A full store takes nothing but deletions; and what filled it may have been done all the same.
                    Err(error) if error.kind() == ErrorKind::Refused => self.delete_again(own, true, entry).await?,
                    released => released?,
                }
            }
            Stage::Waiting(entry) => self.delete(entry, remove(entry)).await.map(|_| Unlocked::NotHeld)?,
            Stage::Leaving { held, entry } => self.delete_again(own, *held, entry).await?,
        };
        if own.unsure {
            // What may still be on its way would put a key anew.
            self.undo(own).await.map_err(in_doubt)?;
        }
        Ok(released)
    }

    async fn delete(&self, entry: &Entry, deletion: Txn) -> Result<Unlocked> {
        // Sent again, it would say that the lock was not held.
        let answer = transact(&self.connection, Again::No, deletion).await.map_err(Error::from)?;
        // Those of this client who wait for it need not hear of it from the store.
        self.ledger.found_gone(entry, revision(&answer)?);
        Ok(if answer.succeeded() { Unlocked::Released } else { Unlocked::NotHeld })
    }

    /// The answer to an earlier release was lost. If the key is gone while its lease lives, that release was done. (If
    /// somebody evicted it just then, nothing tells.)
    async fn delete_again(&self, own: &Own, held: bool, entry: &Entry) -> Result<Unlocked> {
        let txn = Txn::new().and_then([get_key(&own.session.beacon), TxnOp::txn(remove(entry))]);
        let answer = transact(&self.connection, Again::Yes, txn).await.map_err(Error::from)?;
        self.ledger.found_gone(entry, revision(&answer)?);
        let lives = found(&answer)?.pop().is_some_and(|beacon| !beacon.is_empty());
        Ok(if held && (lives || deletions(&answer) != [0]) { Unlocked::Released } else { Unlocked::NotHeld })
    }

    /// Nobody knows what the store has of this claim.
    async fn undo(&self, own: &Own) -> Result<Unlocked> {
        let undone = own.session.undo(&self.connection, &own.spot).await?;
        Ok(self.has_gone(undone))
    }

    pub(crate) fn has_gone(&self, undone: Undone) -> Unlocked {
        for entry in &undone.deleted {
            self.ledger.found_gone(entry, undone.at);
        }
        undone.unlocked
    }
}
