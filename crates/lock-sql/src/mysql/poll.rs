//! Waiting for a lock, by asking again and again: a question reads, and only a lock that seems free is asked for.

use std::time::Duration;

use lock_core::{Claim, Error, ErrorKind, Grant, Result};
use tokio::time::sleep;

use super::{END_OF_LINE, MySqlLock, Seen, arguments};
use crate::server::Again;

/// The pause before the first question, and the longest one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(600));

/// A pause after a lock has changed hands: where that goes on, our turn may come any moment.
const LIVELY: Duration = Duration::from_millis(8);

/// For how much of a turn each one ahead in line counts.
const A_TURN: Duration = Duration::from_millis(2);

/// The longest pause of one with a ticket, which has to be seen.
const SEEN: Duration = Duration::from_secs(1);

/// How long to wait between two questions: longer and longer, so that a long wait costs little and a short one is over soon.
#[derive(Debug)]
struct Pauses {
    pause: Duration,
    token: Option<i64>,
}

impl Pauses {
    fn new() -> Self {
        Self { pause: PAUSES.0, token: None }
    }

    /// The pause after this was seen. `chance` is between 0 and 1: those who ask at once should not do so again.
    fn next(&mut self, seen: &Seen, has_ticket: bool, chance: f64) -> Duration {
        let changed = self.token.is_some_and(|token| token != seen.token);
        self.token = Some(seen.token);
        if changed {
            self.pause = self.pause.min(LIVELY);
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

impl MySqlLock {
    /// Waits until the lock is granted, after a first try that was denied by what was seen.
    pub(super) async fn wait_for(&self, claim: &Claim, key: &str, first: Seen) -> Result<Grant> {
        let mut ticket = if claim.fair { Some(self.enter(claim, key).await?) } else { None };
        let mut pauses = Pauses::new();
        let mut seen = first;
        let mut last_seen = tokio::time::Instant::now();
        loop {
            sleep(pauses.next(&seen, ticket.is_some(), rand::random())).await;
            seen = match self.look(claim, key, ticket.unwrap_or(END_OF_LINE)).await? {
                Some(seen) => seen,
                // Somebody removed its row.
                None => match self.try_once(claim, key, Some(ticket.unwrap_or(END_OF_LINE))).await? {
                    Ok(grant) => return Ok(grant),
                    Err(seen) => seen,
                },
            };
            if seen.is_free()
                && let Some(grant) = self.grant(claim, key, Some(ticket.unwrap_or(END_OF_LINE))).await?
            {
                return Ok(grant);
            }
            if ticket.is_some() && last_seen.elapsed() > SEEN {
                last_seen = tokio::time::Instant::now();
                let stayed =
                    self.server.run(&self.statements.stay, arguments!(claim.owner.as_str()), Again::Yes).await?;
                if stayed.result.rows_affected() == 0 {
                    // Somebody took it for abandoned.
                    ticket = Some(self.enter(claim, key).await?);
                } else {
                    self.server.run(&self.statements.line, arguments!(key), Again::Yes).await?;
                }
            }
        }
    }

    async fn enter(&self, claim: &Claim, key: &str) -> Result<i64> {
        let owner = claim.owner.as_str();
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = self.server.run(&self.statements.enter, arguments!(key, owner, owner), Again::Yes).await?;
        if !answer.twice {
            on_its_way.settle();
        }
        let ticket = answer.result.last_insert_id();
        if ticket == 0 {
            return Err(Error::new(ErrorKind::Refused, super::GAVE_UP));
        }
        self.server.run(&self.statements.line, arguments!(key), Again::Yes).await?;
        Ok(ticket as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(left_us: Option<i64>, token: i64, ahead: i64) -> Seen {
        Seen { left_us, token, ahead }
    }

    #[test]
    fn pauses_grow_up_to_a_bound_and_end_with_the_lease() {
        let mut pauses = Pauses::new();
        let far = seen(Some(30_000_000), 1, 0);
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
        let mut pauses = Pauses::new();
        assert_eq!(pauses.next(&seen(Some(30_000_000), 1, 5), true, 0.5), A_TURN * 5);
        assert_eq!(pauses.next(&seen(Some(30_000_000), 1, 100_000), true, 0.5), SEEN);
    }
}
