//! The owners of whom a request to acquire may still be on its way: given up, or without an answer.
//!
//! Such a request may be done after the release that is to undo it. So a release of these owners leaves a mark in the
//! database that refuses it.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lock_core::{OwnerId, Result};
use sqlx::Database;

use super::Answer;

/// For so long after it was last asked about, an owner is kept: whoever releases it asks each few seconds, and may give up.
/// By then no request is on its way any more, and the mark in the database would go too.
const KEPT: Duration = Duration::from_secs(3600);

/// So many are not looked through for old ones.
const FEW: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Unsettled(Mutex<Owners>);

#[derive(Debug, Default)]
struct Owners {
    /// When each was last asked about.
    seen: HashMap<OwnerId, Instant>,
    /// How many there were after old ones were last looked for.
    kept: usize,
}

/// A request on its way. Dropped before it is settled, its owner counts as unsettled.
pub(crate) struct OnItsWay<'u> {
    owners: &'u Unsettled,
    owner: Option<&'u OwnerId>,
}

impl Owners {
    fn add(&mut self, owner: OwnerId, now: Instant) {
        if self.seen.len() >= (self.kept * 2).max(FEW) {
            self.seen.retain(|_, seen| now.saturating_duration_since(*seen) < KEPT);
            self.kept = self.seen.len();
        }
        self.seen.insert(owner, now);
    }
}

impl Unsettled {
    fn owners(&self) -> MutexGuard<'_, Owners> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn send<'u>(&'u self, owner: &'u OwnerId) -> OnItsWay<'u> {
        OnItsWay { owners: self, owner: Some(owner) }
    }

    pub(crate) fn contains(&self, owner: &OwnerId) -> bool {
        let mut owners = self.owners();
        let seen = owners.seen.get_mut(owner);
        seen.map(|seen| *seen = Instant::now()).is_some()
    }

    pub(crate) fn forget(&self, owner: &OwnerId) {
        self.owners().seen.remove(owner);
    }
}

/// Settles all of these, if what they were answered together says that nothing of them is on its way any more.
pub(crate) fn answered_together<'u, DB: Database>(
    on_their_way: impl IntoIterator<Item = OnItsWay<'u>>,
    answer: Result<Answer<DB>>,
) -> Result<Answer<DB>> {
    let is_over = match &answer {
        Ok(answer) => !answer.twice,
        Err(error) => error.is_refused(),
    };
    if is_over {
        on_their_way.into_iter().for_each(OnItsWay::settle);
    }
    answer
}

impl OnItsWay<'_> {
    /// Settles it, if what it was answered says that nothing of it is on its way any more.
    pub(crate) fn answered<DB: Database>(self, answer: Result<Answer<DB>>) -> Result<Answer<DB>> {
        answered_together([self], answer)
    }

    /// It was answered, and nothing of it is on its way any more.
    pub(crate) fn settle(mut self) {
        self.owner = None;
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if let Some(owner) = self.owner {
            self.owners.owners().add(owner.clone(), Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_dropped_unanswered_is_unsettled() {
        let (unsettled, owner) = (Unsettled::default(), OwnerId::from_store("a"));
        unsettled.send(&owner).settle();
        assert!(!unsettled.contains(&owner));
        drop(unsettled.send(&owner));
        assert!(unsettled.contains(&owner));
        unsettled.forget(&owner);
        assert!(!unsettled.contains(&owner));
    }

    #[test]
    fn owners_whom_nobody_releases_any_more_are_forgotten() {
        let (mut owners, start) = (Owners::default(), Instant::now());
        for number in 0..20_000_u32 {
            // One in a second.
            owners.add(OwnerId::from_store(&number.to_string()), start + Duration::from_secs(number.into()));
            assert!(owners.seen.len() <= 2 * KEPT.as_secs() as usize + FEW);
        }
        assert!(owners.seen.len() >= KEPT.as_secs() as usize);
    }
}
