//! A running `lock` or `try_lock`, and what it hears.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Instant, Result};
use tokio::sync::Notify;

use crate::ledger::{Ledger, Stage};
use crate::requests::Spot;
use crate::waiters::{Ahead, Entry, Turn};

/// So much later than of the end of the one ahead it is heard that it held.
const SOON: Duration = Duration::from_millis(5);

pub(crate) struct Place {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) spot: Arc<Spot>,
    lease: Duration,
    pub(crate) wake: Arc<Notify>,
    /// Its number among those who wait.
    waiter: Option<u64>,
    /// Its key is watched.
    watched: bool,
}

/// A running request that is answered with who is ahead, or with a grant.
pub(crate) struct Ask {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) number: u64,
    /// An answer of an older revision may name a key whose end was heard of already.
    pub(crate) since: i64,
}

impl Place {
    pub(crate) fn new(ledger: Arc<Ledger>, spot: Arc<Spot>, lease: Duration, wake: Arc<Notify>) -> Self {
        Self { ledger, spot, lease, wake, waiter: None, watched: false }
    }

    /// The claim's key is in the line.
    pub(crate) fn waits(&self, own: &Entry) {
        self.ledger.state().becomes(&self.spot.id, Stage::Waiting(own.clone()));
    }

    /// The lock is its own; unless its end was heard of, since this was asked or before.
    pub(crate) fn holds(&mut self, ask: &Ask, own: &Entry, until: Instant) -> bool {
        let mut state = self.ledger.state();
        let has_ended = state.waits.has_ended(ask.number, own);
        let Some(claim) = state.own.get_mut(&self.spot.id) else { return false };
        if has_ended || claim.gone {
            return false;
        }
        claim.until = Some(until);
        state.becomes(&self.spot.id, Stage::Held(own.clone()));
        if state.has_begun(&self.spot.id) {
            self.ledger.bell.notify_one();
        }
        true
    }

    /// Of a request that puts a key for it, a copy may be on its way that was not answered.
    pub(crate) fn is_unsure(&self) -> bool {
        self.ledger.state().own.get(&self.spot.id).is_some_and(|own| own.unsure)
    }

    pub(crate) fn unsure(&self) {
        if let Some(own) = self.ledger.state().own.get_mut(&self.spot.id) {
            own.unsure = true;
        }
    }

    /// Somebody else's key stands at its place.
    pub(crate) fn spoil(&self) {
        if let Some(own) = self.ledger.state().own.get_mut(&self.spot.id) {
            own.spoiled = true;
        }
    }

    /// Surely nothing of it is in the store; something may be on its way only if it is unsure, and then that is kept in
    /// mind.
    pub(crate) fn give_up(self) {
        if !self.is_unsure() {
            self.ledger.remove(&self.spot.id);
        }
    }

    /// The same, and whatever is on its way is void.
    pub(crate) fn forget(self) {
        self.ledger.remove(&self.spot.id);
    }

    /// Was the end of this key heard of, which it waited for?
    pub(crate) fn outlived(&self, entry: &Entry) -> bool {
        self.waiter.is_some_and(|waiter| self.ledger.state().waits.has_outlived(waiter, entry))
    }

    /// Ends when all who were ahead are gone, and its own key would be told if it were: true; or when it is time to look.
    /// If the one ahead held, that is told in the same moment as its end, but by another message.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub(crate) async fn news(&mut self) -> Result<bool> {
        let mut soon = None;
        loop {
            {
                let mut state = self.ledger.state();
                let turn = self.waiter.map_or(Turn::Look, |waiter| state.waits.turn(waiter));
                let Some(own) = state.own.get_mut(&self.spot.id) else { return Ok(false) };
                if let Some(why) = own.failed.take() {
                    return Err(Error::new(ErrorKind::Unknown, why));
                }
                match turn {
                    _ if own.gone => return Ok(false),
                    Turn::First => return Ok(self.watched),
                    Turn::Look => return Ok(false),
                    Turn::Soon => soon = soon.or_else(|| Some(tokio::time::Instant::now() + SOON)),
                    Turn::Wait => {}
                }
            }
            match soon {
                None => self.wake.notified().await,
                Some(soon) if tokio::time::timeout_at(soon, self.wake.notified()).await.is_err() => return Ok(false),
                Some(_) => {}
            }
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.ledger.state();
        if let Some(waiter) = self.waiter {
            state.waits.leave(waiter);
        }
        // Given up: should nobody release it, it is not kept for longer than a lease.
        if let Some(own) = state.own.get_mut(&self.spot.id).filter(|own| own.until.is_none()) {
            own.until = Some(self.ledger.clock.now() + self.lease);
        }
    }
}

impl Ask {
    /// From now on `place`, whose key is `own`, waits for the end of this key, which was there when the request was done.
    pub(crate) fn wait_for(self, mut ahead: Ahead, own: &Entry, place: &mut Place) {
        let mut guard = self.ledger.state();
        let (state, at) = (&mut *guard, ahead.at);
        if let Some(before) = place.waiter.take() {
            state.waits.leave(before);
        }
        if state.waits.has_ended(self.number, own)
            && let Some(claim) = state.own.get_mut(&place.spot.id)
        {
            claim.gone = true;
        }
        ahead.tells &= !state.tells_nothing();
        let waiter = state.waits.wait_for(self.number, ahead, &place.spot.line, &place.wake);
        place.waiter = Some(waiter);
        place.watched = state.watch(waiter, own, at, &self.ledger.keys);
        if state.is_pending() {
            self.ledger.bell.notify_one();
        }
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        self.ledger.state().waits.asked(self.number);
    }
}
