//! How both are given back, kept, and taken away.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Claim, DistributedLock, Error, ErrorKind, Holder, Kept, LockName, OwnerId, Result, Unlocked};

use super::Shedlock;
use super::table::{Table, first};

/// How often it is looked which hold is to be ended.
const TRIES: usize = 100;

impl<B: DistributedLock, T: Table> Shedlock<B, T> {
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<Unlocked> {
        let (name, owner) = (&claim.name, &claim.owner);
        let _ending = self.ending.begin(owner);
        if self.table.unsettled().contains(owner) {
            // Until our lock is given back, what is on its way may take the row.
            let unlocked = self.ours.unlock(claim).await?;
            let had_row = self.free_row(name, owner).await?;
            self.table.unsettled().forget(owner);
            return Ok(both(unlocked, had_row));
        }
        let had_row = self.free_row(name, owner).await?;
        Ok(both(self.ours.unlock(claim).await?, had_row))
    }

    pub(super) async fn keep_both(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let (name, owner) = (&claim.name, &claim.owner);
        let _ending = self.ending.begin(owner);
        let row = self.table.keep(claim, rest).await?;
        if !row.now {
            let seen = self.table.look(name).await?;
            // If not now, perhaps an earlier try did it.
            if seen.row.is_none_or(|row| row.by != owner.kept()) {
                if seen.ours.as_ref() == Some(owner) {
                    self.ours.unlock(claim).await?;
                }
                return if row.twice { Err(Error::kept_or_not()) } else { Ok(Kept::NotHeld) };
            }
        }
        let kept = self.ours.keep(claim, rest).await?;
        if kept == Kept::NotHeld {
            // Our lock was lost in between.
            self.free_row(name, &owner.kept()).await?;
        }
        // Whatever is on its way finds that the owner does not hold our lock.
        self.table.unsettled().forget(owner);
        Ok(kept)
    }

    /// Ends a hold, whosoever it is.
    pub(super) async fn end_hold(&self, name: &LockName) -> Result<Option<Holder>> {
        for _ in 0..TRIES {
            let ours = self.ours.holder(name).await?;
            let seen = self.table.look(name).await?;
            let Some(row) = &seen.row else {
                // One of ours may be about to take it.
                return self.ours.evict(name).await;
            };
            // That hold, so that whoever is named in the answer is the one who lost it, and not the next.
            if !self.table.free(name, row).await? {
                continue;
            }
            let ours = ours.filter(|holder| holder.owner == first(&row.by));
            if let Some(owner) = seen.ours.as_ref().filter(|_| seen.is_ours()) {
                let mut claim = Claim::new(name.clone(), owner.clone(), Duration::ZERO);
                claim.value = ours.as_ref().and_then(|holder| holder.value.clone());
                self.ours.unlock(&claim).await?;
            }
            return Ok(ours.or_else(|| seen.holder()));
        }
        Err(self.changes_hands())
    }

    /// Ends the hold of this one, and answers whether it had the row. Should that land late, a later hold of its stays.
    pub(super) async fn free_row(&self, name: &LockName, by: &OwnerId) -> Result<bool> {
        for _ in 0..TRIES {
            let row = self.table.look(name).await?.row;
            let Some(row) = row.filter(|row| row.by == *by) else { return Ok(false) };
            // If not, a request to take the row may have landed just then.
            if self.table.free(name, &row).await? {
                return Ok(true);
            }
        }
        Err(self.changes_hands())
    }

    fn changes_hands(&self) -> Error {
        let table = &self.table.layout().table;
        let message = format!("the lock's row in {table} changes hands all the time; try again");
        Error::new(ErrorKind::Unavailable, message)
    }
}

/// It was held until now if both were.
fn both(unlocked: Unlocked, had_row: bool) -> Unlocked {
    if had_row { unlocked } else { Unlocked::NotHeld }
}

/// The owners whose holds are being released or kept: that they lose their rows is no loss.
#[derive(Debug, Default)]
pub(super) struct Ending(Mutex<Vec<OwnerId>>);

/// While there is this, the owner's hold is being ended.
pub(super) struct Ends<'e> {
    owners: &'e Ending,
    owner: &'e OwnerId,
}

impl Ending {
    fn owners(&self) -> MutexGuard<'_, Vec<OwnerId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn begin<'e>(&'e self, owner: &'e OwnerId) -> Ends<'e> {
        self.owners().push(owner.clone());
        Ends { owners: self, owner }
    }

    pub(super) fn has(&self, owner: &OwnerId) -> bool {
        self.owners().contains(owner)
    }
}

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        let mut owners = self.owners.owners();
        if let Some(at) = owners.iter().position(|owner| owner == self.owner) {
            owners.swap_remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_that_is_begun_twice_ends_twice() {
        let (ending, owner) = (Ending::default(), OwnerId::from_store("a"));
        let first = ending.begin(&owner);
        drop(ending.begin(&owner));
        assert!(ending.has(&owner) && !ending.has(&OwnerId::from_store("b")));
        drop(first);
        assert!(!ending.has(&owner));
    }
}
