//! From the cluster's revisions to tokens: a key of the prefix, the *base*, says how far tokens are above revisions. Its
//! value less its create revision is that number. It is made at the first use of the prefix, with the time in
//! microseconds by the clock of the client that makes it, for etcd tells no time.
//!
//! The base only rises. To raise it is to write a greater value, on condition that the key is as it was read. Every
//! request that puts a claim's key demands that the base is the one that its client knows, by its modification
//! revision. So a client with an old base is refused, reads it anew and repeats; and a claim's token is always counted
//! from the base that was there when its key was created, however late it is granted.
//!
//! The first session of a client raises the base to its clock, so that an application that has been elsewhere, and comes
//! back, has higher tokens than it had there.
//!
//! Somebody may delete the key. Then who needs it makes it anew, not lower than the one it knew; and a client that finds
//! one that is lower than the one it knew, made by a newcomer whose clock is behind, raises it before it uses it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use etcd_client::{Compare, CompareOp, GetOptions, KeyValue, Txn, TxnOp, TxnOpResponse, TxnResponse};
use lock_core::{Error, ErrorKind, Holder, Result, StoreToken, TokenBase};

use crate::Shared;
use crate::connection::{Again, Connection};
use crate::error::{in_doubt, nonsense};
use crate::keys::Keys;
use crate::requests::{found, get_key, revision};
use crate::session::transact;
use crate::waiters::Entry;

/// A base that is made anew is so far above what is known, for the revisions that come before it is made.
const AHEAD: i64 = 1_000_000;

/// What the key said when it was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Base {
    /// Its modification revision. Zero: there is none.
    at: i64,
    /// Its create revision.
    made: i64,
    /// How far tokens are above revisions.
    above: i64,
}

impl Base {
    fn of(key: &KeyValue) -> Result<Self> {
        let value: i64 = key.value_str().ok().and_then(|value| value.parse().ok()).ok_or_else(nonsense)?;
        let made = key.create_revision();
        Ok(Self { at: key.mod_revision(), made, above: value.saturating_sub(made) })
    }

    /// The token of a key that was created at this revision, while this was the base.
    pub(crate) fn token(self, created: i64) -> Result<StoreToken> {
        TokenBase::made_at(Duration::from_micros(u64::try_from(self.above).unwrap_or_default()), 0).token(created)
    }
}

/// The base as this client knows it.
pub(crate) struct Tokens {
    key: String,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// As it was read last.
    present: Base,
    /// The greatest number that any base had.
    floor: i64,
    /// This client has once compared it with its clock.
    caught_up: bool,
}

impl Tokens {
    pub(crate) fn new(keys: &Keys) -> Self {
        Self { key: keys.tokens(), state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn present(&self) -> Base {
        self.state().present
    }

    /// The condition under which a claim's key may be put, whose token counts from this base.
    pub(crate) fn is_present(&self, base: Base) -> Compare {
        Compare::mod_revision(self.key.as_str(), CompareOp::Equal, base.at)
    }

    pub(crate) fn get(&self) -> TxnOp {
        get_key(&self.key)
    }

    /// Makes the base if there is none, and answers it. A client that knew one makes it with [`Tokens::settle`].
    pub(crate) fn make(&self) -> TxnOp {
        if self.state().floor > 0 { self.get() } else { TxnOp::txn(self.rewrite(0, clock())) }
    }

    /// Writes the value if the key is the one of this modification revision, and answers the key. Should it land late
    /// it does nothing, since the key is not that one any more.
    fn rewrite(&self, at: i64, value: i64) -> Txn {
        Txn::new()
            .when([Compare::mod_revision(self.key.as_str(), CompareOp::Equal, at)])
            .and_then([TxnOp::put(self.key.as_str(), value.to_string(), None), self.get()])
            .or_else([self.get()])
    }

    /// Takes what was read at this revision for the present base. If that would make tokens fall, or there is none, it is
    /// raised or made first.
    pub(crate) async fn settle(&self, connection: &Connection, read: Option<KeyValue>, at: i64) -> Result<()> {
        let (mut read, mut revision_now) = (read, at);
        loop {
            let floor = self.state().floor;
            let txn = match &read {
                None => self.rewrite(0, clock().max(floor.saturating_add(revision_now).saturating_add(AHEAD))),
                Some(key) => {
                    let base = Base::of(key)?;
                    if base.above >= floor {
                        let mut state = self.state();
                        (state.present, state.floor) = (base, state.floor.max(base.above));
                        return Ok(());
                    }
                    self.rewrite(base.at, floor.saturating_add(base.made))
                }
            };
            let answer = transact(connection, Again::Yes, txn).await?;
            (read, revision_now) = (last(&answer), revision(&answer)?);
        }
    }

    /// Raises a stale base to this client's clock when it first uses the prefix.
    pub(crate) async fn catch_up(&self, connection: &Connection, alone: bool, at: i64) -> Result<()> {
        let (now, caught_up) = (clock(), self.state().caught_up);
        let behind = now.saturating_sub(at.saturating_add(self.present().above));
        let behind = Duration::from_micros(u64::try_from(behind).unwrap_or_default());
        if !caught_up && TokenBase::is_stale(behind, alone) {
            self.raise(connection, StoreToken::new(u64::try_from(now).unwrap_or_default())?).await?;
        }
        self.state().caught_up = true;
        Ok(())
    }

    /// The key as it is now, and at which revision that is.
    pub(crate) async fn read(&self, connection: &Connection) -> Result<(Option<KeyValue>, i64)> {
        let answer = transact(connection, Again::Yes, Txn::new().and_then([self.get()])).await?;
        Ok((found(&answer)?.pop().ok_or_else(nonsense)?.pop(), revision(&answer)?))
    }

    /// Every key that is created from now on gets a token above this one.
    pub(crate) async fn raise(&self, connection: &Connection, above: StoreToken) -> Result<()> {
        let above = i64::try_from(above.get()).unwrap_or(i64::MAX);
        loop {
            let (read, at) = self.read(connection).await?;
            self.settle(connection, read, at).await?;
            let (base, wanted) = (self.present(), above.saturating_sub(at));
            if base.above >= wanted {
                return Ok(());
            }
            let txn = self.rewrite(base.at, wanted.saturating_add(base.made));
            transact(connection, Again::Yes, txn).await?;
        }
    }
}

/// The last key that was read in a transaction, also in one that is a part of it.
pub(crate) fn last(answer: &TxnResponse) -> Option<KeyValue> {
    let last = answer.op_responses().pop()?;
    match last {
        TxnOpResponse::Get(mut get) => get.take_kvs().pop(),
        TxnOpResponse::Txn(inner) => self::last(&inner),
        _ => None,
    }
}

fn clock() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX)
}

impl Shared {
    /// The token of a key that was created at this revision, for who only looks. [`Holder::NO_TOKEN`] if nobody can say
    /// which it is.
    pub(crate) async fn token_of(&self, created: i64, seen: &mut Option<Option<Base>>) -> Result<StoreToken> {
        let base = self.base_at(created, seen).await?;
        base.map_or(Ok(Holder::NO_TOKEN), |base| base.token(created))
    }

    /// The base that was there when this client's key was created, which demanded one.
    pub(crate) async fn base_of(&self, own: &Entry) -> Result<Base> {
        let gone = || Error::new(ErrorKind::Unknown, "the revision that its token is counted from is compacted");
        self.base_at(own.created, &mut None).await.map_err(in_doubt)?.ok_or_else(gone)
    }

    /// The base that was there at this revision. None: there was none, or the past is compacted, and the base was raised
    /// since. (The present one would make a token that is above those of who waits behind.)
    async fn base_at(&self, revision: i64, seen: &mut Option<Option<Base>>) -> Result<Option<Base>> {
        let present = match *seen {
            Some(base) => base,
            None => self.tokens.read(&self.connection).await?.0.as_ref().map(Base::of).transpose()?,
        };
        *seen = Some(present);
        if present.is_some_and(|base| base.at < revision) {
            return Ok(present);
        }
        let asking = self.connection.ask(Again::Yes, |link| {
            let (mut kv, key) = (link.kv.clone(), self.tokens.key.clone());
            async move { kv.get(key, Some(GetOptions::new().with_revision(revision))).await }
        });
        match asking.await.map_err(Error::from) {
            Ok(mut answer) => answer.value.take_kvs().first().map(Base::of).transpose(),
            // Compacted.
            Err(error) if error.kind() == ErrorKind::Refused => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests;
