//! How a lock that is held in a session is renewed and given back, and how a hold is ended.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Claim, Error, Holder, Kept, LockName, Renewal, Result, Unlocked};

use super::{BySessions, Failed, Place};
use crate::keys::in_the_store;
use crate::server::{Again, Statement};

/// What a session was answered that had a lock until then.
enum Parted {
    Answered(bool),
    /// Nothing that was heard, and why; none: it was not asked. The session is of no use any more.
    Silent(Option<Error>),
}

pub(crate) async fn give_back<L: BySessions>(lock: &L, claim: &Claim) -> Result<Unlocked> {
    let undo = async |session| lock.undo(claim, session, Again::No).await;
    end(lock, claim, |key| lock.release(claim, key), undo, (Unlocked::Released, Unlocked::NotHeld)).await
}

/// Lets the hold go on by itself.
pub(crate) async fn keep<'s, L: BySessions>(
    lock: &L,
    claim: &Claim,
    request: impl FnOnce(L::Key) -> (&'s Statement, String),
    without: impl AsyncFnOnce(Option<L::Identity>) -> Result<Kept>,
) -> Result<Kept> {
    end(lock, claim, request, without, (Kept::Kept, Kept::NotHeld)).await
}

/// Ends the owner's part in its lock: by a request over its session, or else `without` it, over another connection, which is
/// told which session that was. Either answers the first of two if it was held, and the second if not.
async fn end<'s, L: BySessions, T: PartialEq>(
    lock: &L,
    claim: &Claim,
    request: impl FnOnce(L::Key) -> (&'s Statement, String),
    without: impl AsyncFnOnce(Option<L::Identity>) -> Result<T>,
    (done, not_held): (T, T),
) -> Result<T> {
    let Some(place) = lock.claims().get(&claim.owner) else { return without(None).await };
    let was_over = place.is_over(lock.server().clock.now());
    let unheard = match part(lock, claim, &place, request).await? {
        Parted::Answered(had_it) => return Ok(if had_it { done } else { not_held }),
        Parted::Silent(unheard) => unheard,
    };
    match (without(Some(place.identity)).await, unheard) {
        (Err(error), Some(_)) => Err(error.after_something_was_done()),
        // By the request that was not answered, or before? Nobody can tell, unless whoever ended it said so.
        (Ok(ended), Some(error)) if ended == not_held && !was_over => match lock.was_evicted(claim).await {
            Ok(true) => Ok(ended),
            _ => Err(error.after_something_was_done()),
        },
        (done, _) => done,
    }
}

/// Asks what ends this session's part in its lock.
async fn part<'s, L: BySessions>(
    lock: &L,
    claim: &Claim,
    place: &Place<L::Dialect, L::Identity, L::Key>,
    request: impl FnOnce(L::Key) -> (&'s Statement, String),
) -> Result<Parted> {
    let mut kept = place.session.lock().await;
    let mut unheard = None;
    if let (Some(&(_, key)), Some(session)) = (place.granted.get(), kept.as_mut().filter(|kept| kept.works())) {
        let (statement, text) = request(key);
        match session.ask_in_time(lock.server(), statement, text).await {
            Ok(answered) => {
                let had_it = L::had_it(&answered)?;
                lock.claims().settle(&claim.owner);
                // Of one that had no hold nobody knows what else it has.
                if let Some(session) = kept.take()
                    && had_it
                {
                    lock.sessions().give_back(session);
                }
                return Ok(Parted::Answered(had_it));
            }
            Err(Failed { error, .. }) => unheard = Some(error),
        }
    }
    kept.take();
    Ok(Parted::Silent(unheard))
}

pub(crate) async fn renew_all<L: BySessions>(lock: &L, claims: &[Claim]) -> Vec<Result<Renewal>> {
    // Each in its own session, all at once.
    join_all(claims.iter().map(|claim| renew_one(lock, claim))).await
}

pub(super) async fn renew_one<L: BySessions>(lock: &L, claim: &Claim) -> Result<Renewal> {
    // Whoever never held it here, or was told that it is lost.
    let Some(place) = lock.claims().get(&claim.owner) else { return Ok(Renewal::NotHeld) };
    let mut kept = place.session.lock().await;
    if let (Some(&(_, key)), Some(session)) = (place.granted.get(), kept.as_mut().filter(|kept| kept.works())) {
        match lock.renew_in(session, claim, key).await {
            Ok(Some(valid_until)) => {
                place.lasts(valid_until);
                return Ok(Renewal::Held { valid_until });
            }
            // Somebody took it away. With its session goes the place that it keeps others from.
            Ok(None) => {
                kept.take();
                lock.claims().settle(&claim.owner);
                return Ok(Renewal::NotHeld);
            }
            // A late answer is read before that of the next request.
            Err(Failed { error, broken: false }) => return Err(error),
            Err(_) => {}
        }
    }
    kept.take();
    drop(kept);
    lock.renew_alone(claim).await
}

/// Ends a hold, whosoever it is, and the session that has it.
pub(crate) async fn end_hold<L: BySessions>(lock: &L, name: &LockName) -> Result<Option<Holder>> {
    // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
    while let Some(holder) = lock.holder_of(name).await? {
        let claim = Claim::new(name.clone(), in_the_store(&holder), Duration::ZERO);
        if lock.undo(&claim, None, Again::No).await? == Unlocked::Released {
            // Without it, the owner learns the same at its next renewal, but not from a release that comes before. Nobody
            // gives back a hold that was kept.
            if !holder.kept {
                let _ = lock.mark_evicted(&claim).await;
            }
            return Ok(Some(holder));
        }
    }
    Ok(None)
}
