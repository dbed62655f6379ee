//! Who holds locks, who waits for them, which there are, and how a hold is ended.

use lock_core::{
    Error, ErrorKind, Holder, ListQuery, LockName, LockStatus, LockValue, Mode, OwnerId, Page, Result, Unlocked,
};
use sqlx::postgres::PgRow;

use super::modes::status_with_modes;
use super::statements::the_row;
use super::{PostgresLock, arguments};
use crate::keys::{Prefix, holder, in_the_store};
use crate::modes::is_marked;
use crate::server::{Again, Read};

impl PostgresLock {
    pub(super) async fn status_of(&self, name: &LockName) -> Result<LockStatus> {
        let answer = self.server.run(&self.statements.inspect, arguments!(self.prefix.key(name)), Again::Yes).await?;
        status_with_modes(the_row(&answer)?, &self.prefix, &self.server.shown)
    }

    pub(super) async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        let answer = self.server.run(&self.statements.holder, arguments!(self.prefix.key(name)), Again::Yes).await?;
        let holder = answer.rows.first().map(held).transpose()?;
        if holder.as_ref().is_some_and(is_marked) {
            return Ok(self.status_of(name).await?.into_holder());
        }
        Ok(holder)
    }

    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let (from, end) = self.prefix.range(&query.prefix);
        let after = query.after.as_ref().map(|name| self.prefix.key(name)).unwrap_or_default();
        let arguments = arguments!(from, after, end, query.fetch_size() as i64);
        let answer = self.server.run(&self.statements.list, arguments, Again::Yes).await?;
        page(query, &answer.rows, |row| status_with_modes(row, &self.prefix, &self.server.shown))
    }

    /// Ends a hold, whosoever it is.
    pub(super) async fn end_hold(&self, name: &LockName) -> Result<Option<Holder>> {
        // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
        while let Some(holder) = self.holder_of(name).await? {
            if holder.mode != Mode::Exclusive {
                match self.end_all(name).await? {
                    Some(evicted) => return Ok(Some(evicted)),
                    None => continue,
                }
            }
            let (owner, shows) = (in_the_store(&holder), holder.value.is_some());
            if self.release(name, &owner, false, shows).await? == Some(Unlocked::Released) {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }
}

/// Some locks, of which one more than asked for was fetched if there are more.
pub(super) fn page(query: &ListQuery, rows: &[PgRow], status: impl Fn(&PgRow) -> Result<LockStatus>) -> Result<Page> {
    let mut locks: Vec<_> = rows.iter().map(status).collect::<Result<_>>()?;
    let next = query.cut(&mut locks, |lock| &lock.name);
    Ok(Page::new(locks, next))
}

/// Who holds a lock, and what it shows.
pub(super) fn held(row: &PgRow) -> Result<Holder> {
    let value = row.read::<Option<&str>, _>("value")?;
    let holder = holder(row.read("owner")?, row.read("held_us")?, row.read("left_us")?, row.read("token")?)?;
    Ok(holder.with_value(value.and_then(|value| LockValue::from_store(value.as_bytes()))))
}

/// Who holds a lock and who waits for it.
pub(super) fn status(row: &PgRow, prefix: &Prefix, server: &str) -> Result<LockStatus> {
    let name = prefix.name(row.read("name")?).ok_or_else(|| {
        Error::new(ErrorKind::Refused, format!("the server {server}: a row has a name that is none of ours"))
    })?;
    let is_held = row.read::<Option<&str>, _>("owner")?.is_some();
    let holder = is_held.then(|| held(row)).transpose()?;
    let waiters: Vec<String> = row.read("waiters")?;
    Ok(LockStatus::new(name, holder, waiters.iter().map(|owner| OwnerId::from_store(owner))))
}
