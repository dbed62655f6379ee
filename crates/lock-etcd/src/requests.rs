//! The requests about a line, and what their answers say. Each is one transaction.

use etcd_client::{
    Compare, CompareOp, DeleteOptions, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse,
    TxnResponse,
};
use lock_core::{LockValue, OwnerId, Result};

use crate::error::nonsense;
use crate::keys::end_of;
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
}

impl Spot {
    /// The value of its key.
    fn value(&self) -> &str {
        self.shows.as_ref().map_or(self.owner.as_str(), LockValue::as_str)
    }

    /// Was this key, which has one of its names, put for this claim, and not kept since?
    pub(crate) fn has(&self, key: &KeyValue, session: &Session) -> bool {
        key.lease() == session.lease && (self.shows.is_some() || key.value() == self.owner.as_str().as_bytes())
    }
}

/// What became of a request for a place.
pub(crate) enum Joined {
    /// It has the seat.
    Seat,
    /// It has its place, behind these: the nearest, and one more if there is one.
    Place(Vec<KeyValue>),
    /// What [`refused`] answers.
    Refused(TxnResponse),
}

/// Puts the seat if the line is empty. Else what [`refused`] answers, and the first in line.
pub(crate) fn take(spot: &Spot, session: &Session, tokens: &Tokens, base: Base) -> Txn {
    Txn::new()
        .when(may_put(spot, session, tokens, base, empty(spot)))
        .and_then([session.put(&spot.seat, spot.value())])
        .or_else(refused(spot, session, tokens).into_iter().chain([first(&spot.line)]).collect::<Vec<_>>())
}

/// Puts the seat if the line is empty. Else, unless a copy of this request has, it puts the place and answers who is
/// last in line. Whoever knows that the line is crowded does not have it looked at first.
pub(crate) fn join(spot: &Spot, session: &Session, tokens: &Tokens, base: Base, crowded: bool) -> Txn {
    let is_new = Compare::create_revision(spot.place.as_str(), CompareOp::Equal, 0);
    let at_the_end = Txn::new()
        .when(may_put(spot, session, tokens, base, is_new))
        .and_then([session.put(&spot.place, spot.value()), last(&spot.line)])
        .or_else(refused(spot, session, tokens));
    let behind = Txn::new()
        .when(is_own(&spot.seat, spot, session))
        .and_then(refused(spot, session, tokens))
        .or_else([TxnOp::txn(at_the_end)]);
    if crowded {
        return behind;
    }
    Txn::new()
        .when(may_put(spot, session, tokens, base, empty(spot)))
        .and_then([session.put(&spot.seat, spot.value())])
        .or_else([TxnOp::txn(behind)])
}

/// What [`join`] was answered.
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
    let mut last = found(&answer)?.pop().ok_or_else(nonsense)?;
    if last.first().is_none_or(|own| own.key() != spot.place.as_bytes()) {
        return Err(nonsense());
    }
    last.remove(0);
    Ok(Joined::Place(last))
}

fn inner(answer: &TxnResponse) -> Result<TxnResponse> {
    match answer.op_responses().pop() {
        Some(TxnOpResponse::Txn(inner)) => Ok(inner),
        _ => Err(nonsense()),
    }
}

/// What every request that puts a claim's key demands, and one thing more.
fn may_put(spot: &Spot, session: &Session, tokens: &Tokens, base: Base, more: Compare) -> [Compare; 4] {
    [session.is_there(), session.is_present(epoch_of(&spot.id)), tokens.is_present(base), more]
}

/// Nobody is in line. It comes last: the store compares one after the other until one fails, and this looks at all.
fn empty(spot: &Spot) -> Compare {
    Compare::create_revision(spot.line.as_str(), CompareOp::Equal, 0).with_range(end_of(&spot.line))
}

/// This key was put for this claim, and not kept since. Where the owner is in its name, the value may be any.
fn is_own(key: &str, spot: &Spot, session: &Session) -> Vec<Compare> {
    let lease = Compare::lease(key, CompareOp::Equal, session.lease);
    match spot.shows {
        None => vec![Compare::value(key, CompareOp::Equal, spot.owner.as_str()), lease],
        Some(_) => vec![lease],
    }
}

/// What tells why it was refused: the beacon, the epoch, the base of tokens, the seat, the place.
fn refused(spot: &Spot, session: &Session, tokens: &Tokens) -> [TxnOp; 5] {
    let epoch = session.epoch_key(epoch_of(&spot.id));
    [get_key(&session.beacon), get_key(&epoch), tokens.get(), get_key(&spot.seat), get_key(&spot.place)]
}

/// If the key is what it was and hangs on the lease: who is directly ahead of it, and one more if there is one. A member
/// may answer by itself, from what it has, or else asks the leader first.
pub(crate) fn look(spot: &Spot, own: &Entry, session: &Session, by_itself: bool) -> Txn {
    let ahead = GetOptions::new().with_range(end_of(&spot.line)).with_limit(2);
    let ahead = ahead.with_max_create_revision(own.created - 1).with_sort(SortTarget::Create, SortOrder::Descend);
    let ahead = if by_itself { ahead.with_serializable() } else { ahead };
    Txn::new()
        .when([
            Compare::create_revision(own.key.as_str(), CompareOp::Equal, own.created),
            Compare::lease(own.key.as_str(), CompareOp::Equal, session.lease),
        ])
        .and_then([TxnOp::get(spot.line.as_str(), Some(ahead))])
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

/// Whoever has just come, and those ahead of it as [`look`] answers them.
fn last(line: &str) -> TxnOp {
    let last = GetOptions::new().with_range(end_of(line)).with_limit(3);
    TxnOp::get(line, Some(last.with_sort(SortTarget::Create, SortOrder::Descend)))
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
