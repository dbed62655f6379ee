//! What owners show with their holds.
//!
//! The value of a claim is a key of its own, in the slot of the lock: `oarlock-value-of:{lock}:` and the SHA-1 of the
//! owner's text, which is nobody's business. It is written in the request that asks for the lock, so that it is there
//! from the grant on, whoever hands the lock over; and only the value of who holds the lock is looked up. So a hand-over
//! knows nothing of values.
//!
//! Renewals prolong it with the lease, and a release removes it. The value of one who waits lasts for a day, and its
//! client asks again [before](ASKS_AGAIN): what a client leaves that crashed is gone a day later.

use std::time::Duration;

use lock_core::{Claim, LockValue, News, OwnerId, Proclaimed, Result, Waiting};

use crate::RedisLock;
use crate::acquire::whole_milliseconds;
use crate::answers::read;
use crate::connection::Again;
use crate::keys::LockKeys;
use crate::scripts::PROCLAIM;

/// Who waits with a value asks again after that, a part of the day for which it lasts.
pub(crate) const ASKS_AGAIN: Duration = Duration::from_secs(6 * 3600);

/// The key of an owner's value.
pub(crate) fn key(keys: &LockKeys, owner: &OwnerId) -> String {
    let companion = keys.grant.replacen("grant", "value", 1);
    format!("{companion}:{}", redis::Script::new(owner.as_str()).get_hash())
}

/// What a waiter is told next, or that it is time to ask again.
pub(crate) async fn news<K: Ord + Clone>(claim: &Claim, waiting: &mut Waiting<K>) -> News {
    if claim.value.is_none() {
        return waiting.news().await;
    }
    tokio::time::timeout(ASKS_AGAIN, waiting.news()).await.unwrap_or(News::Enter)
}

impl RedisLock {
    pub(crate) async fn show(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        let keys = self.keys.of(&claim.name);
        let names = [keys.lock.as_str(), &key(&keys, &claim.owner)];
        let lease = whole_milliseconds(claim.lease).to_string();
        let arguments = [claim.owner.as_str(), value.as_str(), &lease].map(str::as_bytes);
        let answer = self.servers.run(&PROCLAIM, &names, &arguments, Again::Yes).await?;
        if read::<i64>(answer.value)? != 1 {
            return Ok(Proclaimed::NotHeld);
        }
        answer.link.confirm(self.client.own_key(keys.slot)).await?;
        Ok(Proclaimed::Shown)
    }
}

#[cfg(test)]
mod tests {
    use lock_core::LockName;

    use super::*;
    use crate::keys::Keys;
    use crate::slots::slot;

    #[test]
    fn a_value_is_in_the_slot_of_its_lock_and_does_not_show_its_owner() {
        let keys = Keys::new("", true).unwrap();
        for name in ["a", "{a}b", "{}", "{}a", "a}", "}a{", "{a", "grant", "a{grant}"] {
            let of = keys.of(&LockName::new(name).unwrap());
            let [one, other] = ["a{b}@c#1", "}{"].map(|owner| key(&of, &OwnerId::from_store(owner)));
            assert_eq!([slot(&one), slot(&other)].map(Some), [of.slot; 2], "{one}");
            assert!(one != other && !one.contains("@c") && keys.name(&one).is_none(), "{one}");
            assert_eq!(one.strip_prefix("oarlock-value").map(|_| one.matches("oarlock-").count()), Some(1), "{one}");
        }
        let of = keys.of(&LockName::new("x").unwrap());
        let key = key(&of, &OwnerId::from_store("me"));
        // `printf me | sha1sum`
        assert_eq!(key, "oarlock-value-of:{x}:b1c1d8736f20db3fb6c1c66bb1455ed43909f0d8");
    }
}
