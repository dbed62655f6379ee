//! Deletes what is of no use any more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{Result, StoreToken};

use super::error::MySql;
use super::statements::{DELETED_AT_ONCE, SWEPT_AT_ONCE, Statements, Sweep};
use super::{Argument, MySqlLock, arguments, changed};
use crate::keys::micros;
use crate::server::{Read, Server, Statement};
use crate::sweep::Swept;

impl MySqlLock {
    pub(super) fn sweep_if_due(&self) {
        self.sweeper.consider(|| {
            let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
            move |apart| batch(Arc::clone(&server), Arc::clone(&statements), apart).boxed()
        });
    }
}

/// Was the last sweep so long ago? Then this one is noted.
pub(super) async fn is_due(server: &Server<MySql>, statement: &Statement, apart: Duration) -> Result<bool> {
    let due = server.run_beside(statement, arguments!(micros(apart))).await?;
    Ok(changed(&due, 0) > 0 || apart.is_zero())
}

/// Looks at the next rows of each table, unless that was done just now.
async fn batch(server: Arc<Server<MySql>>, statements: Arc<Statements>, apart: Duration) -> Result<Option<Swept>> {
    if !is_due(&server, &statements.sweep_is_due, apart).await? {
        return Ok(None);
    }
    let mut all = Swept { looked_at: 0, deleted: 0 };
    for sweep in &statements.sweep {
        let swept = sweep_table(&server, &statements, sweep).await?;
        all.looked_at = all.looked_at.max(swept.looked_at);
        all.deleted += swept.deleted;
    }
    Ok(Some(all))
}

async fn sweep_table(server: &Server<MySql>, statements: &Statements, sweep: &Sweep) -> Result<Swept> {
    let seen = server.run_beside(&sweep.look, arguments!()).await?.rows;
    let (mut old, mut highest, mut last) = (Vec::new(), 0_i64, Vec::new());
    for row in &seen {
        last = row.read::<Vec<u8>, _>("swept")?;
        let token = row.read::<i64, _>("token")?;
        // What is no token was put there by hand, and stays.
        if row.read::<i64, _>("old")? != 0 && token <= StoreToken::MAX as i64 {
            highest = highest.max(token);
            old.push(last.clone());
        }
    }
    if highest > 0 {
        server.run_beside(&statements.raise_floor, arguments!(highest, highest)).await?;
    }
    let mut deleted = 0;
    for some in old.chunks(DELETED_AT_ONCE) {
        let mut arguments = arguments!();
        // Filled up with the last one, so that the statement is always the same.
        (0..DELETED_AT_ONCE).for_each(|at| some[at.min(some.len() - 1)].as_slice().add_to(&mut arguments));
        deleted += changed(&server.run_beside(&sweep.delete, arguments).await?, 0);
    }
    let go_on = if seen.len() == SWEPT_AT_ONCE { last.as_slice() } else { &[] };
    server.run_beside(&sweep.go_on, arguments!(go_on)).await?;
    Ok(Swept { looked_at: seen.len() as u64, deleted })
}
