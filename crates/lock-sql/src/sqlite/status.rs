//! Who holds locks, who waits for them, which there are, and how a hold is ended.

use lock_core::{
    Error, ErrorKind, Holder, ListQuery, LockName, LockStatus, LockValue, Mode, OwnerId, Page, Result, Unlocked, Waiter,
};

use super::SqliteLock;
use super::row::Row;
use super::statements::{Ask, HOLDER, INSPECT, LIST};
use super::store::Failure;
use crate::keys::{holder, in_the_store};
use crate::modes::{is_marked, mark, mode, together};

impl SqliteLock {
    pub(super) async fn status_of(&self, name: &LockName) -> Result<LockStatus> {
        let key = self.key(name);
        let answer = self.run_again(Ask { statement: INSPECT, key: &key, long: true, ..Ask::default() }).await?;
        match answer.rows.first() {
            Some(row) => self.status(row),
            None => Ok(LockStatus::free(name.clone())),
        }
    }

    pub(super) async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        let key = self.key(name);
        let answer = self.run_again(Ask { statement: HOLDER, key: &key, ..Ask::default() }).await?;
        let holder = answer.rows.first().map_or(Ok(None), holder_in)?;
        match &holder {
            Some(holder) if is_marked(holder) => Ok(self.status_of(name).await?.into_holder()),
            _ => Ok(holder),
        }
    }

    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let (from, end) = self.prefix.range(&query.prefix);
        let after = query.after.as_ref().map(|name| self.key(name)).unwrap_or_default();
        let ask = Ask {
            statement: LIST,
            key: &from,
            owner: &after,
            number: query.fetch_size() as i64,
            text: Some(&end),
            long: true,
            ..Ask::default()
        };
        let answer = self.run_again(ask).await?;
        let mut locks: Vec<_> = answer.rows.iter().map(|row| self.status(row)).collect::<Result<_>>()?;
        let next = query.cut(&mut locks, |lock| &lock.name);
        Ok(Page::new(locks, next))
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
            match self.release(name, &in_the_store(&holder)).await {
                Ok(Some(Unlocked::Released)) => {
                    if holder.value.is_some() {
                        self.hide(name, &holder.owner).await;
                    }
                    return Ok(Some(holder));
                }
                Ok(_) | Err(Failure::Replaced | Failure::Unmade(_)) => {}
                Err(Failure::Error(error)) => return Err(error),
            }
        }
        Ok(None)
    }

    fn status(&self, row: &Row) -> Result<LockStatus> {
        let foreign = |what: &str| {
            let path = self.store.path.display();
            Error::new(ErrorKind::Refused, format!("the file {path} has a row whose {what} is none of ours"))
        };
        let name = self.prefix.name(row.get("name")).ok_or_else(|| foreign("name"))?;
        let holder = holder_in(row)?;
        let waiters: Vec<(String, String)> =
            serde_json::from_str(row.get("waiters")).map_err(|_| foreign("waiters"))?;
        let waiters = waiters.iter().map(|(owner, how)| Waiter::new(OwnerId::from_store(owner), mode(how)));
        let Some(kind) = holder.as_ref().and_then(|holder| mark(holder.owner.as_str())) else {
            return Ok(LockStatus::new(name, holder, waiters));
        };
        let several = row.get::<Option<&str>>("several").unwrap_or("[]");
        let several = together(kind, several).and_then(Result::ok).ok_or_else(|| foreign("holders"))?;
        Ok(LockStatus::new(name, several, waiters))
    }
}

fn holder_in(row: &Row) -> Result<Option<Holder>> {
    let Some(owner) = row.get::<Option<&str>>("owner") else { return Ok(None) };
    let left: i64 = row.get("left_us");
    // Of another boot there is no start to count from: its last renewal is all that is known.
    let held = row.get::<Option<i64>>("held_us").unwrap_or(row.get::<i64>("lease_us") - left);
    let value = row.get::<Option<&str>>("value").and_then(|value| LockValue::from_store(value.as_bytes()));
    Ok(Some(holder(owner, held, left, row.get("token"))?.with_value(value)))
}
