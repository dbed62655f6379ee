//! How leases are prolonged, many at once.

use std::collections::HashSet;

use lock_core::{Claim, Mode, Renewal, Result};

use super::SqliteLock;
use super::mode_statements::RENEW_BESIDE;
use super::statements::{Ask, RENEW};
use super::store::Failure;
use crate::keys::{duration, micros};
use crate::modes::alike;

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
        let leases: Vec<_> =
            claims.iter().map(|claim| (self.key(&claim.name), claim.owner.as_str(), micros(claim.lease))).collect();
        let leases = serde_json::to_string(&leases).expect("text and numbers are JSON");
        let alone = claims.first().is_none_or(|claim| claim.mode == Mode::Exclusive);
        let statement = if alone { RENEW } else { RENEW_BESIDE };
        let answer =
            self.store.run(Ask { statement, text: Some(&leases), long: claims.len() > FEW, ..Ask::default() }).await?;
        let held: HashSet<&str> = answer.rows.iter().map(|row| row.get("owner")).collect();
        let renewal = |claim: &Claim| match held.contains(claim.owner.as_str()) {
            true => Renewal::Held { valid_until: answer.sent + duration(micros(claim.lease)) },
            false => Renewal::NotHeld,
        };
        Ok(claims.iter().map(renewal).collect())
    }
}
