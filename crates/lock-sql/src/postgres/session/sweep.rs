//! Deletes what is of no use any more.

use std::sync::Arc;

use futures_util::FutureExt;

use super::super::sweep;
use super::PostgresSessionLock;
use crate::keys::micros;

impl PostgresSessionLock {
    pub(super) fn sweep(&self) {
        self.sweeper.consider(|| {
            let (server, statements) = (Arc::clone(&self.server), Arc::clone(&self.statements));
            move |apart| {
                let (server, statements) = (Arc::clone(&server), Arc::clone(&statements));
                async move { sweep::sweep(&server, &statements.sweep, micros(apart)).await }.boxed()
            }
        });
    }
}
