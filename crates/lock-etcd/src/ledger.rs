//! What this client has in the store: the keys of its claims. The watch says which keys are gone, and this says whom that
//! concerns.
//!
//! A deletion may be heard of before the answer that says whom one waits for, or that one was granted. So whoever asks
//! that is known from before the request until the answer, and what is deleted in the line meanwhile is kept for it. What
//! was heard of before is in answers that are no older.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lock_core::{Claim, Clock, Instant, OwnerId};
use tokio::sync::{Notify, broadcast};

use crate::keys::{self, Keys};
use crate::place::{Ask, Place};
use crate::requests::Spot;
use crate::session::Session;
use crate::waiters::{Entry, Waits};
use crate::watchlist::{Todo, Watchlist};

/// How many losses may wait to be heard of. Who is told too late learns of them at the next renewal.
const LOSSES: usize = 1024;

/// So many crowded lines are remembered.
const CROWDED: usize = 1024;

pub(crate) struct Ledger {
    state: Mutex<State>,
    losses: broadcast::Sender<OwnerId>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) keys: Keys,
    /// There is something to be done for who watches.
    pub(crate) bell: Notify,
}

#[derive(Default)]
pub(crate) struct State {
    /// By what the client calls them.
    pub(crate) own: HashMap<String, Own>,
    /// Which of them have keys of these names.
    named: HashMap<String, Vec<String>>,
    /// Which of them have these places, whether they have put their keys there or not.
    placed: HashMap<String, String>,
    /// Which places are in use, by the first one's name.
    numbers: HashMap<String, Numbers>,
    pub(crate) waits: Waits,
    watchlist: Watchlist,
    /// Who holds for less than two ticks: since the last one, and since the one before.
    young: [Vec<String>; 2],
    /// Somebody calls [`Ledger::tick`].
    ticks: bool,
    /// Lines in which somebody was, when they were asked for last.
    crowded: HashSet<String>,
    /// The revision until which all deletions were heard of.
    pub(crate) heard: i64,
}

/// A claim of this client.
#[derive(Clone)]
pub(crate) struct Own {
    pub(crate) spot: Arc<Spot>,
    pub(crate) session: Arc<Session>,
    pub(crate) stage: Stage,
    /// A copy of a request that puts a key for it may still be on its way, though another one was answered.
    pub(crate) unsure: bool,
    /// The number of its place. It is given to no other claim before this one is over.
    number: usize,
    /// Nor after that: somebody else's key is there.
    pub(crate) spoiled: bool,
    /// Its key is gone, or its lease.
    pub(crate) gone: bool,
    /// When it is over if nobody renews it; never while its `lock` runs.
    pub(crate) until: Option<Instant>,
    /// Why the store cannot be asked.
    pub(crate) failed: Option<String>,
    pub(crate) wake: Arc<Notify>,
    /// When its key was last put, as far as we know; zero: when it was created.
    pub(crate) put: i64,
    /// Leases of the store that were taken to keep it on one of them, and not given back yet.
    pub(crate) rests: Vec<i64>,
}

/// How far a claim has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A request for it is on its way, or was and is not answered.
    InDoubt,
    /// Its key is in the line.
    Waiting(Entry),
    /// The lock is its own.
    Held(Entry),
    /// Its key is being deleted, or perhaps was. Did it hold?
    Leaving { held: bool, entry: Entry },
}

/// The numbers of the places of one lease in one line.
#[derive(Default)]
struct Numbers {
    next: usize,
    free: BTreeSet<usize>,
}

impl State {
    /// The lowest number that no claim has.
    fn take_number(&mut self, first: String) -> usize {
        let numbers = self.numbers.entry(first).or_default();
        numbers.free.pop_first().unwrap_or_else(|| {
            numbers.next += 1;
            numbers.next - 1
        })
    }

    fn give_number(&mut self, first: &str, number: usize) {
        if let Some(numbers) = self.numbers.get_mut(first) {
            numbers.free.insert(number);
            if numbers.free.len() == numbers.next {
                self.numbers.remove(first);
            }
        }
    }

    fn remove(&mut self, id: &str) {
        self.unname(id);
        let Some(own) = self.own.remove(id) else { return };
        self.placed.remove(&own.spot.place);
        if !own.spoiled {
            self.give_number(&keys::place(&own.spot.line, own.spot.mode, own.session.lease, 0), own.number);
        }
    }

    /// Its key is known.
    pub(crate) fn becomes(&mut self, id: &str, stage: Stage) {
        self.unname(id);
        let Some(own) = self.own.get_mut(id) else { return };
        own.stage = stage;
        if let Some(entry) = own.entry() {
            self.named.entry(entry.key.clone()).or_default().push(id.to_owned());
        }
    }

    /// This claim holds now. Its key is watched when it has held for a while: most holds are over by then. Does nobody
    /// see to that yet?
    pub(crate) fn has_begun(&mut self, id: &str) -> bool {
        self.young[0].push(id.to_owned());
        !std::mem::replace(&mut self.ticks, true)
    }

    /// Sees to it that a waiter, whose own key is this one, hears of the end of the one ahead, which was there at this
    /// revision. Is its own key watched? Of the ends of this client's keys it knows by itself, so whoever waits for one of
    /// these has its own looked at: now and then, and when it is the first.
    pub(crate) fn watch(&mut self, waiter: u64, own: &Entry, at: i64, keys: &Keys) -> bool {
        let Some((next, tells)) = self.waits.ahead_of(waiter) else { return false };
        if self.is_ours(next) {
            return false;
        }
        let (next, mark) = (next.key.clone(), tells.then(|| keys.mark(&next.key)));
        // What is told first is asked for first.
        mark.iter().chain([&next, &own.key]).for_each(|key| self.watchlist.need(key, at));
        true
    }

    /// Behind etcd's grpc-proxy nobody hears of marks.
    pub(crate) fn tells_nothing(&self) -> bool {
        self.watchlist.is_whole()
    }

    /// Is there something to be sent over the stream of watches?
    pub(crate) fn is_pending(&self) -> bool {
        self.watchlist.pending() > 0
    }

    /// Is this the key of a claim of this client, as far as that is known yet?
    fn is_ours(&self, entry: &Entry) -> bool {
        let by_key = self.named.get(&entry.key).into_iter().flatten().filter_map(|id| self.own.get(id));
        let by_place = self.placed.get(&entry.key).and_then(|id| self.own.get(id));
        by_key.into_iter().any(|own| own.entry() == Some(entry))
            || by_place.is_some_and(|own| own.stage == Stage::InDoubt && !own.spoiled)
    }

    fn unname(&mut self, id: &str) {
        let Some(entry) = self.own.get(id).and_then(Own::entry) else { return };
        if let Some(named) = self.named.get_mut(&entry.key) {
            named.retain(|other| other != id);
            if named.is_empty() {
                self.named.remove(&entry.key);
            }
        }
    }
}

impl Own {
    /// When its key was last put, as far as we know.
    pub(crate) fn put(&self, entry: &Entry) -> i64 {
        self.put.max(entry.created)
    }

    fn entry(&self) -> Option<&Entry> {
        match &self.stage {
            Stage::InDoubt => None,
            Stage::Waiting(entry) | Stage::Held(entry) | Stage::Leaving { entry, .. } => Some(entry),
        }
    }
}

impl Ledger {
    pub(crate) fn new(clock: Arc<dyn Clock>, keys: Keys) -> Self {
        let (state, losses) = (Mutex::default(), broadcast::Sender::new(LOSSES));
        Self { state, losses, clock, keys, bell: Notify::new() }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The owners that lose their locks from now on.
    pub(crate) fn losses(&self) -> broadcast::Receiver<OwnerId> {
        self.losses.subscribe()
    }

    /// Before the first byte leaves.
    pub(crate) fn enter(self: &Arc<Self>, id: &str, line: &str, claim: &Claim, session: &Arc<Session>) -> Place {
        let (first, wake) = (keys::place(line, claim.mode, session.lease, 0), Arc::new(Notify::new()));
        let mut state = self.state();
        // What is on its way in a session that is over is void.
        let before = state.own.get(id).filter(|before| before.session.lease == session.lease);
        let kept = before.map(|before| (before.number, before.unsure || before.stage == Stage::InDoubt));
        let (number, unsure) = match kept {
            Some(kept) => kept,
            None => {
                state.remove(id);
                (state.take_number(first), false)
            }
        };
        state.unname(id);
        let spot = Arc::new(Spot::new(&self.keys, claim, session.lease, number));
        let own = Own {
            spot: Arc::clone(&spot),
            session: Arc::clone(session),
            stage: Stage::InDoubt,
            unsure,
            number,
            spoiled: false,
            gone: false,
            until: None,
            failed: None,
            wake: Arc::clone(&wake),
            put: 0,
            rests: Vec::new(),
        };
        state.placed.insert(spot.place.clone(), spot.id.clone());
        state.own.insert(spot.id.clone(), own);
        drop(state);
        Place::new(Arc::clone(self), spot, claim.lease, wake)
    }

    pub(crate) fn ask(self: &Arc<Self>, line: &str) -> Ask {
        let mut state = self.state();
        let (number, since) = (state.waits.ask(line), state.heard);
        drop(state);
        Ask { ledger: Arc::clone(self), number, since }
    }

    pub(crate) fn get(&self, id: &str) -> Option<Own> {
        self.state().own.get(id).cloned()
    }

    /// Was somebody in this line when it was asked for last? Then who asks does not expect to find it empty.
    pub(crate) fn is_crowded(&self, line: &str) -> bool {
        self.state().crowded.contains(line)
    }

    pub(crate) fn crowded(&self, line: &str, is_crowded: bool) {
        let crowded = &mut self.state().crowded;
        if !is_crowded {
            crowded.remove(line);
        } else if !crowded.contains(line) {
            if crowded.len() >= CROWDED {
                crowded.clear();
            }
            crowded.insert(line.to_owned());
        }
    }

    /// A release of this claim begins: what it was until now. Whose time is over by then did not hold it to the end.
    pub(crate) fn leaving(&self, id: &str) -> Option<Own> {
        let now = self.clock.now();
        let mut state = self.state();
        let before = state.own.get(id)?.clone();
        let in_time = before.until.is_none_or(|until| until >= now);
        let leaving = |held, entry: &Entry| Stage::Leaving { held, entry: entry.clone() };
        match &before.stage {
            Stage::Held(entry) => state.becomes(id, leaving(in_time, entry)),
            Stage::Waiting(entry) => state.becomes(id, leaving(false, entry)),
            _ => {}
        }
        Some(before)
    }

    /// This claim's place is not ours any more, and is there still: no other claim has it.
    pub(crate) fn leaves_its_place(&self, id: &str, entry: &Entry) {
        if let Some(own) = self.state().own.get_mut(id) {
            own.spoiled |= own.spot.shows.is_none() && own.spot.place == entry.key;
        }
        self.remove(id);
        // Those of this client who wait for it have to hear of its end from the store.
        self.state().waits.ask_again(entry);
    }

    /// A release was not done: the claim is what it was.
    pub(crate) fn stays(&self, id: &str, before: &Own) {
        self.state().becomes(id, before.stage.clone());
    }

    /// Nothing is left of this claim.
    pub(crate) fn remove(&self, id: &str) {
        self.state().remove(id);
    }

    /// A renewal of this claim was confirmed.
    pub(crate) fn renewed(&self, id: &str, until: Instant) {
        if let Some(own) = self.state().own.get_mut(id) {
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
        over.map(|(id, _)| id.clone()).collect()
    }

    /// A renewal found that the key is not the one that was granted.
    pub(crate) fn not_held(&self, id: &str, entry: &Entry) {
        let mut state = self.state();
        if state.own.get(id).is_some_and(|own| own.stage == Stage::Held(entry.clone())) {
            state.waits.gone(&entry.key, entry.created + 1, false);
            self.end(&mut state, id);
        }
    }

    /// The names of all keys whose end matters.
    pub(crate) fn keys(&self) -> Vec<String> {
        let state = self.state();
        let of_doubtful = state.own.values().filter(|own| own.stage == Stage::InDoubt);
        let of_doubtful = of_doubtful.flat_map(|own| [&own.spot.seat, &own.spot.place]);
        let all: HashSet<_> = state.named.keys().chain(state.waits.keys()).chain(of_doubtful).collect();
        all.into_iter().cloned().collect()
    }

    /// In each line that a claim of this client waits in, the first key that one of them waits for; and the keys of all
    /// these claims.
    pub(crate) fn of_waiters(&self) -> Vec<Entry> {
        let state = self.state();
        let own = state.own.values().filter_map(|own| match &own.stage {
            Stage::Waiting(entry) if !own.gone => Some(entry.clone()),
            _ => None,
        });
        state.waits.firsts().into_iter().chain(own).collect()
    }

    /// Is this one of them still?
    pub(crate) fn is_of_waiters(&self, entry: &Entry) -> bool {
        let state = self.state();
        let mut named = state.named.get(&entry.key).into_iter().flatten().filter_map(|id| state.own.get(id));
        state.waits.awaits(entry) || named.any(|own| own.stage == Stage::Waiting(entry.clone()) && !own.gone)
    }

    /// Somebody took the lease from this key: whoever waits for it, or has it and waits, is to look.
    pub(crate) fn has_no_lease(&self, entry: &Entry) {
        let mut state = self.state();
        state.waits.ask_again(entry);
        for id in state.named.get(&entry.key).cloned().unwrap_or_default() {
            let waiting = state.own.get_mut(&id).filter(|own| own.stage == Stage::Waiting(entry.clone()));
            if let Some(own) = waiting {
                own.gone = true;
                own.wake.notify_one();
            }
        }
    }

    /// What is to be sent over the stream of watches, with keys to look at if that may be, and whether to call
    /// [`Ledger::tick`], and [`Ledger::sweep`].
    pub(crate) fn todo(&self, may_look: bool) -> (Todo, bool, bool) {
        let mut state = self.state();
        (state.watchlist.todo(may_look), state.ticks, !state.watchlist.is_empty())
    }

    /// The server tells of this watch's key from now on.
    pub(crate) fn watching(&self, number: i64, at: i64) {
        self.state().watchlist.opened(number, at);
    }

    /// The server has closed this watch. Was it asked to?
    pub(crate) fn has_closed(&self, number: i64) -> bool {
        self.state().watchlist.closed(number)
    }

    /// A while is over: the keys of those who have held since before the last one are watched.
    pub(crate) fn tick(&self) {
        let mut guard = self.state();
        let state = &mut *guard;
        let young = std::mem::take(&mut state.young[0]);
        for id in std::mem::replace(&mut state.young[1], young) {
            if let Some(Stage::Held(entry)) = state.own.get(&id).map(|own| &own.stage) {
                state.watchlist.need(&entry.key, entry.created);
            }
        }
        state.ticks = state.young.iter().any(|young| !young.is_empty());
    }

    /// Closes watches that nobody needs any more.
    pub(crate) fn sweep(&self) {
        let mut guard = self.state();
        let State { watchlist, waits, named, .. } = &mut *guard;
        let marks: HashSet<_> = waits.keys().map(|key| self.keys.mark(key)).collect();
        watchlist.sweep(|key| waits.needs(key) || named.contains_key(key) || marks.contains(key));
    }

    /// A key was deleted at this revision.
    pub(crate) fn deleted(&self, key: &str, at: i64) {
        let mut state = self.state();
        state.heard = state.heard.max(at);
        self.gone(&mut state, key, at, true);
    }

    /// Who had this place gave the lock back at this revision.
    pub(crate) fn passed(&self, place: &str, at: i64) {
        self.state().waits.passed(place, at);
    }

    /// This one was found gone at this revision.
    pub(crate) fn found_gone(&self, entry: &Entry, at: i64) {
        let mut state = self.state();
        state.heard = state.heard.max(at);
        self.gone(&mut state, &entry.key, entry.created + 1, false);
    }

    /// What was created under this name before this revision is gone.
    pub(crate) fn ended(&self, key: &str, before: i64) {
        self.gone(&mut self.state(), key, before, false);
    }

    fn gone(&self, state: &mut State, key: &str, before: i64, told: bool) {
        state.waits.gone(key, before, told);
        for id in state.named.get(key).cloned().unwrap_or_default() {
            if state.own.get(&id).and_then(Own::entry).is_some_and(|entry| entry.created < before) {
                self.lose(state, &id);
            }
        }
    }

    /// There is a new stream of watches, from this revision on; is it one over all keys? Of the deletions before, some
    /// may have been missed.
    pub(crate) fn opened(&self, at: i64, whole: bool) {
        let mut state = self.state();
        state.heard = at;
        state.waits.missed();
        if state.watchlist.begin(whole) && !whole {
            let state = &mut *state;
            state.named.keys().chain(state.waits.keys()).for_each(|key| state.watchlist.need(key, at));
        }
        state.ticks = true;
    }

    /// A lease is over, and with it all keys of its claims.
    pub(crate) fn lost(&self, session: &Session) {
        let mut state = self.state();
        let theirs = state.own.iter().filter(|(_, own)| own.session.lease == session.lease);
        let ids: Vec<_> = theirs.map(|(id, _)| id.clone()).collect();
        ids.iter().for_each(|id| self.lose(&mut state, id));
    }

    /// The key of this claim is gone.
    fn lose(&self, state: &mut State, id: &str) {
        let Some(own) = state.own.get_mut(id) else { return };
        own.gone = true;
        // Others of this client may wait for it. If it was kept, it is not gone with its owner's lease.
        match own.entry() {
            Some(Entry { key, created }) if own.rests.is_empty() => state.waits.gone(key, created + 1, false),
            Some(entry) => state.waits.ask_again(entry),
            None => {}
        }
        match own.stage {
            Stage::Held(_) => {
                // It fails if nobody listens.
                let _ = self.losses.send(own.spot.owner.clone());
                self.end(state, id);
            }
            Stage::Waiting(_) => own.wake.notify_one(),
            Stage::InDoubt | Stage::Leaving { .. } => {}
        }
    }

    /// A claim does not hold any more. If a copy of its request may land yet, it is undone.
    fn end(&self, state: &mut State, id: &str) {
        if !state.own.get(id).is_some_and(|own| own.unsure) {
            return state.remove(id);
        }
        state.becomes(id, Stage::InDoubt);
        if let Some(own) = state.own.get_mut(id) {
            own.until = Some(self.clock.now());
        }
    }

    pub(crate) fn fail(&self, why: &str) {
        for own in self.state().own.values_mut().filter(|own| matches!(own.stage, Stage::Waiting(_))) {
            own.failed = Some(why.to_owned());
            own.wake.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
