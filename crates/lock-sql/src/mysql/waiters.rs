//! Waiting for a lock, by asking again and again: a question reads, and only a lock that seems free is asked for.

use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Grant, Result};
use tokio::time::{Instant, sleep};

use super::acquire::{END_OF_LINE, GAVE_UP, Seen};
use super::{MySqlLock, arguments};
use crate::server::{Again, OnItsWay};

/// The pause before the first question, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(600));

/// A pause after a lock has changed hands: where that goes on, our turn may come any moment.
const LIVELY: Duration = Duration::from_millis(12);

/// So many turns between two questions are too many.
const MISSED: i64 = 4;

/// For how much of a turn each one ahead in line counts.
const A_TURN: Duration = Duration::from_millis(2);

/// The longest pause of one with a ticket, which has to be seen.
const SEEN: Duration = Duration::from_secs(1);

/// Passed over by so many, a waiter draws a ticket: nobody is kept waiting for ever by who asks at better moments. Not
/// by fewer: until its holder asks again, a lock that is free stays so, and a ticket is three statements more.
const PASSED_OVER: i64 = 32;

/// How long to wait between two questions: longer and longer, so that a long wait costs little and a short one is over
/// soon.
#[derive(Debug)]
struct Pauses {
    pause: Duration,
    turns: i64,
}

impl Pauses {
    fn new(first: &Seen) -> Self {
        Self { pause: PAUSES.0, turns: first.turns }
    }

    /// The pause after this was seen. `chance` is between 0 and 1: those who ask at once should not do so again.
    fn next(&mut self, seen: &Seen, has_ticket: bool, chance: f64) -> Duration {
        let passed = seen.turns - std::mem::replace(&mut self.turns, seen.turns);
        if passed > 0 {
            // Who is next in line need not fear that others ask as often.
            let soon = if has_ticket || passed > MISSED { PAUSES.0 } else { LIVELY };
            self.pause = self.pause.min(soon);
        }
        let pause = if has_ticket && seen.ahead > 0 {
            (A_TURN * seen.ahead.try_into().unwrap_or(u32::MAX)).max(self.pause).min(SEEN)
        } else {
            self.pause
        };
        self.pause = (self.pause * 3 / 2).min(PAUSES.1);
        // When the holder's lease is over, the lock is free.
        let end = Duration::from_micros(seen.left_us.unwrap_or(0).max(0) as u64) + Duration::from_micros(500);
        pause.mul_f64(0.75 + chance / 2.0).min(end)
    }
}

/// A place in line, which is given back by who has it, or else by its release.
struct Ticket<'l> {
    number: i64,
    on_its_way: OnItsWay<'l>,
    /// It was asked for twice, and what became of the first is not known.
    twice: bool,
    last_seen: Instant,
}

impl MySqlLock {
    /// Waits until the lock is granted, after a first try that was denied by what was seen.
    pub(super) async fn wait_for(&self, claim: &Claim, key: &str, first: Seen) -> Result<Grant> {
        let mut ticket = None;
        let mut pauses = Pauses::new(&first);
        let mut seen = first;
        loop {
            if ticket.is_none() && (claim.fair || seen.turns - first.turns > PASSED_OVER) {
                ticket = Some(self.enter(claim, key).await?);
            }
            sleep(pauses.next(&seen, ticket.is_some(), rand::random())).await;
            let number = ticket.as_ref().map_or(END_OF_LINE, |ticket| ticket.number);
            let granted = match self.look(claim, key, number).await? {
                Some(now) => {
                    seen = now;
                    if seen.is_free() { self.grant(claim, key, Some(number)).await? } else { None }
                }
                // Somebody removed its row.
                None => self.try_once(claim, key, Some(number)).await?.ok(),
            };
            if let Some(grant) = granted {
                if let Some(ticket) = ticket {
                    self.leave(claim, ticket).await?;
                }
                return Ok(grant);
            }
            if let Some(at) = ticket.take_if(|ticket| ticket.last_seen.elapsed() > SEEN) {
                ticket = Some(self.stay(claim, key, at).await?);
            }
        }
    }

    async fn enter<'l>(&'l self, claim: &'l Claim, key: &str) -> Result<Ticket<'l>> {
        let owner = claim.owner.as_str();
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = self.server.run(&self.statements.enter, arguments!(key, owner, owner), Again::Yes).await?;
        let number = answer.result.last_insert_id() as i64;
        if number == 0 {
            return Err(Error::new(ErrorKind::Refused, GAVE_UP));
        }
        self.server.run(&self.statements.line, arguments!(key), Again::Yes).await?;
        Ok(Ticket { number, on_its_way, twice: answer.twice, last_seen: Instant::now() })
    }

    /// Shows that this waiter lives.
    async fn stay<'l>(&'l self, claim: &'l Claim, key: &str, ticket: Ticket<'l>) -> Result<Ticket<'l>> {
        let stayed = self.server.run(&self.statements.stay, arguments!(claim.owner.as_str()), Again::Yes).await?;
        if stayed.result.rows_affected() == 0 {
            // Somebody took it for abandoned.
            return self.enter(claim, key).await;
        }
        self.server.run(&self.statements.line, arguments!(key), Again::Yes).await?;
        Ok(Ticket { last_seen: Instant::now(), ..ticket })
    }

    async fn leave(&self, claim: &Claim, ticket: Ticket<'_>) -> Result<()> {
        self.server.run(&self.statements.leave, arguments!(claim.owner.as_str()), Again::Yes).await?;
        if !ticket.twice {
            ticket.on_its_way.settle();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(left_us: Option<i64>, turns: i64, ahead: i64) -> Seen {
        Seen { left_us, turns, ahead }
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_end_with_the_lease() {
        let far = seen(Some(30_000_000), 1, 0);
        let mut pauses = Pauses::new(&far);
        let first = pauses.next(&far, false, 0.5);
        assert_eq!(first, PAUSES.0);
        let mut last = first;
        for _ in 0..30 {
            let next = pauses.next(&far, false, 0.5);
            assert!(next >= last && next <= PAUSES.1);
            last = next;
        }
        assert_eq!(last, PAUSES.1);
        assert_eq!(pauses.next(&seen(Some(7_000), 1, 0), false, 0.5), Duration::from_micros(7_500));
        assert!(pauses.next(&seen(Some(30_000_000), 2, 0), false, 0.5) <= LIVELY, "it changed hands");
    }

    #[test]
    fn who_has_a_ticket_waits_by_its_place_and_is_seen() {
        let mut pauses = Pauses::new(&seen(None, 1, 0));
        assert_eq!(pauses.next(&seen(Some(30_000_000), 1, 5), true, 0.5), A_TURN * 5);
        assert_eq!(pauses.next(&seen(Some(30_000_000), 1, 100_000), true, 0.5), SEEN);
        assert_eq!(pauses.next(&seen(Some(30_000_000), 2, 0), true, 0.5), PAUSES.0, "it is next");
    }
}
