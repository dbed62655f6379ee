//! Who holds locks, who waits for them, and which there are.

use lock_core::{Holder, ListQuery, LockName, LockStatus, Page, Result};

use super::{MySqlSessionLock, arguments};
use crate::mysql::status::Rows;
use crate::server::Again;

impl MySqlSessionLock {
    fn rows(&self) -> Rows<'_> {
        Rows { server: &self.server, prefix: &self.prefix }
    }

    pub(super) async fn status_of(&self, name: &LockName) -> Result<LockStatus> {
        let key = self.prefix.key(name);
        let waiters = self.rows().waiters(&self.statements.waiters, &key, &key).await?.remove(&key);
        Ok(LockStatus::new(name.clone(), self.who_holds(name).await?, waiters.unwrap_or_default()))
    }

    pub(super) async fn who_holds(&self, name: &LockName) -> Result<Option<Holder>> {
        let key = self.key(name).text();
        let answer = self.server.run(&self.statements.holder, arguments!(key.as_str()), Again::Yes).await?;
        answer.rows.first().map_or(Ok(None), |row| self.rows().holder(row))
    }

    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let mut locks = self.rows().listed(&self.statements.list, &self.statements.waiters, query).await?;
        let next = query.cut(&mut locks, |lock| &lock.name);
        Ok(Page::new(locks, next))
    }
}
