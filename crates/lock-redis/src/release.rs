//! How a lock is given back.

use lock_core::{Claim, Mode, Result, Unlocked};

use crate::RedisLock;
use crate::answers::read;
use crate::connection::Again;
use crate::keys::LockKeys;
use crate::scripts::RELEASE;
use crate::values;

impl RedisLock {
    /// What this claim has: the lock, or this place in line, and its value.
    pub(crate) async fn release(&self, claim: &Claim, keys: &LockKeys, place: &str) -> Result<Unlocked> {
        if claim.mode != Mode::Exclusive {
            return self.leave(keys, claim.owner.as_str(), place).await;
        }
        let value = claim.value.as_ref().map(|_| values::key(keys, &claim.owner));
        self.end(keys, claim.owner.as_str(), place, value.as_deref()).await
    }

    /// The hold of this owner, as the store has its text.
    pub(crate) async fn end(&self, keys: &LockKeys, owner: &str, place: &str, value: Option<&str>) -> Result<Unlocked> {
        let names = [keys.lock.as_str(), &keys.grant, &keys.line, &keys.tokens, value.unwrap_or_default()];
        let names = &names[..names.len() - usize::from(value.is_none())];
        // Sent again, it would say that the lock was not held.
        let answer = self.servers.run(&RELEASE, names, &[owner.as_bytes(), place.as_bytes()], Again::No).await?;
        Ok(if read::<i64>(answer.value)? == 1 { Unlocked::Released } else { Unlocked::NotHeld })
    }
}
