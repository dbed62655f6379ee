//! The owners of whom a request to acquire may still be on its way: given up, or without an answer.
//!
//! Such a request may be done after the release that is to undo it. So a release of these owners leaves a mark in the
//! database that refuses it.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::OwnerId;

#[derive(Debug, Default)]
pub(crate) struct Unsettled(Mutex<HashSet<OwnerId>>);

/// A request on its way. Dropped before it is settled, its owner counts as unsettled.
pub(crate) struct OnItsWay<'u> {
    owners: &'u Unsettled,
    owner: Option<&'u OwnerId>,
}

impl Unsettled {
    fn owners(&self) -> MutexGuard<'_, HashSet<OwnerId>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn send<'u>(&'u self, owner: &'u OwnerId) -> OnItsWay<'u> {
        OnItsWay { owners: self, owner: Some(owner) }
    }

    pub(crate) fn contains(&self, owner: &OwnerId) -> bool {
        self.owners().contains(owner)
    }

    pub(crate) fn forget(&self, owner: &OwnerId) {
        self.owners().remove(owner);
    }
}

impl OnItsWay<'_> {
    /// It was answered, and nothing of it is on its way any more.
    pub(crate) fn settle(mut self) {
        self.owner = None;
    }
}

impl Drop for OnItsWay<'_> {
    fn drop(&mut self) {
        if let Some(owner) = self.owner {
            self.owners.owners().insert(owner.clone());
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
}
