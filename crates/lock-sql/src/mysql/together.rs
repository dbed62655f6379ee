//! Several locks at once, while all of them are free.

use lock_core::{Claim, Grant, Result, StoreToken};

use super::release::mark;
use super::{MySqlLock, changed, hex, inserted, script};
use crate::keys::{duration, micros};
use crate::server::{Again, answered_together};
use crate::together::given_back;

/// Where the first of the grants stands in what the script is answered.
const FIRST: usize = 1;

impl MySqlLock {
    /// Takes all of them, in one transaction. If one is not free, or was never taken so far and has no row, the others
    /// are given back.
    pub(super) async fn take_together(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        self.sweep_if_due();
        let on_their_way: Vec<_> = claims.iter().map(|claim| self.unsettled.send(&claim.owner)).collect();
        let statements = &self.statements;
        let grants = claims.iter().map(|claim| {
            let (key, lease) = (hex(&self.prefix.key(&claim.name)), micros(claim.lease).to_string());
            let (owner, mark) = (hex(claim.owner.as_str()), hex(&mark(&claim.owner)));
            let values = [("{key}", &key), ("{lease}", &lease), ("{owner}", &owner), ("{mark}", &mark)];
            script(&statements.grant_together, values)
        });
        let text = format!("START TRANSACTION; {}; COMMIT", grants.collect::<Vec<_>>().join("; "));
        let done = FIRST + claims.len() + 1;
        let answer = self.server.run_script(&statements.grant_together, text, done, Again::Yes).await;
        let answer = answered_together(on_their_way, answer)?;
        let has_it = |at: usize| changed(&answer, FIRST + at) > 0;
        if (0..claims.len()).all(has_it) {
            let grants = claims.iter().enumerate().map(|(at, claim)| {
                let token = StoreToken::new(inserted(&answer, FIRST + at))?;
                Ok(Grant::new(token, answer.sent + duration(micros(claim.lease))))
            });
            return grants.collect::<Result<_>>().map(Some);
        }
        // Of a request that was sent twice, what the first was denied may have been granted to it.
        let taken = claims.iter().enumerate().filter(|(at, _)| answer.twice || has_it(*at));
        given_back(taken.map(|(_, claim)| self.give_back(claim))).await
    }
}
