//! How leases are prolonged.

use lock_core::{Claim, Instant, Renewal, Result};

use super::connection::Session;
use super::statements::literal;
use super::{PostgresSessionLock, arguments, idle};
use crate::keys::{duration, micros};
use crate::server::Again;
use crate::session::Failed;

impl PostgresSessionLock {
    /// Prolongs the hold of this session. None: it has ended.
    pub(super) async fn prolong(
        &self,
        session: &mut Session,
        claim: &Claim,
        key: i64,
    ) -> Result<Option<Instant>, Failed> {
        let set = self.set_idle(session, claim.lease);
        let lease_us = micros(claim.lease);
        let renew = self.statements.renew.replace("{lease}", &lease_us.to_string()).replace("{key}", &key.to_string());
        let renew = renew.replace("{owner}", &literal(claim.owner.as_str()));
        let sent = self.server.clock.now();
        let (rows, _) = session.ask_in_time(&self.server, &self.statements.renew, set + &renew).await?;
        session.idle = idle(claim.lease);
        Ok(rows.first().map(|_| sent + duration(lease_us)))
    }

    /// Prolongs a hold whose session has ended.
    pub(super) async fn prolong_alone(&self, claim: &Claim) -> Result<Renewal> {
        let lease_us = micros(claim.lease);
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str(), lease_us);
        let answer = self.server.run(&self.statements.renew_alone, arguments, Again::Yes).await?;
        Ok(match answer.rows.is_empty() {
            true => Renewal::NotHeld,
            false => Renewal::Held { valid_until: answer.sent + duration(lease_us) },
        })
    }
}
