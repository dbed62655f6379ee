//! How leases are prolonged, many at once.

use std::collections::HashSet;

use lock_core::{Claim, Mode, Renewal, Result};

use super::{PostgresLock, arguments};
use crate::keys::{duration, micros};
use crate::modes::alike;
use crate::server::{Again, Read, Statement, some_at_a_time};

/// How many leases one statement prolongs: it keeps others from these locks meanwhile.
const RENEWED_AT_ONCE: usize = 500;

impl PostgresLock {
    pub(super) async fn renew_all(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let some = alike(claims).flat_map(|alike| alike.chunks(RENEWED_AT_ONCE));
        some_at_a_time(some, async |some: &[Claim]| match some.first().map(|claim| claim.mode) {
            Some(Mode::Exclusive) => self.renew_by(&self.statements.renew, some).await,
            _ => self.renew_beside(some).await,
        })
        .await
    }

    pub(super) async fn renew_by(&self, statement: &Statement, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let keys: Vec<_> = claims.iter().map(|claim| self.prefix.key(&claim.name)).collect();
        let owners: Vec<_> = claims.iter().map(|claim| claim.owner.as_str()).collect();
        let leases: Vec<_> = claims.iter().map(|claim| micros(claim.lease)).collect();
        let answer = self.server.run(statement, arguments!(keys, owners, leases), Again::Yes).await?;
        let held: HashSet<&str> = answer.rows.iter().map(|row| row.read("owner")).collect::<Result<_>>()?;
        let renewal = |claim: &Claim| match held.contains(claim.owner.as_str()) {
            true => Renewal::Held { valid_until: answer.sent + duration(micros(claim.lease)) },
            false => Renewal::NotHeld,
        };
        Ok(claims.iter().map(renewal).collect())
    }
}
