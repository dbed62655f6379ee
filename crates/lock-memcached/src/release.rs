//! How a lock is given back, or a request for it given up.

use std::sync::OnceLock;

use lock_core::{Claim, Error, Holder, LockName, OwnerId, Result, Unlocked};

use crate::MemcachedLock;
use crate::connection::{Failed, Link};
use crate::error;
use crate::read::{done, removed};
use crate::record::{Found, Record};
use crate::retry::Unheard;
use crate::wire::Commands;

/// So many times others may change what is there.
const ROUNDS: usize = 20;

/// What was removed.
enum Ended {
    /// A hold, at this second.
    Hold { record: Box<Record>, cas: u64, second: u64 },
    /// An empty item, or nothing.
    Nothing,
}

impl MemcachedLock {
    /// Ends this claim's hold, and removes an empty item, so that a request of its owner which lands later does nothing.
    pub(crate) async fn release(&self, claim: &Claim) -> Result<Unlocked> {
        let ended = self.end(&claim.name, |record, _| Ok(record.owner == claim.owner.as_str())).await?;
        Ok(if matches!(ended, Ended::Hold { .. }) { Unlocked::Released } else { Unlocked::NotHeld })
    }

    /// Ends the hold that it finds first, or that of this owner. Its token tells that hold from the next, should an answer
    /// be lost and the lock be looked at once more.
    pub(crate) async fn end_hold(&self, name: &LockName, owner: Option<&OwnerId>) -> Result<Option<Holder>> {
        let first = OnceLock::new();
        let is_meant = |record: &Record, cas| {
            let is_owners =
                owner.is_none_or(|owner| owner.as_str() == record.owner || owner.kept().as_str() == record.owner);
            let token = record.token(cas)?;
            Ok(is_owners && *first.get_or_init(|| token) == token)
        };
        match self.end(name, is_meant).await? {
            Ended::Hold { record, cas, second } => record.holder(cas, second).map(Some),
            Ended::Nothing => Ok(None),
        }
    }

    async fn end(
        &self,
        name: &LockName,
        is_meant: impl Fn(&Record, u64) -> Result<bool> + Send + Sync,
    ) -> Result<Ended> {
        let (is_meant, unheard) = (&is_meant, &Unheard::default());
        let ended = self.client.retrying(|link| async move { self.end_over(&link, name, is_meant, unheard).await });
        match (ended.await?, unheard.take()) {
            // By the removal that was not answered, or before? Nobody can tell.
            (Ended::Nothing, Some(error)) => Err(Error::after_something_was_done(error)),
            (ended, _) => Ok(ended),
        }
    }

    async fn end_over(
        &self,
        link: &Link,
        name: &LockName,
        is_meant: &(impl Fn(&Record, u64) -> Result<bool> + Send + Sync),
        unheard: &Unheard,
    ) -> Result<Ended, Failed> {
        let key = self.keys.of(name);
        for _ in 0..ROUNDS {
            let (second, mut items) = self.look(link, std::slice::from_ref(&key)).await?;
            let Some(Some(item)) = items.pop() else { return Ok(Ended::Nothing) };
            let found = Found::read(&item, name)?;
            if let Found::Held(record) = &found
                && !is_meant(record, item.cas)?
            {
                return Ok(Ended::Nothing);
            }
            let mut commands = Commands::default();
            commands.remove(&key, item.cas);
            let mut answers = link.ask(commands).await;
            if matches!(found, Found::Held(_)) {
                answers = unheard.note(answers);
            }
            let [answer] = done(answers?)?;
            if removed(answer)? {
                return Ok(match found {
                    Found::Held(record) => Ended::Hold { record, cas: item.cas, second },
                    Found::Free => Ended::Nothing,
                });
            }
        }
        Err(error::overtaken().after_something_was_done().into())
    }
}
