//! Whom a store knows an owner as. Whoever waits asks a store, gives back what it was granted and asks again; and a
//! request may arrive once more when all that is long over. Therefore a store grants a claim to an owner once: unless it
//! granted what it was asked, and until that is given back, it is asked again by another owner, `1#owner` and so on. Only
//! a turn that was granted counts, and no release is on its way to one that does.

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
    /// It does not count, and is forgotten from then on.
    over: Option<Instant>,
    /// The turns that the store has not said to be given back.
    open: Vec<u32>,
}

impl Turns {
    /// As the store knows it that is now asked for the lock.
    pub(crate) fn next(&self, claim: &Claim) -> Claim {
        self.with(|turns| {
            let Some(turn) = turns.get_mut(&claim.owner) else { return claim.clone() };
            turn.number += u32::from(turn.over.take().is_some());
            in_turn(claim, turn.number).into_owned()
        })
    }

    /// As the store knows it that was asked before.
    pub(crate) fn current<'c>(&self, claim: &'c Claim) -> Cow<'c, Claim> {
        self.with(|turns| in_turn(claim, turns.get(&claim.owner).map_or(0, |turn| turn.number)))
    }

    /// The same, if what the store says of it counts.
    pub(crate) fn counting<'c>(&self, claim: &'c Claim) -> Option<Cow<'c, Claim>> {
        self.with(|turns| match turns.get(&claim.owner) {
            Some(turn) => turn.over.is_none().then(|| in_turn(claim, turn.number)),
            None => Some(Cow::Borrowed(claim)),
        })
    }

    /// The store has denied this claim, with the owner that it knows.
    pub(crate) fn end(&self, known: &Claim) {
        self.change(known, |_, _| ());
    }

    /// The store is asked to give back this claim, with the owner that it knows.
    pub(crate) fn leave(&self, known: &Claim) {
        self.change(known, |turn, number| {
            if !turn.open.contains(&number) {
                turn.open.push(number);
            }
        });
    }

    /// A turn is over.
    fn change(&self, known: &Claim, change: impl FnOnce(&mut Turn, u32)) {
        let ((number, owner), now) = (parts(&known.owner), Instant::now());
        self.with(|turns| {
            if turns.len() == turns.capacity() && !turns.contains_key(&owner) {
                turns.retain(|_, turn| turn.over.is_none_or(|over| now < over));
            }
            let turn = turns.entry(owner).or_insert(Turn { number, ..Turn::default() });
            if turn.number == number {
                turn.over = Some(now + known.lease + AFTER);
            }
            change(turn, number);
        });
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

    /// The owner was denied the lock. If nothing of it is left, it is forgotten.
    pub(crate) fn forget_if_settled(&self, owner: &OwnerId) {
        self.with(|turns| {
            if turns.get(owner).is_some_and(|turn| turn.open.is_empty()) {
                turns.remove(owner);
            }
        });
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
        let first = turns.next(&a);
        assert_eq!((&first, turns.counting(&a).as_deref()), (&a, Some(&a)));
        turns.leave(&first);
        turns.leave(&first);
        assert_eq!(turns.current(&a).as_ref(), &first, "a release is of the turn that it ends");
        assert_eq!(turns.counting(&a), None);
        let second = turns.next(&a);
        assert_eq!((name(&second), &turns.next(&a)), ("1#job@host:1#a", &second));
        assert_eq!(turns.counting(&a).as_deref(), Some(&second));
        turns.leave(&first);
        assert_eq!(turns.next(&a), second, "what is late is of its own turn");
        turns.end(&second);
        let third = turns.next(&a);
        assert_eq!(name(&third), "2#job@host:1#a");
        assert_eq!((owner(&third.owner), owner(&a.owner)), (a.owner.clone(), a.owner.clone()));
        assert_eq!(name(&turns.next(&b)), "b");
        turns.leave(&third);
        assert_eq!(turns.open(&a), [first.clone(), third.clone()]);
        turns.settle(&first);
        turns.forget_if_settled(&a.owner);
        assert_eq!(turns.open(&a), std::slice::from_ref(&third));
        turns.settle(&third);
        turns.forget_if_settled(&a.owner);
        assert_eq!(turns.next(&a), a);
    }

    /// But not the turn of who waits in line or holds the lock.
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
