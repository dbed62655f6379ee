//! Whom a store knows an owner as. Whoever waits asks a store, gives back what it was granted and asks again; and a
//! request to give back may arrive once more when all that is long over. Therefore a store that was asked to give back is
//! asked again by another owner, `1#owner` and so on, whose hold no earlier request can end.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Claim, OwnerId};
use tokio::time::Instant;

/// How long after its lease nothing of a claim is left in any store, nor on its way to it.
pub(crate) const AFTER: Duration = Duration::from_secs(10);

/// Of one store.
#[derive(Default)]
pub(crate) struct Turns(Mutex<HashMap<OwnerId, Turn>>);

struct Turn {
    number: u32,
    /// It was asked to give back what it granted in this turn.
    left: bool,
    /// Forgotten from then on, should nobody say that it is over.
    until: Instant,
}

impl Turns {
    /// As the store knows it that is now asked for the lock.
    pub(crate) fn next<'c>(&self, claim: &'c Claim) -> Cow<'c, Claim> {
        self.known(claim, |turn| {
            turn.number += u32::from(turn.left);
            turn.left = false;
        })
    }

    /// As the store knows it that was asked before.
    pub(crate) fn current<'c>(&self, claim: &'c Claim) -> Cow<'c, Claim> {
        self.known(claim, |_| ())
    }

    fn known<'c>(&self, claim: &'c Claim, change: impl FnOnce(&mut Turn)) -> Cow<'c, Claim> {
        self.with(|turns| {
            let Some(turn) = turns.get_mut(&claim.owner) else { return Cow::Borrowed(claim) };
            turn.until = until(claim);
            change(turn);
            if turn.number == 0 {
                return Cow::Borrowed(claim);
            }
            let mut known = claim.clone();
            known.owner = OwnerId::from_store(&format!("{}#{}", turn.number, claim.owner.as_str()));
            Cow::Owned(known)
        })
    }

    /// The store is asked to give back what it granted, and the owner may ask it again.
    pub(crate) fn leave(&self, claim: &Claim) {
        self.with(|turns| {
            if turns.len() == turns.capacity() {
                let now = Instant::now();
                turns.retain(|_, turn| now < turn.until);
            }
            let turn = turns.entry(claim.owner.clone());
            turn.or_insert(Turn { number: 0, left: false, until: until(claim) }).left = true;
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

fn until(claim: &Claim) -> Instant {
    Instant::now() + claim.lease + AFTER
}

/// The owner whom a store knows as this one.
pub(crate) fn owner(known: &OwnerId) -> OwnerId {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match known.as_str().split_once('#') {
        Some((number, owner)) if is_number(number) => OwnerId::from_store(owner),
        _ => known.clone(),
    }
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
        turns.leave(&a);
        turns.leave(&a);
        assert_eq!(name(&turns.current(&a)), "job@host:1#a", "a release is of the turn that it ends");
        for _ in 0..2 {
            assert_eq!(name(&turns.next(&a)), "1#job@host:1#a");
        }
        turns.leave(&a);
        let known = turns.next(&a).into_owned();
        assert_eq!(name(&known), "2#job@host:1#a");
        assert_eq!((owner(&known.owner), owner(&a.owner)), (a.owner.clone(), a.owner.clone()));
        assert_eq!(name(&turns.next(&b)), "b");
        turns.forget(&a.owner);
        assert_eq!(name(&turns.next(&a)), "job@host:1#a");
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_ends_is_forgotten_in_the_end() {
        let turns = Turns::default();
        for round in 0..1000 {
            turns.leave(&claim(&round.to_string()));
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!(turns.with(|turns| turns.len()) < 100);
    }
}
