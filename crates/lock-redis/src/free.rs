//! The free case: a lock that nobody holds or waits for is taken by plain commands in one flight. A script costs the
//! server several times as much, and is left to all other cases.
//!
//! The flight is `SET lock owner NX PX lease`, `INCR tokens`, `GET lock`, `EXISTS line`. It is a grant if the first was
//! done, the third says that the lock is the owner's, nobody is in line, and the token is above the last one that a
//! script drew. Anything else is none, and a script decides.
//!
//! **Exclusion** is `SET … NX`, as ever: it is done by nobody else until the owner's release or the end of the lease,
//! which counts from the sending of the flight. Where it was done and is no grant, the script knows that the owner's key
//! counts for nothing yet, and serves the line before it. Until then others see a holder, and if this client ends, so
//! does its lease.
//!
//! **Tokens rise.** `tokens` is drawn from after the lock was had and while it still was, as `GET` then says, whatever
//! came between the commands. Who has the lock later has it by a later `SET`, after which it draws; so its number is
//! higher as long as the key never falls. Who fails draws as well, and uses it never. The end of a lease between `SET`
//! and `GET` and a new one of the same owner cannot be, since an owner asks over one connection.
//!
//! **What notices that `tokens` fell back**, by a restart, `FLUSHALL`, an eviction or a replica that lacks the last
//! numbers: each script that grants sets it to the server's clock, or one further if it is ahead; and the clock is ahead
//! of all tokens of the past, since nobody draws a million a second. Plain commands draw only for a moment
//! ([`FRESH`]) after such a script was answered *over the same connection*, and take no number that is not above the
//! script's. A new connection, and so a restart and a fail-over, begins with a script. On the old one, a key that is gone
//! begins at one, which is below; and a server that stopped being the primary and is it again took longer than that.
//!
//! **A lost answer.** The flight is done or it is not; the next request is the script. If it finds the key the owner's, and
//! no grant is written down, it serves the line and then the owner: the key may have come free unheard while others were
//! in line. **A cancelled future** is followed by a release over the same connection, or over one that ended the former
//! first: it comes after the flight in any case. **Too few replicas** take the grant back, as
//! any other.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Claim, Grant, Instant, Mode, Result, StoreToken};
use redis::Value;

use crate::RedisLock;
use crate::acquire::{granted, whole_milliseconds};
use crate::error::of_request;
use crate::keys::LockKeys;
use crate::records::Unwritten;

/// For so long plain commands may draw tokens after a script did.
const FRESH: Duration = Duration::from_millis(100);

/// The last tokens that scripts drew over one connection, in a cluster of each slot.
#[derive(Debug, Default)]
pub(crate) struct Drawn(Mutex<BTreeMap<Option<u16>, (StoreToken, Instant)>>);

impl Drawn {
    /// A script that was sent then answered this new token.
    pub(crate) fn by_script(&self, slot: Option<u16>, token: StoreToken, sent: Instant) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(slot, (token, sent));
    }

    /// What a plain token has to be above; none: it may not be drawn.
    fn floor(&self, slot: Option<u16>, now: Instant) -> Option<StoreToken> {
        let (token, sent) = *self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&slot)?;
        (now.saturating_duration_since(sent) < FRESH).then_some(token)
    }
}

/// The locks of which others were seen: there a flight would be in vain. By a part of their hash, so that some more are
/// taken for contended.
#[derive(Debug, Default)]
pub(crate) struct Contended([AtomicU64; 32]);

impl Contended {
    fn bit(&self, lock: &str) -> (&AtomicU64, u64) {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(lock);
        (&self.0[(hash >> 6) as usize % self.0.len()], 1 << (hash % 64))
    }

    pub(crate) fn note(&self, lock: &str, contended: bool) {
        let (word, bit) = self.bit(lock);
        if (word.load(Ordering::Relaxed) & bit != 0) != contended {
            word.fetch_xor(bit, Ordering::Relaxed);
        }
    }

    fn is(&self, lock: &str) -> bool {
        let (word, bit) = self.bit(lock);
        word.load(Ordering::Relaxed) & bit != 0
    }
}

/// What a script has to know of a flight before it, or of an earlier script.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Before {
    /// Something may have been done: no error is a refusal any more.
    pub(crate) unsure: bool,
    /// The owner may have the lock's key, and it is no grant unless one is written down.
    pub(crate) void: bool,
}

impl RedisLock {
    /// Takes the lock if it is free, and plain commands may.
    pub(crate) async fn take_free(&self, claim: &Claim, keys: &Arc<LockKeys>) -> Result<Result<Grant, Before>> {
        let client = &self.client;
        // What is shown is there from the grant on, which only a script can do; and what others hold as well, it decides.
        if claim.value.is_some() || claim.mode != Mode::Exclusive || client.contended.is(&keys.lock) {
            return Ok(Err(Before::default()));
        }
        let Some(link) = self.servers.ready(keys).await else { return Ok(Err(Before::default())) };
        let sent = client.clock.now();
        let Some(floor) = link.drawn.floor(keys.slot, sent) else { return Ok(Err(Before::default())) };
        let mut flight = redis::Pipeline::with_capacity(4);
        let (lock, owner) = (keys.lock.as_str(), claim.owner.as_str());
        let lease = whole_milliseconds(claim.lease);
        flight.cmd("SET").arg(lock).arg(owner).arg("NX").arg("PX").arg(lease);
        flight.cmd("INCR").arg(&*keys.tokens).cmd("GET").arg(lock).cmd("EXISTS").arg(&keys.line);
        let answers = match link.ask_all(&flight).await {
            Ok(answers) => answers,
            // Over the next connection the script finds out. Others may have been in line when it was done; what its owner
            // had before stays its own.
            Err(_) if link.is_broken() => {
                return Ok(Err(Before { unsure: true, void: !client.records.has(&claim.owner) }));
            }
            Err(error) => return Err(of_request(error)),
        };
        let token = match outcome(&answers, owner, floor) {
            Ok(token) => StoreToken::new(token)?,
            Err(before) => {
                client.contended.note(lock, true);
                return Ok(Err(before));
            }
        };
        if client.replicas > 0 {
            Box::pin(self.confirm(claim, keys, &link)).await?;
        }
        let grant = granted(claim, sent, token, None);
        self.will_write(Unwritten::new(claim, keys, &grant, sent));
        Ok(Ok(grant))
    }
}

/// The token, if it is a grant.
fn outcome(answers: &[Value], owner: &str, floor: StoreToken) -> Result<u64, Before> {
    match answers {
        [Value::Okay, Value::Int(token), Value::BulkString(holder), Value::Int(0)]
            if holder == owner.as_bytes() && i128::from(*token) > i128::from(floor.get()) =>
        {
            Ok(token.unsigned_abs())
        }
        [Value::Okay, ..] => Err(Before { unsure: true, void: true }),
        // Held, or refused, as the script will be.
        _ => Err(Before::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_origin(Duration::from_millis(ms))
    }

    fn token(number: u64) -> StoreToken {
        StoreToken::new(number).unwrap()
    }

    #[test]
    fn tokens_are_drawn_for_a_moment_after_a_script_of_the_slot() {
        let drawn = Drawn::default();
        assert_eq!(drawn.floor(None, at(0)), None);
        drawn.by_script(None, token(7), at(1000));
        assert_eq!(drawn.floor(None, at(1000)), Some(token(7)));
        assert_eq!(drawn.floor(None, at(1099)), Some(token(7)));
        assert_eq!((drawn.floor(None, at(1100)), drawn.floor(Some(1), at(1000))), (None, None));
    }

    #[test]
    fn a_flight_is_a_grant_only_if_all_of_it_says_so() {
        let held = |name: &str| Value::BulkString(name.as_bytes().to_vec());
        let of = |answers: &[Value]| outcome(answers, "me", token(100));
        assert_eq!(of(&[Value::Okay, Value::Int(101), held("me"), Value::Int(0)]), Ok(101));
        let void = Err(Before { unsure: true, void: true });
        // A counter that fell back, a lock that another has by now, somebody in line, and what no server answers.
        assert_eq!(of(&[Value::Okay, Value::Int(100), held("me"), Value::Int(0)]), void);
        assert_eq!(of(&[Value::Okay, Value::Int(-101), held("me"), Value::Int(0)]), void);
        assert_eq!(of(&[Value::Okay, Value::Int(101), held("you"), Value::Int(0)]), void);
        assert_eq!(of(&[Value::Okay, Value::Int(101), Value::Nil, Value::Int(0)]), void);
        assert_eq!(of(&[Value::Okay, Value::Int(101), held("me"), Value::Int(1)]), void);
        assert_eq!(of(&[Value::Okay]), void);
        // An earlier copy had it.
        assert_eq!(of(&[Value::Nil, Value::Int(101), held("me"), Value::Int(0)]), Err(Before::default()));
        assert_eq!(of(&[]), Err(Before::default()));
    }

    #[test]
    fn a_lock_is_contended_until_it_is_seen_free() {
        let contended = Contended::default();
        contended.note("x", false);
        assert!(!contended.is("x"));
        contended.note("x", true);
        contended.note("x", true);
        assert!(contended.is("x") && !contended.is("y"));
        contended.note("x", false);
        assert!(!contended.is("x"));
    }
}
