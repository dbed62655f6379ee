//! What this client has in the store: the keys of its claims, and the keys that they wait for. The watch says which of
//! them are gone, and this says whom that concerns.
//!
//! A deletion may be heard of before the answer that says whom one waits for. So whoever asks that is known from before
//! the request until the answer, and what is deleted in the line meanwhile is kept for it. What was heard of before is
//! in answers that are no older.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lock_core::{Clock, Error, ErrorKind, Instant, OwnerId};
use tokio::sync::{broadcast, mpsc};

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
    /// Who waits for these keys.
    ahead: HashMap<String, Vec<mpsc::UnboundedSender<News>>>,
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
    /// When it is over if nobody renews it; never while its `lock` runs.
    pub(crate) until: Option<Instant>,
    news: mpsc::UnboundedSender<News>,
}

/// How far a claim has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A request for it is on its way, or was and is not answered.
    InDoubt,
    /// Its key is in the line.
    Waiting,
    /// The lock is its own, with this create revision.
    Held(i64),
    /// Its key is being deleted, or perhaps was. Did it hold?
    Leaving { held: bool },
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
    gone: Vec<String>,
    /// Something may have been missed.
    unsure: bool,
}

/// A running `lock` or `try_lock`.
pub(crate) struct Place {
    ledger: Arc<Ledger>,
    key: String,
    lease: Duration,
    news: mpsc::UnboundedReceiver<News>,
    sender: mpsc::UnboundedSender<News>,
    ahead: Option<String>,
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
        let own = Own {
            owner: owner.clone(),
            line: line.to_owned(),
            session: Arc::clone(session),
            stage: Stage::InDoubt,
            until: None,
            news: sender.clone(),
        };
        self.state().own.insert(key.to_owned(), own);
        Place { ledger: Arc::clone(self), key: key.to_owned(), lease, news, sender, ahead: None }
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
            Stage::Held(_) => Stage::Leaving { held: true },
            Stage::Waiting => Stage::Leaving { held: false },
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

    /// All keys whose end matters.
    pub(crate) fn keys(&self) -> Vec<String> {
        let state = self.state();
        state.own.keys().chain(state.ahead.keys()).cloned().collect()
    }

    /// A key was deleted at this revision.
    pub(crate) fn deleted(&self, key: &str, at: i64) {
        let mut state = self.state();
        state.heard = at;
        self.gone(&mut state, key);
    }

    /// A key was not there at this revision. A claim may have been granted since.
    pub(crate) fn missing(&self, key: &str, at: i64) {
        let mut state = self.state();
        if !matches!(state.own.get(key), Some(Own { stage: Stage::Held(since), .. }) if *since > at) {
            self.gone(&mut state, key);
        }
    }

    fn gone(&self, state: &mut State, key: &str) {
        for ask in state.asks.values_mut().filter(|ask| key.starts_with(&ask.line)) {
            ask.gone.push(key.to_owned());
        }
        for waiter in state.ahead.remove(key).unwrap_or_default() {
            // Who does not listen any more has left.
            let _ = waiter.send(News::Look);
        }
        self.lose(state, key);
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
        keys.iter().for_each(|key| self.lose(&mut state, key));
    }

    fn lose(&self, state: &mut State, key: &str) {
        let Some(own) = state.own.get(key) else { return };
        match own.stage {
            Stage::Held(_) => {
                // It fails if nobody listens.
                let _ = self.losses.send(own.owner.clone());
                state.own.remove(key);
            }
            Stage::Waiting => drop(own.news.send(News::Look)),
            Stage::InDoubt | Stage::Leaving { .. } => {}
        }
    }

    pub(crate) fn fail(&self, why: &str) {
        for own in self.state().own.values().filter(|own| own.stage == Stage::Waiting) {
            let _ = own.news.send(News::Failed(why.to_owned()));
        }
    }
}

impl Place {
    /// The claim's key is in the line.
    pub(crate) fn waits(&self) {
        if let Some(own) = self.ledger.state().own.get_mut(&self.key) {
            own.stage = Stage::Waiting;
        }
    }

    /// The lock is its own; unless something was heard of it meanwhile, and it is time to look again.
    pub(crate) fn holds(&mut self, revision: i64, until: Instant) -> bool {
        let mut state = self.ledger.state();
        if self.news.try_recv().is_ok() {
            return false;
        }
        if let Some(own) = state.own.get_mut(&self.key) {
            own.stage = Stage::Held(revision);
            own.until = Some(until);
        }
        true
    }

    /// Surely nothing of it is in the store.
    pub(crate) fn give_up(self) {
        self.ledger.remove(&self.key);
    }

    /// Was the end of this key heard of, which it waited for?
    pub(crate) fn outlived(&self, key: &str) -> bool {
        self.ahead.as_deref() == Some(key) && !self.ledger.state().ahead.contains_key(key)
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
        if let Some(waiters) = self.ahead.as_ref().and_then(|ahead| state.ahead.get_mut(ahead)) {
            waiters.retain(|waiter| !waiter.same_channel(&self.sender));
            if waiters.is_empty() {
                self.ahead.take().map(|ahead| state.ahead.remove(&ahead));
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
    pub(crate) fn wait_for(self, ahead: String, place: &mut Place) {
        let mut state = self.ledger.state();
        let asked = state.asks.get(&self.number);
        if asked.is_none_or(|asked| asked.unsure || asked.gone.contains(&ahead)) {
            let _ = place.sender.send(News::Look);
            return;
        }
        state.ahead.entry(ahead.clone()).or_default().push(place.sender.clone());
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
    use lock_core::{SystemClock, TokenBase};

    use super::*;

    /// A watch that opens asks for the keys of claims that are on their way; the answer may come after the grant.
    #[test]
    fn what_was_not_there_before_its_grant_is_no_loss() {
        let ledger = Arc::new(Ledger::new(Arc::new(SystemClock)));
        let mut losses = ledger.losses();
        let (owner, now, lease) = (OwnerId::from_store("a"), SystemClock.now(), Duration::from_secs(60));
        let session = Arc::new(Session::new(1, "beacon".to_owned(), now, lease, TokenBase::made_at(lease, 1)));
        ledger.enter("x/a", "x/", &owner, lease, &session).holds(7, now + lease);
        ledger.missing("x/a", 6);
        assert!(losses.try_recv().is_err());
        ledger.missing("x/a", 7);
        assert_eq!(losses.try_recv().unwrap(), owner);
    }

    /// The end of the key ahead is known; and who was evicted while it looked whether it is first does not hold.
    #[test]
    fn who_heard_of_its_own_end_looks_again() {
        let ledger = Arc::new(Ledger::new(Arc::new(SystemClock)));
        let (owner, now, lease) = (OwnerId::from_store("b"), SystemClock.now(), Duration::from_secs(60));
        let session = Arc::new(Session::new(1, "beacon".to_owned(), now, lease, TokenBase::made_at(lease, 1)));
        let mut place = ledger.enter("x/b", "x/", &owner, lease, &session);
        place.waits();
        ledger.ask("x/").wait_for("x/a".to_owned(), &mut place);
        assert!(!place.outlived("x/a"));
        ledger.deleted("x/a", 8);
        assert!(place.outlived("x/a") && !place.outlived("x/c"));
        assert_eq!(ledger.ask("x/").since, 8);
        place.news.try_recv().unwrap();
        ledger.deleted("x/b", 9);
        assert!(!place.holds(7, now + lease));
        assert!(place.holds(7, now + lease));
        ledger.opened(5);
        assert_eq!(ledger.ask("x/").since, 5);
    }
}
