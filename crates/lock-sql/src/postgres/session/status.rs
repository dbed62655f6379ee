//! Who holds locks, who waits for them, and which there are.

use lock_core::{Holder, ListQuery, LockName, LockStatus, Page, Result};

use super::super::statements::the_row;
use super::super::status::{held, page, status};
use super::{PostgresSessionLock, arguments};
use crate::server::Again;

impl PostgresSessionLock {
    pub(super) async fn status_of(&self, name: &LockName) -> Result<LockStatus> {
        let answer = self.server.run(&self.statements.inspect, arguments!(self.prefix.key(name)), Again::Yes).await?;
        status(the_row(&answer)?, &self.prefix, &self.server.shown)
    }

    pub(super) async fn who_holds(&self, name: &LockName) -> Result<Option<Holder>> {
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
}
