//! The check for data in etcd, where the lock is too: the store itself refuses who has lost the lock.
//!
//! A lock in etcd is a key. [`holds`] is what a transaction of yours compares: that this key is there, and is the one
//! that was granted. So it needs no mark, and costs no request of its own. It refuses a late writer as soon as the lock
//! was released, lost or evicted, even if no later holder was here.
//!
//! - The data have to be in the cluster that the lock is in. Over a client of another cluster, the comparison never
//!   holds. The same is true of a client with a namespace, which puts a prefix before all keys.
//! - With rights by keys, the user may read those of the locks' prefix.
//! - Readers and holders of permits have a key each, so they do not fence each other off.
//! - Tasks of one process between which a lock is handed over have the same key. A lease whose turn is over is refused
//!   by [`holds`] itself. A transaction that was made before that, and is sent later, is not. Make it right before it
//!   is sent, or switch the hand-over off by [`hand_overs(0)`](lock_core::Mutex::hand_overs).
//! - The key of a hold that is [kept](lock_core::DistributedLock::keep) stands until its time is over.

use etcd_client::{Compare, CompareOp};
use lock_core::{Evidence, Lease, Result};

use crate::standing::evidence;

/// What holds exactly as long as this lease's key stands in etcd, for a transaction of your own.
///
// It runs with the tests of lock-etcd: a build of that needs `protoc`, which the tests of this crate do not.
#[cfg_attr(not(doctest), doc = include_str!("etcd_example.md"))]
///
/// # Errors
/// [`ErrorKind::Lost`](lock_core::ErrorKind::Lost) if the lease is over by the clock, and
/// [`ErrorKind::Unsupported`](lock_core::ErrorKind::Unsupported) if the lock is not in etcd.
///
/// # If the transaction's reply is lost
/// Send the same one again: it is done only if the lock is still held.
pub fn holds(lease: &Lease) -> Result<Vec<Compare>> {
    // Whoever puts a key of this name later makes it anew, at a later revision.
    let is_there = |key: &Evidence| Compare::create_revision(key.place(), CompareOp::Equal, key.number() as i64);
    Ok(evidence(lease, "etcd", "etcd")?.into_iter().map(is_there).collect())
}
