//! Who waits here. They are told of their grant by a notification, and a task looks for what no notification told.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Background, Claim, Error, Instant, OwnerId};
use tokio::sync::{Notify, mpsc};

#[derive(Default)]
pub(super) struct Waiters {
    state: Mutex<State>,
    /// The task has something to do before its time.
    wake: Notify,
}

#[derive(Default)]
struct State {
    entries: HashMap<u64, Entry>,
    registered: u64,
    /// This client as the database knows it, once it does.
    client: Option<i64>,
    /// When to look next.
    next_look: Option<tokio::time::Instant>,
    task: Background,
}

struct Entry {
    owner: OwnerId,
    key: String,
    /// Does the database know of it?
    entered: bool,
    news: mpsc::UnboundedSender<News>,
}

/// What a waiter is told.
#[derive(Debug)]
pub(super) enum News {
    /// The lock is its own, since then by the database's clock.
    Granted { token: i64, at_us: i64, arrived: Instant },
    /// It is not known there any more, or not yet, and must enter the line.
    Enter,
    /// The server cannot be asked.
    Failed(Error),
}

/// A waiter's place in this list. It leaves with it.
pub(super) struct Place {
    waiters: Arc<Waiters>,
    pub(super) number: u64,
    news: mpsc::UnboundedReceiver<News>,
}

/// A lock that somebody here waits for, and the one who has waited longest.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Watched {
    pub(super) key: String,
    pub(super) owner: OwnerId,
}

impl Waiters {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn register(self: &Arc<Self>, claim: &Claim, key: &str) -> Place {
        let (sender, news) = mpsc::unbounded_channel();
        let mut state = self.state();
        state.registered += 1;
        let number = state.registered;
        let entry = Entry { owner: claim.owner.clone(), key: key.to_owned(), entered: false, news: sender };
        state.entries.insert(number, entry);
        Place { waiters: Arc::clone(self), number, news }
    }

    pub(super) fn client(&self) -> Option<i64> {
        self.state().client
    }

    /// The database knows us by this id from now on, or not at all any more. Then all have to enter anew.
    pub(super) fn set_client(&self, client: Option<i64>) {
        let mut state = self.state();
        state.client = client;
        if client.is_some() {
            for entry in state.entries.values() {
                // Who does not listen any more has left.
                let _ = entry.news.send(News::Enter);
            }
        }
    }

    /// A notification came: "place token time".
    pub(super) fn notified(&self, payload: &str, arrived: Instant) {
        let mut numbers = payload.split(' ').map(str::parse::<i64>);
        let (Some(Ok(place)), Some(Ok(token)), Some(Ok(at_us))) = (numbers.next(), numbers.next(), numbers.next())
        else {
            return;
        };
        if let Some(entry) = self.state().entries.get(&(place as u64)) {
            let _ = entry.news.send(News::Granted { token, at_us, arrived });
        }
    }

    /// This owner holds this lock. If that is one of ours, its notification was lost.
    pub(super) fn holds(&self, owner: &str, key: &str, token: i64, at_us: i64, seen: Instant) {
        for entry in self.state().entries.values().filter(|entry| entry.owner.as_str() == owner && entry.key == key) {
            let _ = entry.news.send(News::Granted { token, at_us, arrived: seen });
        }
    }

    /// Everybody who waits for this lock enters anew.
    pub(super) fn enter_anew(&self, key: &str) {
        for entry in self.state().entries.values().filter(|entry| entry.entered && entry.key == key) {
            let _ = entry.news.send(News::Enter);
        }
    }

    pub(super) fn fail(&self, error: &Error) {
        for entry in self.state().entries.values() {
            let _ = entry.news.send(News::Failed(error.clone()));
        }
    }

    /// Looks no later than then.
    pub(super) fn look_by(&self, at: tokio::time::Instant) {
        let mut state = self.state();
        if state.next_look.is_none_or(|next| at < next) {
            state.next_look = Some(at);
            self.wake.notify_one();
        }
    }

    /// What to look at, in an order that is the same everywhere.
    pub(super) fn watched(&self) -> Vec<Watched> {
        let state = self.state();
        let mut longest: BTreeMap<&str, (u64, &OwnerId)> = BTreeMap::new();
        for (&number, entry) in state.entries.iter().filter(|(_, entry)| entry.entered) {
            let first = longest.entry(&entry.key).or_insert((number, &entry.owner));
            if number < first.0 {
                *first = (number, &entry.owner);
            }
        }
        let watched = longest.into_iter();
        watched.map(|(key, (_, owner))| Watched { key: key.to_owned(), owner: owner.clone() }).collect()
    }

    /// Does anybody wait? If not, the task may end, and the next who waits starts another.
    pub(super) fn anybody(&self) -> bool {
        !self.state().entries.is_empty()
    }

    /// Sees to it that somebody looks while anybody waits. Only within a runtime.
    pub(super) fn ensure_task<F: Future<Output = ()> + Send + 'static>(&self, task: impl FnOnce() -> F) {
        let mut state = self.state();
        if !state.task.runs() {
            state.client = None;
            state.next_look = None;
            state.task.start(task());
        }
    }

    /// Ends the task.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.client = None;
        state.task.stop();
    }

    /// Ends when it is time to look; from then on the next look is a turn later.
    pub(super) async fn due(&self, turn: Duration) {
        loop {
            let next = *self.state().next_look.get_or_insert_with(|| tokio::time::Instant::now() + turn);
            if next <= tokio::time::Instant::now() {
                self.state().next_look = Some(tokio::time::Instant::now() + turn);
                return;
            }
            // Woken, or at the time: look at the state again.
            let _ = tokio::time::timeout_at(next, self.wake.notified()).await;
        }
    }
}

impl Place {
    /// The database knows of it, and the holder's lease is over in so many microseconds.
    pub(super) fn entered(&self, left_us: i64) {
        if let Some(entry) = self.waiters.state().entries.get_mut(&self.number) {
            entry.entered = true;
        }
        self.waiters.look_by(end_of_lease(left_us));
    }

    /// The next news, without grants from before the one that was seen when the lock was another's: they were over by
    /// then, though this process may have been stopped and hear of them only now.
    pub(super) async fn later_than(&mut self, held: i64) -> News {
        loop {
            match self.news.recv().await {
                Some(News::Granted { token, .. }) if token <= held => {}
                Some(news) => return news,
                // The sender is in the list as long as this place is.
                None => return News::Enter,
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiters.state().entries.remove(&self.number);
    }
}

/// When a lease is over that has so long left.
pub(super) fn end_of_lease(left_us: i64) -> tokio::time::Instant {
    /// What has longer left is looked at before in any case.
    const FAR: i64 = 3_600_000_000;
    tokio::time::Instant::now() + Duration::from_micros(left_us.clamp(0, FAR) as u64 + 1000)
}

#[cfg(test)]
mod tests {
    use lock_core::{LockName, OwnerId};

    use super::*;

    fn claim(owner: &str) -> Claim {
        Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), Duration::from_secs(1))
    }

    #[tokio::test]
    async fn a_notification_reaches_its_place() {
        let waiters = Arc::<Waiters>::default();
        let (mut one, mut other) = (waiters.register(&claim("a"), "x"), waiters.register(&claim("b"), "x"));
        for nonsense in ["", "1", "a b c", "99 1 1"] {
            waiters.notified(nonsense, Instant::from_origin(Duration::ZERO));
        }
        waiters.notified(&format!("{} 7 5", other.number), Instant::from_origin(Duration::ZERO));
        assert!(matches!(other.later_than(6).await, News::Granted { token: 7, at_us: 5, .. }));
        waiters.set_client(Some(1));
        assert!(matches!(one.later_than(0).await, News::Enter));
    }

    #[tokio::test]
    async fn a_grant_that_was_over_before_the_last_question_is_none() {
        let waiters = Arc::<Waiters>::default();
        let mut place = waiters.register(&claim("a"), "x");
        waiters.notified(&format!("{} 7 5", place.number), Instant::from_origin(Duration::ZERO));
        waiters.notified(&format!("{} 8 6", place.number), Instant::from_origin(Duration::ZERO));
        assert!(matches!(place.later_than(7).await, News::Granted { token: 8, .. }));
    }

    #[tokio::test]
    async fn the_longest_waiter_of_each_lock_is_watched() {
        let waiters = Arc::<Waiters>::default();
        let places = ["a", "b", "c"].map(|owner| waiters.register(&claim(owner), if owner == "c" { "w" } else { "x" }));
        assert_eq!(waiters.watched(), []);
        places.iter().for_each(|place| place.entered(0));
        let watched = |key: &str, owner| Watched { key: key.to_owned(), owner: OwnerId::from_store(owner) };
        assert_eq!(waiters.watched(), [watched("w", "c"), watched("x", "a")]);
        drop(places);
        assert!(!waiters.anybody());
    }
}
