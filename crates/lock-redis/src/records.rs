//! What stands in the store about a grant besides its owner: its token, and since when. A lock that is held for a moment
//! only goes without, and so most of the work is saved where there is much of it; of the others it is written down a
//! little later, for many of them at once.
//!
//! Whoever looks at a lock within that moment sees its owner and no token, but for those who look through this client.
//! Nothing that is decided depends on it: an owner that asks again is answered its lock all the same.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Background, Claim, ErrorKind, Grant, Instant, LockName, OwnerId, StoreToken};

use crate::RedisLock;
use crate::batches::together;
use crate::connection::Again;
use crate::keys::LockKeys;
use crate::scripts::RECORD;

/// So long a lock is held before it is written down.
const MOMENT: Duration = Duration::from_millis(10);

/// How long to leave a server alone that failed to write.
const PAUSE: Duration = Duration::from_secs(1);

/// The grants of this client that are not written down.
#[derive(Debug, Default)]
pub(crate) struct Records(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    unwritten: HashMap<OwnerId, Unwritten>,
    task: Background,
    /// The task will look again.
    looks: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Unwritten {
    name: LockName,
    owner: OwnerId,
    keys: Arc<LockKeys>,
    token: StoreToken,
    since: Instant,
    until: Instant,
}

impl Unwritten {
    /// This grant, made at that time by our clock.
    pub(crate) fn new(claim: &Claim, keys: &Arc<LockKeys>, grant: &Grant, since: Instant) -> Self {
        let (name, owner, keys) = (claim.name.clone(), claim.owner.clone(), Arc::clone(keys));
        Self { name, owner, keys, token: grant.token, since, until: grant.valid_until }
    }

    /// As scripts are told it, the age in microseconds.
    pub(crate) fn token_and_age(&self, now: Instant) -> [String; 2] {
        [self.token.get().to_string(), now.saturating_duration_since(self.since).as_micros().to_string()]
    }
}

impl Records {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owner gives its lock back: before the request leaves. Answers the lock of a grant that was not written down.
    pub(crate) fn forget(&self, name: &LockName, owner: &OwnerId) -> Option<Arc<LockKeys>> {
        let mut state = self.state();
        let one = state.unwritten.get(owner).filter(|one| one.name == *name)?;
        let keys = Arc::clone(&one.keys);
        state.unwritten.remove(owner);
        Some(keys)
    }

    /// What is to be written about this owner's grant.
    pub(crate) fn unwritten(&self, name: &LockName, owner: &OwnerId) -> Option<Unwritten> {
        self.state().unwritten.get(owner).filter(|one| one.name == *name).cloned()
    }

    /// Is there something to write about this owner?
    pub(crate) fn has(&self, owner: &OwnerId) -> bool {
        self.state().unwritten.contains_key(owner)
    }

    /// Those that are so old.
    fn of_age(&self, age: Duration, now: Instant) -> Vec<Unwritten> {
        let state = self.state();
        let old = |one: &&Unwritten| now.saturating_duration_since(one.since) >= age;
        state.unwritten.values().filter(old).cloned().collect()
    }

    /// For the task: there is nothing left, so that it is over. Whoever comes from now on starts another.
    fn is_over(&self) -> bool {
        let mut state = self.state();
        state.looks = !state.unwritten.is_empty();
        !state.looks
    }
}

impl RedisLock {
    /// Writes this grant down, if it lasts. It must be called within a tokio runtime.
    pub(crate) fn will_write(&self, grant: Unwritten) {
        let mut state = self.client.records.state();
        state.unwritten.insert(grant.owner.clone(), grant);
        if !state.looks || !state.task.runs() {
            state.looks = true;
            state.task.start(keep_writing(self.clone()));
        }
    }

    /// Writes down what was granted at least so long ago. False: not all could be.
    pub(crate) async fn write_down(&self, age: Duration) -> bool {
        let records = &self.client.records;
        let now = self.client.clock.now();
        let (over, old): (Vec<_>, Vec<_>) = records.of_age(age, now).into_iter().partition(|one| one.until <= now);
        over.iter().for_each(|one| drop(records.forget(&one.name, &one.owner)));
        let mut all = true;
        for group in together(&old, |one| one.keys.slot) {
            let some: Vec<_> = group.into_iter().map(|at| &old[at]).collect();
            let names: Vec<_> = some.iter().flat_map(|one| [one.keys.lock.as_str(), &one.keys.grant]).collect();
            let numbers: Vec<_> = some.iter().map(|one| one.token_and_age(now)).collect();
            let arguments = some.iter().zip(&numbers);
            let arguments: Vec<_> = arguments
                .flat_map(|(one, [token, age])| [one.owner.as_str().as_bytes(), token.as_bytes(), age.as_bytes()])
                .collect();
            match self.servers.run(&RECORD, &names, &arguments, Again::Yes).await {
                Err(error) if error.kind() != ErrorKind::Closed => all = false,
                _ => some.iter().for_each(|one| drop(records.forget(&one.name, &one.owner))),
            }
        }
        all
    }
}

async fn keep_writing(locks: RedisLock) {
    loop {
        tokio::time::sleep(MOMENT).await;
        if !locks.write_down(MOMENT).await {
            tokio::time::sleep(PAUSE).await;
        }
        if locks.client.records.is_over() {
            return;
        }
    }
}
