//! How leases are prolonged, many at once.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Claim, Mode, Renewal, Result};

use crate::RedisLock;
use crate::acquire::whole_milliseconds;
use crate::answers::{ENDLESS, nonsense, read};
use crate::batches::{in_time, together};
use crate::connection::Again;
use crate::scripts::{RENEW, RENEW_MODES};
use crate::values;

impl RedisLock {
    pub(crate) async fn renew_all(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let groups = together(claims, |claim| (self.keys.of(&claim.name).slot, claim.mode == Mode::Exclusive));
        // A node that hangs must not hold up what the others answer.
        let limit = claims.iter().map(|claim| claim.lease / 4).min().filter(|_| groups.len() > 1);
        let renewed = groups.into_iter().map(|group| async move {
            let some: Vec<_> = group.iter().map(|&at| claims[at].clone()).collect();
            let renewed = in_time(limit.unwrap_or(Duration::MAX), self.renew_some(&some)).await;
            let renewed = renewed.unwrap_or_else(|error| vec![Err(error); some.len()]);
            group.into_iter().zip(renewed).collect::<Vec<_>>()
        });
        let mut renewed: Vec<_> = join_all(renewed).await.into_iter().flatten().collect();
        renewed.sort_by_key(|(at, _)| *at);
        renewed.into_iter().map(|(_, answer)| answer).collect()
    }

    async fn renew_some(&self, claims: &[Claim]) -> Result<Vec<Result<Renewal>>> {
        let keys: Vec<_> = claims.iter().map(|claim| self.keys.of(&claim.name)).collect();
        let alone = claims.iter().all(|claim| claim.mode == Mode::Exclusive);
        let leases: Vec<_> = claims.iter().map(|claim| whole_milliseconds(claim.lease).to_string()).collect();
        let shown = |(claim, keys): (&Claim, _)| claim.value.as_ref().map(|_| values::key(keys, &claim.owner));
        let values: Vec<_> = claims.iter().zip(&keys).map(shown).collect();
        let values = values.iter().enumerate().filter_map(|(at, value)| Some((at, value.as_ref()?)));
        let grants = keys.iter().map(|keys| if alone { &keys.grant } else { &keys.line }).enumerate();
        let (mut names, mut arguments) = (Vec::new(), Vec::new());
        // A value is prolonged as a grant is; behind them, so that the first answers are those of the claims.
        for (at, companion) in grants.chain(values) {
            names.extend([&keys[at].lock, companion].map(String::as_str));
            arguments.extend([claims[at].owner.as_str(), &leases[at]].map(str::as_bytes));
        }
        let answer =
            self.servers.run(if alone { &RENEW } else { &RENEW_MODES }, &names, &arguments, Again::Yes).await?;
        let mut held: Vec<i64> = read(answer.value)?;
        if held.len() * 2 != names.len() {
            return Err(nonsense());
        }
        held.truncate(claims.len());
        let confirmed = answer.link.confirm(self.client.own_key(keys[0].slot)).await;
        let renewal = |(claim, held): (&Claim, i64)| match (held, &confirmed) {
            (1, Ok(())) => Ok(Renewal::Held { valid_until: answer.sent + claim.lease.min(ENDLESS) }),
            (1, Err(error)) => Err(error.clone()),
            _ => Ok(Renewal::NotHeld),
        };
        Ok(claims.iter().zip(held).map(renewal).collect())
    }
}
