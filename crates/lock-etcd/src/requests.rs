//! The requests about a line, and what their answers say. Each is one transaction.

use std::borrow::Cow;

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use lock_core::{Claim, LockValue, Mode, OwnerId, Result};

use crate::error::nonsense;
use crate::keys::{self, Keys, end_of};
use crate::permits;
use crate::session::{Session, epoch_of};
use crate::tokens::{Base, Tokens};
use crate::waiters::Entry;

/// A claim, as requests name it.
#[derive(Debug)]
pub(crate) struct Spot {
    /// What the client calls it.
    pub(crate) id: String,
    /// What all keys of the lock begin with.
    pub(crate) line: String,
    /// The key that it has if it comes while nobody is in line.
    pub(crate) seat: String,
    /// The key that it has else. Of a claim that shows a value it is the seat as well.
    pub(crate) place: String,
    /// The value of its key, unless it shows another.
    pub(crate) owner: OwnerId,
    /// What it shows. Then the owner is in the key's name.
    pub(crate) shows: Option<LockValue>,
    pub(crate) mode: Mode,
    /// The key that says who has which permits of the semaphore, if it is one.
    pub(crate) permits: Option<String>,
}

impl Spot {
    /// Of a claim whose client calls it so, on this lease, with this number among the places of the line.
    pub(crate) fn new(keys: &Keys, claim: &Claim, lease: i64, number: usize) -> Self {
        let (id, line) = (keys.id(claim), keys.line(&claim.name));
        let (owner, shows, mode) = (claim.owner.clone(), claim.value.clone(), claim.mode);
        let (seat, place) = match shows {
            None => (keys::seat(&line, mode), keys::place(&line, mode, lease, number)),
            // It needs no other for an empty line: it has this name for itself.
            Some(_) => {
                let place = keys::showing(&line, lease, number, owner.as_str());
                (place.clone(), place)
            }
        };
        let permits = mode.permits().map(|_| keys.permits(&line));
        Self { id, line, seat, place, owner, shows, mode, permits }
    }

    /// The value of its key.
    pub(crate) fn value(&self) -> Cow<'_, str> {
        match (&self.shows, self.mode) {
            (Some(shows), _) => shows.as_str().into(),
            (None, Mode::Permits { take, .. }) => format!("{take} {}", self.owner.as_str()).into(),
            (None, _) => self.owner.as_str().into(),
        }
    }

    /// Was this key, which has one of its names, put for this claim, and not kept since?
    pub(crate) fn has(&self, key: &KeyValue, session: &Session) -> bool {
        key.lease() == session.lease && (self.shows.is_some() || key.value() == self.value().as_bytes())
    }
}

/// What became of a request for a place.
pub(crate) enum Joined {
    /// It has the seat.
    Seat,
    /// It has its place, behind these: the nearest, and one more if there is one.
    Place(Vec<KeyValue>),
    /// It has its place among those who want permits of a semaphore: see [`View`](crate::permits::View).
    Among(TxnResponse),
    /// What tells why it was refused.
    Refused(TxnResponse),
}

/// A request for a place.
pub(crate) struct Joining<'a> {
    pub(crate) spot: &'a Spot,
    pub(crate) session: &'a Session,
    pub(crate) tokens: &'a Tokens,
    pub(crate) base: Base,
}

impl Joining<'_> {
    /// Puts the seat if the line is empty. Else what [`refused`](Self::refused) answers.
    pub(crate) fn take(&self) -> Txn {
        self.take_or(self.refused())
    }

    /// Puts the seat if the line is empty. Else, unless a copy of this request has, it puts the place and answers who is
    /// [ahead](ahead). Whoever knows that the line is crowded does not have it looked at first.
    pub(crate) fn join(&self, crowded: bool) -> Txn {
        let behind = self.stand_behind([]);
        if crowded { behind } else { self.take_or([TxnOp::txn(behind)]) }
    }

    /// The same, but puts the place only if all in line read.
    pub(crate) fn join_readers(&self) -> Txn {
        self.take_or([TxnOp::txn(self.stand_behind(nobody_but(&self.spot.line, &keys::readers(&self.spot.line))))])
    }

    fn take_or(&self, otherwise: impl Into<Vec<TxnOp>>) -> Txn {
        let Self { spot, session, .. } = self;
        let seat = session.put(&spot.seat, &spot.value());
        let seated = match permits::seated(spot) {
            None => vec![seat],
            Some((key, text)) => vec![seat, TxnOp::put(key, text, None)],
        };
        // It comes last: the store compares one after the other until one fails, and this looks at all.
        Txn::new().when(self.may_put([empty(&spot.line)])).and_then(seated).or_else(otherwise)
    }

    /// Puts the place, unless it has the seat or its place already, or the line is of another kind.
    fn stand_behind(&self, more: impl IntoIterator<Item = Compare>) -> Txn {
        let Self { spot, session, .. } = self;
        let takers = keys::takers(&spot.line);
        let of_this_kind = match spot.mode {
            Mode::Permits { .. } => nobody_but(&spot.line, &takers).to_vec(),
            _ => vec![empty(&takers)],
        };
        let is_new = Compare::create_revision(spot.place.as_str(), CompareOp::Equal, 0);
        let at_the_end = Txn::new()
            .when(self.may_put([is_new].into_iter().chain(of_this_kind).chain(more)))
            .and_then(
                [session.put(&spot.place, &spot.value())].into_iter().chain(ahead(spot, None)).collect::<Vec<_>>(),
            )
            .or_else(self.refused());
        Txn::new().when(is_own(&spot.seat, spot, session)).and_then(self.refused()).or_else([TxnOp::txn(at_the_end)])
    }

    /// What every request that puts a claim's key demands, and more.
    fn may_put(&self, more: impl IntoIterator<Item = Compare>) -> Vec<Compare> {
        let Self { spot, session, tokens, base } = self;
        let all = [session.is_there(), session.is_present(epoch_of(&spot.id)), tokens.is_present(*base)];
        all.into_iter().chain(more).collect()
    }

    /// What tells why it was refused: the beacon, the epoch, the base of tokens, the seat, the place; and who is in the way.
    fn refused(&self) -> Vec<TxnOp> {
        let Self { spot, session, tokens, .. } = self;
        let epoch = session.epoch_key(epoch_of(&spot.id));
        let own = [get_key(&session.beacon), get_key(&epoch), tokens.get(), get_key(&spot.seat), get_key(&spot.place)];
        let in_the_way = if spot.mode == Mode::Exclusive { vec![first(&spot.line)] } else { ahead(spot, None) };
        own.into_iter().chain(in_the_way).collect()
    }
}

/// Puts the seats of all if their lines are empty. None, if that is more than a server takes in one transaction.
pub(crate) fn take_all(all: &[Joining<'_>]) -> Option<Txn> {
    /// Of comparisons, unless a server is set up otherwise.
    const MOST: usize = 128;
    let demands: Vec<_> = all.iter().flat_map(|one| one.may_put([empty(&one.spot.line)])).collect();
    let seats: Vec<_> = all.iter().map(|one| one.session.put(&one.spot.seat, &one.spot.value())).collect();
    (demands.len() <= MOST).then(|| Txn::new().when(demands).and_then(seats))
}

/// What became of [`Joining::take`].
pub(crate) fn taken(answer: TxnResponse) -> Joined {
    if answer.succeeded() { Joined::Seat } else { Joined::Refused(answer) }
}

/// What became of [`Joining::join`].
pub(crate) fn joined(spot: &Spot, mut answer: TxnResponse, crowded: bool) -> Result<Joined> {
    if !crowded {
        if answer.succeeded() {
            return Ok(Joined::Seat);
        }
        answer = inner(&answer)?;
    }
    if answer.succeeded() {
        return Ok(Joined::Refused(answer));
    }
    answer = inner(&answer)?;
    if !answer.succeeded() {
        return Ok(Joined::Refused(answer));
    }
    if matches!(spot.mode, Mode::Permits { .. }) {
        return Ok(Joined::Among(answer));
    }
    let mut ahead = found(&answer)?;
    ahead.iter_mut().for_each(|some| some.retain(|key| key.key() != spot.place.as_bytes()));
    Ok(Joined::Place(nearest(ahead)))
}

fn inner(answer: &TxnResponse) -> Result<TxnResponse> {
    match answer.op_responses().pop() {
        Some(TxnOpResponse::Txn(inner)) => Ok(inner),
        _ => Err(nonsense()),
    }
}

/// There is no key from this on and before that.
pub(crate) fn nothing_between(from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) -> Compare {
    Compare::create_revision(from, CompareOp::Equal, 0).with_range(to)
}

/// No key begins with this.
fn empty(prefix: &str) -> Compare {
    nothing_between(prefix, end_of(prefix))
}

/// All keys of this line begin with this.
fn nobody_but(line: &str, some: &str) -> [Compare; 2] {
    [nothing_between(line, some), nothing_between(end_of(some), end_of(line))]
}

/// This key was put for this claim, and not kept since. Where the owner is in its name, the value may be any.
fn is_own(key: &str, spot: &Spot, session: &Session) -> Vec<Compare> {
    let lease = Compare::lease(key, CompareOp::Equal, session.lease);
    match spot.shows {
        None => vec![Compare::value(key, CompareOp::Equal, spot.value().as_bytes()), lease],
        Some(_) => vec![lease],
    }
}

/// If the key is what it was and hangs on the lease: who is [ahead] of it. A member may answer by itself, from what it
/// has, or else asks the leader first.
pub(crate) fn look(spot: &Spot, own: &Entry, session: &Session, by_itself: bool) -> Txn {
    Txn::new().when(is_there(own, session)).and_then(ahead(spot, Some((own, by_itself))))
}

/// The key is what it was, and hangs on the lease.
pub(crate) fn is_there(own: &Entry, session: &Session) -> [Compare; 2] {
    [
        Compare::create_revision(own.key.as_str(), CompareOp::Equal, own.created),
        Compare::lease(own.key.as_str(), CompareOp::Equal, session.lease),
    ]
}

/// Whom a claim waits for: the one directly ahead, and one more if there is one; of a reader only those who do not read,
/// and for permits all in line and what is known of the permits. Without an own key, those who were there before it is put,
/// and itself.
fn ahead(spot: &Spot, own: Option<(&Entry, bool)>) -> Vec<TxnOp> {
    let line = spot.line.as_str();
    let nearest = |from: Vec<u8>, to: Vec<u8>, limit| {
        let all = GetOptions::new().with_range(to).with_limit(limit).with_sort(SortTarget::Create, SortOrder::Descend);
        TxnOp::get(
            from,
            Some(match own {
                None => all,
                Some((own, by_itself)) => {
                    let before = all.with_max_create_revision(own.created - 1);
                    if by_itself { before.with_serializable() } else { before }
                }
            }),
        )
    };
    match spot.mode {
        Mode::Shared => {
            let readers = keys::readers(line);
            vec![nearest(line.into(), readers.as_str().into(), 2), nearest(end_of(&readers), end_of(line), 2)]
        }
        Mode::Permits { .. } => permits::view(spot),
        _ => vec![nearest(line.into(), end_of(line), if own.is_none() { 3 } else { 2 })],
    }
}

/// The nearest two of those that [`ahead`] found.
pub(crate) fn nearest(found: Vec<Vec<KeyValue>>) -> Vec<KeyValue> {
    let mut all: Vec<_> = found.into_iter().flatten().collect();
    all.sort_by_key(|key| std::cmp::Reverse(key.create_revision()));
    all.truncate(2);
    all
}

/// Deletes whatever was put for these claims, answers who was first in their lines before, and begins their next epochs
/// in the same step. If one of these is not the present one, it answers the beacon and them, and has not deleted. So it
/// does nothing should it land late.
pub(crate) fn leave(some: &[&Spot], session: &Session, epochs: &[usize]) -> Txn {
    let begun = epochs.iter().map(|number| session.put(&session.epoch_key(*number), ""));
    let looks = some.iter().map(|spot| first(&spot.line));
    let deletion = |spot: &Spot, key: &str| {
        let delete = TxnOp::delete(key, Some(DeleteOptions::new().with_prev_key()));
        TxnOp::txn(Txn::new().when(is_own(key, spot, session)).and_then([delete]))
    };
    let deletions = some.iter().flat_map(|spot| [deletion(spot, &spot.seat), deletion(spot, &spot.place)]);
    let are_present = epochs.iter().map(|number| session.is_present(*number));
    let known = epochs.iter().map(|number| get_key(&session.epoch_key(*number)));
    Txn::new()
        .when([session.is_there()].into_iter().chain(are_present).collect::<Vec<_>>())
        .and_then(begun.chain(looks).chain(deletions).collect::<Vec<_>>())
        .or_else([get_key(&session.beacon)].into_iter().chain(known).collect::<Vec<_>>())
}

/// Ends the hold of who has its place, if its key was last put at this revision, and tells by this mark who is behind it
/// that it held. The mark goes with the lease, which lives as long as the key does.
pub(crate) fn pass(key: &str, put: i64, mark: &str, session: &Session) -> Txn {
    unchanged(key, put).and_then([TxnOp::delete(key, None), session.put(mark, key)])
}

/// Ends a hold, if its key was last put at this revision. Should it land after the hold was kept, it does nothing.
pub(crate) fn end(key: &str, put: i64) -> Txn {
    unchanged(key, put).and_then([TxnOp::delete(key, None)])
}

/// The key was last put at this revision. No other key ever was, so it is the one that was granted, too.
pub(crate) fn unchanged(key: &str, put: i64) -> Txn {
    Txn::new().when([Compare::mod_revision(key, CompareOp::Equal, put)])
}

/// Deletes the key if it is the one of this create revision.
pub(crate) fn remove(entry: &Entry) -> Txn {
    remove_key(entry.key.as_bytes(), entry.created)
}

/// The same of any key.
pub(crate) fn remove_key(key: &[u8], created: i64) -> Txn {
    Txn::new().when([Compare::create_revision(key, CompareOp::Equal, created)]).and_then([TxnOp::delete(key, None)])
}

/// The same of any key that was last put at this revision.
pub(crate) fn end_key(key: &KeyValue) -> Txn {
    let is_it = Compare::mod_revision(key.key(), CompareOp::Equal, key.mod_revision());
    Txn::new().when([is_it]).and_then([TxnOp::delete(key.key(), None)])
}

/// Everything about a key.
pub(crate) fn get_key(key: &str) -> TxnOp {
    TxnOp::get(key, None)
}

/// All keys of a line, the first in line first.
pub(crate) fn line(line: &str) -> TxnOp {
    let all = GetOptions::new().with_range(end_of(line));
    TxnOp::get(line, Some(all.with_sort(SortTarget::Create, SortOrder::Ascend)))
}

fn first(line: &str) -> TxnOp {
    let first = GetOptions::new().with_range(end_of(line)).with_keys_only().with_limit(1);
    TxnOp::get(line, Some(first.with_sort(SortTarget::Create, SortOrder::Ascend)))
}

/// What the reads of a transaction found, in their order.
pub(crate) fn found(answer: &TxnResponse) -> Result<Vec<Vec<KeyValue>>> {
    let reads = answer.op_responses().into_iter().filter_map(|answer| match answer {
        TxnOpResponse::Get(mut get) => Some(get.take_kvs()),
        _ => None,
    });
    Ok(reads.collect())
}

/// How many keys each of the deletions of a transaction deleted, in their order, also those on a condition.
pub(crate) fn deletions(answer: &TxnResponse) -> Vec<i64> {
    let deletions = answer.op_responses().into_iter().filter_map(|answer| match answer {
        TxnOpResponse::Delete(delete) => Some(delete.deleted()),
        TxnOpResponse::Txn(inner) => Some(deletions(&inner).iter().sum()),
        _ => None,
    });
    deletions.collect()
}

/// What each of the deletions on a condition deleted, in their order, where they were asked for it.
pub(crate) fn deleted(answer: &TxnResponse) -> Vec<Option<Entry>> {
    let conditional = answer.op_responses().into_iter().filter_map(|answer| match answer {
        TxnOpResponse::Txn(inner) => Some(inner.op_responses().pop()),
        _ => None,
    });
    let entry = |answer| match answer {
        Some(TxnOpResponse::Delete(delete)) => delete.prev_kvs().first().map(Entry::of),
        _ => None,
    };
    conditional.map(entry).collect()
}

/// The revision at which a transaction was done.
pub(crate) fn revision(answer: &TxnResponse) -> Result<i64> {
    Ok(answer.header().ok_or_else(nonsense)?.revision())
}

/// A key as text. What is no text was written by somebody else, and is only shown and compared.
pub(crate) fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
