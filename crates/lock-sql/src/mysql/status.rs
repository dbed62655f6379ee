//! Who holds locks, who waits for them, which there are, and how a hold is ended.

use std::collections::HashMap;

use lock_core::{
    Error, ErrorKind, Holder, ListQuery, LockName, LockStatus, LockValue, Mode, OwnerId, Page, Result, Slots, Unlocked,
    Waiter,
};
use sqlx::mysql::MySqlRow;

use super::{MySql, MySqlLock, arguments};
use crate::keys::{Prefix, holder, in_the_store};
use crate::modes::{is_marked, mark, mode};
use crate::server::{Again, Read, Server, Statement};

impl MySqlLock {
    fn rows(&self) -> Rows<'_> {
        Rows { server: &self.server, prefix: &self.prefix }
    }

    pub(super) async fn status_of(&self, name: &LockName) -> Result<LockStatus> {
        let key = self.prefix.key(name);
        let waiters = self.rows().waiters(&self.statements.waiters, &key, &key).await?.remove(&key).unwrap_or_default();
        match self.holder_in_row(&key).await? {
            Some(holder) if is_marked(&holder) => self.status_beside(name).await,
            holder => Ok(LockStatus::new(name.clone(), holder, waiters)),
        }
    }

    pub(super) async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        match self.holder_in_row(&self.prefix.key(name)).await? {
            Some(holder) if is_marked(&holder) => Ok(self.status_beside(name).await?.into_holder()),
            holder => Ok(holder),
        }
    }

    /// As the lock's row has it: perhaps a mark.
    async fn holder_in_row(&self, key: &str) -> Result<Option<Holder>> {
        let answer = self.server.run(&self.statements.holder, arguments!(key), Again::Yes).await?;
        answer.rows.first().map_or(Ok(None), |row| self.rows().holder(row))
    }

    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let mut locks = self.rows().listed(&self.statements.list, &self.statements.waiters, query).await?;
        let kind = |lock: &LockStatus| lock.holder().and_then(|holder| mark(holder.owner.as_str()));
        if locks.iter().any(|lock| kind(lock).is_some())
            && let (Some(first), Some(last)) = (locks.first(), locks.last())
        {
            let mut together = self.together(&self.prefix.key(&first.name), &self.prefix.key(&last.name)).await?;
            for lock in &mut locks {
                let Some(kind) = kind(lock) else { continue };
                let held = together.remove(&self.prefix.key(&lock.name)).unwrap_or_default();
                lock.holders = held.into_iter().map(|(holder, slots)| holder.with_mode(kind, slots)).collect();
            }
        }
        let next = query.cut(&mut locks, |lock| &lock.name);
        Ok(Page::new(locks, next))
    }

    /// Ends a hold, whosoever it is.
    pub(super) async fn end_hold(&self, name: &LockName) -> Result<Option<Holder>> {
        // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
        while let Some(holder) = self.holder_of(name).await? {
            if holder.mode != Mode::Exclusive {
                match self.end_some(name, None).await? {
                    None => continue,
                    ended => return Ok(ended),
                }
            }
            if self.release(name, &in_the_store(&holder), false).await? == Some(Unlocked::Released) {
                if holder.value.is_some() {
                    self.hide(&holder.owner).await;
                }
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    /// Who holds the locks from this key to that together.
    async fn together(&self, from: &str, to: &str) -> Result<HashMap<String, Vec<(Holder, Slots)>>> {
        let answer = self.server.run(&self.statements.holders, arguments!(from, to), Again::Yes).await?;
        let mut together: HashMap<_, Vec<_>> = HashMap::new();
        for row in &answer.rows {
            let (Some(key), Some(owner)) = (self.rows().text(row, "name")?, self.rows().text(row, "owner")?) else {
                continue;
            };
            let holder = holder(&owner, row.read("held_us")?, row.read("left_us")?, row.read("token")?)?;
            let slots = self.rows().text(row, "slots")?.unwrap_or_default();
            together.entry(key).or_default().push((holder, Slots::from_store(&slots)));
        }
        Ok(together)
    }
}

/// What reads the rows that tell of locks: those of one server, of names with one prefix.
pub(super) struct Rows<'a> {
    pub(super) server: &'a Server<MySql>,
    pub(super) prefix: &'a Prefix,
}

impl Rows<'_> {
    /// The locks that a query asks for, and one more if there are more.
    pub(super) async fn listed(
        &self,
        list: &Statement,
        waiters: &Statement,
        query: &ListQuery,
    ) -> Result<Vec<LockStatus>> {
        let (from, end) = self.prefix.range(&query.prefix);
        let (from, end) = (from.as_str(), end.as_str());
        let after = query.after.as_ref().map(|name| self.prefix.key(name)).unwrap_or_default();
        let after = after.as_str();
        let arguments = arguments!(from, after, end, from, after, end, query.fetch_size() as i64);
        let rows = self.server.run(list, arguments, Again::Yes).await?.rows;
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return Ok(Vec::new()) };
        let key = |row| self.text(row, "name").map(Option::unwrap_or_default);
        let mut waiters = self.waiters(waiters, &key(first)?, &key(last)?).await?;
        rows.iter().map(|row| self.status(row, &mut waiters)).collect()
    }

    /// Of a lock that is held or waited for.
    fn status(&self, row: &MySqlRow, waiters: &mut HashMap<String, Vec<Waiter>>) -> Result<LockStatus> {
        let key = self.text(row, "name")?.ok_or_else(|| self.foreign())?;
        let name = self.prefix.name(&key).ok_or_else(|| self.foreign())?;
        Ok(LockStatus::new(name, self.holder(row)?, waiters.remove(&key).unwrap_or_default()))
    }

    pub(super) fn holder(&self, row: &MySqlRow) -> Result<Option<Holder>> {
        let Some(owner) = self.text(row, "owner")? else { return Ok(None) };
        let holder = holder(&owner, row.read("held_us")?, row.read("left_us")?, row.read("token")?)?;
        let value: Option<Vec<u8>> = row.read("value")?;
        Ok(Some(holder.with_value(value.and_then(|value| LockValue::from_store(&value)))))
    }

    /// Who waits for the locks from this key to that.
    pub(super) async fn waiters(
        &self,
        statement: &Statement,
        from: &str,
        to: &str,
    ) -> Result<HashMap<String, Vec<Waiter>>> {
        let answer = self.server.run(statement, arguments!(from, to), Again::Yes).await?;
        let mut waiters: HashMap<_, Vec<_>> = HashMap::new();
        for row in &answer.rows {
            let (Some(key), Some(owner)) = (self.text(row, "name")?, self.text(row, "owner")?) else { continue };
            let how = self.text(row, "mode")?.unwrap_or_default();
            waiters.entry(key).or_default().push(Waiter::new(OwnerId::from_store(&owner), mode(&how)));
        }
        Ok(waiters)
    }

    fn text(&self, row: &MySqlRow, column: &str) -> Result<Option<String>> {
        let bytes: Option<Vec<u8>> = row.read(column)?;
        bytes.map(|bytes| String::from_utf8(bytes).map_err(|_| self.foreign())).transpose()
    }

    fn foreign(&self) -> Error {
        let server = &self.server.shown;
        Error::new(
            ErrorKind::Refused,
            format!("the server {server}: a row has a name or an owner that is none of ours"),
        )
    }
}
