//! How a lock is taken, at once or in line.

use lock_core::{Claim, Error, ErrorKind, Grant, InLine, News, Result, StoreToken};

use super::statements::the_row;
use super::waiters::{TURNS, keep_watching};
use super::{PostgresLock, arguments};
use crate::keys::{duration, micros};
use crate::server::{Again, Read};

/// What an attempt was answered.
enum Acquired {
    Granted(Grant),
    /// Held by another for so many microseconds more, with this token.
    Busy {
        left_us: i64,
        token: i64,
        in_line: InLine,
    },
}

impl PostgresLock {
    pub(super) async fn take(&self, claim: &Claim) -> Result<Option<Grant>> {
        if let Acquired::Granted(grant) = self.acquire(claim, &self.prefix.key(&claim.name), None).await? {
            return Ok(Some(grant));
        }
        if self.unsettled.contains(&claim.owner) {
            // Nobody undoes what was denied, and its first copy may land yet.
            self.give_back(claim).await.map_err(Error::after_something_was_done)?;
        }
        Ok(None)
    }

    pub(super) async fn take_in_turn(&self, claim: &Claim) -> Result<Grant> {
        let key = self.prefix.key(&claim.name);
        // Before the request, so that no notification comes too early.
        let mut waiting = self.waiters.register(claim, key.clone());
        let mut may_wait = false;
        loop {
            let client = self.known_as();
            let told = client.map(|client| (client, waiting.number()));
            let acquired = self.acquire(claim, &key, told).await;
            let acquired = acquired.map_err(|error| if may_wait { error.after_something_was_done() } else { error });
            let (left_us, held, in_line) = match acquired? {
                Acquired::Granted(grant) => return Ok(grant),
                Acquired::Busy { left_us, token, in_line } => (left_us, token, in_line),
            };
            may_wait = true;
            self.waiters.ensure_task(TURNS.0, || {
                self.be_known_as(0);
                keep_watching(self.clone())
            });
            if client.is_some() {
                waiting.entered(Some(duration(left_us)));
            }
            match waiting.news_after(held as u64).await {
                News::Granted { token, at_us, arrived } => {
                    let valid_until = waiting.valid_until(&in_line, at_us, arrived, duration(micros(claim.lease)));
                    return Ok(Grant::new(StoreToken::new(token)?, valid_until));
                }
                News::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }

    async fn acquire(&self, claim: &Claim, key: &str, place: Option<(i64, u64)>) -> Result<Acquired> {
        self.sweep_if_due();
        let lease_us = micros(claim.lease);
        let (client, place) = (place.map(|place| place.0), place.map_or(0, |place| place.1 as i64));
        let arguments = arguments!(key, claim.owner.as_str(), lease_us, client, place);
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = on_its_way.answered(self.server.run(&self.statements.acquire, arguments, Again::Yes).await)?;
        let [token, left_us, now_us, held]: [Option<i64>; 4] = the_row(&answer)?.read(0)?;
        match (token, left_us) {
            (Some(token), Some(left_us)) => Ok(Acquired::Granted(Grant::new(
                StoreToken::new(token as u64)?,
                answer.sent + duration(left_us.min(lease_us)),
            ))),
            (None, Some(left_us)) => Ok(Acquired::Busy {
                left_us,
                token: held.unwrap_or_default(),
                in_line: InLine { sent: answer.sent, store_us: now_us.unwrap_or_default() },
            }),
            _ => Err(Error::new(
                ErrorKind::Refused,
                "this owner has given up; each acquisition needs an owner of its own",
            )),
        }
    }
}
