//! How a hold goes on without its owner: the lock's key gets [another text](lock_core::OwnerId::kept), and the rest of
//! the time as its expiry. So no request of the owner's finds the lock its own any more, and to any other client of Redis
//! it is a lock that is held.

use std::time::Duration;

use lock_core::{Claim, Error, Kept, Result};

use crate::RedisLock;
use crate::answers::{ENDLESS, read};
use crate::connection::Again;
use crate::scripts::KEEP;
use crate::values;

impl RedisLock {
    pub(crate) async fn keep_for(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let keys = self.keys.of(&claim.name);
        let value = claim.value.as_ref().map(|_| values::key(&keys, &claim.owner));
        let mut names = vec![keys.lock.as_str(), &keys.grant, &keys.line];
        names.extend(value.as_deref());
        let (kept, rest) = (claim.owner.kept(), at_least(rest).to_string());
        let mut arguments = vec![claim.owner.as_str().as_bytes(), kept.as_str().as_bytes(), rest.as_bytes()];
        let unwritten = self.client.records.unwritten(&claim.name, &claim.owner);
        let unwritten = unwritten.map(|grant| grant.token_and_age(self.client.clock.now()));
        arguments.extend(unwritten.iter().flatten().map(String::as_bytes));
        let answer = self.servers.run(&KEEP, &names, &arguments, Again::Yes).await?;
        let kept = read::<i64>(answer.value)? == 1;
        // Whoever had it has it no more.
        self.client.records.forget(&claim.name, &claim.owner);
        if !kept {
            return if answer.twice { Err(Error::kept_or_not()) } else { Ok(Kept::NotHeld) };
        }
        answer.link.confirm(self.client.own_key(keys.slot)).await?;
        Ok(Kept::Kept)
    }
}

/// In the whole milliseconds that Redis keeps, and not less.
fn at_least(rest: Duration) -> u128 {
    rest.min(ENDLESS).as_nanos().div_ceil(1_000_000).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_never_shortened() {
        let rests = [(0, 1), (1, 1), (999_999, 1), (1_000_000, 1), (1_000_001, 2), (5_000_000_000, 5000)];
        for (ns, ms) in rests {
            assert_eq!(at_least(Duration::from_nanos(ns)), ms);
        }
        assert_eq!(at_least(Duration::MAX), ENDLESS.as_millis());
    }
}
