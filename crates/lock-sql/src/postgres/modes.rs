//! Locks that several hold at a time, as readers or with permits. How they are stored, modes.sql says.

use lock_core::{
    Claim, Error, ErrorKind, Grant, Holder, InLine, LockName, LockStatus, Mode, OwnerId, Renewal, Result, Slots,
    StoreToken, Unlocked, Waiter,
};
use sqlx::postgres::PgRow;

use super::acquire::Acquired;
use super::statements::the_row;
use super::status::status;
use super::{PostgresLock, arguments};
use crate::keys::{Prefix, duration, micros};
use crate::modes::{mark, mode, text, together};
use crate::server::{Again, Read, given_up};

/// The kind of a name by its permits; none of a lock.
pub(super) fn kind(permits: i64) -> Mode {
    match u32::try_from(permits) {
        Ok(of @ 1..) => Mode::Permits { take: 1, of },
        _ => Mode::Exclusive,
    }
}

impl PostgresLock {
    /// Beside others. With a place, it is in line if it is not granted.
    pub(super) async fn acquire_beside(&self, claim: &Claim, key: &str, place: Option<(i64, u64)>) -> Result<Acquired> {
        let lease_us = micros(claim.lease);
        let (client, place) = (place.map(|place| place.0), place.map_or(0, |place| place.1 as i64));
        let arguments = arguments!(key, claim.owner.as_str(), lease_us, client, place, text(claim.mode));
        let on_its_way = self.unsettled.send(&claim.owner);
        let answer =
            on_its_way.answered(self.server.run(&self.statements.acquire_beside, arguments, Again::Yes).await)?;
        let numbers: Vec<Option<i64>> = the_row(&answer)?.read(0)?;
        let number = |at: usize| numbers.get(at).copied().flatten();
        match (number(0), number(1), number(3)) {
            (Some(token), Some(left_us), _) => {
                let slots = numbers.iter().skip(4).flatten().filter_map(|slot| u32::try_from(*slot).ok());
                let valid_until = answer.sent + duration(left_us.min(lease_us));
                let grant = Grant::new(StoreToken::new(token as u64)?, valid_until).with_slots(Slots::new(slots));
                Ok(Acquired::Granted(grant))
            }
            (None, Some(left_us), held) => Ok(Acquired::Busy {
                left_us,
                token: held.unwrap_or_default(),
                in_line: InLine { sent: answer.sent, store_us: number(2).unwrap_or_default() },
            }),
            (_, None, Some(permits)) => Ok(Acquired::Another(kind(permits))),
            (_, None, None) => Err(given_up()),
        }
    }

    /// Ends the hold of this owner, who has the lock beside others, or its waiting. None: it holds nothing.
    pub(super) async fn release_beside(
        &self,
        name: &LockName,
        owner: &OwnerId,
        gives_up: bool,
    ) -> Result<Option<Unlocked>> {
        let (key, alone) = (self.prefix.key(name), self.listens.is_some());
        let arguments = arguments!(key, owner.as_str(), gives_up, alone);
        self.call_release(&self.statements.release_beside, arguments).await
    }

    /// Prolongs what is held beside others.
    pub(super) async fn renew_beside(&self, claims: &[Claim]) -> Result<Vec<Renewal>> {
        self.renew_by(&self.statements.renew_beside, claims).await
    }

    /// Ends the holds of all who have the lock together, and answers the first.
    pub(super) async fn end_all(&self, name: &LockName) -> Result<Option<Holder>> {
        let mut first = None;
        for holder in self.status_of(name).await?.holders {
            if holder.mode != Mode::Exclusive
                && self.release_beside(name, &holder.owner, false).await? == Some(Unlocked::Released)
            {
                first.get_or_insert(holder);
            }
        }
        Ok(first)
    }

    /// Ends the hold of this owner.
    pub(super) async fn end_one(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        let holders = self.status_of(name).await?.holders;
        let Some(holder) = holders.into_iter().find(|holder| holder.owner == *owner) else { return Ok(None) };
        if holder.mode == Mode::Exclusive {
            return self.end_hold(name).await;
        }
        let ended = self.release_beside(name, owner, false).await?;
        Ok((ended == Some(Unlocked::Released)).then_some(holder))
    }

    pub(super) async fn set_permits(&self, name: &LockName, permits: u32) -> Result<bool> {
        let mut asked_before = None;
        loop {
            let arguments = arguments!(self.prefix.key(name), i64::from(permits), asked_before);
            let answer = self.server.run(&self.statements.resize, arguments, Again::Yes).await?;
            let numbers: Vec<i64> = the_row(&answer)?.read(0)?;
            match (numbers.first(), numbers.get(1)) {
                (Some(0), _) => return Ok(false),
                (Some(1), _) => return Ok(true),
                // By somebody else meanwhile, or by a request of ours without an answer.
                (Some(4), Some(often)) => asked_before = Some(*often),
                (_, None) => return Mode::Permits { take: 1, of: permits }.check_kind(Mode::Exclusive).map(|()| false),
                (_, Some(most)) => return Err(Mode::too_few(permits, u32::try_from(*most).unwrap_or(u32::MAX))),
            }
        }
    }
}

/// Who holds a lock, alone or with others, and who waits for it, and how.
pub(super) fn status_with_modes(row: &PgRow, prefix: &Prefix, server: &str) -> Result<LockStatus> {
    let mut seen = status(row, prefix, server)?;
    let modes: Vec<String> = row.read("modes")?;
    seen.waiters =
        seen.waiters.into_iter().zip(&modes).map(|(waiter, how)| Waiter::new(waiter.owner, mode(how))).collect();
    let Some(kind) = seen.holder().and_then(|holder| mark(holder.owner.as_str())) else { return Ok(seen) };
    let several: Option<String> = row.read("several")?;
    let foreign =
        || Error::new(ErrorKind::Refused, format!("the server {server}: a row has holders that are none of ours"));
    let together = together(kind, several.as_deref().unwrap_or("[]"));
    seen.holders = together.ok_or_else(foreign)??;
    Ok(seen)
}
