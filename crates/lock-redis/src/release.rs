//! How a lock is given back.

use lock_core::{Result, Unlocked};

use crate::RedisLock;
use crate::answers::read;
use crate::connection::Again;
use crate::keys::LockKeys;
use crate::scripts::RELEASE;

impl RedisLock {
    pub(crate) async fn release(&self, keys: &LockKeys, owner: &str, place: &str) -> Result<Unlocked> {
        let names = [keys.lock.as_str(), &keys.grant, &keys.line, &keys.tokens];
        // Sent again, it would say that the lock was not held.
        let answer = self.servers.run(&RELEASE, &names, &[owner.as_bytes(), place.as_bytes()], Again::No).await?;
        Ok(if read::<i64>(answer.value)? == 1 { Unlocked::Released } else { Unlocked::NotHeld })
    }
}
