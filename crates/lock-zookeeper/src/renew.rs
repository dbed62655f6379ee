//! How leases are prolonged: one proof of a session prolongs all that are in it.

use std::sync::Arc;

use futures_util::future::join_all;
use lock_core::{Claim, Renewal, Result};
use zookeeper_client::Error as ZkError;

use crate::error::of_request;
use crate::session::{Life, Session};
use crate::sessions::Sessions;

/// Some of the claims, with their places among all.
type Places<'a> = Vec<(usize, &'a Claim)>;

pub(crate) async fn renew(sessions: &Sessions, claims: &[Claim]) -> Vec<Result<Renewal>> {
    let mut answers: Vec<_> = claims.iter().map(|_| Ok(Renewal::NotHeld)).collect();
    let mut by_session: Vec<(Arc<Session>, Places<'_>)> = Vec::new();
    for (at, claim) in claims.iter().enumerate() {
        for session in sessions.with_claim(&claim.owner).into_iter().filter(|session| session.life() == Life::Alive) {
            match by_session.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &session)) {
                Some((_, claims)) => claims.push((at, claim)),
                None => by_session.push((session, vec![(at, claim)])),
            }
        }
    }
    let renewals = by_session.iter().map(|(session, claims)| renew_in(session, claims));
    for (at, answer) in join_all(renewals).await.into_iter().flatten() {
        answers[at] = answer;
    }
    answers
}

/// Renews the claims of one session.
async fn renew_in(session: &Session, claims: &[(usize, &Claim)]) -> Vec<(usize, Result<Renewal>)> {
    // A proof that comes later renews nothing any more.
    let proof = tokio::time::timeout(session.lasts, session.prove()).await.unwrap_or(Err(ZkError::Timeout));
    let now = session.now();
    let renewal = |claim: &Claim| {
        proof.clone().map_err(of_request)?;
        let valid_until = session.valid_until(claim.lease);
        let mut state = session.state();
        // Under the same lock under which its release begins.
        let claimed = state.claims.get_mut(&claim.owner).filter(|claimed| !claimed.ending);
        Ok(match claimed.and_then(|claimed| claimed.hold.as_mut()).filter(|hold| now < hold.ends) {
            Some(hold) => {
                hold.ends = valid_until;
                Renewal::Held { valid_until }
            }
            None => Renewal::NotHeld,
        })
    };
    claims.iter().map(|(at, claim)| (*at, renewal(claim))).collect()
}
