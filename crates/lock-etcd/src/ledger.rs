//! What this client has in the store: the keys of its claims, and the keys that they wait for. The watch says which of
//! them are gone, and this says whom that concerns.
//!
//! A key is known by its name and its create revision, for a name may come again: Go's `concurrency.Mutex` takes the
//! same one for every lock of a session, and an event may be late. A deletion ends only what was created before it.
//!
//! A deletion may be heard of before the answer that says whom one waits for. So whoever asks that is known from before
//! the request until the answer, and what is deleted in the line meanwhile is kept for it. What was heard of before is
//! in answers that are no older.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::KeyValue;
use lock_core::{Clock, Error, ErrorKind, Instant, OwnerId};
use tokio::sync::{broadcast, mpsc};

use crate::requests::text;
use crate::session::Session;

/// How many losses may wait to be heard of. Who is told too late learns of them at the next renewal.
const LOSSES: usize = 1024;

pub(crate) struct Ledger {
    state: Mutex<State>,
    losses: broadcast::Sender<OwnerId>,
    clock: Arc<dyn Clock>,
}

#[derive(Default)]
struct State {
    own: HashMap<String, Own>,
    /// Who waits for the keys of these names.
    ahead: HashMap<String, Vec<Waiter>>,
    asks: HashMap<u64, Asked>,
    asked: u64,
    /// The revision until which all deletions were heard of.
    heard: i64,
}

/// A claim of this client.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) owner: OwnerId,
    pub(crate) line: String,
    pub(crate) session: Arc<Session>,
    pub(crate) stage: Stage,
    /// A copy of a request that puts its key may still be on its way, though another one was answered.
    pub(crate) unsure: bool,
    /// What was created under its key before this revision is gone.
    ended: i64,
    /// When it is over if nobody renews it; never while its `lock` runs.
    pub(crate) until: Option<Instant>,
    news: mpsc::UnboundedSender<News>,
}

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A request for it is on its way, or was and is not answered.
    InDoubt,
    /// Its key is in the line, with this create revision.
    Waiting(i64),
    /// The lock is its own, with this create revision.
    Held(i64),
    /// Its key, of this create revision, is being deleted, or perhaps was. Did it hold?
    Leaving { held: bool, created: i64 },
}

/// A key in a line: what was created under this name at this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) created: i64,
}

impl Entry {
    pub(crate) fn of(key: &KeyValue) -> Self {
        Self { key: text(key.key()), created: key.create_revision() }
    }
}

/// Who waits for the end of a key that was created at this revision.
struct Waiter {
    created: i64,
    line: String,
    news: mpsc::UnboundedSender<News>,
}

/// What a waiter is told.
#[derive(Debug)]
pub(crate) enum News {
    /// The key ahead is gone, or its own.
    Look,
    /// The store cannot be asked.
    Failed(String),
}

struct Asked {
    line: String,
    /// What was created under these names before these revisions is gone.
    gone: Vec<(String, i64)>,
    /// Something may have been missed.
    unsure: bool,
}

/// A running `lock` or `try_lock`.
pub(crate) struct Place {
    ledger: Arc<Ledger>,
    key: String,
    line: String,
    lease: Duration,
    news: mpsc::UnboundedReceiver<News>,
    sender: mpsc::UnboundedSender<News>,
    ahead: Option<Entry>,
}

/// A running request that is answered with a key to wait for.
pub(crate) struct Ask {
    ledger: Arc<Ledger>,
    number: u64,
    /// An answer of an older revision may name a key whose end was heard of already.
    pub(crate) since: i64,
}

impl Ledger {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { state: Mutex::default(), losses: broadcast::Sender::new(LOSSES), clock }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owners that lose their locks from now on.
    pub(crate) fn losses(&self) -> broadcast::Receiver<OwnerId> {
        self.losses.subscribe()
    }

    /// Before the first byte leaves.
    pub(crate) fn enter(
        self: &Arc<Self>,
        key: &str,
        line: &str,
        owner: &OwnerId,
        lease: Duration,
        session: &Arc<Session>,
    ) -> Place {
        let (sender, news) = mpsc::unbounded_channel();
        let mut state = self.state();
        // What is on its way in a session that is over is void.
        let unsure = state.own.get(key).is_some_and(|before| before.unsure && before.session.lease == session.lease);
        let own = Own {
            owner: owner.clone(),
            line: line.to_owned(),
            session: Arc::clone(session),
            stage: Stage::InDoubt,
            unsure,
            ended: 0,
            until: None,
            news: sender.clone(),
        };
        state.own.insert(key.to_owned(), own);
        let (key, line) = (key.to_owned(), line.to_owned());
        Place { ledger: Arc::clone(self), key, line, lease, news, sender, ahead: None }
    }

    pub(crate) fn ask(self: &Arc<Self>, line: &str) -> Ask {
        let mut state = self.state();
        state.asked += 1;
        let number = state.asked;
        state.asks.insert(number, Asked { line: line.to_owned(), gone: Vec::new(), unsure: false });
        Ask { ledger: Arc::clone(self), number, since: state.heard }
    }

    pub(crate) fn get(&self, key: &str) -> Option<Own> {
        self.state().own.get(key).cloned()
    }

    /// A release of this claim begins: what it was until now.
    pub(crate) fn leaving(&self, key: &str) -> Option<Own> {
        let mut state = self.state();
        let own = state.own.get_mut(key)?;
        let before = own.clone();
        own.stage = match own.stage {
            Stage::Held(created) => Stage::Leaving { held: true, created },
            Stage::Waiting(created) => Stage::Leaving { held: false, created },
            stage => stage,
        };
        Some(before)
    }

    /// A release was not done: the claim is what it was.
    pub(crate) fn stays(&self, key: &str, before: &Own) {
        if let Some(own) = self.state().own.get_mut(key) {
            own.stage = before.stage;
        }
    }

    /// Nothing is left of this claim.
    pub(crate) fn remove(&self, key: &str) {
        self.state().own.remove(key);
    }

    /// A renewal of this claim was confirmed.
    pub(crate) fn renewed(&self, key: &str, until: Instant) {
        if let Some(own) = self.state().own.get_mut(key) {
            own.until = own.until.max(Some(until));
        }
    }

    /// Is there anybody who needs this session?
    pub(crate) fn needs(&self, session: &Session) -> bool {
        self.state().own.values().any(|own| own.session.lease == session.lease)
    }

    /// The claims that are over, and that nobody renewed or released.
    pub(crate) fn overdue(&self) -> Vec<String> {
        let now = self.clock.now();
        let state = self.state();
        let over = state.own.iter().filter(|(_, own)| own.until.is_some_and(|until| until < now));
        over.map(|(key, _)| key.clone()).collect()
    }

    /// A renewal found that the key is not the one that was granted.
    pub(crate) fn not_held(&self, key: &str, created: i64) {
        let mut state = self.state();
        if state.own.get(key).is_some_and(|own| own.stage == Stage::Held(created)) {
            state.own.remove(key);
        }
    }

    /// The names of all keys whose end matters.
    pub(crate) fn keys(&self) -> Vec<String> {
        let state = self.state();
        state.own.keys().chain(state.ahead.keys()).cloned().collect()
    }

    /// In each line that a claim of this client waits in, the first key that one of them waits for. Once the end of
    /// that is heard of, another is the first.
    pub(crate) fn waited_for(&self) -> Vec<Entry> {
        let state = self.state();
        let mut firsts = HashMap::<&str, (&str, i64)>::new();
        for (key, waiters) in &state.ahead {
            for waiter in waiters {
                let first = firsts.entry(&waiter.line).or_insert((key, waiter.created));
                if waiter.created < first.1 {
                    *first = (key, waiter.created);
                }
            }
        }
        firsts.into_values().map(|(key, created)| Entry { key: key.to_owned(), created }).collect()
    }

    /// Does anybody wait for this one?
    pub(crate) fn awaits(&self, entry: &Entry) -> bool {
        let waits = |waiters: &Vec<Waiter>| waiters.iter().any(|waiter| waiter.created == entry.created);
        self.state().ahead.get(&entry.key).is_some_and(waits)
    }

    /// A key was deleted at this revision.
    pub(crate) fn deleted(&self, key: &str, at: i64) {
        let mut state = self.state();
        state.heard = at;
        self.gone(&mut state, key, at);
    }

    /// What was created under this name before this revision is gone.
    pub(crate) fn ended(&self, key: &str, before: i64) {
        self.gone(&mut self.state(), key, before);
    }

    fn gone(&self, state: &mut State, key: &str, before: i64) {
        for ask in state.asks.values_mut().filter(|ask| key.starts_with(&ask.line)) {
            ask.gone.push((key.to_owned(), before));
        }
        if let Some(waiters) = state.ahead.get_mut(key) {
            for waiter in waiters.extract_if(.., |waiter| waiter.created < before) {
                // Who does not listen any more has left.
                let _ = waiter.news.send(News::Look);
            }
            if waiters.is_empty() {
                state.ahead.remove(key);
            }
        }
        self.lose(state, key, before);
    }

    /// Deletions are heard of from this revision on. Of those before, some may have been missed.
    pub(crate) fn opened(&self, at: i64) {
        let mut state = self.state();
        state.heard = at;
        state.asks.values_mut().for_each(|ask| ask.unsure = true);
    }

    /// A lease is over, and with it all keys of its claims.
    pub(crate) fn lost(&self, session: &Session) {
        let mut state = self.state();
        let theirs = state.own.iter().filter(|(_, own)| own.session.lease == session.lease);
        let keys: Vec<_> = theirs.map(|(key, _)| key.clone()).collect();
        keys.iter().for_each(|key| self.lose(&mut state, key, i64::MAX));
    }

    fn lose(&self, state: &mut State, key: &str, before: i64) {
        let Some(own) = state.own.get_mut(key) else { return };
        own.ended = own.ended.max(before);
        match own.stage {
            Stage::Held(created) if created < before => {
                // It fails if nobody listens.
                let _ = self.losses.send(own.owner.clone());
                state.own.remove(key);
            }
            Stage::Waiting(created) if created < before => drop(own.news.send(News::Look)),
            _ => {}
        }
    }

    pub(crate) fn fail(&self, why: &str) {
        for own in self.state().own.values().filter(|own| matches!(own.stage, Stage::Waiting(_))) {
            let _ = own.news.send(News::Failed(why.to_owned()));
        }
    }
}

impl Place {
    /// The claim's key is in the line, with this create revision.
    pub(crate) fn waits(&self, created: i64) {
        if let Some(own) = self.ledger.state().own.get_mut(&self.key) {
            own.stage = Stage::Waiting(created);
        }
    }

    /// The lock is its own; unless something was heard of it meanwhile, and it is time to look again.
    pub(crate) fn holds(&mut self, created: i64, until: Instant) -> bool {
        let mut state = self.ledger.state();
        if self.news.try_recv().is_ok() {
            return false;
        }
        let Some(own) = state.own.get_mut(&self.key) else { return true };
        if own.ended > created {
            return false;
        }
        own.stage = Stage::Held(created);
        own.until = Some(until);
        true
    }

    /// Of a request that puts its key, a copy may be on its way that was not answered.
    pub(crate) fn is_unsure(&self) -> bool {
        self.ledger.state().own.get(&self.key).is_some_and(|own| own.unsure)
    }

    pub(crate) fn unsure(&self) {
        if let Some(own) = self.ledger.state().own.get_mut(&self.key) {
            own.unsure = true;
        }
    }

    /// Surely nothing of it is in the store; something may be on its way only if it is unsure, and then that is kept in
    /// mind.
    pub(crate) fn give_up(self) {
        if !self.is_unsure() {
            self.ledger.remove(&self.key);
        }
    }

    /// The same, and whatever is on its way is void.
    pub(crate) fn forget(self) {
        self.ledger.remove(&self.key);
    }

    /// Was the end of this key heard of, which it waited for?
    pub(crate) fn outlived(&self, entry: &Entry) -> bool {
        self.ahead.as_ref() == Some(entry) && !self.ledger.awaits(entry)
    }

    /// Ends when it is time to look whose turn it is.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub(crate) async fn news(&mut self) -> Result<(), Error> {
        // The sender is held here.
        match self.news.recv().await.unwrap_or(News::Look) {
            News::Look => Ok(()),
            News::Failed(why) => Err(Error::new(ErrorKind::Unknown, why)),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.ledger.state();
        if let Some(ahead) = self.ahead.take()
            && let Some(waiters) = state.ahead.get_mut(&ahead.key)
        {
            waiters.retain(|waiter| !waiter.news.same_channel(&self.sender));
            if waiters.is_empty() {
                state.ahead.remove(&ahead.key);
            }
        }
        // Given up: should nobody release it, it is not kept for longer than a lease.
        if let Some(own) = state.own.get_mut(&self.key).filter(|own| own.until.is_none()) {
            own.until = Some(self.ledger.clock.now() + self.lease);
        }
    }
}

impl Ask {
    /// From now on `place` waits for the end of this key, which was there when the request was done.
    pub(crate) fn wait_for(self, ahead: Entry, place: &mut Place) {
        let mut state = self.ledger.state();
        let is_gone = |(key, before): &(String, i64)| *key == ahead.key && *before > ahead.created;
        if state.asks.get(&self.number).is_none_or(|asked| asked.unsure || asked.gone.iter().any(is_gone)) {
            let _ = place.sender.send(News::Look);
            return;
        }
        let waiter = Waiter { created: ahead.created, line: place.line.clone(), news: place.sender.clone() };
        state.ahead.entry(ahead.key.clone()).or_default().push(waiter);
        place.ahead = Some(ahead);
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        self.ledger.state().asks.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use lock_core::SystemClock;

    use super::*;

    /// A watch that opens asks for the keys of claims that are on their way; the answer may come after the grant.
    #[test]
    fn what_was_not_there_before_its_grant_is_no_loss() {
        let ledger = Arc::new(Ledger::new(Arc::new(SystemClock)));
        let mut losses = ledger.losses();
        let (owner, now, lease) = (OwnerId::from_store("a"), SystemClock.now(), Duration::from_secs(60));
        let session = Arc::new(Session::new(1, "beacon".to_owned(), now, lease));
        ledger.enter("x/a", "x/", &owner, lease, &session).holds(7, now + lease);
        ledger.ended("x/a", 7);
        assert!(losses.try_recv().is_err());
        ledger.ended("x/a", 8);
        assert_eq!(losses.try_recv().unwrap(), owner);
    }

    /// The end of the key ahead is known; and who was evicted while it looked whether it is first does not hold.
    #[test]
    fn who_heard_of_its_own_end_looks_again() {
        let ledger = Arc::new(Ledger::new(Arc::new(SystemClock)));
        let (owner, now, lease) = (OwnerId::from_store("b"), SystemClock.now(), Duration::from_secs(60));
        let session = Arc::new(Session::new(1, "beacon".to_owned(), now, lease));
        let mut place = ledger.enter("x/b", "x/", &owner, lease, &session);
        place.waits(7);
        let (a, c) = (entry("x/a", 5), entry("x/c", 5));
        ledger.ask("x/").wait_for(a.clone(), &mut place);
        assert!(!place.outlived(&a));
        ledger.deleted("x/a", 8);
        assert!(place.outlived(&a) && !place.outlived(&c) && !place.outlived(&entry("x/a", 6)));
        assert_eq!(ledger.ask("x/").since, 8);
        place.news.try_recv().unwrap();
        ledger.deleted("x/b", 9);
        assert!(!place.holds(7, now + lease));
        assert!(!place.holds(7, now + lease));
        assert!(place.holds(10, now + lease));
        ledger.opened(5);
        assert_eq!(ledger.ask("x/").since, 5);
    }

    /// Go's session puts the same key for each of its locks.
    #[test]
    fn a_late_deletion_ends_only_what_was_created_before_it() {
        let ledger = Arc::new(Ledger::new(Arc::new(SystemClock)));
        let (owner, now, lease) = (OwnerId::from_store("b"), SystemClock.now(), Duration::from_secs(60));
        let session = Arc::new(Session::new(1, "beacon".to_owned(), now, lease));
        let mut losses = ledger.losses();
        let mut place = ledger.enter("x/b", "x/", &owner, lease, &session);
        let (ask, other) = (ledger.ask("x/"), ledger.ask("x/"));
        ledger.deleted("x/go", 12);
        let go = entry("x/go", 15);
        ask.wait_for(go.clone(), &mut place);
        place.waits(20);
        assert!(place.news.try_recv().is_err() && ledger.awaits(&go));
        assert_eq!(ledger.waited_for(), std::slice::from_ref(&go));
        for (key, before) in [("x/go", 15), ("x/b", 20)] {
            ledger.ended(key, before);
        }
        assert!(place.news.try_recv().is_err() && ledger.awaits(&go));
        // A look that found it created later, or not at all, ends it.
        ledger.ended("x/go", 22);
        place.news.try_recv().unwrap();
        assert!(place.outlived(&go) && ledger.waited_for().is_empty());
        other.wait_for(go, &mut place);
        place.news.try_recv().expect("its end was heard of after this was asked");
        assert!(place.holds(20, now + lease));
        ledger.deleted("x/b", 7);
        assert!(losses.try_recv().is_err() && ledger.get("x/b").is_some());
    }

    fn entry(key: &str, created: i64) -> Entry {
        Entry { key: key.to_owned(), created }
    }
}
