//! How leases are prolonged: a majority has to prolong each.

use lock_core::{Claim, Error, ErrorKind, Renewal, Result};

use crate::gather::Answers;
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
        let answers =
            inner.ask(|member| Box::pin(async move { Ok(member.client()?.renew(claims).await) }), decided).await;
        claims.iter().enumerate().map(|(at, claim)| self.renewed(claim, &of(&answers, at))).collect()
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
            Ok(_) => {
                holds.remove(&claim.owner);
                // It is over, so nobody need wait for what is left of it.
                let left =
                    answers.iter().enumerate().filter(|(_, answer)| !matches!(answer, Some(Ok(Renewal::NotHeld))));
                left.for_each(|(place, _)| self.leave_later(place, claim));
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
