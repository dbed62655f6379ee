//! How leases are prolonged.

use lock_core::{Claim, Instant, Renewal, Result};

use super::connection::{Key, Session, idle};
use super::{MySqlSessionLock, arguments, changed, hex, script};
use crate::keys::{duration, micros};
use crate::server::Again;
use crate::session::Failed;

impl MySqlSessionLock {
    /// Prolongs the hold of this session. None: it has ended.
    pub(super) async fn prolong(
        &self,
        session: &mut Session,
        claim: &Claim,
        key: Key,
    ) -> Result<Option<Instant>, Failed> {
        let lease_us = micros(claim.lease);
        let values =
            [("{key}", &key.text()), ("{owner}", &hex(claim.owner.as_str())), ("{lease}", &lease_us.to_string())];
        let renew = &self.statements.renew;
        let text = self.set_idle(session, claim.lease) + &script(renew, values);
        let sent = self.server.clock.now();
        let (_, results) = session.ask_in_time(&self.server, renew, text).await?;
        session.idle = idle(claim.lease);
        // Rows that were found count as well.
        let is_held = results.last().is_some_and(|done| done.rows_affected() > 0);
        Ok(is_held.then(|| sent + duration(lease_us)))
    }

    /// Prolongs a hold whose session has ended.
    pub(super) async fn prolong_alone(&self, claim: &Claim) -> Result<Renewal> {
        let lease_us = micros(claim.lease);
        let key = self.key(&claim.name).text();
        let arguments = arguments!(lease_us, lease_us, key.as_str(), claim.owner.as_str());
        let answer = self.server.run(&self.statements.renew_alone, arguments, Again::Yes).await?;
        Ok(match changed(&answer, 0) {
            0 => Renewal::NotHeld,
            _ => Renewal::Held { valid_until: answer.sent + duration(lease_us) },
        })
    }
}
