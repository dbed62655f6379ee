//! How leases are prolonged, many at once.

use std::collections::HashSet;

use lock_core::{Claim, Mode, Renewal, Result};

use super::SqliteLock;
use super::mode_statements::RENEW_BESIDE;
use super::statements::{Ask, RENEW};
use super::store::Failure;
use crate::keys::{duration, micros};
use crate::modes::{alike, only_reader};

/// How many leases one statement prolongs: it keeps other writers waiting meanwhile.
const RENEWED_AT_ONCE: usize = 256;

/// So many take no longer than other requests.
const FEW: usize = 16;

impl SqliteLock {
    pub(super) async fn renew_all(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::with_capacity(claims.len());
        for some in alike(claims).flat_map(|alike| alike.chunks(RENEWED_AT_ONCE)) {
            match self.renew_some(some).await {
                Ok(renewals) => answers.extend(renewals.into_iter().map(Ok)),
                Err(Failure::Replaced | Failure::Unmade(_)) => {
                    answers.extend(some.iter().map(|_| Ok(Renewal::NotHeld)));
                }
                Err(Failure::Error(error)) => answers.extend(vec![Err(error); some.len()]),
            }
        }
        answers
    }

    async fn renew_some(&self, claims: &[Claim]) -> Result<Vec<Renewal>, Failure> {
        if claims.first().is_none_or(|claim| claim.mode == Mode::Exclusive) {
            return self.renew_by(RENEW, claims, |claim| claim.owner.as_str().to_owned()).await;
        }
        // In this order: a reader gets a row of its own when the next one comes.
        let mut renewals = match claims.iter().any(|claim| claim.mode == Mode::Shared) {
            true => self.renew_by(RENEW, claims, |claim| only_reader(&claim.owner)).await?,
            false => vec![Renewal::NotHeld; claims.len()],
        };
        if renewals.contains(&Renewal::NotHeld) {
            let beside = self.renew_by(RENEW_BESIDE, claims, |claim| claim.owner.as_str().to_owned()).await?;
            for (renewal, beside) in renewals.iter_mut().zip(beside) {
                if *renewal == Renewal::NotHeld {
                    *renewal = beside;
                }
            }
        }
        Ok(renewals)
    }

    async fn renew_by(
        &self,
        statement: &'static str,
        claims: &[Claim],
        owner: impl Fn(&Claim) -> String,
    ) -> Result<Vec<Renewal>, Failure> {
        let leases: Vec<_> =
            claims.iter().map(|claim| (self.key(&claim.name), owner(claim), micros(claim.lease))).collect();
        let text = serde_json::to_string(&leases).expect("text and numbers are JSON");
        let ask = Ask { statement, text: Some(&text), long: claims.len() > FEW, ..Ask::default() };
        let answer = self.store.run(ask).await?;
        let held: HashSet<&str> = answer.rows.iter().map(|row| row.get("owner")).collect();
        let renewal = |(claim, (_, owner, _)): (&Claim, &(_, String, _))| match held.contains(owner.as_str()) {
            true => Renewal::Held { valid_until: answer.sent + duration(micros(claim.lease)) },
            false => Renewal::NotHeld,
        };
        Ok(claims.iter().zip(&leases).map(renewal).collect())
    }
}
