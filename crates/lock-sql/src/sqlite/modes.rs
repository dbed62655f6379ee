//! Locks that several hold at a time, as readers or with permits. How they are stored, `mode_statements` says.

use lock_core::{Claim, Grant, Holder, Instant, LockName, Mode, OwnerId, Result, Slots, StoreToken, Unlocked};
use serde_json::json;

use super::SqliteLock;
use super::acquire::END_OF_LINE;
use super::mode_statements::{GRANT_BESIDE, OWN, RELEASE_BESIDE, RESIZE};
use super::row::Row;
use super::statements::{Ask, RELEASE};
use super::store::Failure;
use crate::keys::{duration, micros};
use crate::modes::{mark, only_reader, text};

/// A mode as the statements are told it, and where to wake who waits.
pub(super) fn wanted(mode: Mode, wake: Option<&str>) -> String {
    let wanted = match mode {
        Mode::Permits { take, of } => json!({"m": "p", "take": take, "of": of, "mode": text(mode), "wake": wake}),
        _ => json!({"m": "s", "mode": text(mode), "wake": wake}),
    };
    wanted.to_string()
}

/// What a row says that the owner has, if anything.
fn own_in(row: &Row, claim: &Claim, sent: Instant) -> Result<Option<Grant>> {
    let Some(token) = row.get::<Option<i64>>("token") else { return Ok(None) };
    let slots: Vec<u32> = serde_json::from_str(row.get("slots")).unwrap_or_default();
    let left = duration(row.get::<i64>("left_us").min(micros(claim.lease)));
    Ok(Some(Grant::new(StoreToken::new(token as u64)?, sent + left).with_slots(Slots::new(slots))))
}

/// Of which kind a lock is that is held so.
pub(super) fn kind(owner: &str) -> Mode {
    mark(owner).unwrap_or(Mode::Exclusive)
}

impl SqliteLock {
    /// Takes the lock beside others, if it can be had so and nobody with an earlier ticket waits for it. None also for an owner
    /// who has it already.
    pub(super) async fn grant_beside(&self, claim: &Claim, ticket: i64) -> Result<Option<Grant>, Failure> {
        // Who stood in line leaves it by the other statement, which also finds a lock that is free.
        if claim.mode == Mode::Shared
            && ticket == END_OF_LINE
            && let Some(grant) = self.grant_as(claim, &only_reader(&claim.owner), ticket).await?
        {
            return Ok(Some(grant));
        }
        let (key, wanted, lease_us) = (self.key(&claim.name), wanted(claim.mode, None), micros(claim.lease));
        let ask = Ask {
            statement: GRANT_BESIDE,
            key: &key,
            owner: claim.owner.as_str(),
            lease_us,
            number: ticket,
            text: Some(&wanted),
            makes: true,
            ..Ask::default()
        };
        let answer = self.store.run(ask).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        let grant = own_in(row, claim, answer.sent)?;
        if let Some(wake) = row.get("wake") {
            self.told(self.tell(&key, claim.owner.as_str(), wake).await)?;
        }
        Ok(grant)
    }

    /// What the owner has already of a name that was just not granted.
    ///
    /// # Errors
    /// If the name is in use as another kind.
    pub(super) async fn own_or_kind(&self, claim: &Claim) -> Result<Option<Grant>> {
        let key = self.key(&claim.name);
        let ask = Ask { statement: OWN, key: &key, owner: claim.owner.as_str(), ..Ask::default() };
        let answer = self.run_again(ask).await?;
        let Some(row) = answer.rows.first() else { return Ok(None) };
        if let Some(owner) = row.get::<Option<&str>>("phase") {
            claim.mode.check_kind(kind(owner))?;
        }
        own_in(row, claim, answer.sent)
    }

    /// Ends the hold of this owner, who has the lock beside others, and tells the next in line. None: it holds nothing.
    pub(super) async fn release_beside(
        &self,
        name: &LockName,
        owner: &OwnerId,
        mode: Mode,
    ) -> Result<Option<Unlocked>, Failure> {
        let key = self.key(name);
        if mode == Mode::Shared
            && let Some(ended) = self.release_by(RELEASE, &key, &only_reader(owner)).await?
        {
            return Ok(Some(ended));
        }
        self.release_by(RELEASE_BESIDE, &key, owner.as_str()).await
    }

    async fn end_beside(&self, name: &LockName, holder: &Holder) -> Result<bool> {
        match self.release_beside(name, &holder.owner, holder.mode).await {
            Ok(ended) => Ok(ended == Some(Unlocked::Released)),
            Err(Failure::Replaced | Failure::Unmade(_)) => Ok(false),
            Err(Failure::Error(error)) => Err(error),
        }
    }

    /// Ends the holds of all who have the lock together, and answers the first.
    pub(super) async fn end_all(&self, name: &LockName) -> Result<Option<Holder>> {
        let mut first = None;
        for holder in self.status_of(name).await?.holders {
            if holder.mode != Mode::Exclusive && self.end_beside(name, &holder).await? {
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
        Ok(self.end_beside(name, &holder).await?.then_some(holder))
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
        Err(Mode::too_few(permits, most))
    }
}
