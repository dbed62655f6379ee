//! The task that looks for what no message told.
//!
//! It looks once a second, when a holder's lease is over, and when the connection was lost. One request serves all
//! waiters of this client; it shows the server that they live, and serves locks that came free without a release.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Error, Failures, InLine, News, OwnerId, Result, Watched};
use redis::Value;

use crate::RedisLock;
use crate::answers::{left, read};
use crate::batches::{in_time, together};
use crate::connection::Again;
use crate::keys::LockKeys;
use crate::scripts::LOOK;

/// For how long a client counts as living that was not heard of.
pub(crate) const LIVES: Duration = Duration::from_secs(3);

/// How often a client with waiters looks by itself.
pub(crate) const TICK: Duration = Duration::from_secs(1);

/// Looks while anybody waits.
pub(crate) async fn keep_looking(locks: RedisLock) {
    let mut failures = Failures::default();
    loop {
        locks.client.waiters.due(TICK).await;
        if locks.client.waiters.is_over() {
            locks.client.times.forget();
            return;
        }
        let failed = locks.look().await;
        let Some((_, first)) = failed.first() else {
            failures.forget();
            continue;
        };
        if failures.count(first) {
            for (keys, error) in &failed {
                locks.client.waiters.fail(&Failures::for_waiters(error), |key| keys.contains(key));
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
        let groups = together(&watched, |one| one.key.slot);
        // A node that hangs must not keep the others from hearing that we live.
        let limit = if groups.len() > 1 { TICK } else { Duration::MAX };
        let looks = groups.iter().map(|group| async {
            let some: Vec<_> = group.iter().map(|&at| &watched[at]).collect();
            let looked = in_time(limit, self.look_at(&some)).await;
            looked.map_err(|error| (some.iter().map(|one| Arc::clone(&one.key)).collect(), error))
        });
        join_all(looks).await.into_iter().filter_map(Result::err).collect()
    }

    async fn look_at(&self, some: &[&Watched<Arc<LockKeys>>]) -> Result<()> {
        let slot = some[0].key.slot;
        let own_key = self.client.own_key(slot);
        let lives = LIVES.as_millis().to_string();
        let locks = some.iter().flat_map(|one| [one.key.lock.as_str(), &one.key.line]);
        let names: Vec<_> = [own_key.as_str(), &some[0].key.tokens].into_iter().chain(locks).collect();
        let places: Vec<_> = some.iter().map(|one| self.place(&one.owner, one.lease, one.mode, &one.key)).collect();
        let places = places.iter().map(String::as_bytes);
        let arguments: Vec<_> = [lives.as_bytes()].into_iter().chain(places).collect();
        let asked = tokio::time::Instant::now();
        let answer = self.servers.run(&LOOK, &names, &arguments, Again::Yes).await?;
        self.client.life.shown(slot, asked);
        let (now, answers): (i64, Vec<Value>) = read(answer.value)?;
        self.client.times.told(slot, InLine { sent: answer.sent, store_us: now });
        for (one, seen) in some.iter().zip(answers) {
            let (holder, remaining, in_line): (String, i64, i64) = read(seen)?;
            self.seen(one, &holder, in_line == 1);
            left(remaining).into_iter().for_each(|left| self.client.waiters.look_after(left));
        }
        Ok(())
    }

    fn seen(&self, one: &Watched<Arc<LockKeys>>, holder: &str, in_line: bool) {
        let holder = OwnerId::from_store(holder);
        // If that is one of ours who waits, its message was lost: it asks, and is told that it holds.
        self.client.waiters.tell_owner(&holder, News::Enter);
        if !in_line && holder != one.owner {
            self.client.waiters.enter_anew(Some(&one.key));
        }
    }
}
