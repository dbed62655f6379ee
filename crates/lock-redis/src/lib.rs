//! Oarlock's backend for Redis 6.2 and later, and Valkey: locks for every host that reaches the server.
//!
//! A lock is a plain string at `prefix:name` with its owner in it, set with `SET … NX PX` and deleted only by its
//! owner. So it excludes, and is excluded by, any client that locks in this common way.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! use lock_core::{Config, Registry};
//!
//! let mut registry = Registry::new();
//! registry.register(lock_redis::RedisFactory);
//! # let server = test_servers::RedisServer::start();
//! let url = "redis://cache.internal";
//! # let url = &server.url();
//! let locks = registry.connect(Config::from_url(url)?).await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! guard.unlock().await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod answers;
mod bounded;
mod cluster;
mod connection;
mod dial;
mod doctor;
mod error;
mod factory;
mod free;
mod keys;
mod life;
mod look;
mod options;
#[cfg(test)]
mod properties;
mod records;
mod replicas;
mod scripts;
mod sentinel;
mod servers;
mod slots;
mod status;
mod times;
mod tls;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use futures_util::stream::{self, BoxStream, StreamExt};
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Error, ErrorKind, Finding, Grant, Holder, InLine, Instant, ListQuery,
    LockName, LockStatus, News, Notice, OwnerId, Page, Renewal, Result, Scope, StoreToken, Unlocked,
};
use tokio::sync::watch;

use answers::{Acquired, ENDLESS, left, nonsense, read};
use connection::{Again, Client, Link};
pub use factory::RedisFactory;
use free::Before;
use keys::{Keys, LockKeys};
pub use options::RedisOptions;
use records::Unwritten;

use scripts::{ACQUIRE, RAISE, RELEASE, RENEW};
use servers::Servers;

/// For how long a client counts as living that was not heard of.
const LIVES: Duration = Duration::from_secs(3);

/// How many locks one script looks at: no other request is done meanwhile.
const AT_ONCE: usize = 100;

/// Redis keeps times in whole milliseconds, and we promise less than it keeps.
const ROUNDING: Duration = Duration::from_millis(1);

/// Locks on a Redis or Valkey server, or on a cluster of them.
///
/// Waiters stand in line on the server; a release hands the lock to the first who lives, and tells it by a message.
/// Leases go by the server's clock. What the server forgets, by a restart without persistence or an eviction, is lost,
/// and noticed at the next renewal. The end of the connection, which comes with a restart, has everything renewed at
/// once.
#[derive(Clone)]
pub struct RedisLock {
    servers: Arc<Servers>,
    client: Arc<Client>,
    keys: Keys,
}

impl fmt::Debug for RedisLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (server, keys) = (self.servers.to_string(), &self.keys);
        f.debug_struct("RedisLock").field("server", &server).field("keys", keys).finish_non_exhaustive()
    }
}

impl RedisLock {
    /// Connects to the server of a URL such as `redis://cache.internal`, in bounded time. [`RedisOptions`] has more to
    /// choose.
    ///
    /// # Errors
    /// As [`RedisOptions::connect`].
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        RedisOptions::new(url)?.prefix(prefix).connect().await
    }

    /// By a script. With a place, it is in line if it is not granted.
    async fn acquire(
        &self,
        claim: &Claim,
        keys: &LockKeys,
        place: Option<&str>,
        before: Before,
    ) -> Result<(Instant, Acquired)> {
        if self.client.records.has(&claim.owner) {
            // It asks again for what it has.
            self.write_down(Duration::ZERO).await;
        }
        let lease = whole_milliseconds(claim.lease).to_string();
        let void = u8::from(before.void).to_string();
        let mut names = vec![keys.lock.as_str(), &keys.grant, &keys.line, &keys.tokens];
        let mut arguments = vec![claim.owner.as_str().as_bytes(), lease.as_bytes(), void.as_bytes()];
        arguments.extend(place.map(str::as_bytes));
        let life = (place.is_some() && self.client.life.is_due(keys.slot))
            .then(|| (self.client.own_key(keys.slot), LIVES.as_millis().to_string()));
        if let Some((own_key, lives)) = &life {
            names.push(own_key);
            arguments.push(lives.as_bytes());
        }
        let asked = tokio::time::Instant::now();
        let answer = self.servers.run(&ACQUIRE, &names, &arguments, Again::Yes).await;
        let answer = answer.map_err(|error| if before.unsure { error.after_something_was_done() } else { error })?;
        let acquired = Acquired::read(answer.value)?;
        match acquired {
            Acquired::Granted { token, left } => {
                self.confirm(claim, keys, &answer.link).await?;
                if left.is_none() {
                    answer.link.drawn.by_script(keys.slot, token, answer.sent);
                    self.client.contended.note(&keys.lock, false);
                }
            }
            Acquired::Busy { .. } => {
                self.client.contended.note(&keys.lock, true);
                // Whoever is granted at once shows nothing.
                if life.is_some() {
                    self.client.life.shown(keys.slot, asked);
                }
            }
        }
        Ok((answer.sent, acquired))
    }

    /// Enters the line, and leaves it with the lock.
    async fn wait(&self, claim: &Claim, keys: Arc<LockKeys>, mut before: Before) -> Result<Grant> {
        let place = self.place(&claim.owner, claim.lease, &keys);
        // Before the request, so that no message comes too early.
        let mut waiting = self.client.waiters.register(claim, Arc::clone(&keys));
        loop {
            let (sent, acquired) = self.acquire(claim, &keys, Some(&place), before).await?;
            let (remaining_ms, now) = match acquired {
                Acquired::Granted { token, left } => return Ok(granted(claim, sent, token, left)),
                Acquired::Busy { remaining_ms, now } => (remaining_ms, now),
            };
            // In line, it may be granted at any moment.
            before = Before { unsure: true, void: false };
            self.client.waiters.ensure_task(look::TICK, || look::keep_looking(self.clone()));
            waiting.entered(left(remaining_ms));
            match waiting.news().await {
                // Handed over: whether the replicas have it is another question, and goes with this one.
                News::Granted { .. } if self.client.replicas > 0 => {}
                // Older than the answer that another has it: that grant is over. Or the server's clock was set, and it
                // will say so.
                News::Granted { at_us, .. } if at_us < now as i64 => {}
                News::Granted { token, at_us, arrived } => {
                    let entered = InLine { sent, store_us: now as i64 };
                    let in_line = self.client.times.before(keys.slot, at_us, entered);
                    let lease = claim.lease.min(ENDLESS);
                    let since = in_line.valid_until(at_us, arrived, Duration::ZERO);
                    let grant = Grant::new(StoreToken::new(token)?, since + lease);
                    self.will_write(Unwritten::new(claim, &keys, &grant, since));
                    return Ok(grant);
                }
                News::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }

    /// A grant that too few replicas have is none, and is taken back.
    async fn confirm(&self, claim: &Claim, keys: &LockKeys, link: &Link) -> Result<()> {
        let Err(short) = link.confirm(self.client.own_key(keys.slot)).await else { return Ok(()) };
        match self.release(keys, claim.owner.as_str(), &self.place(&claim.owner, claim.lease, keys)).await {
            Ok(_) => Err(short),
            // Perhaps it stands: that has to be undone.
            Err(error) => Err(Error::new(ErrorKind::Unknown, short.to_string()).with_source(error)),
        }
    }

    async fn release(&self, keys: &LockKeys, owner: &str, place: &str) -> Result<Unlocked> {
        let names = [keys.lock.as_str(), &keys.grant, &keys.line, &keys.tokens];
        // Sent again, it would say that the lock was not held.
        let answer = self.servers.run(&RELEASE, &names, &[owner.as_bytes(), place.as_bytes()], Again::No).await?;
        Ok(if read::<i64>(answer.value)? == 1 { Unlocked::Released } else { Unlocked::NotHeld })
    }

    /// A place in line: who to tell, for how long the lock is granted, and to whom.
    fn place(&self, owner: &OwnerId, lease: Duration, keys: &LockKeys) -> String {
        format!("{} {} {}", self.client.name(keys.slot), whole_milliseconds(lease), owner.as_str())
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

#[async_trait]
impl DistributedLock for RedisLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("redis", Scope::Network);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.min_lease = Duration::from_millis(10);
        capabilities.answers_within = self.client.dialer.timeout;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.client.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        let keys = Arc::new(self.keys.of(&claim.name));
        let before = match self.take_free(claim, &keys).await? {
            Ok(grant) => return Ok(Some(grant)),
            Err(before) => before,
        };
        let (sent, acquired) = Box::pin(self.acquire(claim, &keys, None, before)).await?;
        Ok(match acquired {
            Acquired::Granted { token, left } => Some(granted(claim, sent, token, left)),
            Acquired::Busy { .. } => None,
        })
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        let keys = Arc::new(self.keys.of(&claim.name));
        let before = match self.take_free(claim, &keys).await? {
            Ok(grant) => return Ok(grant),
            Err(before) => before,
        };
        // Seldom done, and large: who is granted at once would carry the room for it.
        Box::pin(self.wait(claim, keys, before)).await
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        if let Some(keys) = self.client.records.forget(&claim.name, &claim.owner) {
            // It was granted just now: it stands in no line.
            return self.release(&keys, claim.owner.as_str(), "").await;
        }
        let keys = self.keys.of(&claim.name);
        self.release(&keys, claim.owner.as_str(), &self.place(&claim.owner, claim.lease, &keys)).await
    }

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
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

    fn notices(&self) -> BoxStream<'static, Notice> {
        let doubts = self.client.doubts.subscribe();
        let next =
            async |mut doubts: watch::Receiver<()>| doubts.changed().await.ok().map(|()| (Notice::Doubt, doubts));
        stream::unfold(doubts, next).boxed()
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.statuses(vec![name.clone()]).await?.pop().ok_or_else(nonsense)
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        self.holder_of(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        let mut names = self.names(query).await?;
        let next = query.cut(&mut names, |name| name);
        let mut locks = self.statuses(names).await?;
        // Released since it was found.
        locks.retain(|lock| lock.holder().is_some() || !lock.waiters.is_empty());
        Ok(Page::new(locks, next))
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
        while let Some(holder) = self.holder_of(name).await? {
            if self.release(&self.keys.of(name), holder.owner.as_str(), "").await? == Unlocked::Released {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    async fn raise_tokens(&self, name: &LockName, above: StoreToken) -> Result<()> {
        let (keys, above) = (self.keys.of(name), above.get().to_string());
        let answer = self.servers.run(&RAISE, &[&*keys.tokens], &[above.as_bytes()], Again::Yes).await?;
        answer.link.confirm(self.client.own_key(keys.slot)).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    async fn close(&self) -> Result<()> {
        self.servers.close();
        Ok(())
    }
}

/// The places of those that one script can look at: in one slot, and not too many.
fn together<T>(items: &[T], slot: impl Fn(&T) -> Option<u16>) -> Vec<Vec<usize>> {
    let mut slots: BTreeMap<Option<u16>, Vec<usize>> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        slots.entry(slot(item)).or_default().push(at);
    }
    slots.values().flat_map(|places| places.chunks(AT_ONCE)).map(<[usize]>::to_vec).collect()
}

async fn in_time<T>(limit: Duration, future: impl Future<Output = Result<T>>) -> Result<T> {
    let late = |_| Error::new(ErrorKind::Unknown, "a node of the cluster does not answer in time");
    tokio::time::timeout(limit, future).await.map_err(late)?
}

/// A lease as Redis is told it: never less than we promise.
fn whole_milliseconds(lease: Duration) -> u64 {
    lease.min(ENDLESS).as_millis() as u64 + 2
}

fn granted(claim: &Claim, sent: Instant, token: StoreToken, left: Option<Duration>) -> Grant {
    let lease = match left {
        None => claim.lease.min(ENDLESS),
        Some(left) => left.saturating_sub(ROUNDING).min(claim.lease),
    };
    Grant::new(token, sent + lease)
}
