//! Who holds locks, who waits for them, which there are, and how a hold is ended.

use std::time::Duration;

use lock_core::{Claim, Holder, ListQuery, LockName, LockStatus, Page, Result, Unlocked};

use super::super::statements::the_row;
use super::super::status::{held, in_the_store, page, status};
use super::{PostgresSessionLock, arguments};
use crate::server::Again;

impl PostgresSessionLock {
    pub(super) async fn status_of(&self, name: &LockName) -> Result<LockStatus> {
        let answer = self.server.run(&self.statements.inspect, arguments!(self.prefix.key(name)), Again::Yes).await?;
        status(the_row(&answer)?, &self.prefix, &self.server.shown)
    }

    pub(super) async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        let answer = self.server.run(&self.statements.holder, arguments!(self.prefix.key(name)), Again::Yes).await?;
        answer.rows.first().map(held).transpose()
    }

    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let (from, end) = self.prefix.range(&query.prefix);
        let after = query.after.as_ref().map(|name| self.prefix.key(name)).unwrap_or_default();
        let arguments = arguments!(from, after, end, query.fetch_size() as i64);
        let answer = self.server.run(&self.statements.list, arguments, Again::Yes).await?;
        page(query, &answer.rows, |row| status(row, &self.prefix, &self.server.shown))
    }

    /// Ends a hold, whosoever it is, and the session that has it.
    pub(super) async fn end_hold(&self, name: &LockName) -> Result<Option<Holder>> {
        // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
        while let Some(holder) = self.holder_of(name).await? {
            let claim = Claim::new(name.clone(), in_the_store(&holder), Duration::ZERO);
            if self.undo(&claim, None, Again::No).await? == Unlocked::Released {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }
}
