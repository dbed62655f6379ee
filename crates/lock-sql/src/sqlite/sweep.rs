//! Deletes what is of no use any more.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::Result;

use super::SqliteLock;
use super::statements::{Ask, SWEEP, SWEEP_IS_DONE, SWEEP_IS_DUE, SWEEP_LINE, SWEEP_VALUES};
use super::store::{Failure, Store};
use crate::keys::micros;
use crate::sweep::Swept;

/// How many rows a sweep looks at: it keeps other writers waiting meanwhile.
const SWEPT_AT_ONCE: u64 = 200;

impl SqliteLock {
    pub(super) fn sweep_if_due(&self) {
        self.sweeper.consider(|| {
            let store = Arc::clone(&self.store);
            move |apart| batch(Arc::clone(&store), apart).boxed()
        });
    }
}

/// Looks at the next rows, unless that was done just now. Two clients that do so at once delete the same.
async fn batch(store: Arc<Store>, apart: Duration) -> Result<Option<Swept>> {
    let number = SWEPT_AT_ONCE as i64;
    let run = async |ask: Ask<'_>| match store.run(Ask { number, beside: true, long: true, ..ask }).await {
        Ok(answer) => Ok(answer.rows),
        Err(Failure::Error(error)) => Err(error),
        // There is nothing to sweep.
        Err(Failure::Replaced | Failure::Unmade(_)) => Ok(Vec::new()),
    };
    let due = run(Ask { statement: SWEEP_IS_DUE, lease_us: micros(apart), ..Ask::default() }).await?;
    let Some(due) = due.first() else { return Ok(None) };
    let range = Ask { key: due.get("place"), text: due.get("last"), ..Ask::default() };
    let deleted = run(Ask { statement: SWEEP, ..range }).await?.len() as u64;
    for statement in [SWEEP_LINE, SWEEP_VALUES, SWEEP_IS_DONE] {
        run(Ask { statement, ..range }).await?;
    }
    Ok(Some(Swept { looked_at: SWEPT_AT_ONCE, deleted }))
}
