//! How leases are prolonged, many at once.

use std::collections::HashSet;

use lock_core::{Claim, Renewal, Result};

use super::{PostgresLock, arguments};
use crate::keys::{duration, micros};
use crate::server::{Again, Read, some_at_a_time};

/// How many leases one statement prolongs: it keeps others from these locks meanwhile.
const RENEWED_AT_ONCE: usize = 500;

impl PostgresLock {
    pub(super) async fn renew_all(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        some_at_a_time(claims.chunks(RENEWED_AT_ONCE), |some| self.renew_some(some)).await
    }

    async fn renew_some(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        let keys: Vec<_> = claims.iter().map(|claim| self.prefix.key(&claim.name)).collect();
        let owners: Vec<_> = claims.iter().map(|claim| claim.owner.as_str()).collect();
        let leases: Vec<_> = claims.iter().map(|claim| micros(claim.lease)).collect();
        let answer = self.server.run(&self.statements.renew, arguments!(keys, owners, leases), Again::Yes).await?;
        let held: HashSet<&str> = answer.rows.iter().map(|row| row.read("owner")).collect::<Result<_>>()?;
        let renewal = |claim: &Claim| match held.contains(claim.owner.as_str()) {
            true => Renewal::Held { valid_until: answer.sent + duration(micros(claim.lease)) },
            false => Renewal::NotHeld,
        };
        Ok(claims.iter().map(renewal).collect())
    }
}
