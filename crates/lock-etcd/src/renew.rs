//! How leases are prolonged: one renewal for all claims of a session.

use std::collections::HashMap;
use std::sync::Arc;

use etcd_client::KeyValue;
use futures_util::future::join_all;
use lock_core::{Claim, Instant, Renewal, Result};

use crate::Shared;
use crate::error::leaving;
use crate::ledger::Stage;
use crate::session::{READ_AT_ONCE, Session, read};
use crate::waiters::Entry;

impl Shared {
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers: Vec<_> = claims.iter().map(|_| Ok(Renewal::NotHeld)).collect();
        let mut batches: HashMap<i64, (Arc<Session>, Vec<Held<'_>>)> = HashMap::new();
        for (at, claim) in claims.iter().enumerate() {
            let id = self.keys.id(claim);
            let Some(own) = self.ledger.get(&id) else { continue };
            match own.stage {
                Stage::Held(entry) => {
                    let held = Held { at, claim, id, entry };
                    batches.entry(own.session.lease).or_insert_with(|| (own.session, Vec::new())).1.push(held);
                }
                Stage::Leaving { held: true, .. } => answers[at] = Err(leaving()),
                _ => {}
            }
        }
        let renewed = join_all(batches.values().map(|(session, held)| self.renew_all(session, held))).await;
        for (at, answer) in renewed.into_iter().flatten() {
            answers[at] = answer;
        }
        answers
    }

    /// One renewal for all claims of a session. It looks at the first ones itself; the others are looked at after it.
    async fn renew_all(&self, session: &Arc<Session>, held: &[Held<'_>]) -> Vec<(usize, Result<Renewal>)> {
        let asked = self.connection.clock.now();
        let (first, rest) = held.split_at(held.len().min(READ_AT_ONCE));
        let renewed = self.renew_session(session, &keys(first)).await;
        let looks = join_all(rest.chunks(READ_AT_ONCE).map(async |some| match &renewed {
            Ok(Some(_)) => (some, self.look_at(&keys(some)).await),
            Ok(None) => (some, Ok(vec![None; some.len()])),
            Err(error) => (some, Err(error.clone())),
        }));
        let looks = looks.await;
        let first = (first, renewed.map(|revisions| revisions.unwrap_or_else(|| vec![None; first.len()])));
        let each = |(some, revisions): (&[Held<'_>], Result<Vec<Option<i64>>>)| -> Vec<_> {
            let answer = |(at, held): (usize, &Held<'_>)| match &revisions {
                Ok(revisions) => (held.at, Ok(self.renewed(session, held, revisions[at], asked))),
                Err(error) => (held.at, Err(error.clone())),
            };
            some.iter().enumerate().map(answer).collect()
        };
        [first].into_iter().chain(looks).flat_map(each).collect()
    }

    /// The create revisions of these keys, if they are there.
    async fn look_at(&self, keys: &[String]) -> Result<Vec<Option<i64>>> {
        let (_, found) = read(&self.connection, keys.iter()).await?;
        Ok(found.iter().map(|key| key.as_ref().map(KeyValue::create_revision)).collect())
    }

    fn renewed(&self, session: &Session, held: &Held<'_>, revision: Option<i64>, asked: Instant) -> Renewal {
        if revision != Some(held.entry.created) {
            self.ledger.not_held(&held.id, &held.entry);
            return Renewal::NotHeld;
        }
        let valid_until = session.valid_until().min(asked + held.claim.lease);
        self.ledger.renewed(&held.id, valid_until);
        Renewal::Held { valid_until }
    }
}

fn keys(held: &[Held<'_>]) -> Vec<String> {
    held.iter().map(|held| held.entry.key.clone()).collect()
}

/// A claim that is held, to be renewed.
struct Held<'a> {
    at: usize,
    claim: &'a Claim,
    id: String,
    entry: Entry,
}
