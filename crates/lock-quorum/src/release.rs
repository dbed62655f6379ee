//! How a lock is given back: to all stores, also to those that did not answer the request for it.

use std::time::Duration;

use lock_core::{Claim, ErrorKind, Result, Unlocked};
use std::sync::Arc;
use tokio::time::{Instant, sleep};

use crate::gather::{Request, gather};
use crate::turns::AFTER;
use crate::{QuorumLock, tally};

/// How soon a release that failed is repeated, at first and at last.
const AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

impl QuorumLock {
    pub(crate) async fn give_back(&self, claim: &Claim) -> Result<Unlocked> {
        let inner = &*self.0;
        let hold = inner.holds().remove(&claim.owner);
        let held = hold.as_ref().is_some_and(|hold| inner.clock.now() < hold.valid_until);
        let untouched = hold.map(|hold| hold.untouched).unwrap_or_default();
        let decided =
            |answers: &[Option<Result<Unlocked>>]| matches!(tally::unlocked(answers, held, false), Some(Ok(_)));
        let answers = inner.ask(|member| Box::pin(member.unlock(claim)), decided).await;
        let answer = tally::unlocked(&answers, held, true).expect("no more answers come");
        if answer.is_err() {
            // It may be repeated, and is forgotten in the end.
            inner.members.iter().for_each(|member| drop(member.leave(claim)));
        } else {
            let open = answers.iter().enumerate().filter(|(_, answer)| !matches!(answer, Some(Ok(_))));
            let open = open.map(|(place, _)| place).filter(|place| !untouched.contains(place));
            open.for_each(|place| self.leave_later(place, claim));
            inner.forget(claim);
        }
        answer.map_err(
            |error| if error.is_refused() { error } else { tally::failed("unlock", &answers, ErrorKind::Unknown) },
        )
    }

    /// Releases at these stores, for an owner that may ask them again. Where that is not answered in time, it goes on
    /// in the background. Was all of it answered?
    pub(crate) async fn leave(&self, places: &[usize], claim: &Claim) -> bool {
        if places.is_empty() {
            return true;
        }
        let inner = &*self.0;
        let requests = places.iter().map(|place| {
            let member = &inner.members[*place];
            let known = member.leave(claim);
            let request: Request<'_, _> = Box::pin(async move { member.unlock_as_known(&known).await });
            (*place, request)
        });
        let answers = gather(&inner.members, requests, inner.options.timeout / 4, |_| false).await;
        let mut left = true;
        for place in places {
            if !matches!(answers[*place], Some(Ok(_))) {
                self.leave_later(*place, claim);
                left = false;
            }
        }
        left
    }

    /// Releases at this store, for an owner that may ask it again.
    pub(crate) fn leave_later(&self, place: usize, claim: &Claim) {
        self.release_later(place, self.0.members[place].leave(claim));
    }

    /// Releases this claim with the owner that the store knows, again and again until it answers or the lease is long
    /// over. It ends with the runtime, and then the lease ends what is left.
    pub(crate) fn release_later(&self, place: usize, known: Claim) {
        let inner = Arc::clone(&self.0);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let end = Instant::now() + known.lease + AFTER;
            let member = &inner.members[place];
            let mut pause = AGAIN.0;
            while Instant::now() < end {
                let asked = tokio::time::timeout(inner.options.timeout, member.unlock_as_known(&known));
                if matches!(asked.await, Ok(Ok(_))) {
                    break;
                }
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN.1);
            }
            member.turns.settle(&known);
        });
    }
}

/// A store is asked for the lock. Unless it grants or denies that, this is given back in the background when it is
/// dropped: nobody knows what became of it, and it never counts.
pub(crate) struct Asking<'a> {
    lock: &'a QuorumLock,
    place: usize,
    known: Option<&'a Claim>,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(lock: &'a QuorumLock, place: usize, known: &'a Claim) -> Self {
        Self { lock, place, known: Some(known) }
    }

    /// With this answer: whether it was granted.
    pub(crate) fn answered(mut self, answer: &Result<bool>) {
        match answer {
            Ok(true) => self.known = None,
            Err(error) if !error.is_refused() => {}
            Ok(false) | Err(_) => {
                if let Some(known) = self.known.take() {
                    self.lock.0.members[self.place].turns.end(known);
                }
            }
        }
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        if let Some(known) = self.known {
            self.lock.0.members[self.place].turns.leave(known);
            self.lock.release_later(self.place, known.clone());
        }
    }
}
