//! Who waits here: what a backend whose store hands locks over keeps of the waiters of one client.

use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time;

use crate::authors::{Background, Failures, InLine};
use crate::contract::{Claim, Error, ErrorKind, Instant, Mode, OwnerId, Slots};

/// What has longer left is looked at before in any case.
const FAR: Duration = Duration::from_secs(3600);

/// The waiters of one client, for locks with keys of this kind. They are told of their grants by messages of the store;
/// and one task, which serves all of them, looks for what no message told: once in a turn, and when a lease is over.
#[derive(Debug)]
pub struct Waiters<K> {
    state: Mutex<State<K>>,
    /// The task has something to do before its time.
    wake: Notify,
}

#[derive(Debug)]
struct State<K> {
    entries: HashMap<u64, Entry<K>>,
    /// Which entry is an owner's: the last one, if it calls again.
    numbers: HashMap<OwnerId, u64>,
    registered: u64,
    /// When to look next; never, if no task looks or it is about to end.
    next_look: Option<time::Instant>,
    /// What the last look was answered, and when it was sent.
    looked: Option<InLine>,
    task: Background,
}

#[derive(Debug)]
struct Entry<K> {
    owner: OwnerId,
    lease: Duration,
    mode: Mode,
    key: K,
    /// Does the store know of it?
    entered: bool,
    news: mpsc::UnboundedSender<News>,
}

/// What a waiter is told.
#[derive(Debug)]
#[non_exhaustive]
pub enum News {
    /// The lock is its own.
    Granted {
        /// The store's token.
        token: u64,
        /// Which permits, where the store says it.
        slots: Slots,
        /// Since then, by the store's clock, in microseconds.
        at_us: i64,
        /// We knew of it then.
        arrived: Instant,
    },
    /// The store does not know of it any more, or not yet: it must enter the line anew.
    Enter,
    /// The store cannot be asked.
    Failed(Error),
}

/// A waiter among the [`Waiters`]. Dropped, it is one no more.
#[derive(Debug)]
pub struct Waiting<K> {
    waiters: Arc<Waiters<K>>,
    owner: OwnerId,
    number: u64,
    news: mpsc::UnboundedReceiver<News>,
}

/// A lock that somebody here waits for, and who has waited longest.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Watched<K> {
    /// The lock's.
    pub key: K,
    /// The waiter's.
    pub owner: OwnerId,
    /// The one that it asked for.
    pub lease: Duration,
    /// How it wants the lock.
    pub mode: Mode,
}

impl<K> Default for Waiters<K> {
    fn default() -> Self {
        let (entries, numbers) = (HashMap::new(), HashMap::new());
        let state =
            State { entries, numbers, registered: 0, next_look: None, looked: None, task: Background::default() };
        Self { state: Mutex::new(state), wake: Notify::new() }
    }
}

impl<K> Waiters<K> {
    fn state(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Ord + Clone> Waiters<K> {
    /// Adds a waiter: before its request leaves, so that no message comes too early.
    pub fn register(self: &Arc<Self>, claim: &Claim, key: K) -> Waiting<K> {
        let (sender, news) = mpsc::unbounded_channel();
        let (owner, lease, mode) = (claim.owner.clone(), claim.lease, claim.mode);
        let mut state = self.state();
        state.registered += 1;
        let number = state.registered;
        state.numbers.insert(owner.clone(), number);
        state.entries.insert(number, Entry { owner: owner.clone(), lease, mode, key, entered: false, news: sender });
        Waiting { waiters: Arc::clone(self), owner, number, news }
    }

    /// Tells the waiter of this number.
    pub fn tell(&self, number: u64, news: News) {
        if let Some(entry) = self.state().entries.get(&number) {
            // Who does not listen any more has left.
            let _ = entry.news.send(news);
        }
    }

    /// Tells the waiter with this owner.
    pub fn tell_owner(&self, owner: &OwnerId, news: News) {
        let number = self.state().numbers.get(owner).copied();
        if let Some(number) = number {
            self.tell(number, news);
        }
    }

    /// Everybody whom the store knows as a waiter for this lock enters anew; without a lock, for any, and whom it does
    /// not know too.
    pub fn enter_anew(&self, key: Option<&K>) {
        let state = self.state();
        let all = state.entries.values();
        for entry in all.filter(|entry| key.is_none_or(|key| entry.entered && entry.key == *key)) {
            let _ = entry.news.send(News::Enter);
        }
    }

    /// Everybody who waits for such a lock is told that it is of no use.
    pub fn fail(&self, error: &Error, of: impl Fn(&K) -> bool) {
        for entry in self.state().entries.values().filter(|entry| of(&entry.key)) {
            let _ = entry.news.send(News::Failed(error.clone()));
        }
    }

    /// A look at this store was answered, sent then and done at that time of the store's: grants that come later are counted
    /// from it. To be told after the grants that it found.
    pub fn looked(&self, at: InLine) {
        self.state().looked = Some(at);
    }

    /// For the task, when it has failed: tells the waiters if it is time to, and ends when to try again. False: the backend is
    /// closed, and there is nothing to try.
    pub async fn try_again_after(&self, failures: &mut Failures, failed: &Error) -> bool {
        if failures.count(failed) {
            self.fail(&Failures::for_waiters(failed), |_| true);
        }
        if failed.kind() == ErrorKind::Closed {
            return false;
        }
        time::sleep(Failures::PAUSE).await;
        true
    }

    /// What to look at, in the order of the keys.
    pub fn watched(&self) -> Vec<Watched<K>> {
        let state = self.state();
        let mut longest: BTreeMap<&K, (u64, &Entry<K>)> = BTreeMap::new();
        for (&number, entry) in state.entries.iter().filter(|(_, entry)| entry.entered) {
            let first = longest.entry(&entry.key).or_insert((number, entry));
            if number < first.0 {
                *first = (number, entry);
            }
        }
        let watched = |(key, (_, entry)): (&K, (u64, &Entry<K>))| Watched {
            key: key.clone(),
            owner: entry.owner.clone(),
            lease: entry.lease,
            mode: entry.mode,
        };
        longest.into_iter().map(watched).collect()
    }

    /// The task looks no later than then, if there is one.
    pub fn look_by(&self, at: time::Instant) {
        let mut state = self.state();
        if state.next_look.is_some_and(|next| at < next) {
            state.next_look = Some(at);
            self.wake.notify_one();
        }
    }

    /// The task looks no later than when a lease is over that has so long left.
    pub fn look_after(&self, left: Duration) {
        self.look_by(time::Instant::now() + left.min(FAR) + Duration::from_millis(1));
    }

    /// Sees to it that the task runs, which looks once in a turn. It must be called within a tokio runtime.
    pub fn ensure_task<F: Future<Output = ()> + Send + 'static>(&self, turn: Duration, task: impl FnOnce() -> F) {
        let mut state = self.state();
        if !state.task.runs() || state.next_look.is_none() {
            state.next_look = Some(time::Instant::now() + turn);
            state.task.start(task());
        }
    }

    /// For the task: ends when it is time to look. From then on the next look is a turn later.
    pub async fn due(&self, turn: Duration) {
        loop {
            let next = *self.state().next_look.get_or_insert_with(|| time::Instant::now() + turn);
            if next <= time::Instant::now() {
                self.state().next_look = Some(time::Instant::now() + turn);
                return;
            }
            // Woken, or at the time: look at the state again.
            let _ = time::timeout_at(next, self.wake.notified()).await;
        }
    }

    /// Does anybody wait?
    pub fn anybody(&self) -> bool {
        !self.state().entries.is_empty()
    }

    /// For the task: nobody waits, so that it is over. Whoever comes from now on starts another.
    pub fn is_over(&self) -> bool {
        let mut state = self.state();
        let over = state.entries.is_empty();
        if over {
            state.next_look = None;
        }
        over
    }

    /// Ends the task.
    pub fn stop(&self) {
        self.state().task.stop();
    }
}

impl<K: Ord + Clone> Waiting<K> {
    /// By which it is [told](Waiters::tell).
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The store knows of it, and the holder's lease is over in that time, if it has an end.
    pub fn entered(&self, left: Option<Duration>) {
        if let Some(entry) = self.waiters.state().entries.get_mut(&self.number) {
            entry.entered = true;
        }
        left.into_iter().for_each(|left| self.waiters.look_after(left));
    }

    /// Until when a lock is valid that the store gave it: [`InLine::valid_until`], by the last look since it entered.
    pub fn valid_until(&self, entered: &InLine, granted_us: i64, heard: Instant, lease: Duration) -> Instant {
        let looked = self.waiters.state().looked.filter(|looked| looked.sent >= entered.sent);
        entered.valid_until_by(looked, granted_us, heard, lease)
    }

    /// The next news, without grants up to this token, which was seen when the lock was another's: they were over by then,
    /// though this process may have been stopped and hear of them only now.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn news_after(&mut self, token: u64) -> News {
        loop {
            match self.news().await {
                News::Granted { token: older, .. } if older <= token => {}
                news => return news,
            }
        }
    }

    /// What it is told next.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn news(&mut self) -> News {
        // The sender is in the list as long as this is.
        self.news.recv().await.unwrap_or(News::Enter)
    }
}

impl<K> Drop for Waiting<K> {
    fn drop(&mut self) {
        let mut state = self.waiters.state();
        state.entries.remove(&self.number);
        // A later call for the same owner has an entry of its own.
        if state.numbers.get(&self.owner) == Some(&self.number) {
            state.numbers.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::LockName;

    const TURN: Duration = Duration::from_secs(1);

    fn claim(owner: &str) -> Claim {
        Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), TURN)
    }

    fn granted(token: u64) -> News {
        News::Granted { token, slots: Slots::default(), at_us: 5, arrived: Instant::from_origin(Duration::ZERO) }
    }

    #[tokio::test]
    async fn news_reach_whom_they_are_for() {
        let waiters = Arc::<Waiters<&str>>::default();
        let [mut one, mut other] = ["a", "b"].map(|owner| waiters.register(&claim(owner), "x"));
        waiters.tell(99, granted(1));
        waiters.tell_owner(&OwnerId::from_store("c"), granted(1));
        waiters.tell(other.number(), granted(7));
        waiters.tell_owner(&OwnerId::from_store("b"), granted(8));
        assert!(matches!(other.news().await, News::Granted { token: 7, .. }));
        assert!(matches!(other.news().await, News::Granted { token: 8, .. }));
        waiters.enter_anew(Some(&"x"));
        waiters.fail(&Error::closed(), |key| *key == "x");
        // The store does not know of it yet.
        assert!(matches!(one.news().await, News::Failed(_)));
        waiters.enter_anew(None);
        assert!(matches!(one.news().await, News::Enter));
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_tries_again_until_the_backend_is_closed() {
        let waiters = Arc::<Waiters<&str>>::default();
        let (mut one, mut failures) = (waiters.register(&claim("a"), "x"), Failures::default());
        let began = time::Instant::now();
        let down = Error::new(ErrorKind::Unavailable, "down");
        for _ in 0..3 {
            assert!(waiters.try_again_after(&mut failures, &down).await);
        }
        assert_eq!(began.elapsed(), Failures::PAUSE * 3);
        assert!(matches!(one.news().await, News::Failed(error) if error.kind() == ErrorKind::Unknown));
        assert!(!waiters.try_again_after(&mut failures, &Error::closed()).await);
        assert!(matches!(one.news().await, News::Failed(error) if error.kind() == ErrorKind::Closed));
    }

    #[tokio::test]
    async fn an_owner_who_calls_again_is_told_there() {
        let waiters = Arc::<Waiters<&str>>::default();
        let (first, mut again) = (waiters.register(&claim("a"), "x"), waiters.register(&claim("a"), "x"));
        drop(first);
        waiters.tell_owner(&OwnerId::from_store("a"), granted(7));
        assert!(matches!(again.news().await, News::Granted { token: 7, .. }));
    }

    #[tokio::test]
    async fn the_longest_waiter_of_each_lock_is_watched() {
        let waiters = Arc::<Waiters<&str>>::default();
        let all = ["a", "b", "c"].map(|owner| waiters.register(&claim(owner), if owner == "c" { "w" } else { "x" }));
        assert_eq!(waiters.watched(), []);
        all.iter().for_each(|one| one.entered(None));
        let watched =
            |key, owner| Watched { key, owner: OwnerId::from_store(owner), lease: TURN, mode: Mode::Exclusive };
        assert_eq!(waiters.watched(), [watched("w", "c"), watched("x", "a")]);
        drop(all);
        assert!(!waiters.anybody());
    }

    #[tokio::test]
    async fn who_comes_when_the_task_is_about_to_end_starts_another() {
        let waiters = Arc::<Waiters<&str>>::default();
        let (started, mut tasks) = mpsc::unbounded_channel();
        let start = || {
            let started = started.clone();
            waiters.ensure_task(TURN, || async move {
                let _ = started.send(());
                std::future::pending().await
            });
        };
        let first = waiters.register(&claim("a"), "x");
        start();
        assert!(!waiters.is_over());
        drop(first);
        // The task has looked whether it is over, and has not ended yet.
        assert!(waiters.is_over());
        let _second = waiters.register(&claim("b"), "x");
        start();
        start();
        tasks.recv().await.unwrap();
        assert!(waiters.state().next_look.is_some());
        assert!(!waiters.is_over());
    }
}
