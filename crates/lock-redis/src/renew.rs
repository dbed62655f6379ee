//! How leases are prolonged, many at once.

use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Claim, Renewal, Result};

use crate::RedisLock;
use crate::acquire::whole_milliseconds;
use crate::answers::{ENDLESS, nonsense, read};
use crate::batches::{in_time, together};
use crate::connection::Again;
use crate::scripts::RENEW;

impl RedisLock {
    pub(crate) async fn renew_all(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let groups = together(claims, |claim| self.keys.of(&claim.name).slot);
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
        let names: Vec<_> = keys.iter().flat_map(|keys| [keys.lock.as_str(), &keys.grant]).collect();
        let leases: Vec<_> = claims.iter().map(|claim| whole_milliseconds(claim.lease).to_string()).collect();
        let arguments: Vec<_> = claims
            .iter()
            .zip(&leases)
            .flat_map(|(claim, ms)| [claim.owner.as_str().as_bytes(), ms.as_bytes()])
            .collect();
        let answer = self.servers.run(&RENEW, &names, &arguments, Again::Yes).await?;
        let held: Vec<i64> = read(answer.value)?;
        if held.len() != claims.len() {
            return Err(nonsense());
        }
        let confirmed = answer.link.confirm(self.client.own_key(keys[0].slot)).await;
        let renewal = |(claim, held): (&Claim, i64)| match (held, &confirmed) {
            (1, Ok(())) => Ok(Renewal::Held { valid_until: answer.sent + claim.lease.min(ENDLESS) }),
            (1, Err(error)) => Err(error.clone()),
            _ => Ok(Renewal::NotHeld),
        };
        Ok(claims.iter().zip(held).map(renewal).collect())
    }
}
