//! Deletes what is of no use any more.

use std::sync::Arc;

use futures_util::FutureExt;
use lock_core::Result;

use super::error::Postgres;
use super::statements::SWEPT_AT_ONCE;
use super::{PostgresLock, arguments};
use crate::keys::micros;
use crate::server::{Read, Server, Statement};
use crate::sweep::Swept;

impl PostgresLock {
    pub(super) fn sweep_if_due(&self) {
        self.sweeper.consider(|| {
            let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
            move |apart| {
                let (server, statements) = (Arc::clone(&server), Arc::clone(&statements));
                async move { sweep(&server, &statements.sweep, micros(apart)).await }.boxed()
            }
        });
    }
}

/// Looks at the next rows of each table, unless the first of them was looked at just now.
pub(super) async fn sweep(server: &Server<Postgres>, tables: &[Statement], apart: i64) -> Result<Option<Swept>> {
    let mut swept = Swept { looked_at: SWEPT_AT_ONCE, deleted: 0 };
    for (number, statement) in tables.iter().enumerate() {
        let apart = if number == 0 { apart } else { 0 };
        let answer = server.run_beside(statement, arguments!(apart)).await?;
        match answer.rows.first() {
            Some(row) => swept.deleted += row.read::<i64, _>("deleted")?.unsigned_abs(),
            None if number == 0 => return Ok(None),
            None => {}
        }
    }
    Ok(Some(swept))
}
