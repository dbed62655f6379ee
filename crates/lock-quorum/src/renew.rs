//! How leases are prolonged: a majority has to prolong each. A store that has lost a hold, or that never had it, takes
//! it again then: otherwise the loss of one more store would end a hold that a majority could still have.

use futures_util::future::join_all;
use lock_core::{Claim, Error, ErrorKind, Renewal, Result, StoreToken};

use crate::gather::{Answers, GRACE, Request, gather};
use crate::{QuorumLock, tally};

impl QuorumLock {
    pub(crate) async fn renew_all(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        if claims.is_empty() {
            return Vec::new();
        }
        let inner = &*self.0;
        let decided = |answers: &[Option<Result<Vec<Result<Renewal>>>>]| {
            (0..claims.len()).all(|claim| matches!(tally::renewed(&of(answers, claim), false), Some(Ok(_))))
        };
        let answers = inner.ask(|member| Box::pin(member.renew(claims)), decided).await;
        let answers = (0..claims.len()).map(|claim| of(&answers, claim));
        let renewed = claims.iter().zip(answers).map(|(claim, answers)| async move {
            let renewed = self.renewed(claim, &answers);
            if matches!(renewed, Ok(Renewal::Held { .. })) {
                self.take_again(claim, &answers).await;
            }
            renewed
        });
        join_all(renewed).await
    }

    /// Takes the lock where a store said that it is not held, while a majority holds it. The floor comes first: so the
    /// stores that hold the lock are never fewer than a majority with the floor, whichever of them are lost later.
    async fn take_again(&self, claim: &Claim, answers: &Answers<Renewal>) {
        let inner = &*self.0;
        let Some(token) = inner.holds().get(&claim.owner).map(|hold| hold.token) else { return };
        let lost = answers.iter().enumerate().filter(|(_, answer)| matches!(answer, Some(Ok(Renewal::NotHeld))));
        let requests = lost.map(|(place, _)| {
            let request: Request<'_, ()> = Box::pin(self.take_again_at(place, claim, token));
            (place, request)
        });
        gather(&inner.members, requests, GRACE, |_| false).await;
    }

    async fn take_again_at(&self, place: usize, claim: &Claim, token: StoreToken) -> Result<()> {
        let member = &self.0.members[place];
        member.client()?.raise_tokens(&claim.name, token).await?;
        // Before it is asked: whoever ends the hold releases it there too.
        match self.0.holds().get_mut(&claim.owner) {
            Some(hold) => hold.untouched.retain(|untouched| *untouched != place),
            None => return Ok(()),
        }
        let known = member.turns.next(claim);
        let granted = self.ask_at(place, &known).await?;
        if granted.is_some() && !self.0.holds().contains_key(&claim.owner) {
            // The release came first.
            self.release_later(place, known);
        }
        tracing::debug!(name = %claim.name, store = place + 1, granted = granted.is_some(), "taken again");
        Ok(())
    }

    fn renewed(&self, claim: &Claim, answers: &Answers<Renewal>) -> Result<Renewal> {
        let renewed = tally::renewed(answers, true).expect("no more answers come");
        let mut holds = self.0.holds();
        match &renewed {
            Ok(Renewal::Held { valid_until }) => {
                if let Some(hold) = holds.get_mut(&claim.owner) {
                    hold.valid_until = hold.valid_until.max(*valid_until);
                }
            }
            // It is over, so nobody need wait for what is left of it, or is still asked for. If a release came first, that
            // one gives back everything: a second one would take its answers away.
            Ok(_) => {
                if holds.remove(&claim.owner).is_some() {
                    (0..answers.len()).for_each(|place| self.leave_later(place, claim));
                }
            }
            Err(_) => {}
        }
        renewed
    }
}

/// What the stores answered of one claim.
fn of(answers: &[Option<Result<Vec<Result<Renewal>>>>], claim: usize) -> Answers<Renewal> {
    let one = |answer: &Result<Vec<Result<Renewal>>>| match answer {
        Ok(answers) => answers
            .get(claim)
            .cloned()
            .unwrap_or_else(|| Err(Error::new(ErrorKind::Unknown, "a store gave too few answers"))),
        Err(error) => Err(error.clone()),
    };
    answers.iter().map(|answer| answer.as_ref().map(one)).collect()
}
