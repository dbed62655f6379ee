//! Who holds locks, who waits for them, which there are, and how a hold is ended.

use lock_core::{Error, ErrorKind, Holder, ListQuery, LockName, LockStatus, OwnerId, Page, Result, Unlocked};
use sqlx::postgres::PgRow;

use super::statements::the_row;
use super::{PostgresLock, arguments};
use crate::keys::holder;
use crate::server::{Again, Read};

impl PostgresLock {
    pub(super) async fn status_of(&self, name: &LockName) -> Result<LockStatus> {
        let answer = self.server.run(&self.statements.inspect, arguments!(self.prefix.key(name)), Again::Yes).await?;
        self.status(the_row(&answer)?)
    }

    pub(super) async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        let answer = self.server.run(&self.statements.holder, arguments!(self.prefix.key(name)), Again::Yes).await?;
        let held =
            |row: &PgRow| holder(row.read("owner")?, row.read("held_us")?, row.read("left_us")?, row.read("token")?);
        answer.rows.first().map(held).transpose()
    }

    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let (from, end) = self.prefix.range(&query.prefix);
        let after = query.after.as_ref().map(|name| self.prefix.key(name)).unwrap_or_default();
        let arguments = arguments!(from, after, end, query.fetch_size() as i64);
        let answer = self.server.run(&self.statements.list, arguments, Again::Yes).await?;
        let mut locks: Vec<_> = answer.rows.iter().map(|row| self.status(row)).collect::<Result<_>>()?;
        let next = query.cut(&mut locks, |lock| &lock.name);
        Ok(Page::new(locks, next))
    }

    /// Ends a hold, whosoever it is.
    pub(super) async fn end_hold(&self, name: &LockName) -> Result<Option<Holder>> {
        // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
        while let Some(holder) = self.holder_of(name).await? {
            if self.release(name, &holder.owner, false).await? == Some(Unlocked::Released) {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    fn status(&self, row: &PgRow) -> Result<LockStatus> {
        let name = self.prefix.name(row.read("name")?).ok_or_else(|| {
            let server = &self.server.shown;
            Error::new(ErrorKind::Refused, format!("the server {server}: a row has a name that is none of ours"))
        })?;
        let holder = match row.read::<Option<&str>, _>("owner")? {
            Some(owner) => Some(holder(owner, row.read("held_us")?, row.read("left_us")?, row.read("token")?)?),
            None => None,
        };
        let waiters: Vec<String> = row.read("waiters")?;
        Ok(LockStatus::new(name, holder, waiters.iter().map(|owner| OwnerId::from_store(owner))))
    }
}
