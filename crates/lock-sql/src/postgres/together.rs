//! Several locks at once, while all of them are free.

use lock_core::{Claim, Grant, Result, StoreToken};

use super::PostgresLock;
use super::acquire::{Take, take_all};
use crate::keys::{duration, micros};
use crate::together::given_back;

impl PostgresLock {
    /// Takes all of them. If one is not free, or was never taken so far and has no row, the others are given back.
    pub(super) async fn take_together(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        self.sweep_if_due();
        let on_their_way: Vec<_> = claims.iter().map(|claim| self.unsettled.send(&claim.owner)).collect();
        let takes = claims.iter().map(|claim| Take::new(self.prefix.key(&claim.name), claim)).collect();
        let told: Result<Vec<_>> =
            take_all(self.server.clone(), self.statements.clone(), takes).await.into_iter().collect();
        let is_over = match &told {
            Ok(told) => !told.iter().any(|told| told.twice),
            Err(error) => error.is_refused(),
        };
        if is_over {
            on_their_way.into_iter().for_each(|on_its_way| on_its_way.settle());
        }
        let told = told?;
        if told.iter().all(|told| told.token.is_some()) {
            let grants = claims.iter().zip(told).map(|(claim, told)| {
                let token = StoreToken::new(told.token.unwrap_or_default() as u64)?;
                Ok(Grant::new(token, told.sent + duration(micros(claim.lease))))
            });
            return grants.collect::<Result<_>>().map(Some);
        }
        let taken = claims.iter().zip(&told).filter(|(_, told)| told.token.is_some() || told.twice);
        given_back(taken.map(|(claim, _)| self.give_back(claim))).await
    }
}
