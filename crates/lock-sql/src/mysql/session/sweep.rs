//! Deletes what is of no use any more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Result;

use super::statements::{SWEPT_AT_ONCE, Statements};
use super::{MySql, MySqlSessionLock, arguments, changed};
use crate::mysql::sweep::is_due;
use crate::server::Server;
use crate::sweep::Swept;

impl MySqlSessionLock {
    pub(super) fn sweep(&self) {
        self.sweeper.consider(|| {
            let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
            move |apart| batch(Arc::clone(&server), Arc::clone(&statements), apart).boxed()
        });
    }
}

/// Deletes some of each table, unless that was done just now.
async fn batch(server: Arc<Server<MySql>>, statements: Arc<Statements>, apart: Duration) -> Result<Option<Swept>> {
    if !is_due(&server, &statements.sweep_is_due, apart).await? {
        return Ok(None);
    }
    let mut swept = Swept { looked_at: SWEPT_AT_ONCE, deleted: 0 };
    for statement in &statements.sweep {
        swept.deleted += changed(&server.run_beside(statement, arguments!()).await?, 0);
    }
    Ok(Some(swept))
}
