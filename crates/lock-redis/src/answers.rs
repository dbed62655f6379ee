//! What the scripts answer, parsed.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Holder, Mode, OwnerId, Result, Slots, StoreToken, Waiter};
use redis::{FromRedisValue, Value};

/// A lease without an end, or one that is as good as endless: ten years.
pub(crate) const ENDLESS: Duration = Duration::from_secs(10 * 365 * 86_400);

/// "token since owner": the last grant of a lock, also as it is told to its new owner.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Grants {
    pub(crate) token: u64,
    /// By the server's clock, in microseconds.
    pub(crate) at: u64,
    pub(crate) owner: OwnerId,
}

impl Grants {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let (token, at) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
        Some(Self { token, at, owner: OwnerId::from_store(parts.next()?) })
    }
}

/// Reads an answer as what it has to be.
pub(crate) fn read<T: FromRedisValue>(value: Value) -> Result<T> {
    redis::from_redis_value(value).map_err(|error| nonsense().with_source(error))
}

/// The server answered something that none of our scripts answers.
pub(crate) fn nonsense() -> Error {
    Error::new(ErrorKind::Unknown, "the server's answer cannot be read; is it Redis 6.2 or later, or Valkey?")
}

/// What became of a request for a lock.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Acquired {
    Granted {
        token: StoreToken,
        /// What is left of the lease, if it is not a new one.
        left: Option<Duration>,
        slots: Slots,
    },
    /// The name is in use as this.
    Another(Mode),
    Busy {
        remaining_ms: i64,
        /// By the server's clock, in microseconds.
        now: u64,
    },
}

impl Acquired {
    /// The answer to a claim in this mode.
    pub(crate) fn read(value: Value, mode: Mode) -> Result<Self> {
        let parts: Vec<Value> = read(value)?;
        let mut parts = parts.into_iter();
        let mut next = || parts.next().ok_or_else(nonsense);
        match read::<i64>(next()?)? {
            0 => return Ok(Self::Busy { remaining_ms: read(next()?)?, now: read(next()?)? }),
            2 => return Ok(Self::Another(mode_of(&read::<String>(next()?)?))),
            _ => {}
        }
        let token = StoreToken::new(read(next()?)?)?;
        let slots =
            if mode == Mode::Exclusive { Slots::default() } else { Slots::from_store(&read::<String>(next()?)?) };
        let left = parts.next().map(|left| read::<i64>(left).map(milliseconds)).transpose()?;
        Ok(Self::Granted { token, left, slots })
    }
}

/// A remaining time as Redis says it: below zero is without end.
pub(crate) fn milliseconds(left: i64) -> Duration {
    u64::try_from(left).map_or(ENDLESS, Duration::from_millis).min(ENDLESS)
}

/// The same; none without an end.
pub(crate) fn left(remaining_ms: i64) -> Option<Duration> {
    u64::try_from(remaining_ms).ok().map(Duration::from_millis)
}

/// The holder of a lock at the server's time `now`, in microseconds.
pub(crate) fn holder(owner: &str, remaining_ms: i64, grant: &str, now: u64) -> Result<Option<Holder>> {
    if owner.is_empty() {
        return Ok(None);
    }
    let owner = OwnerId::from_store(owner);
    // Another library's hold has no grant, or that of who held before it.
    let of = owner.before_it_kept();
    let grant = Grants::parse(grant).filter(|grant| grant.owner == *of.as_ref().unwrap_or(&owner));
    let (token, held_for) =
        grant.map_or((0, Duration::ZERO), |grant| (grant.token, Duration::from_micros(now.saturating_sub(grant.at))));
    let token = StoreToken::new(token)?;
    Ok(Some(Holder::new(owner, token, held_for, milliseconds(remaining_ms))))
}

/// What a lock's key says of how it is held.
pub(crate) fn mode_of(lock: &str) -> Mode {
    match lock.strip_prefix("permits#").and_then(|of| of.parse().ok()) {
        Some(of) => Mode::Permits { take: 1, of },
        None if lock == "shared#" => Mode::Shared,
        None => Mode::Exclusive,
    }
}

/// One of several who hold a lock of this kind: its remaining time and "token since slots", at the server's time `now`.
pub(crate) fn one_of_several(kind: Mode, owner: &str, remaining_ms: i64, hold: &str, now: u64) -> Result<Holder> {
    let mut parts = hold.split(' ');
    let mut number = || parts.next().and_then(|number| number.parse().ok()).unwrap_or_default();
    let (token, since): (u64, u64) = (number(), number());
    let slots = Slots::from_store(parts.next().unwrap_or_default());
    let held_for = Duration::from_micros(now.saturating_sub(since));
    let owner = OwnerId::from_store(owner);
    Ok(Holder::new(owner, StoreToken::new(token)?, held_for, milliseconds(remaining_ms)).with_mode(kind, slots))
}

/// Who has a place in line, "client lease owner", or "client mode:lease owner" for who does not want it alone.
pub(crate) fn waiter(place: &str) -> Result<Waiter, Error> {
    let mut parts = place.splitn(3, ' ').skip(1);
    let (lease, owner) = (parts.next().ok_or_else(nonsense)?, parts.next().ok_or_else(nonsense)?);
    let mode = match lease.split_once(':') {
        None => Mode::Exclusive,
        Some((mode, _)) if mode.starts_with('s') => Mode::Shared,
        Some((mode, _)) => {
            let numbers = mode.get(1..).and_then(|numbers| numbers.split_once('/')).ok_or_else(nonsense)?;
            let number = |text: &str| text.parse().map_err(|_| nonsense());
            Mode::Permits { take: number(numbers.0)?, of: number(numbers.1)? }
        }
    };
    Ok(Waiter::new(OwnerId::from_store(owner), mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grant_is_read_with_an_owner_of_any_text() {
        let grant = Grants::parse("7 1000 a b@host:1#x").unwrap();
        assert_eq!((grant.token, grant.at, grant.owner.as_str()), (7, 1000, "a b@host:1#x"));
        for junk in ["", "7", "7 8", "x 8 y", "-7 8 y"] {
            assert_eq!(Grants::parse(junk), None, "{junk}");
        }
    }

    #[test]
    fn a_foreign_holder_has_no_token_of_another() {
        let ours = holder("a", 500, "7 1000 a", 3000).unwrap().unwrap();
        assert_eq!((ours.token.get(), ours.held_for), (7, Duration::from_millis(2)));
        let foreign = holder("b", -1, "7 1000 a", 3000).unwrap().unwrap();
        assert_eq!((foreign.token.get(), foreign.remaining), (0, ENDLESS));
        assert_eq!(holder("", -2, "7 1000 a", 3000).unwrap(), None);
        // Of one that has gone, the grant is still that.
        let kept = holder("kept#a", 500, "7 1000 a", 3000).unwrap().unwrap();
        assert_eq!((kept.kept, kept.owner.as_str(), kept.token.get()), (true, "a", 7));
    }

    #[test]
    fn what_no_script_answers_is_an_error() {
        for junk in [Value::Nil, Value::Array(vec![]), Value::Array(vec![Value::Int(1)]), Value::Okay] {
            assert!(Acquired::read(junk, Mode::Exclusive).is_err());
        }
    }
}
