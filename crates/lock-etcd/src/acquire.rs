//! How a lock is taken, at once or in line, and why that is safe.
//!
//! A lock is a line of keys; whichever has the lowest create revision holds. Key names are used again (see `keys`), so a
//! claim's key is its name *and* its create revision, which is never given twice. A claim that finds nobody in line puts
//! the *seat*; any other claim puts its *place*. One request does either.
//!
//! # Never two holders
//!
//! A claim is granted with a key of create revision `c` once every key of the line that was created before `c` is gone.
//!
//! - The transaction that puts the seat finds the line empty. So nothing was created before `c` that is still there.
//! - The transaction that puts a place answers who is ahead. That set only shrinks: whatever comes later has a higher
//!   create revision. So a key that is gone stays gone, and it does not matter in which order, how late, or from which
//!   member a client learns of it. A deletion at revision `r` ends only what was created under that name before `r`:
//!   the key of a later claim, of ours or of Go's, is not taken for an earlier one of the same name.
//! - A client grants without asking again only if its own key is watched as well, and only in two cases. Either one was
//!   ahead alone, and its end was heard of. Or the one directly ahead put its *mark*, which it does in the transaction by
//!   which a holder gives a lock back that it had to wait for: it held until then, so all before it were gone, and nobody
//!   was between. A mark at revision `r` is of the claim that was created under that name before `r` and is waited for:
//!   a later claim of the same name is behind the waiter, and does not hold while that is there.
//! - While the key is there, whoever comes is behind it: the seat is not put, since the line is not empty, and a place
//!   has a higher create revision. So has a key of Go's `concurrency.Mutex`, which counts in the same way.
//! - The key goes by a release, an eviction, or with its lease. A release compares when the key was put. An eviction is
//!   told to the holder. A grant is valid for no longer than its lease was last confirmed.
//! - A hold that is kept has the same key, created when it was (see `keep`). So it stays where it is in line, and whoever
//!   is behind waits for its end as before. Those of its own client ask once more: its end is not told to them by a
//!   release.
//!
//! # No waiter is forgotten
//!
//! A waiter waits for keys that were there at the revision of an answer. From before the request until the answer, every
//! deletion in the line is kept for it. After the answer, each of these keys is watched, and was looked at after its
//! watch began (see `watchlist`), or it is this client's own and its end is known from the answer to the release. If
//! a stream ends, all keys are looked at anew. If an event is lost, the next look finds that.
//!
//! # What lands late or twice
//!
//! - **A put** demands the lease, its beacon, the claim's epoch and the base of tokens, and that its key is not there. A
//!   claim never has two keys: the seat is put only into an empty line, so not beside its place; and the place only if
//!   the seat is not the claim's own, by value and lease. (Where it shows a value, the two are one key.) If an earlier copy
//!   of a request may still land when a claim ends, the claim is *unsure*, and is undone: its next epoch begins, which makes
//!   the copy void.
//! - **A place** is given to another claim only when nothing of the former claim can land any more.
//! - **A delete** compares when the key was created or put, or the epoch. Landing late, it deletes nothing.
//! - **What changes a key** that is there, to keep the hold or to show another value, compares when it was last put. So of
//!   several such requests each is done once, in the order in which they were answered, and none after a release.
//! - **A lost session** is never found again: its lease has a number of 63 random bits, and each put names it.

use std::sync::Arc;

use etcd_client::{KeyValue, Txn, TxnResponse};
use lock_core::{Claim, Error, Grant, Instant, Mode, Result};

use crate::Shared;
use crate::connection::Again;
use crate::error::{Failure, in_doubt, nonsense, stray};
use crate::place::{Ask, Place};
use crate::requests::{Joined, Joining, Spot, found, joined, look, nearest, remove, revision, taken, text};
use crate::session::{Session, epoch_of, transact, transact_surely};
use crate::tokens::Base;
use crate::undo::sweep;
use crate::waiters::{Ahead, Entry};

/// Where a claim stands.
enum Turn {
    /// It is the first.
    First,
    Behind(Ahead),
    /// Behind this key, which hangs on no lease.
    Stray(String),
    /// Nowhere.
    Gone,
}

/// Why a place was refused, if it was not because the session or the base of tokens is not what we took it for.
pub(crate) struct Refused {
    /// The claim's own key is there.
    pub(crate) own: Option<KeyValue>,
    /// Somebody else's key stands at its place.
    pub(crate) occupied: bool,
    /// Who is in the way: the first in line, or of a reader those who do not read.
    others: Vec<KeyValue>,
}

impl Shared {
    pub(crate) async fn try_lock(self: &Arc<Self>, claim: &Claim) -> Result<Option<Grant>> {
        loop {
            let session = self.session(claim.lease).await?;
            let (sent, base) = (self.connection.clock.now(), self.tokens.present());
            let place = self.enter(claim, &session);
            let (spot, ask) = (Arc::clone(&place.spot), self.ledger.ask(&place.spot.line));
            let joining = Joining { spot: &spot, session: &session, tokens: &self.tokens, base };
            let reads = claim.mode == Mode::Shared;
            let asking = if reads { joining.join_readers() } else { joining.take() };
            let Some((mut place, answer)) = self.ask_for(place, &session, asking).await? else { continue };
            let at = revision(&answer)?;
            let own = match if reads { joined(&spot, answer, false)? } else { taken(answer) } {
                Joined::Seat => Entry { key: spot.seat.clone(), created: at },
                Joined::Place(_) | Joined::Among(_) => Entry { key: spot.place.clone(), created: at },
                Joined::Refused(answer) => {
                    let refused = self.refused(&spot, &session, &answer, at).await?;
                    if let Some(own) = &refused.own {
                        // Of an earlier request: it holds if it is its turn.
                        let entry = Entry::of(own);
                        if matches!(self.turn(&spot, &entry, &session).await?, Turn::First) {
                            let base = self.base_of(&entry).await?;
                            return granted(&mut place, &ask, claim, &session, base, &entry, sent);
                        }
                        place.waits(&entry);
                        return Ok(None);
                    }
                    self.leave_nothing(place).await?;
                    let Some(other) = refused.others.first() else { continue };
                    if other.lease() == 0 {
                        return Err(stray(&text(other.key())));
                    }
                    self.check_kind(&spot, other).await?;
                    return Ok(None);
                }
            };
            let grant = granted(&mut place, &ask, claim, &session, base, &own, sent)?;
            if grant.is_none() {
                // Somebody has deleted it already.
                self.leave_nothing(place).await?;
            }
            return Ok(grant);
        }
    }

    pub(crate) async fn lock(self: &Arc<Self>, claim: &Claim) -> Result<Grant> {
        loop {
            let session = self.session(claim.lease).await?;
            let place = self.enter(claim, &session);
            let spot = Arc::clone(&place.spot);
            let (mut sent, mut base) = (self.connection.clock.now(), self.tokens.present());
            let (mut ask, crowded) = (self.ledger.ask(&spot.line), self.ledger.is_crowded(&spot.line));
            let asking = Joining { spot: &spot, session: &session, tokens: &self.tokens, base }.join(crowded);
            let Some((mut place, answer)) = self.ask_for(place, &session, asking).await? else { continue };
            let at = revision(&answer)?;
            let (own, mut turn) = match joined(&spot, answer, crowded)? {
                Joined::Seat => (Entry { key: spot.seat.clone(), created: at }, Turn::First),
                Joined::Among(_) => return Err(nonsense()),
                Joined::Place(ahead) => {
                    self.ledger.crowded(&spot.line, !ahead.is_empty());
                    (Entry { key: spot.place.clone(), created: at }, Turn::behind(&spot, at, &ahead))
                }
                Joined::Refused(answer) => {
                    let refused = self.refused(&spot, &session, &answer, at).await?;
                    let Some(own) = refused.own else {
                        if refused.occupied {
                            place.spoil();
                        }
                        self.leave_nothing(place).await?;
                        if let Some(other) = refused.others.first() {
                            self.check_kind(&spot, other).await?;
                        }
                        continue;
                    };
                    let own = Entry::of(&own);
                    base = self.base_of(&own).await?;
                    let turn = self.turn(&spot, &own, &session).await?;
                    (own, turn)
                }
            };
            loop {
                match turn {
                    // Its key ends soon, if it has not yet.
                    Turn::First if session.is_lost() => turn = Turn::Gone,
                    Turn::First => {
                        self.refresh(&session).await?;
                        if let Some(grant) = granted(&mut place, &ask, claim, &session, base, &own, sent)? {
                            return Ok(grant);
                        }
                        turn = self.turn(&spot, &own, &session).await?;
                    }
                    Turn::Gone if session.is_lost() => {
                        self.let_go(place).await?;
                        break;
                    }
                    Turn::Gone => {
                        self.delete_own(&own).await?;
                        self.leave_nothing(place).await?;
                        break;
                    }
                    Turn::Stray(key) => {
                        // A refusal leaves nothing behind.
                        self.let_go(place).await?;
                        return Err(stray(&key));
                    }
                    Turn::Behind(ahead) => {
                        place.waits(&own);
                        ask.wait_for(ahead, &own, &mut place);
                        let is_first = place.news().await?;
                        sent = self.connection.clock.now();
                        ask = self.ledger.ask(&spot.line);
                        turn = match is_first {
                            true => Turn::First,
                            false => self.next_turn(&spot, &own, &session, &place, ask.since).await?,
                        };
                    }
                }
            }
        }
    }

    pub(crate) fn enter(&self, claim: &Claim, session: &Arc<Session>) -> Place {
        let (id, line) = (self.keys.id(claim), self.keys.line(&claim.name));
        self.ledger.enter(&id, &line, claim, session)
    }

    /// Asks for a place; `None`: nothing was done, and it is to be asked anew.
    pub(crate) async fn ask_for(
        &self,
        place: Place,
        session: &Session,
        txn: Txn,
    ) -> Result<Option<(Place, TxnResponse)>> {
        match transact_surely(&self.connection, Again::Yes, txn).await {
            Ok(answer) => {
                if answer.unsure {
                    place.unsure();
                }
                Ok(Some((place, answer.value)))
            }
            Err(Failure::LeaseGone) => {
                // Whatever is on its way names that lease, too.
                place.forget();
                self.lose(session);
                Ok(None)
            }
            Err(failure) => {
                let may_be_done = matches!(failure, Failure::Full(_));
                let error = Error::from(failure);
                if error.is_refused() {
                    // A refusal leaves nothing behind, and nothing on its way.
                    let unsure = place.is_unsure();
                    if may_be_done {
                        let spot = &place.spot;
                        let swept = sweep(&self.connection, &spot.line, spot.owner.as_str()).await.map_err(in_doubt)?;
                        self.has_gone(swept);
                    }
                    place.give_up();
                    return Err(if unsure { in_doubt(error) } else { error });
                }
                Err(error)
            }
        }
    }

    /// Whoever was not granted leaves nothing behind, and nothing on its way.
    pub(crate) async fn leave_nothing(&self, place: Place) -> Result<()> {
        if place.is_unsure() {
            return self.let_go(place).await;
        }
        place.give_up();
        Ok(())
    }

    /// The same of whose key may be in the line.
    pub(crate) async fn let_go(&self, place: Place) -> Result<()> {
        let spot = Arc::clone(&place.spot);
        drop(place);
        self.release(&spot.id).await.map(drop).map_err(in_doubt)
    }

    /// Deletes the own key, which is gone: if it is there without its lease, nobody else would.
    pub(crate) async fn delete_own(&self, own: &Entry) -> Result<()> {
        let removed = transact(&self.connection, Again::Yes, remove(own)).await;
        removed.map(drop).map_err(|failure| in_doubt(failure.into()))
    }

    /// A waiter that is granted has at least half of its lease before it.
    pub(crate) async fn refresh(&self, session: &Arc<Session>) -> Result<()> {
        if !session.is_fresh(HALF, self.connection.clock.now()) {
            self.renew_session(session, &[]).await.map_err(in_doubt)?;
        }
        Ok(())
    }

    /// A place was refused, at this revision. If the session or the base of tokens is not what we took it for, they are
    /// read from the answer.
    pub(crate) async fn refused(
        &self,
        spot: &Spot,
        session: &Session,
        answer: &TxnResponse,
        at: i64,
    ) -> Result<Refused> {
        if !session.saw_epochs(&[epoch_of(&spot.id)], answer)? {
            self.lose(session);
        }
        let mut rest = found(answer)?.into_iter().skip(2);
        let mut next = || rest.next().map(|mut found| found.pop()).ok_or_else(nonsense);
        let (base, seat, place) = (next()?, next()?, next()?);
        self.tokens.settle(&self.connection, base, at).await.map_err(in_doubt)?;
        let is_own = |key: &KeyValue| spot.has(key, session);
        let occupied = place.as_ref().is_some_and(|place| !is_own(place));
        let own = seat.filter(is_own).or(place.filter(is_own));
        Ok(Refused { own, occupied, others: rest.flatten().collect() })
    }

    /// Whose turn it is, by the leader's word. It also shows that the own key is there, on its lease.
    async fn turn(&self, spot: &Spot, own: &Entry, session: &Session) -> Result<Turn> {
        let (at, ahead) = self.look(spot, own, session, false).await?;
        Ok(ahead.map_or(Turn::Gone, |ahead| Turn::behind(spot, at, &ahead)))
    }

    /// The same, now that something was heard of those ahead, and by the member's own word if that will do: the leader
    /// answers only after the write that it is at. Who is ahead is never put there later, so that nobody being ahead
    /// stays true, however old the answer. Else it has to be no older than what was heard of before it was asked for.
    async fn next_turn(&self, spot: &Spot, own: &Entry, session: &Session, place: &Place, since: i64) -> Result<Turn> {
        let (at, ahead) = self.look(spot, own, session, true).await?;
        match ahead {
            Some(ahead) if at >= own.created => {
                let left = ahead.iter().any(|ahead| !place.outlived(&Entry::of(ahead)));
                match left {
                    true if at < since => self.turn(spot, own, session).await,
                    true => Ok(Turn::behind(spot, at, &ahead)),
                    // There may be more than it was answered.
                    false if ahead.len() < 2 => Ok(Turn::First),
                    false => self.turn(spot, own, session).await,
                }
            }
            None if at >= own.created => Ok(Turn::Gone),
            _ => self.turn(spot, own, session).await,
        }
    }

    /// One look: its revision, and if the own key is there, who is ahead of it.
    async fn look(
        &self,
        spot: &Spot,
        own: &Entry,
        session: &Session,
        by_itself: bool,
    ) -> Result<(i64, Option<Vec<KeyValue>>)> {
        let asking = transact(&self.connection, Again::Yes, look(spot, own, session, by_itself));
        let answer = asking.await.map_err(|failure| in_doubt(failure.into()))?;
        let at = revision(&answer).map_err(in_doubt)?;
        let ahead = answer.succeeded().then(|| found(&answer)).transpose().map_err(in_doubt)?;
        Ok((at, ahead.map(nearest)))
    }

    /// A lease is over.
    pub(crate) fn lose(&self, session: &Session) {
        session.lose();
        self.ledger.lost(session);
    }
}

impl Turn {
    /// At this revision it was behind these: the nearest, and one more if there is one.
    fn behind(spot: &Spot, at: i64, ahead: &[KeyValue]) -> Self {
        match ahead.iter().find(|ahead| ahead.lease() == 0) {
            Some(stray) => Self::Stray(text(stray.key())),
            None => Ahead::of(ahead, &spot.line, at).map_or(Self::First, Self::Behind),
        }
    }
}

/// So much of its lease a waiter that is granted has before it.
const HALF: u32 = 2;

/// `None`: its end was heard of meanwhile.
pub(crate) fn granted(
    place: &mut Place,
    ask: &Ask,
    claim: &Claim,
    session: &Arc<Session>,
    base: Base,
    own: &Entry,
    sent: Instant,
) -> Result<Option<Grant>> {
    let token = base.token(own.created)?;
    let valid_until = session.valid_until().min(sent + claim.lease);
    Ok(place.holds(ask, own, valid_until).then(|| Grant::new(token, valid_until).with_evidence([own.evidence()])))
}
