//! How leases are prolonged, many at once.

use lock_core::{Claim, Error, Mode, Renewal, Result};

use super::statements::RENEWED_AT_ONCE;
use super::{Argument, MySqlLock, arguments, changed};
use crate::keys::{duration, micros};
use crate::modes::alike;
use crate::server::{Again, Statement, of_one_lease, some_at_a_time};

impl MySqlLock {
    pub(super) async fn renew_all(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let some = of_one_lease(claims, RENEWED_AT_ONCE).flat_map(alike);
        some_at_a_time(some, async |some: &[Claim]| match some.first().map(|claim| claim.mode) {
            Some(Mode::Exclusive) => self.renew_some(some).await,
            _ => self.renew_beside(some).await,
        })
        .await
    }

    /// Prolongs leases of the same length. A batch that was prolonged as a whole is done; in another, each claim is
    /// asked for alone, since the server does not say which it was.
    async fn renew_some(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let lease = micros(claims[0].lease);
        let prolong = async |statement: &Statement, some: &[Claim], as_many: usize| {
            let mut arguments = arguments!(lease, lease);
            // Filled up with the last one, so that the statement is always the same.
            let filled = || (0..as_many).map(|at| &some[at.min(some.len() - 1)]);
            filled().for_each(|claim| self.prefix.key(&claim.name).as_str().add_to(&mut arguments));
            filled().for_each(|claim| claim.owner.as_str().add_to(&mut arguments));
            let answer = self.server.run(statement, arguments, Again::Yes).await?;
            let held = Renewal::Held { valid_until: answer.sent + duration(lease) };
            Ok::<_, Error>((held, changed(&answer, 0) == some.len() as u64))
        };
        let (held, all) = prolong(&self.statements.renew, claims, RENEWED_AT_ONCE).await?;
        if all {
            return Ok(vec![held; claims.len()]);
        }
        let mut renewals = Vec::with_capacity(claims.len());
        for claim in claims {
            let (held, is_held) = prolong(&self.statements.renew_one, std::slice::from_ref(claim), 1).await?;
            renewals.push(if is_held { held } else { Renewal::NotHeld });
        }
        Ok(renewals)
    }
}
