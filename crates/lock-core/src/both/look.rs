//! What is to be seen of a lock in two stores.

use std::collections::BTreeMap;

use super::TokensOf;
use crate::contract::{ErrorKind, Holder, ListQuery, LockName, LockStatus, Page, Result, Waiter};

/// What both stores answer. One of them may refuse, as a SQLite file does in which no lock was taken yet: then there is
/// `nothing` in it, and the other store's answer counts.
pub(super) fn seen<T>(answers: (Result<T>, Result<T>), nothing: T) -> Result<(T, T)> {
    match answers {
        (Ok(from), Ok(to)) => Ok((from, to)),
        (Ok(from), Err(error)) if error.kind() == ErrorKind::Refused => Ok((from, nothing)),
        (Err(error), Ok(to)) if error.kind() == ErrorKind::Refused => Ok((nothing, to)),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Who holds the lock. Where the two stores have different holders, that is the new store's: the old store's waits for
/// it.
pub(super) fn holder(from: Option<Holder>, to: Option<Holder>, tokens: TokensOf) -> Option<Holder> {
    match (from, to) {
        (Some(from), Some(to)) if is_same(&from, &to) => Some(Holder {
            token: tokens.choose(from.token, to.token),
            held_for: from.held_for.min(to.held_for),
            remaining: from.remaining.min(to.remaining),
            ..to
        }),
        (from, to) => to.or(from),
    }
}

fn is_same(one: &Holder, other: &Holder) -> bool {
    (&one.owner, one.kept) == (&other.owner, other.kept)
}

/// The holder, and all who wait in either store: nearest to the lock is who waits for the new store.
pub(super) fn status(from: LockStatus, to: LockStatus, tokens: TokensOf) -> LockStatus {
    let (name, first, second) = (to.name.clone(), from.holder().cloned(), to.holder().cloned());
    let next = first.clone().zip(second.clone()).filter(|(from, to)| !is_same(from, to));
    let next = next.map(|(from, _)| Waiter::from(from.owner));
    let held = holder(first, second, tokens);
    let mut waiters: Vec<Waiter> = Vec::new();
    for waiter in to.waiters.into_iter().chain(next).chain(from.waiters) {
        let is_known = waiters.iter().any(|known| known.owner == waiter.owner);
        if !is_known && held.as_ref().is_none_or(|held| held.owner != waiter.owner) {
            waiters.push(waiter);
        }
    }
    LockStatus { name, holders: held.into_iter().collect(), waiters }
}

/// The locks of both pages, as far as both pages go.
pub(super) fn page(from: Page, to: Page, query: &ListQuery, tokens: TokensOf) -> Page {
    let end = from.next.iter().chain(&to.next).min().cloned();
    let mut locks: BTreeMap<LockName, LockStatus> =
        from.locks.into_iter().map(|lock| (lock.name.clone(), lock)).collect();
    for lock in to.locks {
        let from = locks.remove(&lock.name).unwrap_or_else(|| LockStatus::free(lock.name.clone()));
        locks.insert(lock.name.clone(), status(from, lock, tokens));
    }
    let mut locks: Vec<_> =
        locks.into_values().filter(|lock| end.as_ref().is_none_or(|end| lock.name <= *end)).collect();
    let limit = query.limit.max(1);
    let next = if locks.len() > limit { Some(locks[limit - 1].name.clone()) } else { end };
    locks.truncate(limit);
    Page::new(locks, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::Error;

    #[test]
    fn a_store_that_refuses_has_nothing_and_one_that_is_away_is_an_error() {
        let refused = || Err(Error::new(ErrorKind::Refused, "no tables yet"));
        let away = || Err(Error::new(ErrorKind::Unavailable, "away"));
        assert_eq!(seen((Ok(1), Ok(2)), 0).unwrap(), (1, 2));
        assert_eq!(seen((Ok(1), refused()), 0).unwrap(), (1, 0));
        assert_eq!(seen((refused(), Ok(2)), 0).unwrap(), (0, 2));
        for answers in [(away(), Ok(2)), (Ok(1), away()), (refused(), refused())] {
            assert!(seen(answers, 0).is_err());
        }
    }
}
