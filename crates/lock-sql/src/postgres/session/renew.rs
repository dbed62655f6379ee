//! How leases are prolonged: each in its own session, all at once.

use futures_util::future::join_all;
use lock_core::{Claim, Instant, Renewal, Result};

use super::connection::{Failed, Session};
use super::statements::literal;
use super::{PostgresSessionLock, arguments, idle_ms};
use crate::keys::{duration, micros};
use crate::server::Again;

impl PostgresSessionLock {
    pub(super) async fn renew_all(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        join_all(claims.iter().map(|claim| self.renew_one(claim))).await
    }

    pub(super) async fn renew_one(&self, claim: &Claim) -> Result<Renewal> {
        // Whoever never held it here, or was told that it is lost.
        let Some(place) = self.claims.get(&claim.owner) else { return Ok(Renewal::NotHeld) };
        let mut kept = place.session.lock().await;
        if let (Some(&(_, key)), Some(session)) = (place.granted.get(), kept.as_mut().filter(|kept| kept.works())) {
            match self.renew_in(session, claim, key).await {
                Ok(Some(valid_until)) => return Ok(Renewal::Held { valid_until }),
                // Somebody took it away. With its session goes the place that it keeps others from.
                Ok(None) => {
                    kept.take();
                    self.claims.settle(&claim.owner);
                    return Ok(Renewal::NotHeld);
                }
                // A late answer is read before that of the next request.
                Err(Failed { error, broken: false }) => return Err(error),
                Err(_) => {}
            }
        }
        kept.take();
        drop(kept);
        self.renew_alone(claim).await
    }

    /// Prolongs the hold of this session. None: it has ended.
    pub(super) async fn renew_in(
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
        let rows = self.ask(session, &self.statements.renew, set + &renew).await?;
        session.idle_ms = idle_ms(claim.lease);
        Ok(rows.first().map(|_| sent + duration(lease_us)))
    }

    /// Prolongs a hold whose session has ended: nobody else is granted the lock while its note lasts.
    async fn renew_alone(&self, claim: &Claim) -> Result<Renewal> {
        let lease_us = micros(claim.lease);
        let arguments = arguments!(self.prefix.key(&claim.name), claim.owner.as_str(), lease_us);
        let answer = self.server.run(&self.statements.renew_alone, arguments, Again::Yes).await?;
        Ok(match answer.rows.is_empty() {
            true => Renewal::NotHeld,
            false => Renewal::Held { valid_until: answer.sent + duration(lease_us) },
        })
    }
}
