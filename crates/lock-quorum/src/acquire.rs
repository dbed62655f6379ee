//! How a lock is taken: a grant by a majority, and the floor under later tokens. The argument is at the head of the
//! crate.

use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Grant, Instant, Mode, Result, StoreToken};

use crate::gather::{Answers, Request, gather};
use crate::release::Asking;
use crate::tally::{self, Attempt};
use crate::{Hold, Inner, QuorumLock, rejoin};

/// An attempt that was not granted.
#[derive(Debug)]
pub(crate) enum Denied {
    Busy,
    /// Too many of the stores that granted it are new, or have lost what they kept: they count after this time. Was all
    /// that they granted given back?
    Young {
        left: Duration,
        undone: bool,
    },
    Error(Error),
}

impl QuorumLock {
    pub(crate) async fn take_or_leave(&self, claim: &Claim) -> Result<Option<Grant>> {
        match self.attempt(claim, None, self.0.clock.now()).await {
            Ok(grant) => Ok(Some(grant)),
            Err(Denied::Busy) => {
                self.0.members.iter().for_each(|member| member.turns.forget_if_settled(&claim.owner));
                Ok(None)
            }
            Err(Denied::Young { left, undone }) => Err(rejoin::young(left, undone)),
            Err(Denied::Error(error)) => Err(error),
        }
    }

    /// Asks all stores for the lock, now or not at all. What the store in this place granted is kept if it fails, for another
    /// attempt of the same claim. `first`: when any of them was asked for it first.
    pub(crate) async fn attempt(&self, claim: &Claim, kept: Option<usize>, first: Instant) -> Result<Grant, Denied> {
        let inner = &*self.0;
        if claim.mode != Mode::Exclusive || claim.value.is_some() {
            let wrong = "a quorum grants locks to one alone, without a value";
            return Err(Denied::Error(Error::new(ErrorKind::Unsupported, wrong)));
        }
        if rejoin::is_own(&claim.name) {
            return Err(Denied::Error(Error::new(ErrorKind::Invalid, "names like this are the quorum's own")));
        }
        if claim.lease > inner.capabilities.max_lease.unwrap_or(claim.lease) {
            let wrong = "the lease is longer than what rejoin_after allows";
            return Err(Denied::Error(Error::new(ErrorKind::Invalid, wrong)));
        }
        self.check_apart().await.map_err(Denied::Error)?;
        let began = inner.clock.now();
        let decided = |answers: &[Option<Result<Option<Grant>>>]| tally::attempt(answers, false) != Attempt::Open;
        let requests = inner.members.iter().enumerate().map(|(place, member)| {
            let request: Request<'_, Option<Grant>> = Box::pin(async move {
                let known = member.turns.next(claim);
                self.ask_at(place, &known).await
            });
            (place, request)
        });
        let answers = gather(&inner.members, requests, inner.options.timeout, decided).await;
        match tally::attempt(&answers, true) {
            Attempt::Granted => {
                let grants = granted(&answers);
                match self.confirm(claim, &grants, first).await {
                    Ok((token, valid_until)) => {
                        let untouched = untouched(&answers);
                        Ok(inner.remember(claim, began, Hold { token, valid_until, untouched }))
                    }
                    // Those who may not count made the majority, and some other has what the rest did not grant.
                    Err(_) if answers.iter().any(|answer| matches!(answer, Some(Ok(None)))) => {
                        self.undo(claim, &answers, kept).await;
                        Err(Denied::Busy)
                    }
                    Err(Denied::Young { left, .. }) => {
                        Err(Denied::Young { left, undone: self.undo(claim, &answers, kept).await })
                    }
                    Err(denied) => Err(denied),
                }
            }
            Attempt::Busy => {
                self.undo(claim, &answers, kept).await;
                Err(Denied::Busy)
            }
            Attempt::Failed | Attempt::Open => Err(Denied::Error(self.failed(claim, &answers).await)),
        }
    }

    /// Asks this store for the lock, with the owner that it knows.
    pub(crate) async fn ask_at(&self, place: usize, known: &Claim) -> Result<Option<Grant>> {
        let asking = Asking::new(self, place, known);
        let answer = self.0.members[place].try_lock(known).await;
        asking.answered(&answer.as_ref().map(Option::is_some).map_err(Error::clone));
        answer
    }

    /// The floor under later tokens, and how long the grant is valid. That may be over, as with every store: whoever
    /// is granted looks at the clock.
    async fn confirm(
        &self,
        claim: &Claim,
        grants: &[(usize, Grant)],
        first: Instant,
    ) -> Result<(StoreToken, Instant), Denied> {
        let inner = &*self.0;
        let token = tally::highest(grants).expect("a majority granted it");
        let (floored, fit) = tokio::join!(inner.floor(claim, token, grants), inner.fit(grants, first));
        let counted = |within: Duration| {
            let counted =
                grants.iter().filter(|(place, _)| floored[*place] && fit[*place].is_some_and(|left| left <= within));
            tally::until(inner.members.len(), counted.map(|(_, grant)| grant.valid_until))
        };
        if let Some(valid_until) = counted(Duration::ZERO) {
            return Ok((token, valid_until));
        }
        match fit.iter().flatten().copied().filter(|left| counted(*left).is_some()).min() {
            Some(left) => Err(Denied::Young { left, undone: false }),
            None => {
                let wrong = "too few of the stores that granted the lock took the floor under later tokens, or said since \
                             when they have kept what they know";
                Err(Denied::Error(Error::new(ErrorKind::Unknown, wrong)))
            }
        }
    }

    /// The attempt failed, for no majority answered.
    async fn failed(&self, claim: &Claim, answers: &Answers<Option<Grant>>) -> Error {
        let what = "no majority answered";
        let is_sure = answers.iter().all(|answer| match answer {
            None => false,
            Some(Err(error)) => error.is_refused(),
            Some(Ok(_)) => true,
        });
        // Else the caller releases all.
        if is_sure && self.undo(claim, answers, None).await {
            return tally::refused(what, answers);
        }
        tally::failed(what, answers, ErrorKind::Unknown)
    }

    /// Gives back what was granted, but for what is kept. Was all of it given back?
    async fn undo(&self, claim: &Claim, answers: &Answers<Option<Grant>>, kept: Option<usize>) -> bool {
        let granted = answers.iter().enumerate().filter(|(_, answer)| matches!(answer, Some(Ok(Some(_)))));
        let places: Vec<_> = granted.map(|(place, _)| place).filter(|place| kept != Some(*place)).collect();
        self.leave(&places, claim).await
    }
}

impl Inner {
    /// Which of the stores that granted the lock will number every later grant above this token: those whose own it
    /// is, and so many others that they are a majority together.
    async fn floor(&self, claim: &Claim, token: StoreToken, grants: &[(usize, Grant)]) -> Vec<bool> {
        let mut floored = vec![false; self.members.len()];
        grants.iter().filter(|(_, grant)| grant.token == token).for_each(|(place, _)| floored[*place] = true);
        let below = grants.iter().map(|(place, _)| *place).filter(|place| !floored[*place]);
        let mut below: Vec<_> = below.collect();
        below.sort_by_key(|place| self.members[*place].was_late());
        let done = |floored: &[bool]| floored.iter().filter(|done| **done).count();
        // Each may count or not, if some may not: then all are asked.
        let enough = if self.options.rejoin_after.is_some() { grants.len() } else { self.majority() };
        while done(&floored) < enough && !below.is_empty() {
            let some: Vec<_> = below.drain(..below.len().min(enough - done(&floored))).collect();
            let asked = some.len();
            let requests = some.into_iter().map(|place| {
                let member = &self.members[place];
                let request: Request<'_, ()> =
                    Box::pin(async move { member.client()?.raise_tokens(&claim.name, token).await });
                (place, request)
            });
            let answered = |answers: &[Option<Result<()>>]| answers.iter().flatten().count() == asked;
            // Others may do it instead of who does not answer.
            let limit = if below.is_empty() { self.options.timeout } else { self.options.timeout / 8 };
            let answers = gather(&self.members, requests, limit, answered).await;
            for (place, answer) in answers.into_iter().enumerate() {
                floored[place] |= matches!(answer, Some(Ok(())));
            }
        }
        floored
    }

    /// The grant of a claim that was sent at that time; of one that was answered before and is held since, with the
    /// same token.
    fn remember(&self, claim: &Claim, began: Instant, mut hold: Hold) -> Grant {
        let mut holds = self.holds();
        if let Some(before) = holds.get(&claim.owner).filter(|before| began < before.valid_until) {
            hold.token = before.token;
            hold.untouched.retain(|place| before.untouched.contains(place));
        }
        let grant = Grant::new(hold.token, hold.valid_until);
        holds.insert(claim.owner.clone(), hold);
        grant
    }
}

fn granted(answers: &Answers<Option<Grant>>) -> Vec<(usize, Grant)> {
    let granted = answers.iter().enumerate();
    granted.filter_map(|(place, answer)| Some((place, answer.as_ref()?.as_ref().ok()?.clone()?))).collect()
}

/// The places of the stores that certainly did nothing.
fn untouched(answers: &Answers<Option<Grant>>) -> Vec<usize> {
    let refused = answers.iter().enumerate();
    refused
        .filter(|(_, answer)| matches!(answer, Some(Err(error)) if error.is_refused()))
        .map(|(place, _)| place)
        .collect()
}
