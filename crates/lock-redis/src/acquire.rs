//! How a lock is taken by the script, at once or in line. The free case without it is in `free`.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Grant, InLine, Instant, Mode, News, OwnerId, Result, StoreToken};

use crate::RedisLock;
use crate::answers::{Acquired, ENDLESS, left, nonsense};
use crate::connection::{Again, Link};
use crate::free::Before;
use crate::keys::LockKeys;
use crate::modes::letter;
use crate::records::Unwritten;
use crate::scripts::{ACQUIRE, ACQUIRE_SHOWING};
use crate::values;
use crate::waiters::{LIVES, TICK, keep_looking};

/// Redis keeps times in whole milliseconds, and we promise less than it keeps.
const ROUNDING: Duration = Duration::from_millis(1);

impl RedisLock {
    /// By a script. With a place, it is in line if it is not granted.
    pub(crate) async fn acquire(
        &self,
        claim: &Claim,
        keys: &LockKeys,
        place: Option<&str>,
        before: Before,
    ) -> Result<(Instant, Acquired)> {
        if claim.mode != Mode::Exclusive {
            return self.acquire_beside(claim, keys, place).await;
        }
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
        let value = claim.value.as_ref().map(|value| (values::key(keys, &claim.owner), value));
        if let Some((key, value)) = &value {
            names.push(key);
            arguments.push(value.as_str().as_bytes());
        }
        let script = if value.is_some() { &ACQUIRE_SHOWING } else { &ACQUIRE };
        let asked = tokio::time::Instant::now();
        let answer = self.servers.run(script, &names, &arguments, Again::Yes).await;
        let answer = answer.map_err(|error| if before.unsure { error.after_something_was_done() } else { error })?;
        let acquired = Acquired::read(answer.value, claim.mode)?;
        match &acquired {
            Acquired::Granted { token, left, .. } => {
                self.confirm(claim, keys, &answer.link).await?;
                if left.is_none() {
                    answer.link.drawn.by_script(keys.slot, *token, answer.sent);
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
            // Nothing was done by this request.
            Acquired::Another(_) => {}
        }
        Ok((answer.sent, acquired))
    }

    /// Enters the line, and leaves it with the lock.
    pub(crate) async fn wait(&self, claim: &Claim, keys: Arc<LockKeys>, mut before: Before) -> Result<Grant> {
        let place = self.place(&claim.owner, claim.lease, claim.mode, &keys);
        // Before the request, so that no message comes too early.
        let mut waiting = self.client.waiters.register(claim, Arc::clone(&keys));
        loop {
            let (sent, acquired) = self.acquire(claim, &keys, Some(&place), before).await?;
            let (remaining_ms, now) = match acquired {
                Acquired::Granted { token, left, slots } => {
                    return Ok(granted(claim, sent, token, left).with_slots(slots));
                }
                Acquired::Another(found) => return Err(another_kind(claim, found, before)),
                Acquired::Busy { remaining_ms, now } => (remaining_ms, now),
            };
            // In line, it may be granted at any moment.
            before = Before { unsure: true, void: false };
            self.client.waiters.ensure_task(TICK, || keep_looking(self.clone()));
            waiting.entered(left(remaining_ms));
            match values::news(claim, &mut waiting).await {
                // Handed over: whether the replicas have it is another question, and goes with this one.
                News::Granted { .. } if self.client.replicas > 0 => {}
                // Which permits, the message does not say.
                News::Granted { .. } if claim.mode.permits().is_some() => {}
                // Older than the answer that another has it: that grant is over. Or the server's clock was set, and it
                // will say so.
                News::Granted { at_us, .. } if at_us < now as i64 => {}
                News::Granted { token, at_us, arrived, .. } => {
                    let entered = InLine { sent, store_us: now as i64 };
                    let last = self.client.times.last(keys.slot, &entered);
                    let lease = claim.lease.min(ENDLESS);
                    let since = entered.valid_until_by(last, at_us, arrived, Duration::ZERO);
                    let grant = Grant::new(StoreToken::new(token)?, since + lease);
                    if claim.mode == Mode::Exclusive {
                        self.will_write(Unwritten::new(claim, &keys, &grant, since));
                    }
                    return Ok(grant);
                }
                News::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }

    /// A grant that too few replicas have is none, and is taken back.
    pub(crate) async fn confirm(&self, claim: &Claim, keys: &LockKeys, link: &Link) -> Result<()> {
        let Err(short) = link.confirm(self.client.own_key(keys.slot)).await else { return Ok(()) };
        match self.release(claim, keys, &self.place(&claim.owner, claim.lease, claim.mode, keys)).await {
            Ok(_) => Err(short),
            // Perhaps it stands: that has to be undone.
            Err(error) => Err(Error::new(ErrorKind::Unknown, short.to_string()).with_source(error)),
        }
    }

    /// A place in line: who to tell, for how long the lock is granted, and to whom.
    pub(crate) fn place(&self, owner: &OwnerId, lease: Duration, mode: Mode, keys: &LockKeys) -> String {
        let (client, lease, owner) = (self.client.name(keys.slot), whole_milliseconds(lease), owner.as_str());
        match letter(mode) {
            None => format!("{client} {lease} {owner}"),
            Some((letter, take, of)) => format!("{client} {letter}{take}/{of}:{lease} {owner}"),
        }
    }
}

/// The error of a claim to what is in use as another kind.
pub(crate) fn another_kind(claim: &Claim, found: Mode, before: Before) -> Error {
    let error = claim.mode.check_kind(found).err().unwrap_or_else(nonsense);
    if before.unsure { error.after_something_was_done() } else { error }
}

/// A lease as Redis is told it: never less than we promise.
pub(crate) fn whole_milliseconds(lease: Duration) -> u64 {
    lease.min(ENDLESS).as_millis() as u64 + 2
}

pub(crate) fn granted(claim: &Claim, sent: Instant, token: StoreToken, left: Option<Duration>) -> Grant {
    let lease = match left {
        None => claim.lease.min(ENDLESS),
        Some(left) => left.saturating_sub(ROUNDING).min(claim.lease),
    };
    Grant::new(token, sent + lease)
}
