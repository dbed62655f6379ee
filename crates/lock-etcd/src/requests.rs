//! The requests about a line, and what their answers say. Each is one transaction.

use etcd_client::{
    Compare, CompareOp, GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp, TxnOpResponse, TxnResponse,
};
use lock_core::Result;

use crate::error::nonsense;
use crate::keys::end_of;
use crate::session::{Session, epoch_of};
use crate::tokens::{Base, Tokens};

/// A claim, as requests name it.
pub(crate) struct Spot<'a> {
    pub(crate) key: &'a str,
    /// What all keys of the lock begin with.
    pub(crate) line: &'a str,
    pub(crate) owner: &'a str,
}

/// Puts the key if the line is empty. Else what [`refused`] answers, and the first in line.
pub(crate) fn take(spot: &Spot<'_>, session: &Session, tokens: &Tokens, base: Base) -> Txn {
    let empty = Compare::create_revision(spot.line, CompareOp::Equal, 0).with_range(end_of(spot.line));
    Txn::new()
        .when(may_put(spot, session, tokens, base, empty))
        .and_then([session.put(spot.key, spot.owner)])
        .or_else(refused(spot, session, tokens).into_iter().chain([first(spot.line)]).collect::<Vec<_>>())
}

/// Puts the key at the end of the line, and answers the last two in line: itself and who is ahead. Else what [`refused`]
/// answers.
pub(crate) fn join(spot: &Spot<'_>, session: &Session, tokens: &Tokens, base: Base) -> Txn {
    let last_two = GetOptions::new().with_range(end_of(spot.line)).with_keys_only().with_limit(2);
    let last_two = last_two.with_sort(SortTarget::Create, SortOrder::Descend);
    let is_new = Compare::create_revision(spot.key, CompareOp::Equal, 0);
    Txn::new()
        .when(may_put(spot, session, tokens, base, is_new))
        .and_then([session.put(spot.key, spot.owner), TxnOp::get(spot.line, Some(last_two))])
        .or_else(refused(spot, session, tokens))
}

/// What every request that puts a claim's key demands, and one thing more.
fn may_put(spot: &Spot<'_>, session: &Session, tokens: &Tokens, base: Base, more: Compare) -> [Compare; 4] {
    [session.is_there(), session.is_present(epoch_of(spot.key)), tokens.is_present(base), more]
}

/// What tells why it was refused: the beacon, the epoch, the base of tokens, the own key.
fn refused(spot: &Spot<'_>, session: &Session, tokens: &Tokens) -> [TxnOp; 4] {
    let epoch = session.epoch_key(epoch_of(spot.key));
    [get_key(&session.beacon), get_key(&epoch), tokens.get(), get_key(spot.key)]
}

/// If the key is what it was and hangs on the lease: the two ahead of it, the nearest first. A member may answer by
/// itself, from what it has, or else asks the leader first.
pub(crate) fn look(spot: &Spot<'_>, revision: i64, session: &Session, by_itself: bool) -> Txn {
    let ahead = GetOptions::new().with_range(end_of(spot.line)).with_keys_only().with_limit(2);
    let ahead = ahead.with_max_create_revision(revision - 1).with_sort(SortTarget::Create, SortOrder::Descend);
    let ahead = if by_itself { ahead.with_serializable() } else { ahead };
    Txn::new()
        .when([
            Compare::create_revision(spot.key, CompareOp::Equal, revision),
            Compare::lease(spot.key, CompareOp::Equal, session.lease),
        ])
        .and_then([TxnOp::get(spot.line, Some(ahead))])
}

/// Deletes keys and answers who was first in their lines before, and begins their next epochs in the same step. If
/// one of these is not the present one, it answers the beacon and them, and has not deleted. So it does nothing should
/// it land late.
pub(crate) fn leave(some: &[(String, String)], session: &Session, epochs: &[usize]) -> Txn {
    let begun = epochs.iter().map(|number| session.put(&session.epoch_key(*number), ""));
    let looks = some.iter().map(|(_, line)| first(line));
    let deletions = some.iter().map(|(key, _)| TxnOp::delete(key.as_str(), None));
    let are_present = epochs.iter().map(|number| session.is_present(*number));
    let known = epochs.iter().map(|number| get_key(&session.epoch_key(*number)));
    Txn::new()
        .when([session.is_there()].into_iter().chain(are_present).collect::<Vec<_>>())
        .and_then(begun.chain(looks).chain(deletions).collect::<Vec<_>>())
        .or_else([get_key(&session.beacon)].into_iter().chain(known).collect::<Vec<_>>())
}

/// The first in each line, and then each key.
pub(crate) fn who_is_there(some: &[(String, String)]) -> Txn {
    let looks = some.iter().map(|(_, line)| first(line));
    Txn::new().and_then(looks.chain(some.iter().map(|(key, _)| get_key(key))).collect::<Vec<_>>())
}

/// Deletes the key if it is the one of this create revision.
pub(crate) fn remove(key: &[u8], created: i64) -> Txn {
    Txn::new().when([Compare::create_revision(key, CompareOp::Equal, created)]).and_then([TxnOp::delete(key, None)])
}

/// The same as a part of another transaction.
pub(crate) fn removal(key: &str, created: i64) -> TxnOp {
    TxnOp::txn(remove(key.as_bytes(), created))
}

/// Everything about a key but its value, unless it is the beacon's.
pub(crate) fn get_key(key: &str) -> TxnOp {
    TxnOp::get(key, None)
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

/// The revision at which a transaction was done.
pub(crate) fn revision(answer: &TxnResponse) -> Result<i64> {
    Ok(answer.header().ok_or_else(nonsense)?.revision())
}

/// A key as text. What is no text was written by somebody else, and is only shown and compared.
pub(crate) fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(key).into_owned()
}
