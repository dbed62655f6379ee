//! The undoing of claims of which nobody knows what the store has of them.
//!
//! Each begins its claim's next epoch. Two at once could be in each other's way, and many would be many requests. So
//! there is one at a time, for all that wait for it.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use etcd_client::{KeyValue, Txn};
use lock_core::{Error, Result, Unlocked};

use crate::connection::{Again, Connection};
use crate::error::nonsense;
use crate::requests::{deletions, found, leave, removal, revision, who_is_there};
use crate::session::{Session, epoch_of, transact};

/// A transaction may have 128 operations; each claim takes three.
const AT_ONCE: usize = 42;

/// What is to be undone in one session.
#[derive(Default)]
pub(crate) struct Undoing {
    state: Mutex<State>,
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct State {
    /// The lines of claims, by their keys.
    pending: BTreeMap<String, String>,
    /// What was answered to those who wait for their turn.
    done: HashMap<String, Result<Unlocked>>,
}

impl Undoing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This one and others that wait.
    fn some(&self, key: &str, line: &str) -> Vec<(String, String)> {
        let state = self.state();
        let others = state.pending.iter().filter(|(other, _)| *other != key);
        let others = others.map(|(key, line)| (key.clone(), line.clone()));
        [(key.to_owned(), line.to_owned())].into_iter().chain(others).take(AT_ONCE).collect()
    }
}

impl Session {
    /// Deletes the key, and makes void whatever is on its way for it. Did it hold the lock?
    pub(crate) async fn undo(&self, connection: &Connection, key: &str, line: &str) -> Result<Unlocked> {
        {
            let mut state = self.undoing.state();
            // Of an earlier call that was dropped.
            state.done.remove(key);
            state.pending.insert(key.to_owned(), line.to_owned());
        }
        // If this is dropped, another does it, or the next call.
        let _turn = self.undoing.turn.lock().await;
        if let Some(done) = self.undoing.state().done.remove(key) {
            return done;
        }
        let some = self.undoing.some(key, line);
        let answers = match undo_all(connection, &some, Some(self)).await {
            Ok(answers) => answers.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); some.len()],
        };
        let mut state = self.undoing.state();
        for ((key, _), answer) in some.into_iter().zip(answers) {
            state.pending.remove(&key);
            state.done.insert(key, answer);
        }
        state.done.remove(key).ok_or_else(nonsense)?
    }
}

/// Each with its key and its line.
pub(crate) async fn undo_all(
    connection: &Connection,
    some: &[(String, String)],
    mut session: Option<&Session>,
) -> Result<Vec<Unlocked>> {
    while let Some(open) = session {
        let mut epochs: Vec<_> = some.iter().map(|(key, _)| epoch_of(key)).collect();
        epochs.sort_unstable();
        epochs.dedup();
        let answer = transact(connection, Again::No, leave(some, open, &epochs)).await.map_err(Error::from)?;
        if answer.succeeded() {
            let began = revision(&answer)?;
            epochs.iter().for_each(|number| open.saw_epoch(*number, began));
            return undone(some, &found(&answer)?, &deletions(&answer));
        }
        // An earlier answer was lost. Or there is no beacon: then nothing is done any more that is still on its way.
        session = open.saw_epochs(&epochs, &answer)?.then_some(open);
    }
    // By what was found, so that it deletes nothing that comes later, should it land late.
    let answer = transact(connection, Again::Yes, who_is_there(some)).await.map_err(Error::from)?;
    let mut firsts = found(&answer)?;
    if firsts.len() != some.len() * 2 {
        return Err(nonsense());
    }
    let own = firsts.split_off(some.len());
    // Zero: there is none, and none is deleted.
    let created = own.iter().map(|own| own.first().map_or(0, KeyValue::create_revision));
    let removals: Vec<_> = some.iter().zip(created).map(|((key, _), created)| removal(key, created)).collect();
    let asking = transact(connection, Again::No, Txn::new().and_then(removals));
    let answer = asking.await.map_err(Error::from)?;
    undone(some, &firsts, &deletions(&answer))
}

/// Who was the first in line, and was deleted, held the lock.
fn undone(some: &[(String, String)], firsts: &[Vec<KeyValue>], deleted: &[i64]) -> Result<Vec<Unlocked>> {
    if (firsts.len(), deleted.len()) != (some.len(), some.len()) {
        return Err(nonsense());
    }
    let held = |((key, _), (first, deleted)): (&(String, String), (&Vec<KeyValue>, &i64))| {
        let first = first.first().is_some_and(|first| first.key() == key.as_bytes());
        if first && *deleted > 0 { Unlocked::Released } else { Unlocked::NotHeld }
    };
    Ok(some.iter().zip(firsts.iter().zip(deleted)).map(held).collect())
}
