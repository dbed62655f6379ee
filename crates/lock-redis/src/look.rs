//! The task that looks for what no message told: see [`crate::waiting`].

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Error, Failures, OwnerId, Result};
use redis::Value;

use crate::answers::{Grants, read};
use crate::connection::Again;
use crate::keys::LockKeys;
use crate::scripts::LOOK;
use crate::waiting::{News, TICK, Watched, end_of_lease};
use crate::{LIVES, RedisLock, in_time, together};

/// Looks while anybody waits.
pub(crate) async fn keep_looking(locks: RedisLock) {
    let mut failures = Failures::default();
    while locks.client.waiters.due().await {
        let failed = locks.look().await;
        let Some((_, first)) = failed.first() else {
            failures.forget();
            continue;
        };
        if failures.count(first) {
            for (keys, error) in &failed {
                locks.client.waiters.fail(keys, &Failures::for_waiters(error));
            }
        } else {
            locks.client.waiters.look_by(tokio::time::Instant::now() + Failures::PAUSE);
        }
    }
}

impl RedisLock {
    /// Answers what could not be looked at, and why.
    async fn look(&self) -> Vec<(Vec<Arc<LockKeys>>, Error)> {
        let watched = self.client.waiters.watched();
        let groups = together(&watched, |one| one.keys.slot);
        // A node that hangs must not keep the others from hearing that we live.
        let limit = if groups.len() > 1 { TICK } else { Duration::MAX };
        let looks = groups.iter().map(|group| async {
            let some: Vec<_> = group.iter().map(|&at| &watched[at]).collect();
            let looked = in_time(limit, self.look_at(&some)).await;
            looked.map_err(|error| (some.iter().map(|one| Arc::clone(&one.keys)).collect(), error))
        });
        join_all(looks).await.into_iter().filter_map(Result::err).collect()
    }

    async fn look_at(&self, some: &[&Watched]) -> Result<()> {
        let slot = some[0].keys.slot;
        let own_key = self.client.own_key(slot);
        let lives = LIVES.as_millis().to_string();
        let locks = some.iter().flat_map(|one| [one.keys.lock.as_str(), &one.keys.grant, &one.keys.line]);
        let names: Vec<_> = [own_key.as_str()].into_iter().chain(locks).collect();
        let places = some.iter().map(|one| one.place.as_bytes());
        let arguments: Vec<_> = [lives.as_bytes()].into_iter().chain(places).collect();
        let asked = tokio::time::Instant::now();
        let answer = self.servers.run(&LOOK, &names, &arguments, Again::Yes).await?;
        self.client.waiters.life_shown(slot, asked);
        let answers: Vec<Value> = read(answer.value)?;
        for (one, seen) in some.iter().zip(answers) {
            let (holder, remaining, grant, in_line): (String, i64, String, i64) = read(seen)?;
            self.seen(one, &holder, &grant, in_line == 1, answer.sent);
            if let Some(end) = end_of_lease(remaining) {
                self.client.waiters.look_by(end);
            }
        }
        Ok(())
    }

    fn seen(&self, one: &Watched, holder: &str, grant: &str, in_line: bool, sent: lock_core::Instant) {
        let holder = OwnerId::from_store(holder);
        if let Some(grant) = Grants::parse(grant).filter(|grant| grant.owner == holder) {
            // If that is one of ours, its message was lost.
            self.client.waiters.tell(&holder, News::Granted { token: grant.token, at: grant.at, arrived: sent });
        }
        if !in_line && holder != one.owner {
            self.client.waiters.enter_anew(&one.keys);
        }
    }
}
