//! How a claim ends, and whatever of it may still be on its way.

use etcd_client::Txn;
use lock_core::{Error, Result, Unlocked};

use crate::Shared;
use crate::connection::Again;
use crate::error::nonsense;
use crate::ledger::{Own, Stage};
use crate::requests::{deletions, found, get_key, removal, remove};
use crate::session::transact;
use crate::undo::undo_all;

impl Shared {
    /// Deletes a claim's key. If a request for it may still be on its way, that is made void, too.
    pub(crate) async fn release(&self, key: &str, line: &str) -> Result<Unlocked> {
        let own = self.ledger.leaving(key);
        let released = self.leave(key, line, own.as_ref()).await;
        match (&released, &own) {
            (Ok(_), _) => self.ledger.remove(key),
            (Err(error), Some(own)) if error.is_refused() => self.ledger.stays(key, own),
            (Err(_), _) => {}
        }
        released
    }

    async fn leave(&self, key: &str, line: &str, own: Option<&Own>) -> Result<Unlocked> {
        let Some(own) = own else { return self.undo(key, line, None).await };
        let released = match own.stage {
            Stage::InDoubt => return self.undo(key, line, Some(own)).await,
            Stage::Held(created) => self.delete(key, created).await?,
            Stage::Waiting(created) => self.delete(key, created).await.map(|_| Unlocked::NotHeld)?,
            Stage::Leaving { held, created } => self.delete_again(key, own, held, created).await?,
        };
        if own.unsure {
            // What may still be on its way would put the key anew.
            self.undo(key, line, Some(own)).await?;
        }
        Ok(released)
    }

    async fn delete(&self, key: &str, created: i64) -> Result<Unlocked> {
        // Sent again, it would say that the lock was not held.
        let asking = transact(&self.connection, Again::No, remove(key.as_bytes(), created));
        let answer = asking.await.map_err(Error::from)?;
        Ok(if answer.succeeded() { Unlocked::Released } else { Unlocked::NotHeld })
    }

    /// The answer to an earlier release was lost. If the key is gone while its lease lives, that release was done. (If
    /// somebody evicted it just then, nothing tells.)
    async fn delete_again(&self, key: &str, own: &Own, held: bool, created: i64) -> Result<Unlocked> {
        let txn = Txn::new().and_then([get_key(&own.session.beacon), removal(key, created)]);
        let answer = transact(&self.connection, Again::Yes, txn).await.map_err(Error::from)?;
        let lives = found(&answer)?.pop().is_some_and(|beacon| !beacon.is_empty());
        Ok(if held && (lives || deletions(&answer) != [0]) { Unlocked::Released } else { Unlocked::NotHeld })
    }

    /// Nobody knows what the store has of this claim.
    async fn undo(&self, key: &str, line: &str, own: Option<&Own>) -> Result<Unlocked> {
        match own {
            Some(own) => own.session.undo(&self.connection, key, line).await,
            // It is not known here: then nothing of it is on its way either.
            None => {
                let answers = undo_all(&self.connection, &[(key.to_owned(), line.to_owned())], None).await?;
                answers.first().copied().ok_or_else(nonsense)
            }
        }
    }
}
