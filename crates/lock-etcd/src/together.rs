//! Several locks at once, while all their lines are empty: one transaction puts the seats of all claims. So each of them
//! is granted as one that puts its seat alone, and the argument in `acquire` is the same.

use std::sync::Arc;

use lock_core::{Claim, Error, Grant, Result};

use crate::Shared;
use crate::acquire::granted;
use crate::connection::Again;
use crate::error::{Failure, in_doubt};
use crate::place::Place;
use crate::requests::{Joining, revision, take_all};
use crate::session::transact_surely;
use crate::waiters::Entry;

impl Shared {
    /// Takes all of them, or none: also where the leases differ, since claims of one session have one.
    pub(crate) async fn try_lock_all(self: &Arc<Self>, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        let Some(lease) = claims.first().map(|first| first.lease) else { return Ok(None) };
        if claims.iter().any(|claim| claim.lease != lease) {
            return Ok(None);
        }
        let session = self.session(lease).await?;
        let (sent, base) = (self.connection.clock.now(), self.tokens.present());
        let mut places: Vec<_> = claims.iter().map(|claim| self.enter(claim, &session)).collect();
        let asks: Vec<_> = places.iter().map(|place| self.ledger.ask(&place.spot.line)).collect();
        let spots: Vec<_> = places.iter().map(|place| Arc::clone(&place.spot)).collect();
        let joining = spots.iter().map(|spot| Joining { spot, session: &session, tokens: &self.tokens, base });
        let Some(txn) = take_all(&joining.collect::<Vec<_>>()) else {
            return self.leave_all(places).await.map(|()| None);
        };
        let answer = match transact_surely(&self.connection, Again::Yes, txn).await {
            Ok(answer) => {
                if answer.unsure {
                    places.iter().for_each(Place::unsure);
                }
                answer.value
            }
            Err(Failure::LeaseGone) => {
                // Whatever is on its way names that lease, too.
                places.into_iter().for_each(Place::forget);
                self.lose(&session);
                return Ok(None);
            }
            // Each of them is undone.
            Err(failure @ Failure::Full(_)) => return Err(in_doubt(failure.into())),
            Err(failure) => {
                let error = Error::from(failure);
                if error.is_refused() {
                    places.into_iter().for_each(Place::give_up);
                }
                return Err(error);
            }
        };
        if !answer.succeeded() {
            return self.leave_all(places).await.map(|()| None);
        }
        let at = revision(&answer).map_err(in_doubt)?;
        let mut grants = Vec::new();
        for ((place, ask), claim) in places.iter_mut().zip(&asks).zip(claims) {
            let own = Entry { key: place.spot.seat.clone(), created: at };
            grants.extend(granted(place, ask, claim, &session, base, &own, sent)?);
        }
        if grants.len() == claims.len() {
            return Ok(Some(grants));
        }
        // Somebody has deleted one of them already.
        for place in places {
            self.let_go(place).await?;
        }
        Ok(None)
    }

    async fn leave_all(&self, places: Vec<Place>) -> Result<()> {
        for place in places {
            self.leave_nothing(place).await.map_err(in_doubt)?;
        }
        Ok(())
    }
}
