//! Several locks at once, while all of them are free and in one slot: one script.

use futures_util::future::join_all;
use lock_core::{Claim, Error, Grant, Result, StoreToken};
use redis::Value;

use crate::RedisLock;
use crate::acquire::{granted, whole_milliseconds};
use crate::answers::{nonsense, read};
use crate::connection::Again;
use crate::scripts::ACQUIRE_ALL;

impl RedisLock {
    /// Takes all of them, or none; none also where they are not in one slot of a cluster.
    pub(crate) async fn take_all(&self, claims: &[Claim]) -> Result<Option<Vec<Grant>>> {
        let keys: Vec<_> = claims.iter().map(|claim| self.keys.of(&claim.name)).collect();
        let Some(first) = keys.first().filter(|first| keys.iter().all(|keys| keys.slot == first.slot)) else {
            return Ok(None);
        };
        let mut names = vec![&*first.tokens];
        names.extend(keys.iter().flat_map(|keys| [keys.lock.as_str(), &keys.grant, &keys.line]));
        let leases: Vec<_> = claims.iter().map(|claim| whole_milliseconds(claim.lease).to_string()).collect();
        let arguments = claims.iter().zip(&leases);
        let arguments: Vec<_> =
            arguments.flat_map(|(claim, lease)| [claim.owner.as_str().as_bytes(), lease.as_bytes()]).collect();
        // Done twice, it would find the locks held.
        let answer = self.servers.run(&ACQUIRE_ALL, &names, &arguments, Again::No).await?;
        if answer.value == Value::Nil {
            return Ok(None);
        }
        let tokens: Vec<u64> = read(answer.value)?;
        if tokens.len() != claims.len() {
            return Err(nonsense());
        }
        let confirmed = join_all(claims.iter().zip(&keys).map(|(claim, keys)| self.confirm(claim, keys, &answer.link)));
        // The others of them still have to be given back.
        confirmed.await.into_iter().collect::<Result<()>>().map_err(Error::after_something_was_done)?;
        let tokens: Vec<_> = tokens.into_iter().map(StoreToken::new).collect::<Result<_>>()?;
        if let Some(last) = tokens.last() {
            answer.link.drawn.by_script(first.slot, *last, answer.sent);
        }
        keys.iter().for_each(|keys| self.client.contended.note(&keys.lock, false));
        let grant = |(claim, token)| granted(claim, answer.sent, token, None);
        Ok(Some(claims.iter().zip(tokens).map(grant).collect()))
    }
}
