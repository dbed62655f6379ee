//! Waiting for a lock: first come, first served, across processes.
//!
//! Who is refused draws a ticket. A release tells the first in line, who then tries. Should nobody tell, each looks
//! once a tick, and when the holder's lease, or the turn of somebody ahead who is not seen any more, is over. Who finds
//! that it was passed over, and lives, cannot be told: it looks often instead.

use std::time::Duration;

use lock_core::{Claim, Grant, Mode, Result};
use tokio::time::{Instant, timeout};

use super::SqliteLock;
use super::mode_statements::{ENTER_BESIDE, LOOK_BESIDE};
use super::modes::{kind, wanted};
use super::statements::{Ask, ENTER, LOOK, NEXT, PASS_OVER, STAY};
use super::store::Failure;
use super::wake::Place;

/// How often a waiter looks by itself. Three times as often as it would need to, to keep its turn.
const TICK: Duration = Duration::from_secs(1);

/// A ticket that was seen since is not refreshed at a tick.
const FRESH_US: i64 = 900_000;

/// How soon to look again where nobody can wake us.
const POLL: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(50));

/// What a waiter goes by, in microseconds from now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct View {
    /// How long the lock is held.
    held: Option<i64>,
    /// How long somebody ahead counts.
    ahead: Option<i64>,
}

impl View {
    fn is_my_turn(self) -> bool {
        self.held.is_none() && self.ahead.is_none()
    }

    /// How long to wait for news. While somebody is ahead, the end of the lease is theirs; but if they are gone by
    /// then, it is ours.
    fn pause(self) -> Duration {
        let left = self.held.max(self.ahead).unwrap_or(0);
        Duration::from_micros(left.try_into().unwrap_or(0)).clamp(Duration::from_millis(1), TICK)
    }
}

impl SqliteLock {
    /// Waits in line until the lock is granted. The place in line is given back by `unlock`.
    pub(super) async fn wait_in_line(&self, claim: &Claim) -> Result<Grant, Failure> {
        let mut place = self.wake.place();
        let key = self.key(&claim.name);
        let beside = claim.mode != Mode::Exclusive;
        let statement = if beside { ENTER_BESIDE } else { ENTER };
        let ask = Ask { statement, key: &key, owner: claim.owner.as_str(), ..Ask::default() };
        loop {
            let wanted = beside.then(|| wanted(claim.mode, place.wake()));
            let answer = self.store.run(Ask { text: wanted.as_deref().or(place.wake()), ..ask }).await?;
            // An answer without a row cannot be; should it, we enter again.
            let Some(row) = answer.rows.first() else { continue };
            let ticket = row.get("ticket");
            let view = View { held: row.get("held_us"), ahead: row.get("ahead_us") };
            if beside && row.get("mine") {
                // An earlier call was granted it, and its answer lost.
                self.leave(claim).await?;
                return self.own_or_kind(claim).await?.ok_or(Failure::Replaced);
            }
            if let Some(found) = row.get::<Option<&str>>("phase").map(kind).filter(|kind| !claim.mode.is_kind_of(*kind))
            {
                self.leave(claim).await?;
                return Err(claim.mode.check_kind(found).err().map_or(Failure::Replaced, Failure::Error));
            }
            let granted = self.wait_with_ticket(claim, ticket, &mut place, view).await;
            if let Some(grant) = granted.map_err(Failure::with_a_ticket)? {
                return Ok(grant);
            }
        }
    }

    /// None: somebody took the ticket for abandoned, and removed it or passed it over.
    async fn wait_with_ticket(
        &self,
        claim: &Claim,
        ticket: i64,
        place: &mut Place,
        first: View,
    ) -> Result<Option<Grant>, Failure> {
        let key = self.key(&claim.name);
        let beside = claim.mode != Mode::Exclusive;
        let wanted = beside.then(|| wanted(claim.mode, None));
        let (look, text) = if beside { (LOOK_BESIDE, wanted.as_deref()) } else { (LOOK, None) };
        let ask = Ask { key: &key, owner: claim.owner.as_str(), number: ticket, ..Ask::default() };
        let (mut view, mut seen) = (first, Instant::now());
        let mut poll = POLL.0;
        loop {
            if view.is_my_turn()
                && let Some(grant) = self.grant(claim, ticket).await?
            {
                return Ok(Some(grant));
            }
            if !view.is_my_turn() {
                let patience = if place.wake().is_some() { view.pause() } else { view.pause().min(poll) };
                poll = (poll * 3 / 2).min(POLL.1);
                if timeout(patience, place.woken()).await.is_ok() {
                    view = View::default();
                    continue;
                }
            }
            let answer = self.store.run(Ask { statement: look, text, ..ask }).await?;
            let Some(row) = answer.rows.first() else { return Ok(None) };
            let Some(unseen_us) = row.get::<Option<i64>>("unseen_us") else { return Ok(None) };
            view = View { held: row.get("held_us"), ahead: row.get("ahead_us") };
            if place.wake().is_some() && Duration::from_micros(unseen_us.unsigned_abs()) > seen.elapsed() + TICK {
                // A release could not reach us, as from another network namespace, and nor could the next.
                place.is_not_reached();
                return Ok(None);
            }
            if unseen_us > FRESH_US {
                self.store.run(Ask { statement: STAY, ..ask }).await?;
                seen = Instant::now();
            }
        }
    }

    /// Wakes the first in line of a lock that may be free, if there is anybody.
    pub(super) async fn wake_next(&self, key: &str, owner: &str) -> Result<(), Failure> {
        let answer = self.store.run(Ask { statement: NEXT, key, owner, ..Ask::default() }).await?;
        match answer.rows.first().and_then(|row| row.get::<Option<String>>("wake")) {
            Some(wake) => self.tell(key, owner, wake).await,
            None => Ok(()),
        }
    }

    /// Wakes the waiter that listens there, or the next one who lives.
    pub(super) async fn tell(&self, key: &str, owner: &str, mut wake: String) -> Result<(), Failure> {
        while !self.wake.tell(&wake) {
            self.store.run(Ask { statement: PASS_OVER, key, owner, text: Some(&wake), ..Ask::default() }).await?;
            let answer = self.store.run(Ask { statement: NEXT, key, owner, ..Ask::default() }).await?;
            match answer.rows.first().and_then(|row| row.get::<Option<String>>("wake")) {
                Some(next) => wake = next,
                None => break,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_when_something_may_have_changed() {
        let pause = |held, ahead| View { held, ahead }.pause();
        assert_eq!(pause(Some(30_000_000), None), TICK);
        assert_eq!(pause(Some(200_000), None), Duration::from_millis(200));
        assert_eq!(pause(None, Some(300_000)), Duration::from_millis(300));
        assert_eq!(pause(Some(200_000), Some(300_000)), Duration::from_millis(300));
        assert_eq!(pause(Some(-5), None), Duration::from_millis(1), "never a spin");
        assert!(View::default().is_my_turn());
        assert!(!View { held: None, ahead: Some(1) }.is_my_turn() && !View { held: Some(1), ahead: None }.is_my_turn());
    }
}
