//! Locks that several hold at a time, as readers or with permits. How they are stored, `mode_statements` says.

use lock_core::{Claim, Error, ErrorKind, Grant, Holder, LockName, Mode, OwnerId, Result, Slots, StoreToken, Unlocked};
use serde_json::json;
use sqlx::Row;

use super::SqliteLock;
use super::mode_statements::{GRANT_BESIDE, OWN, RELEASE_BESIDE, RESIZE};
use super::statements::Ask;
use super::store::Failure;
use crate::keys::{duration, holder, micros};

/// A mode as the statements are told it, and where to wake who waits.
pub(super) fn wanted(mode: Mode, wake: Option<&str>) -> String {
    let wanted = match mode {
        Mode::Permits { take, of } => json!({"m": "p", "take": take, "of": of, "mode": text(mode), "wake": wake}),
        _ => json!({"m": "s", "mode": text(mode), "wake": wake}),
    };
    wanted.to_string()
}

/// A mode as a waiter's row has it.
fn text(mode: Mode) -> String {
    match mode {
        Mode::Shared => "s".to_owned(),
        Mode::Permits { take, of } => format!("p{take}/{of}"),
        _ => String::new(),
    }
}

/// The mode of a waiter's row.
pub(super) fn mode(text: &str) -> Mode {
    let numbers = text.strip_prefix('p').and_then(|numbers| numbers.split_once('/'));
    match numbers.and_then(|(take, of)| Some((take.parse().ok()?, of.parse().ok()?))) {
        Some((take, of)) => Mode::Permits { take, of },
        None if text == "s" => Mode::Shared,
        None => Mode::Exclusive,
    }
}

/// How a lock's row says that several hold it.
pub(super) fn mark(owner: &str) -> Option<Mode> {
    let of = owner.strip_prefix("permits#").and_then(|of| of.parse().ok());
    of.map(|of| Mode::Permits { take: 1, of }).or((owner == "shared#").then_some(Mode::Shared))
}

/// Of which kind a lock is that is held so.
pub(super) fn kind(owner: &str) -> Mode {
    mark(owner).unwrap_or(Mode::Exclusive)
}

/// Those who hold a lock of this kind together.
pub(super) fn together(kind: Mode, several: &str) -> Option<Vec<Holder>> {
    let several: Vec<(String, i64, Vec<u32>, i64, i64)> = serde_json::from_str(several).ok()?;
    let one = |(owner, token, slots, held_us, left_us): (String, i64, Vec<u32>, i64, i64)| {
        let how = match kind {
            Mode::Permits { of, .. } => Mode::Permits { take: slots.len() as u32, of },
            other => other,
        };
        Some(holder(&owner, held_us, left_us, token).ok()?.with_mode(how, Slots::new(slots)))
    };
    several.into_iter().map(one).collect()
}

impl SqliteLock {
    /// Takes the lock beside others, if it can be had so and nobody with an earlier ticket waits for it; or finds that its owner
    /// has it already.
    pub(super) async fn grant_beside(&self, claim: &Claim, ticket: i64) -> Result<Option<Grant>, Failure> {
        let (key, wanted, lease_us) = (self.key(&claim.name), wanted(claim.mode, None), micros(claim.lease));
        let ask = Ask {
            key: &key,
            owner: claim.owner.as_str(),
            lease_us,
            number: ticket,
            text: Some(&wanted),
            makes: true,
            ..Ask::default()
        };
        for statement in [GRANT_BESIDE, OWN] {
            let answer = self.store.run(Ask { statement, ..ask }).await?;
            let Some(row) = answer.rows.first() else { continue };
            let Some(token) = row.get::<Option<i64>, _>("token") else { continue };
            let slots: Vec<u32> = serde_json::from_str(row.get("slots")).unwrap_or_default();
            let left = duration(row.get::<i64, _>("left_us").min(lease_us));
            let grant = Grant::new(StoreToken::new(token as u64)?, answer.sent + left);
            return Ok(Some(grant.with_slots(Slots::new(slots))));
        }
        Ok(None)
    }

    /// # Errors
    /// If a name that was just not granted is in use as another kind.
    pub(super) async fn check_kind(&self, claim: &Claim) -> Result<()> {
        let key = self.key(&claim.name);
        let ask = Ask { statement: OWN, key: &key, owner: claim.owner.as_str(), ..Ask::default() };
        let answer = self.run_again(ask).await?;
        match answer.rows.first().and_then(|row| row.get::<Option<&str>, _>("phase")) {
            Some(owner) => claim.mode.check_kind(kind(owner)),
            None => Ok(()),
        }
    }

    /// Ends the hold of this owner, who has the lock beside others, and tells the next in line. None: it holds nothing.
    pub(super) async fn release_beside(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Unlocked>, Failure> {
        self.release_by(RELEASE_BESIDE, &self.key(name), owner.as_str()).await
    }

    async fn end_beside(&self, name: &LockName, owner: &OwnerId) -> Result<bool> {
        match self.release_beside(name, owner).await {
            Ok(ended) => Ok(ended == Some(Unlocked::Released)),
            Err(Failure::Replaced | Failure::Unmade(_)) => Ok(false),
            Err(Failure::Error(error)) => Err(error),
        }
    }

    /// Ends the holds of all who have the lock together, and answers the first.
    pub(super) async fn end_all(&self, name: &LockName) -> Result<Option<Holder>> {
        let mut first = None;
        for holder in self.status_of(name).await?.holders {
            if holder.mode != Mode::Exclusive && self.end_beside(name, &holder.owner).await? {
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
        Ok(self.end_beside(name, owner).await?.then_some(holder))
    }

    pub(super) async fn set_permits(&self, name: &LockName, permits: u32) -> Result<bool> {
        let key = self.key(name);
        let ask = Ask { statement: RESIZE, key: &key, number: permits.into(), ..Ask::default() };
        let resized = match self.store.run(ask).await {
            // Nobody uses what is not there.
            Err(Failure::Unmade(_) | Failure::Replaced) => return Ok(false),
            answer => answer.map_err(|failure| self.as_error(failure))?,
        };
        if !resized.rows.is_empty() {
            return match self.told(self.wake_next(&key, "").await) {
                Err(Failure::Error(error)) => Err(error),
                _ => Ok(true),
            };
        }
        let status = self.status_of(name).await?;
        let Some(holder) = status.holder() else { return Ok(false) };
        Mode::Permits { take: 1, of: permits }.check_kind(match holder.mode {
            Mode::Permits { .. } => Mode::Permits { take: 1, of: permits },
            other => other,
        })?;
        let most = status.waiters.iter().map(|waiter| waiter.mode.weight()).max().unwrap_or_default();
        let wrong = format!("somebody waits for {most} permits: let there be as many at least, and not {permits}");
        Err(Error::new(ErrorKind::Invalid, wrong))
    }
}
