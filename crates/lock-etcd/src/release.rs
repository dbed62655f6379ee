//! How a claim ends, and whatever of it may still be on its way.

use etcd_client::{Txn, TxnOp, TxnResponse};
use lock_core::{Claim, Error, ErrorKind, Result, Unlocked};

use crate::Shared;
use crate::connection::Again;
use crate::error::{in_doubt, nonsense};
use crate::keys::tells;
use crate::ledger::{Own, Stage};
use crate::permits;
use crate::requests::{deletions, end, end_key, found, get_key, pass, remove, revision};
use crate::session::{read, transact};
use crate::standing::Standing;
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
            Stage::Held(entry) if own.spot.permits.is_some() => {
                self.end_hold(own, entry, permits::end(&own.spot, &entry.key, own.put(entry))).await?
            }
            Stage::Held(entry) if !tells(&own.spot.line, &entry.key) => {
                self.end_hold(own, entry, end(&entry.key, own.put(entry))).await?
            }
            Stage::Held(entry) => {
                let pass = pass(&entry.key, own.put(entry), &self.keys.mark(&entry.key), &own.session);
                match self.end_hold(own, entry, pass).await {
                    // A full store takes nothing but deletions; and what filled it may have been done all the same.
                    Err(error) if error.kind() == ErrorKind::Refused => self.delete_again(own, true, entry).await?,
                    released => released?,
                }
            }
            Stage::Waiting(entry) => {
                let answer = self.delete(remove(entry)).await?;
                self.ledger.found_gone(entry, revision(&answer)?);
                Unlocked::NotHeld
            }
            Stage::Leaving { held, entry } => self.delete_again(own, *held, entry).await?,
        };
        if own.unsure {
            // What may still be on its way would put a key anew.
            self.undo(own).await.map_err(in_doubt)?;
        }
        Ok(released)
    }

    async fn delete(&self, deletion: Txn) -> Result<TxnResponse> {
        // Sent again, it would say that the lock was not held.
        transact(&self.connection, Again::No, deletion).await.map_err(Error::from)
    }

    async fn end_hold(&self, own: &Own, entry: &Entry, ending: Txn) -> Result<Unlocked> {
        let answer = self.delete(ending).await?;
        if !answer.succeeded() {
            return self.end_changed(own, entry).await;
        }
        // Those of this client who wait for it need not hear of it from the store.
        self.ledger.found_gone(entry, revision(&answer)?);
        Ok(Unlocked::Released)
    }

    /// The key is not as we put it: it is gone, or it was kept, and then it is not ours any more. Or somebody put it anew
    /// under us, ourselves with another value perhaps: then it is ours to delete.
    async fn end_changed(&self, own: &Own, entry: &Entry) -> Result<Unlocked> {
        loop {
            let (at, mut found) = read(&self.connection, std::iter::once(&entry.key)).await?;
            let Some(key) = found.pop().flatten().filter(|key| key.create_revision() == entry.created) else {
                self.ledger.found_gone(entry, at);
                return Ok(Unlocked::NotHeld);
            };
            if Standing::is_kept_by(&own.spot.line, &key, &own.spot.owner) {
                self.ledger.leaves_its_place(&own.spot.id, entry);
                return Ok(Unlocked::NotHeld);
            }
            let answer = self.delete(end_key(&key)).await?;
            if answer.succeeded() {
                self.ledger.found_gone(entry, revision(&answer)?);
                return Ok(Unlocked::Released);
            }
        }
    }

    /// The answer to an earlier release was lost. If the key is gone while its lease lives, that release was done. (If
    /// somebody evicted it just then, nothing tells.)
    async fn delete_again(&self, own: &Own, held: bool, entry: &Entry) -> Result<Unlocked> {
        let removal = if held { end(&entry.key, own.put(entry)) } else { remove(entry) };
        let txn = Txn::new().and_then([get_key(&own.session.beacon), get_key(&entry.key), TxnOp::txn(removal)]);
        let answer = transact(&self.connection, Again::Yes, txn).await.map_err(Error::from)?;
        let [beacon, key] = found(&answer)?.try_into().map_err(|_| nonsense())?;
        let is_deleted = deletions(&answer) != [0];
        if held && !is_deleted && key.iter().any(|key| key.create_revision() == entry.created) {
            return self.end_changed(own, entry).await;
        }
        self.ledger.found_gone(entry, revision(&answer)?);
        Ok(if held && (!beacon.is_empty() || is_deleted) { Unlocked::Released } else { Unlocked::NotHeld })
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
