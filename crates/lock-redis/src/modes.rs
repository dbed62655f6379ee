//! Locks that several hold at a time, as readers or with permits. How they are stored, modes.lua says.

use lock_core::{Claim, Holder, Instant, LockName, Mode, OwnerId, Result, Unlocked};
use redis::Value;

use crate::RedisLock;
use crate::acquire::whole_milliseconds;
use crate::answers::{Acquired, mode_of, nonsense, read};
use crate::connection::Again;
use crate::keys::LockKeys;
use crate::scripts::{ACQUIRE_MODE, RELEASE_MODE, RESIZE};
use crate::waiters::LIVES;

/// How a mode is told to the scripts: its letter, how many permits, of how many. None if it is for one alone.
pub(crate) fn letter(mode: Mode) -> Option<(&'static str, u32, u32)> {
    match mode {
        Mode::Shared => Some(("s", 1, 1)),
        Mode::Permits { take, of } => Some(("p", take, of)),
        _ => None,
    }
}

impl RedisLock {
    /// Beside others. With a place, it is in line if it is not granted.
    pub(crate) async fn acquire_beside(
        &self,
        claim: &Claim,
        keys: &LockKeys,
        place: Option<&str>,
    ) -> Result<(Instant, Acquired)> {
        let (letter, take, of) = letter(claim.mode).ok_or_else(nonsense)?;
        let lease = whole_milliseconds(claim.lease).to_string();
        let numbers = [take, of].map(|number| number.to_string());
        let mut names = vec![keys.lock.as_str(), &keys.line, &keys.tokens];
        let mut arguments = vec![claim.owner.as_str(), &lease, letter, &numbers[0], &numbers[1]];
        arguments.extend(place);
        let life = (place.is_some() && self.client.life.is_due(keys.slot))
            .then(|| (self.client.own_key(keys.slot), LIVES.as_millis().to_string()));
        if let Some((own_key, lives)) = &life {
            names.push(own_key);
            arguments.push(lives);
        }
        let asked = tokio::time::Instant::now();
        let arguments: Vec<_> = arguments.into_iter().map(str::as_bytes).collect();
        let answer = self.servers.run(&ACQUIRE_MODE, &names, &arguments, Again::Yes).await?;
        let acquired = Acquired::read(answer.value, claim.mode)?;
        match &acquired {
            Acquired::Granted { .. } => self.confirm(claim, keys, &answer.link).await?,
            // Whoever is granted at once shows nothing.
            Acquired::Busy { .. } if life.is_some() => self.client.life.shown(keys.slot, asked),
            _ => {}
        }
        Ok((answer.sent, acquired))
    }

    /// What this owner holds beside others, or its place in line.
    pub(crate) async fn leave(&self, keys: &LockKeys, owner: &str, place: &str) -> Result<Unlocked> {
        let names = [keys.lock.as_str(), &keys.line, &keys.tokens];
        // Sent again, it would say that the lock was not held.
        let answer = self.servers.run(&RELEASE_MODE, &names, &[owner.as_bytes(), place.as_bytes()], Again::No).await?;
        Ok(if read::<i64>(answer.value)? == 1 { Unlocked::Released } else { Unlocked::NotHeld })
    }

    /// Ends the holds of all who have the lock together, and answers the first.
    pub(crate) async fn end_all(&self, name: &LockName) -> Result<Option<Holder>> {
        let (keys, mut first) = (self.keys.of(name), None);
        let status = self.statuses(vec![name.clone()]).await?.pop().ok_or_else(nonsense)?;
        for holder in status.holders.into_iter().filter(|holder| holder.mode != Mode::Exclusive) {
            if self.leave(&keys, holder.owner.as_str(), "").await? == Unlocked::Released {
                first.get_or_insert(holder);
            }
        }
        Ok(first)
    }

    /// Ends the hold of this owner.
    pub(crate) async fn end_one(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        let (keys, status) = (self.keys.of(name), self.statuses(vec![name.clone()]).await?.pop().ok_or_else(nonsense)?);
        let Some(holder) = status.holders.into_iter().find(|holder| holder.owner == *owner) else { return Ok(None) };
        let ended = match holder.mode {
            Mode::Exclusive => {
                let owner = if holder.kept { owner.kept() } else { owner.clone() };
                self.end(&keys, owner.as_str(), "", None).await?
            }
            _ => self.leave(&keys, owner.as_str(), "").await?,
        };
        Ok((ended == Unlocked::Released).then_some(holder))
    }

    pub(crate) async fn set_permits(&self, name: &LockName, permits: u32) -> Result<bool> {
        let (keys, number) = (self.keys.of(name), permits.to_string());
        let names = [keys.lock.as_str(), &keys.line, &keys.tokens];
        let answer = self.servers.run(&RESIZE, &names, &[number.as_bytes()], Again::Yes).await?;
        let mut parts = read::<Vec<Value>>(answer.value)?.into_iter();
        let mut next = || parts.next().ok_or_else(nonsense);
        match read::<i64>(next()?)? {
            0 => return Ok(false),
            1 => {}
            2 => {
                Mode::Permits { take: 1, of: permits }.check_kind(mode_of(&read::<String>(next()?)?))?;
                return Err(nonsense());
            }
            _ => {
                let most: u32 = read(next()?)?;
                return Err(Mode::too_few(permits, most));
            }
        }
        answer.link.confirm(self.client.own_key(keys.slot)).await?;
        Ok(true)
    }
}
