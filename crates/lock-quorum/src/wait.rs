//! How a lock is waited for: in the line of one store, which lets its first go on to the others.
//!
//! Whoever waits stands in the line of the first store that answers, so that all who see the same stores come in one
//! order and try one at a time. Its first holds that store's lock, tries the others again and again until they are
//! free, and passes the place on if that takes long. Those who see other stores may be in each other's way; then all
//! give way, for a time that is drawn. The line only saves requests. Who holds the lock is decided by the majority
//! alone; and if the store with the line knows of a holder that has no majority any more, a look at the others tells.

use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Grant, Instant, Result};
use rand::RngExt;
use tokio::time::{self, sleep};

use crate::QuorumLock;
use crate::acquire::Denied;
use crate::gather::{Request, gather};
use crate::release::Asking;

/// How long the first in line tries the other stores before it passes its place on, at least and at most.
const TURN: (Duration, Duration) = (Duration::from_millis(500), Duration::from_millis(1500));

/// How long it waits between two tries, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(50));

/// How often whoever is in line looks at the other stores, at least and at most.
const LOOKS: (Duration, Duration) = (Duration::from_millis(400), Duration::from_millis(900));

/// How soon stores that do not count yet are asked again, at the latest: others may have come.
const YOUNG: Duration = Duration::from_secs(1);

/// For how long all give way to each other, at most.
const WAY: Duration = Duration::from_millis(50);

impl QuorumLock {
    pub(crate) async fn take_in_turn(&self, claim: &Claim) -> Result<Grant> {
        let mut waited = false;
        loop {
            let young = match self.attempt(claim, None, self.0.clock.now()).await {
                Ok(grant) => return Ok(grant),
                Err(Denied::Error(error)) => return Err(if waited { unsure(error) } else { error }),
                Err(Denied::Young { left, .. }) => left,
                Err(Denied::Busy) => match self.take_in_line(claim).await? {
                    Ok(grant) => return Ok(grant),
                    Err(left) => left,
                },
            };
            // Whoever may hold it is not known to the stores, so it is as good as held.
            tracing::debug!(name = %claim.name, ?young, "stores that are new or were emptied do not count yet");
            waited = true;
            sleep(drawn((WAY, young.clamp(WAY, YOUNG)))).await;
        }
    }

    /// Stands in line again and again. Ends also if the stores do not count yet, and says for how long.
    async fn take_in_line(&self, claim: &Claim) -> Result<Result<Grant, Duration>> {
        loop {
            let (kept, first) = self.stand_in_line(claim).await.map_err(unsure)?;
            let end = time::Instant::now() + drawn(TURN).min(claim.lease / 3);
            let mut pause = PAUSES.0;
            let young = loop {
                match self.attempt(claim, kept, first).await {
                    Ok(grant) => {
                        // An earlier attempt may have left something where this one did nothing.
                        if let Some(hold) = self.0.holds().get_mut(&claim.owner) {
                            hold.untouched.clear();
                        }
                        return Ok(Ok(grant));
                    }
                    Err(Denied::Error(error)) => return Err(unsure(error)),
                    // Since the turn began: it can only begin anew.
                    Err(Denied::Young { left, .. }) => break Some(left),
                    Err(Denied::Busy) if kept.is_none() || time::Instant::now() >= end => break None,
                    Err(Denied::Busy) => sleep(drawn((pause / 2, pause))).await,
                }
                pause = (pause * 2).min(PAUSES.1);
            };
            // Also where an answer was lost: the next turn begins with nothing.
            let (late, others): (Vec<_>, Vec<_>) =
                (0..self.0.members.len()).partition(|place| self.0.members[*place].was_late());
            late.into_iter().for_each(|place| self.leave_later(place, claim));
            self.leave(&others, claim).await;
            if let Some(left) = young {
                return Ok(Err(left));
            }
            sleep(drawn((Duration::ZERO, WAY))).await;
        }
    }

    /// Waits in the line of the first store that answers. Answers the place of the store that let us go on, and a time
    /// before it did; no place: the other stores are free, and the line was left.
    async fn stand_in_line(&self, claim: &Claim) -> Result<(Option<usize>, Instant)> {
        let members = &self.0.members;
        let mut places: Vec<_> = (0..members.len()).collect();
        places.sort_by_key(|place| members[*place].was_late());
        let mut last = None;
        for place in places.into_iter().take(members.len() - self.0.majority() + 1) {
            let known = members[place].turns.next(claim);
            let granted = tokio::select! {
                biased;
                granted = self.wait_at(place, &known) => granted,
                () = self.others_free(claim, place) => {
                    // What it asked there is given back.
                    return Ok((None, self.0.clock.now()));
                }
            };
            match granted {
                Ok(grant) => {
                    // A lease is never promised for longer than from the grant on.
                    return Ok((Some(place), grant.valid_until.saturating_sub(claim.lease)));
                }
                Err(error) => {
                    tracing::debug!(name = %claim.name, %error, "no line there");
                    members[place].is_late(true);
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "no store has a line")))
    }

    /// Waits in the line of this store, with the owner that it knows.
    async fn wait_at(&self, place: usize, known: &Claim) -> Result<Grant> {
        let asking = Asking::new(self, place, known);
        let answer = self.0.members[place].lock(known).await;
        asking.answered(&answer.as_ref().map(|_| true).map_err(Error::clone));
        answer
    }

    /// Ends when a majority of the stores is free without this one.
    async fn others_free(&self, claim: &Claim, but: usize) {
        let inner = &*self.0;
        loop {
            sleep(drawn(LOOKS)).await;
            let others = inner.members.iter().enumerate().filter(|(place, _)| *place != but);
            let requests = others.map(|(place, member)| {
                let request: Request<'_, bool> = Box::pin(async move {
                    let held = member.holder(&claim.name).await;
                    match held {
                        // A file in which no lock was taken yet.
                        Err(error) if error.kind() == ErrorKind::Refused => Ok(true),
                        held => Ok(held?.is_none_or(|holder| holder.owner == claim.owner)),
                    }
                });
                (place, request)
            });
            let count = |answers: &[Option<Result<bool>>]| {
                answers.iter().filter(|answer| matches!(answer, Some(Ok(true)))).count()
            };
            let answers =
                gather(&inner.members, requests, inner.options.timeout, |answers| count(answers) >= inner.majority())
                    .await;
            if count(&answers) >= inner.majority() {
                return;
            }
        }
    }
}

/// After a wait, something may be left of an earlier attempt.
fn unsure(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable | ErrorKind::Refused => {
            Error::new(ErrorKind::Unknown, "the stores were lost while the lock was waited for").with_source(error)
        }
        _ => error,
    }
}

fn drawn((least, most): (Duration, Duration)) -> Duration {
    rand::rng().random_range(least..=most)
}
