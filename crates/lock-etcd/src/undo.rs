//! The undoing of claims of which nobody knows what the store has of them.
//!
//! Each begins its claim's next epoch. Two at once could be in each other's way, and many would be many requests. So
//! there is one at a time, for all that wait for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use etcd_client::{KeyValue, Txn, TxnOp};
use lock_core::{Error, Result, Unlocked};

use crate::connection::{Again, Connection};
use crate::error::nonsense;
use crate::requests::{Spot, deleted, deletions, end_key, found, leave, line, revision};
use crate::session::{Session, epoch_of, transact};
use crate::standing::Standing;
use crate::waiters::Entry;

/// A transaction may have 128 operations; each claim takes four.
const AT_ONCE: usize = 31;

/// What is to be undone in one session.
#[derive(Default)]
pub(crate) struct Undoing {
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// By what the client calls them.
    pending: BTreeMap<String, Arc<Spot>>,
    /// What was answered to those who wait for their turn.
    done: HashMap<String, Result<Undone>>,
}

/// Did the claim hold the lock, and what was deleted?
#[derive(Clone)]
pub(crate) struct Undone {
    pub(crate) unlocked: Unlocked,
    pub(crate) deleted: Vec<Entry>,
    /// At this revision.
    pub(crate) at: i64,
}

impl Undoing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This one and others that wait.
    fn some(&self, spot: &Arc<Spot>) -> Vec<Arc<Spot>> {
        let state = self.state();
        let others = state.pending.values().filter(|other| other.id != spot.id);
        [spot].into_iter().chain(others).take(AT_ONCE).cloned().collect()
    }
}

impl Session {
    /// Deletes what was put for this claim, and makes void whatever is on its way for it.
    pub(crate) async fn undo(&self, connection: &Connection, spot: &Arc<Spot>) -> Result<Undone> {
        {
            let mut state = self.undoing.state();
            // Of an earlier call that was dropped.
            state.done.remove(&spot.id);
            state.pending.insert(spot.id.clone(), Arc::clone(spot));
        }
        // If this is dropped, another does it, or the next call.
        let _turn = self.undoing.turn.lock().await;
        if let Some(done) = self.undoing.state().done.remove(&spot.id) {
            return done;
        }
        let some = self.undoing.some(spot);
        let answers = match self.undo_all(connection, &some).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); some.len()],
        };
        let mut state = self.undoing.state();
        for (spot, answer) in some.iter().zip(answers) {
            state.pending.remove(&spot.id);
            state.done.insert(spot.id.clone(), answer);
        }
        state.done.remove(&spot.id).ok_or_else(nonsense)?
    }

    async fn undo_all(&self, connection: &Connection, some: &[Arc<Spot>]) -> Result<Vec<Undone>> {
        let mut epochs: Vec<_> = some.iter().map(|spot| epoch_of(&spot.id)).collect();
        epochs.sort_unstable();
        epochs.dedup();
        let spots: Vec<_> = some.iter().map(Arc::as_ref).collect();
        loop {
            let answer = transact(connection, Again::No, leave(&spots, self, &epochs)).await.map_err(Error::from)?;
            if answer.succeeded() {
                let began = revision(&answer)?;
                epochs.iter().for_each(|number| self.saw_epoch(*number, began));
                return undone(&found(&answer)?, &deleted(&answer), began);
            }
            // An earlier answer was lost. Or there is no beacon: then nothing is done any more that is still on its way.
            if !self.saw_epochs(&epochs, &answer)? {
                break;
            }
        }
        let mut all = Vec::new();
        for spot in spots {
            all.push(sweep(connection, &spot.line, spot.owner.as_str()).await?);
        }
        Ok(all)
    }
}

/// Deletes what is there of this owner, of which nothing is on its way. By what was found, so that it deletes nothing
/// that comes later, should it land late.
pub(crate) async fn sweep(connection: &Connection, name: &str, owner: &str) -> Result<Undone> {
    let asking = transact(connection, Again::Yes, Txn::new().and_then([line(name)]));
    let answer = asking.await.map_err(Error::from)?;
    let in_line = found(&answer)?.pop().ok_or_else(nonsense)?;
    let own: Vec<_> = in_line.iter().filter(|key| Standing::is_of(name, key, owner)).collect();
    if own.is_empty() {
        return Ok(Undone { unlocked: Unlocked::NotHeld, deleted: Vec::new(), at: revision(&answer)? });
    }
    let removal = |key: &&KeyValue| TxnOp::txn(end_key(key));
    let removals: Vec<_> = own.iter().map(removal).collect();
    let asking = transact(connection, Again::No, Txn::new().and_then(removals));
    let answer = asking.await.map_err(Error::from)?;
    let removed = deletions(&answer);
    let removed = own.iter().zip(removed).filter(|(_, removed)| *removed > 0);
    Ok(Undone::of(in_line.first(), removed.map(|(key, _)| Entry::of(key)).collect(), revision(&answer)?))
}

impl Undone {
    /// Who was the first in line, and was deleted, held the lock.
    fn of(first: Option<&KeyValue>, deleted: Vec<Entry>, at: i64) -> Self {
        let held = first.is_some_and(|first| deleted.contains(&Entry::of(first)));
        Self { unlocked: if held { Unlocked::Released } else { Unlocked::NotHeld }, deleted, at }
    }
}

/// For each claim who was first in its line, and what was deleted: its seat, its place.
fn undone(firsts: &[Vec<KeyValue>], deleted: &[Option<Entry>], at: i64) -> Result<Vec<Undone>> {
    if deleted.len() != firsts.len() * 2 {
        return Err(nonsense());
    }
    let each = firsts.iter().zip(deleted.chunks(2));
    Ok(each
        .map(|(first, deleted)| Undone::of(first.first(), deleted.iter().flatten().cloned().collect(), at))
        .collect())
}
