//! Which owners of this client are or were in line: what a release has to see to.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lock_core::OwnerId;

/// So many that were granted are kept, who need not be.
const KEPT: usize = 1000;

/// What is known of an owner that entered a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It may be in line, or have been granted.
    Waits,
    /// It was granted: others may be behind it.
    Granted,
}

#[derive(Debug, Default)]
pub(super) struct Line(Mutex<HashMap<OwnerId, Place>>);

impl Line {
    fn places(&self) -> MutexGuard<'_, HashMap<OwnerId, Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, owner: &OwnerId, place: Place) {
        let mut places = self.places();
        if place == Place::Granted && places.len() >= KEPT {
            // They spare a request, and may never be given back.
            places.retain(|_, place| *place == Place::Waits);
        }
        places.insert(owner.clone(), place);
    }

    pub(super) fn place(&self, owner: &OwnerId) -> Option<Place> {
        self.places().get(owner).copied()
    }

    pub(super) fn forget(&self, owner: &OwnerId) {
        self.places().remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_kept_until_it_is_given_back() {
        let (line, waits) = (Line::default(), OwnerId::from_store("waits"));
        line.note(&waits, Place::Waits);
        for number in 0..KEPT * 3 {
            line.note(&OwnerId::from_store(&number.to_string()), Place::Granted);
            assert!(line.places().len() <= KEPT + 1);
        }
        assert_eq!(line.place(&waits), Some(Place::Waits));
        line.forget(&waits);
        assert_eq!(line.place(&waits), None);
    }
}
