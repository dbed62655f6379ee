//! Who waits here: they are told of their grant by a message, and a task looks for what no message told.
//!
//! The task looks once a second, when a holder's lease is over, and when the connection was lost. One request serves
//! all waiters of this client; it shows the server that they live, and serves locks that came free without a release.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Background, Claim, Error, Instant, OwnerId};
use tokio::sync::{Notify, mpsc};

use crate::answers::Grants;
use crate::keys::LockKeys;

/// How often a client with waiters looks by itself.
pub(crate) const TICK: Duration = Duration::from_secs(1);

#[derive(Default)]
pub(crate) struct Waiters {
    state: Mutex<State>,
    /// The task has something to do before its time.
    wake: Notify,
}

#[derive(Default)]
struct State {
    entries: HashMap<OwnerId, Entry>,
    registered: u64,
    /// When the server was last shown that this client lives; in a cluster, of each slot.
    shown: HashMap<Option<u16>, tokio::time::Instant>,
    /// When to look next.
    next_look: Option<tokio::time::Instant>,
    task: Background,
}

struct Entry {
    number: u64,
    keys: Arc<LockKeys>,
    place: String,
    /// Does the server know of it?
    entered: bool,
    news: mpsc::UnboundedSender<News>,
}

/// What a waiter is told.
#[derive(Debug)]
pub(crate) enum News {
    /// The lock is its own.
    Granted {
        token: u64,
        /// By the server's clock.
        at: u64,
        /// We knew of it then.
        arrived: Instant,
    },
    /// It has lost its place, and must enter the line anew.
    Enter,
    /// The server cannot be asked.
    Failed(Error),
}

/// A waiter's place in this list. It leaves with it.
pub(crate) struct Place {
    waiters: Arc<Waiters>,
    owner: OwnerId,
    number: u64,
    news: mpsc::UnboundedReceiver<News>,
}

/// A lock that somebody here waits for, and the place of the one who has waited longest.
pub(crate) struct Watched {
    pub(crate) keys: Arc<LockKeys>,
    pub(crate) owner: OwnerId,
    pub(crate) place: String,
}

impl Waiters {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn register(self: &Arc<Self>, claim: &Claim, keys: &Arc<LockKeys>, place: &str) -> Place {
        let (sender, news) = mpsc::unbounded_channel();
        let mut state = self.state();
        state.registered += 1;
        let number = state.registered;
        let entry = Entry { number, keys: Arc::clone(keys), place: place.to_owned(), entered: false, news: sender };
        state.entries.insert(claim.owner.clone(), entry);
        Place { waiters: Arc::clone(self), owner: claim.owner.clone(), number, news }
    }

    /// A message came: "token time owner".
    pub(crate) fn granted(&self, message: &str, arrived: Instant) {
        let Some(grants) = Grants::parse(message) else { return };
        self.tell(&grants.owner, News::Granted { token: grants.token, at: grants.at, arrived });
    }

    pub(crate) fn tell(&self, owner: &OwnerId, news: News) {
        if let Some(entry) = self.state().entries.get(owner) {
            // Who does not listen any more has left.
            let _ = entry.news.send(news);
        }
    }

    /// Everybody who waits for this lock enters anew.
    pub(crate) fn enter_anew(&self, keys: &LockKeys) {
        for entry in self.state().entries.values().filter(|entry| entry.entered && *entry.keys == *keys) {
            let _ = entry.news.send(News::Enter);
        }
    }

    /// Everybody who waits for one of these is told that it is of no use.
    pub(crate) fn fail(&self, of: &[Arc<LockKeys>], error: &Error) {
        for entry in self.state().entries.values().filter(|entry| of.contains(&entry.keys)) {
            let _ = entry.news.send(News::Failed(error.clone()));
        }
    }

    /// Is it time to show the server that this client lives? Each call in a script costs, so that not every request
    /// does.
    pub(crate) fn life_is_due(&self, slot: Option<u16>) -> bool {
        self.state().shown.get(&slot).is_none_or(|shown| shown.elapsed() >= TICK)
    }

    /// A request that was made then, and answered, has shown it.
    pub(crate) fn life_shown(&self, slot: Option<u16>, asked: tokio::time::Instant) {
        self.state().shown.insert(slot, asked);
    }

    /// The connection was lost; the server may be another, which knows nothing of us.
    pub(crate) fn look_now(&self) {
        self.state().shown.clear();
        self.look_by(tokio::time::Instant::now());
    }

    /// Looks no later than then.
    pub(crate) fn look_by(&self, at: tokio::time::Instant) {
        let mut state = self.state();
        if state.next_look.is_some_and(|next| at < next) {
            state.next_look = Some(at);
            self.wake.notify_one();
        }
    }

    /// What to look at.
    pub(crate) fn watched(&self) -> Vec<Watched> {
        let state = self.state();
        let mut longest: BTreeMap<&Arc<LockKeys>, (u64, &OwnerId, &str)> = BTreeMap::new();
        for (owner, entry) in state.entries.iter().filter(|(_, entry)| entry.entered) {
            let first = longest.entry(&entry.keys).or_insert((entry.number, owner, &entry.place));
            if entry.number < first.0 {
                *first = (entry.number, owner, &entry.place);
            }
        }
        let watched = longest.into_iter();
        watched
            .map(|(k, (_, owner, place))| Watched { keys: Arc::clone(k), owner: owner.clone(), place: place.into() })
            .collect()
    }

    /// Sees to it that somebody looks while anybody waits. Only within a runtime.
    fn ensure_task<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce() -> F) {
        let mut state = self.state();
        // One without a next look is about to end.
        if !state.task.runs() || state.next_look.is_none() {
            state.next_look = Some(tokio::time::Instant::now() + TICK);
            state.task.start(task());
        }
    }

    /// Ends when it is time to look. False: nobody waits any more, and the task is over.
    pub(crate) async fn due(&self) -> bool {
        loop {
            let next = {
                let mut state = self.state();
                if state.entries.is_empty() {
                    state.next_look = None;
                    return false;
                }
                state.next_look.unwrap_or_else(tokio::time::Instant::now)
            };
            if next <= tokio::time::Instant::now() {
                self.state().next_look = Some(tokio::time::Instant::now() + TICK);
                return true;
            }
            // Woken, or at the time: look at the state again.
            let _ = tokio::time::timeout_at(next, self.wake.notified()).await;
        }
    }
}

impl Place {
    /// The server knows of it, and the holder's lease is over in so many milliseconds.
    pub(crate) fn entered<F>(&self, remaining_ms: i64, task: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if let Some(entry) = self.waiters.state().entries.get_mut(&self.owner) {
            entry.entered = true;
        }
        self.waiters.ensure_task(task);
        if let Some(end) = end_of_lease(remaining_ms) {
            self.waiters.look_by(end);
        }
    }

    pub(crate) async fn news(&mut self) -> News {
        // The sender is in the list as long as this place is.
        self.news.recv().await.unwrap_or(News::Enter)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.waiters.state();
        // A later call for the same owner has a place of its own.
        if state.entries.get(&self.owner).is_some_and(|entry| entry.number == self.number) {
            state.entries.remove(&self.owner);
        }
    }
}

/// When to look at a lease that has so many milliseconds left, if that is before the next tick.
pub(crate) fn end_of_lease(remaining_ms: i64) -> Option<tokio::time::Instant> {
    let left = Duration::from_millis(u64::try_from(remaining_ms).ok()? + 1);
    (left < TICK).then(|| tokio::time::Instant::now() + left)
}
