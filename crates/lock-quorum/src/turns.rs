//! Whom a store knows an owner as. Whoever waits asks a store, gives back what it was granted and asks again; and a
//! request to give back may arrive once more when all that is long over. Therefore a store that was asked to give back is
//! asked again by another owner, `1#owner` and so on, whose hold no earlier request can end.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Claim, OwnerId};
use tokio::time::Instant;

/// How long after its lease nothing of a claim that was given back is left in any store, nor on its way to it.
pub(crate) const AFTER: Duration = Duration::from_secs(10);

/// Of one store.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<OwnerId, Turn>>);

#[derive(Default)]
struct Turn {
    number: u32,
    /// Since then, the store is asked to give back what it granted in this turn.
    left: Option<Instant>,
    /// The turns that the store has not said to be given back.
    open: Vec<u32>,
}

impl Turns {
    /// As the store knows it that is now asked for the lock.
    pub(crate) fn next<'c>(&self, claim: &'c Claim) -> Cow<'c, Claim> {
        self.with(|turns| {
            let Some(turn) = turns.get_mut(&claim.owner) else { return Cow::Borrowed(claim) };
            turn.number += u32::from(turn.left.take().is_some());
            in_turn(claim, turn.number)
        })
    }

    /// As the store knows it that was asked before.
    pub(crate) fn current<'c>(&self, claim: &'c Claim) -> Cow<'c, Claim> {
        self.with(|turns| in_turn(claim, turns.get(&claim.owner).map_or(0, |turn| turn.number)))
    }

    /// The store is asked to give back what it granted, and the owner may ask it again: the claim to give back.
    pub(crate) fn leave(&self, claim: &Claim) -> Claim {
        self.with(|turns| {
            let now = Instant::now();
            if turns.len() == turns.capacity() && !turns.contains_key(&claim.owner) {
                turns.retain(|_, turn| turn.left.is_none_or(|left| now < left));
            }
            let turn = turns.entry(claim.owner.clone()).or_default();
            turn.left = Some(now + claim.lease + AFTER);
            if !turn.open.contains(&turn.number) {
                turn.open.push(turn.number);
            }
            in_turn(claim, turn.number).into_owned()
        })
    }

    /// The store has given back this claim, with the owner that it knows.
    pub(crate) fn settle(&self, known: &Claim) {
        let (number, owner) = parts(&known.owner);
        self.with(|turns| {
            if let Some(turn) = turns.get_mut(&owner) {
                turn.open.retain(|open| *open != number);
            }
        });
    }

    /// Those that were given back before, of which the store has not said so.
    pub(crate) fn open(&self, claim: &Claim) -> Vec<Claim> {
        self.with(|turns| {
            let open = turns.get(&claim.owner).map(|turn| &*turn.open).unwrap_or_default();
            open.iter().map(|number| in_turn(claim, *number).into_owned()).collect()
        })
    }

    /// The owner asks for nothing any more.
    pub(crate) fn forget(&self, owner: &OwnerId) {
        self.with(|turns| turns.remove(owner));
    }

    fn with<T>(&self, run: impl FnOnce(&mut HashMap<OwnerId, Turn>) -> T) -> T {
        run(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn in_turn(claim: &Claim, number: u32) -> Cow<'_, Claim> {
    if number == 0 {
        return Cow::Borrowed(claim);
    }
    let mut known = claim.clone();
    known.owner = OwnerId::from_store(&format!("{number}#{}", claim.owner.as_str()));
    Cow::Owned(known)
}

/// The owner whom a store knows as this one, and its turn.
fn parts(known: &OwnerId) -> (u32, OwnerId) {
    let parts = known.as_str().split_once('#').and_then(|(number, owner)| Some((number.parse().ok()?, owner)));
    parts.map_or_else(|| (0, known.clone()), |(number, owner)| (number, OwnerId::from_store(owner)))
}

/// The owner whom a store knows as this one.
pub(crate) fn owner(known: &OwnerId) -> OwnerId {
    parts(known).1
}

#[cfg(test)]
mod tests {
    use lock_core::LockName;

    use super::*;

    fn claim(owner: &str) -> Claim {
        Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), Duration::from_secs(1))
    }

    fn name(claim: &Claim) -> &str {
        claim.owner.as_str()
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_was_released_asks_by_another_name() {
        let (turns, a, b) = (Turns::default(), claim("job@host:1#a"), claim("b"));
        assert_eq!(name(&turns.next(&a)), "job@host:1#a");
        let first = turns.leave(&a);
        assert_eq!(turns.leave(&a), first);
        assert_eq!(turns.current(&a).as_ref(), &first, "a release is of the turn that it ends");
        for _ in 0..2 {
            assert_eq!(name(&turns.next(&a)), "1#job@host:1#a");
        }
        let second = turns.leave(&a);
        let known = turns.next(&a).into_owned();
        assert_eq!(name(&known), "2#job@host:1#a");
        assert_eq!((owner(&known.owner), owner(&a.owner)), (a.owner.clone(), a.owner.clone()));
        assert_eq!(name(&turns.next(&b)), "b");
        assert_eq!(turns.open(&a), [first.clone(), second.clone()]);
        turns.settle(&first);
        assert_eq!(turns.open(&a), [second]);
        turns.forget(&a.owner);
        assert_eq!(name(&turns.next(&a)), "job@host:1#a");
    }

    /// What is left, but not the turn of who waits in line or holds the lock.
    #[tokio::test(start_paused = true)]
    async fn what_was_given_back_is_forgotten_in_the_end() {
        let (turns, waits) = (Turns::default(), claim("waits"));
        turns.leave(&waits);
        turns.next(&waits);
        for round in 0..1000 {
            turns.leave(&claim(&round.to_string()));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(turns.with(|turns| turns.len()) < 100);
        assert_eq!(name(&turns.current(&waits)), "1#waits");
    }
}
