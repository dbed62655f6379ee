//! How a lock is taken, at once or in line.

use lock_core::{Claim, Error, Grant, InLine, Mode, News, Renewal, Result, StoreToken};
use sqlx::mysql::MySqlRow;

use super::hand_over::HANDED_OVER;
use super::line::Place;
use super::release::mark;
use super::statements::ENTERED;
use super::waiters::{TURNS, keep_watching};
use super::{MySqlLock, arguments, changed, hex, inserted};
use crate::keys::{duration, micros};
use crate::server::{Again, Read, given_up};

/// What came of entering the line.
pub(super) enum Turn {
    Granted(Grant),
    Waits(Seen),
}

/// What somebody in line knows of the lock.
pub(super) struct Seen {
    /// How long it is held at most, unless that is prolonged; none: it was free.
    pub(super) left_us: Option<i64>,
    /// The token of its last grant.
    pub(super) token: i64,
    pub(super) at: InLine,
}

/// What there is to see of a lock.
struct Look {
    /// How long it is held; none: it is free.
    left_us: Option<i64>,
    /// We hold it.
    is_ours: bool,
    /// The token of its last grant.
    token: i64,
    /// Somebody else is in line.
    has_line: bool,
    /// How it is held, if by others.
    kind: Mode,
    at: InLine,
}

impl MySqlLock {
    pub(super) async fn take(&self, claim: &Claim) -> Result<Option<Grant>> {
        if self.line.place(&claim.owner) == Some(Place::Waits) {
            // Nobody who holds the lock is in line for it.
            self.leave(&claim.owner).await.map_err(|error| self.told(claim, error))?;
        }
        let tried = self.try_now(claim, &self.prefix.key(&claim.name), false).await;
        let grant = tried.map_err(|error| self.told(claim, error))?;
        if grant.is_none() {
            if self.unsettled.contains(&claim.owner) {
                // Nobody undoes what was denied, and its first copy may land yet.
                self.give_back(claim).await.map_err(Error::after_something_was_done)?;
            } else if claim.value.is_some() {
                self.hide(&claim.owner).await;
            }
        }
        Ok(grant)
    }

    pub(super) async fn take_in_turn(&self, claim: &Claim) -> Result<Grant> {
        let key = self.prefix.key(&claim.name);
        // Who is in line already, from an earlier call, is handed the lock there.
        if self.line.place(&claim.owner).is_none()
            && let Some(grant) = self.try_now(claim, &key, true).await.map_err(|error| self.told(claim, error))?
        {
            return Ok(grant);
        }
        let granted = self.wait_for(claim, &key).await.map_err(|error| self.told(claim, error))?;
        self.line.note(&claim.owner, Place::Granted);
        Ok(granted)
    }

    /// Takes the lock, if it can be had now.
    async fn try_now(&self, claim: &Claim, key: &str, may_wait: bool) -> Result<Option<Grant>> {
        match claim.mode {
            Mode::Exclusive => self.try_once(claim, key).await,
            _ => self.try_beside(claim, key, may_wait && self.known_as().is_some()).await,
        }
    }

    async fn wait_for(&self, claim: &Claim, key: &str) -> Result<Grant> {
        let lease = duration(micros(claim.lease));
        // Before the request, so that no news comes too early.
        let mut waiting = self.waiters.register(claim, key.to_owned());
        loop {
            let entered = match (self.known_as(), claim.mode) {
                (Some(client), Mode::Exclusive) => Some(self.enter(claim, key, client).await?),
                (Some(client), _) => Some(self.enter_beside(claim, key, client).await?),
                (None, _) => None,
            };
            let seen = match entered {
                Some(Turn::Granted(grant)) => return Ok(grant),
                Some(Turn::Waits(seen)) => Some(seen),
                None => None,
            };
            self.waiters.ensure_task(TURNS.0, || {
                self.be_known_as(0);
                keep_watching(self.clone())
            });
            if let Some(seen) = &seen {
                waiting.entered(seen.left_us.map(duration));
            }
            match waiting.news_after(seen.as_ref().map_or(0, |seen| seen.token as u64)).await {
                // Its hold was ended meanwhile: it finds that out.
                News::Granted { slots, .. } if claim.mode.permits().is_some() && slots.as_slice().is_empty() => {}
                News::Granted { token, slots, at_us, arrived } => {
                    let Some(seen) = seen else { continue };
                    let valid_until = waiting.valid_until(&seen.at, at_us, arrived, lease);
                    return Ok(Grant::new(StoreToken::new(token)?, valid_until).with_slots(slots));
                }
                News::Failed(error) => return Err(error),
                _ => {}
            }
        }
    }

    /// Enters the line. If the lock was free, it has been handed to the first in line who lives.
    async fn enter(&self, claim: &Claim, key: &str, client: i64) -> Result<Turn> {
        self.line.note(&claim.owner, Place::Waits);
        self.show(claim, key).await?;
        let (lease, client) = (micros(claim.lease).to_string(), client.to_string());
        let (hex_key, hex_owner, hex_mark) = (hex(key), hex(claim.owner.as_str()), hex(&mark(&claim.owner)));
        let values = [
            ("{key}", &hex_key),
            ("{owner}", &hex_owner),
            ("{mark}", &hex_mark),
            ("{lease}", &lease),
            ("{client}", &client),
        ];
        let mut served = false;
        loop {
            let on_its_way = self.unsettled.send(&claim.owner);
            let entered = self.run(&self.statements.enter, values, ENTERED, Again::Yes).await;
            let answer = on_its_way.answered(entered)?;
            let Some(row) = answer.rows.first() else {
                self.make(key).await?;
                continue;
            };
            let seen = self.seen(row, key, answer.sent).await?;
            if !seen.is_ours && claim.mode.check_kind(seen.kind).is_err() {
                self.leave(&claim.owner).await.map_err(Error::after_something_was_done)?;
                self.line.forget(&claim.owner);
                claim.mode.check_kind(seen.kind)?;
            }
            // Who does not live any more by now, with this client, is told to enter anew.
            if seen.left_us.is_some() || served {
                let granted = if seen.is_ours { self.confirmed(claim, &seen).await? } else { None };
                let Look { left_us, token, at, .. } = seen;
                return Ok(granted.map_or(Turn::Waits(Seen { left_us, token, at }), Turn::Granted));
            }
            self.serve(key).await?;
            served = true;
        }
    }

    /// The grant that was found to be ours. What is committed can be read before it is on the disk: when a renewal is
    /// there, it is, too.
    async fn confirmed(&self, claim: &Claim, seen: &Look) -> Result<Option<Grant>> {
        match self.renew_all(std::slice::from_ref(claim)).await.pop() {
            Some(Ok(Renewal::Held { valid_until })) => {
                Ok(Some(Grant::new(StoreToken::new(seen.token as u64)?, valid_until)))
            }
            Some(Err(error)) => Err(error.after_something_was_done()),
            _ => Ok(None),
        }
    }

    /// Hands a lock that nobody has to the first in line.
    pub(super) async fn serve(&self, key: &str) -> Result<()> {
        let answer = self.run(&self.statements.serve, [("{key}", &hex(key))], HANDED_OVER.0, Again::Yes).await?;
        self.serve_beside(key, &answer).await
    }

    /// Takes the lock, if it is free and nobody is in line.
    async fn try_once(&self, claim: &Claim, key: &str) -> Result<Option<Grant>> {
        self.show(claim, key).await?;
        // The lease counts from here, also where a row has to be made first.
        let latest = self.server.clock.now() + duration(micros(claim.lease));
        let (owner, mark) = (claim.owner.as_str(), mark(&claim.owner));
        let mut past_line = false;
        loop {
            if let Some(grant) = self.grant(claim, owner, key, past_line).await? {
                return Ok(Some(Grant::new(grant.token, grant.valid_until.min(latest))));
            }
            let look = arguments!(owner, key, owner, mark.as_str(), key);
            let answer = self.server.run(&self.statements.look, look, Again::Yes).await?;
            let Some(row) = answer.rows.first() else {
                self.make(key).await?;
                continue;
            };
            let seen = self.seen(row, key, answer.sent).await?;
            if seen.is_ours {
                return self.confirmed(claim, &seen).await;
            }
            if past_line || seen.left_us.is_some() || seen.has_line {
                claim.mode.check_kind(seen.kind)?;
                return Ok(None);
            }
            // The line that there may have been is none.
            past_line = true;
        }
    }

    /// Takes it under this name, if nobody has it.
    pub(super) async fn grant(&self, claim: &Claim, owner: &str, key: &str, past_line: bool) -> Result<Option<Grant>> {
        self.sweep_if_due();
        let lease = micros(claim.lease);
        let mark = mark(&claim.owner);
        let mark = mark.as_str();
        let (statement, arguments) = match past_line {
            false => (&self.statements.grant, arguments!(owner, owner, lease, lease, owner, key, owner, mark)),
            true => (
                &self.statements.grant_past_line,
                arguments!(key, owner, owner, owner, lease, lease, owner, key, owner, mark, key, owner),
            ),
        };
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer = on_its_way.answered(self.server.run(statement, arguments, Again::Yes).await)?;
        if changed(&answer, 0) == 0 {
            return Ok(None);
        }
        let token = StoreToken::new(inserted(&answer, 0))?;
        Ok(Some(Grant::new(token, answer.sent + duration(lease))))
    }

    pub(super) async fn make(&self, key: &str) -> Result<()> {
        self.server.run(&self.statements.make, arguments!(key), Again::Yes).await.map(drop)
    }

    /// What a row of `look` says.
    async fn seen(&self, row: &MySqlRow, key: &str, sent: lock_core::Instant) -> Result<Look> {
        if row.read::<i64, _>("gone")? > 0 {
            return Err(given_up());
        }
        let left_us: Option<i64> = row.read("left_us")?;
        let mut seen = Look {
            left_us,
            is_ours: left_us.is_some() && row.read::<i64, _>("mine")? > 0,
            token: row.read("token")?,
            has_line: row.read::<i64, _>("in_line")? > 0,
            kind: match row.read::<i64, _>("permits")? {
                0 => Mode::Exclusive,
                of => Mode::Permits { take: 1, of: of as u32 },
            },
            at: InLine { sent, store_us: row.read("now_us")? },
        };
        let lease_us = row.read("lease_us")?;
        if left_us.is_some_and(|left| left > lease_us) {
            self.shorten(key).await?;
            seen.left_us = Some(lease_us);
        }
        Ok(seen)
    }

    /// The clock went back. A lease from now on is no shorter than what the holder was promised.
    pub(super) async fn shorten(&self, key: &str) -> Result<()> {
        self.server.run(&self.statements.shorten, arguments!(key), Again::Yes).await.map(drop)
    }

    /// What a caller is told: of several requests, one before the last may have done something.
    pub(super) fn told(&self, claim: &Claim, error: Error) -> Error {
        let may_be = self.unsettled.contains(&claim.owner) || self.line.place(&claim.owner).is_some();
        let may_be = may_be || claim.value.is_some();
        if may_be { error.after_something_was_done() } else { error }
    }
}
