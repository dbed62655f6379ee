//! Where the locks are: on one server, or on the primaries of a cluster.

use std::fmt;
use std::sync::Arc;

use lock_core::{Error, ErrorKind, Result};

use crate::cluster::Cluster;
use crate::connection::{Again, Answer, Connection, Failure, Link};
use crate::keys::LockKeys;
use crate::scripts::Script;
use crate::slots::slot;

/// So often a request follows a slot that moves.
const MOVES: usize = 3;

pub(crate) enum Servers {
    One(Arc<Connection>),
    Cluster(Cluster),
}

impl fmt::Display for Servers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(connection) => write!(f, "{}", connection.target),
            Self::Cluster(cluster) => write!(f, "{cluster}"),
        }
    }
}

impl Servers {
    /// Runs a script where its first key is.
    ///
    /// # Errors
    /// Of a kind that says that nothing was done only if no copy of it was sent without an answer.
    pub(crate) async fn run(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: Again,
    ) -> Result<Answer> {
        let mut unsure = false;
        let answer = self.routed(script, keys, arguments, again, &mut unsure).await;
        answer.map_err(|error| if unsure { error.after_something_was_done() } else { error })
    }

    async fn routed(
        &self,
        script: &Script,
        keys: &[&str],
        arguments: &[&[u8]],
        again: Again,
        unsure: &mut bool,
    ) -> Result<Answer> {
        let cluster = match self {
            Self::One(connection) => {
                return connection.run(script, keys, arguments, again, unsure).await.map_err(Failure::into_error);
            }
            Self::Cluster(cluster) => cluster,
        };
        for _ in 0..MOVES {
            let (owner, read) = cluster.owner(slot(keys[0])).await?;
            match owner.run(script, keys, arguments, again, unsure).await {
                // In neither case anything was done.
                Err(failure @ (Failure::Moved(_) | Failure::NoLink(_))) => {
                    // It fails where nobody can be asked: then this is the error that counts.
                    let known = Box::pin(cluster.refresh(read)).await.is_ok();
                    let moved = known && !Arc::ptr_eq(&cluster.owner(slot(keys[0])).await?.0, &owner);
                    if !moved && !matches!(failure, Failure::Moved(_)) {
                        return Err(failure.into_error());
                    }
                }
                answer => return answer.map_err(Failure::into_error),
            }
        }
        let message = format!("the slot of {:?} is being moved from node to node; try again", keys[0]);
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// The connection to where a lock is, if it has been made.
    pub(crate) async fn ready(&self, keys: &LockKeys) -> Option<Arc<Link>> {
        match (self, keys.slot) {
            (Self::Cluster(cluster), Some(slot)) => cluster.owner(slot).await.ok()?.0.ready(),
            (Self::Cluster(_), None) => None,
            (Self::One(connection), _) => connection.ready(),
        }
    }

    /// A connection to each server that keeps locks.
    pub(crate) async fn all(&self) -> Result<Vec<Arc<Connection>>> {
        match self {
            Self::One(connection) => Ok(vec![Arc::clone(connection)]),
            Self::Cluster(cluster) => cluster.primaries().await,
        }
    }

    pub(crate) fn close(&self) {
        match self {
            Self::One(connection) => connection.close(),
            Self::Cluster(cluster) => cluster.close(),
        }
    }
}
