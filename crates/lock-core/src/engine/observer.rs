//! Who holds a lock, for those who only look: the latest state, and never an older holder after a newer one.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use futures_util::stream::{BoxStream, Stream, StreamExt, unfold};

use crate::contract::{Error, Holder, Instant, LockName, OwnerId, Result, StoreToken};
use crate::engine::core::{Core, closed};
use crate::engine::timing;

/// What was seen will not do for the next look, also where the clock stands still.
const LATER: Duration = Duration::from_nanos(1);

/// What an [`Observer`] sees.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Observed {
    /// This one holds the lock, and shows this value.
    Held(Holder),
    /// Nobody does.
    Free,
    /// The store does not answer. What was seen before may be over. What is seen next may have been seen before.
    Blind(Error),
}

/// Sees who holds a lock, from now on: one state after the other, each of which was the latest when the store was asked.
/// What came and went in between is left out. Nobody who only waits is seen.
///
/// The store is asked twice a second, and every 5 s where it [tells changes](crate::Capabilities::tells_changes);
/// observers of one lock that belong to the same [`Locks`](crate::Locks) share the answers.
pub struct Observer {
    core: Arc<Core>,
    name: LockName,
    sight: Arc<Sight>,
    changes: BoxStream<'static, ()>,
    due: Due,
    seen: Seen,
}

/// The next look.
#[derive(Clone, Copy)]
struct Due {
    at: Instant,
    /// An answer to who asked since then will do.
    since: Instant,
}

/// What was seen so far.
#[derive(Default)]
struct Seen {
    last: Shown,
    /// The token of the newest holder.
    newest: Option<StoreToken>,
    /// One of ours whose token was not there yet.
    early: Option<OwnerId>,
}

/// What came of a look.
#[derive(Debug)]
enum Look {
    New(Box<Observed>),
    Old,
    /// The token may be there in a moment.
    TooEarly,
}

#[derive(Default, PartialEq)]
enum Shown {
    #[default]
    Nothing,
    Held(Box<Holder>),
    Free,
    Blind,
}

impl Observer {
    pub(crate) fn new(core: Arc<Core>, name: LockName) -> Self {
        let (now, sight) = (core.clock.now(), core.sights.of(&name));
        let changes = core.backend.changes(&name);
        let due = Due { at: now, since: now };
        Self { core, name, sight, changes, due, seen: Seen::default() }
    }

    /// The next state that differs from the one before; at first, the present one.
    ///
    /// # Errors
    /// [`ErrorKind::Closed`](crate::ErrorKind::Closed) after a shutdown. A store that is away is no error: that is [seen](Observed::Blind), and the looks
    /// go on.
    ///
    /// # Cancel safety
    /// May be dropped and called again at any time: nothing is left out for that.
    pub async fn next(&mut self) -> Result<Observed> {
        let core = Arc::clone(&self.core);
        let seen = async {
            loop {
                core.check_open("observe")?;
                tokio::select! {
                    biased;
                    () = core.clock.sleep_until(self.due.at) => {}
                    Some(()) = self.changes.next() => {
                        let now = core.clock.now();
                        self.due = Due { at: now, since: now };
                    }
                }
                let answer = self.sight.look(&core, &self.name, self.due.since).await;
                let now = core.clock.now();
                let told = core.capabilities.tells_changes;
                let pause = if told { timing::OBSERVE_TOLD } else { timing::OBSERVE };
                self.due = Due { at: now + pause, since: now + LATER };
                match self.seen.see(answer) {
                    Look::New(seen) => return Ok(*seen),
                    Look::Old => {}
                    Look::TooEarly => self.due.at = now + timing::OBSERVE_AGAIN,
                }
            }
        };
        let seen = tokio::select! {
            biased;
            () = core.closed.cancelled() => Err(closed()),
            seen = seen => seen,
        };
        seen.map_err(|error| self.core.context(error, "observe", Some(&self.name)))
    }

    /// The same as a stream, which ends after the first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Observed>> + Send + 'static {
        unfold(Some(self), async |observer| {
            let mut observer = observer?;
            let seen = observer.next().await;
            let goes_on = seen.is_ok().then_some(observer);
            Some((seen, goes_on))
        })
    }
}

impl Seen {
    fn see(&mut self, answer: Result<Option<Holder>>) -> Look {
        let (shown, observed) = match answer {
            // Nobody can say of one without a token whether it is older.
            Ok(Some(holder)) if holder.token != Holder::NO_TOKEN && self.newest > Some(holder.token) => {
                return Look::Old;
            }
            Ok(Some(holder)) if self.is_early(&holder) => {
                self.early = Some(holder.owner);
                return Look::TooEarly;
            }
            Ok(Some(holder)) => {
                self.newest = self.newest.max(Some(holder.token));
                (Shown::Held(Box::new(lasting(&holder))), Observed::Held(holder))
            }
            Ok(None) => (Shown::Free, Observed::Free),
            Err(error) => (Shown::Blind, Observed::Blind(error)),
        };
        if shown == self.last {
            return Look::Old;
        }
        self.last = shown;
        Look::New(Box::new(observed))
    }

    /// Some stores write the token of a grant down a moment later. Shown before, its holder would be seen twice.
    fn is_early(&self, holder: &Holder) -> bool {
        holder.token == Holder::NO_TOKEN && holder.owner.label().is_some() && self.early.as_ref() != Some(&holder.owner)
    }
}

/// Without what changes by itself.
fn lasting(holder: &Holder) -> Holder {
    let (owner, none) = (holder.owner.clone(), Duration::ZERO);
    let mut lasting = Holder::new(owner, holder.token, none, none).with_value(holder.value.clone());
    lasting.kept = holder.kept;
    lasting
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.core.sights.leave(&self.name, &self.sight);
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("name", &self.name).field("newest", &self.seen.newest).finish_non_exhaustive()
    }
}

/// The last answer about one lock, for all who observe it.
#[derive(Debug, Default)]
struct Sight {
    /// When it was asked for. Locked while somebody asks.
    last: tokio::sync::Mutex<Option<(Instant, Result<Option<Holder>>)>>,
}

impl Sight {
    /// What the store answers to who asks, or has asked since then.
    async fn look(&self, core: &Core, name: &LockName, since: Instant) -> Result<Option<Holder>> {
        let patience = core.clock.now() + timing::OBSERVE;
        let mut last = tokio::select! {
            biased;
            last = self.last.lock() => last,
            // Who asks may be on a runtime that stands still.
            () = core.clock.sleep_until(patience) => return core.backend.holder(name).await,
        };
        if let Some((asked, answer)) = &*last
            && *asked >= since
        {
            return answer.clone();
        }
        let asked = core.clock.now();
        let answer = core.backend.holder(name).await;
        *last = Some((asked, answer.clone()));
        answer
    }
}

/// Of all locks that are observed.
#[derive(Debug, Default)]
pub(crate) struct Sights(Mutex<HashMap<LockName, Weak<Sight>>>);

impl Sights {
    fn of(&self, name: &LockName) -> Arc<Sight> {
        let mut sights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sight) = sights.get(name).and_then(Weak::upgrade) {
            return sight;
        }
        let sight = Arc::new(Sight::default());
        sights.insert(name.clone(), Arc::downgrade(&sight));
        sight
    }

    /// One observer less.
    fn leave(&self, name: &LockName, sight: &Arc<Sight>) {
        let mut sights = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::strong_count(sight) == 1 {
            sights.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contract::OwnerId;

    fn held(token: u64) -> Result<Option<Holder>> {
        let (owner, token) = (OwnerId::from_store("o"), StoreToken::new(token).unwrap());
        Ok(Some(Holder::new(owner, token, Duration::from_millis(token.get()), Duration::ZERO)))
    }

    #[test]
    fn an_older_holder_is_not_seen_after_a_newer_one() {
        let mut seen = Seen::default();
        let mut sees = |answer| match seen.see(answer) {
            Look::New(observed) => Some(*observed),
            Look::Old | Look::TooEarly => None,
        };
        assert!(matches!(sees(held(2)), Some(Observed::Held(_))));
        assert!(sees(held(1)).is_none() && sees(held(2)).is_none());
        assert!(matches!(sees(Ok(None)), Some(Observed::Free)));
        assert!(sees(held(1)).is_none() && sees(Ok(None)).is_none());
        assert!(matches!(sees(held(3)), Some(Observed::Held(_))));
    }

    #[test]
    fn a_holder_whose_token_is_not_there_yet_is_seen_once_with_it() {
        let ours = |token| {
            let owner = OwnerId::from_store("api@host:7#00000000-0000-0000-0000-000000000000");
            Ok(Some(Holder::new(owner, StoreToken::new(token).unwrap(), Duration::ZERO, Duration::ZERO)))
        };
        let mut seen = Seen::default();
        assert!(matches!(seen.see(ours(0)), Look::TooEarly));
        assert!(matches!(seen.see(ours(5)), Look::New(_)));
        assert!(matches!(seen.see(ours(5)), Look::Old));
        // It may have none at all.
        let mut seen = Seen::default();
        assert!(matches!(seen.see(ours(0)), Look::TooEarly));
        assert!(matches!(seen.see(ours(0)), Look::New(_)));
        assert!(matches!(seen.see(ours(0)), Look::Old));
    }

    #[test]
    fn a_holder_without_a_token_is_seen_and_hides_nobody() {
        let mut seen = Seen::default();
        for token in [0, 2, 0, 3] {
            assert!(matches!(seen.see(held(token)), Look::New(_)), "{token}");
        }
        assert!(matches!(seen.see(held(2)), Look::Old));
    }
}
