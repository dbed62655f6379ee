//! How a lock is given back.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::FutureExt;
use lock_core::{Claim, Error, ErrorKind, LockName, Mode, OwnerId, Result, Unlocked};
use sqlx::postgres::PgArguments;

use super::acquire::is_said_by_server;
use super::batch::{Batches, Sent};
use super::error::Postgres;
use super::statements::{Statements, the_row};
use super::{PostgresLock, arguments};
use crate::server::{Again, Read, Server, Statement};

/// Releases of locks for which nobody may wait. Each is answered whether the lease still ran; nothing: it was not done.
pub(super) type Releases = Batches<Release, Result<Option<bool>>>;

/// One of them.
pub(super) struct Release {
    key: String,
    owner: String,
}

impl PostgresLock {
    pub(super) async fn give_back(&self, claim: &Claim) -> Result<Unlocked> {
        let gives_up = self.unsettled.contains(&claim.owner);
        let unlocked = match claim.mode {
            Mode::Exclusive => self.release(&claim.name, &claim.owner, gives_up, claim.value.is_some()).await?,
            _ => self.release_beside(&claim.name, &claim.owner, gives_up).await?,
        };
        self.unsettled.forget(&claim.owner);
        Ok(unlocked.unwrap_or(Unlocked::NotHeld))
    }

    /// Ends the hold of this owner, which may show something, or its waiting. None: it holds nothing.
    pub(super) async fn release(
        &self,
        name: &LockName,
        owner: &OwnerId,
        gives_up: bool,
        shows: bool,
    ) -> Result<Option<Unlocked>> {
        let (key, alone) = (self.prefix.key(name), self.listens.is_some());
        let mut _under_way = None;
        if !gives_up && !shows {
            let request = || Release { key: key.clone(), owner: owner.as_str().to_owned() };
            match self.releases.send(request).await {
                Sent::Alone(alone) => _under_way = Some(alone),
                Sent::WithOthers(Ok(Some(in_time))) => return Ok(Some(unlocked(in_time))),
                // Somebody waits, or it is not held; or it is the fault of another.
                Sent::WithOthers(Ok(None)) => {}
                Sent::WithOthers(Err(error)) if error.kind() == ErrorKind::Refused => {}
                Sent::WithOthers(Err(error)) => return Err(error),
                Sent::Unanswered => {
                    return Err(Error::new(ErrorKind::Unknown, "the runtime that sent it with others has ended"));
                }
            }
        }
        let statement = if shows { &self.statements.release_showing } else { &self.statements.release };
        self.call_release(statement, arguments!(key, owner.as_str(), gives_up, alone)).await
    }

    /// Calls a procedure that ends a hold or a wait. None: nothing was held.
    pub(super) async fn call_release(&self, procedure: &Statement, arguments: PgArguments) -> Result<Option<Unlocked>> {
        // Sent again, it would say that the lock was not held.
        let answer = self.server.run(procedure, arguments, Again::No).await.map_err(perhaps_done)?;
        let in_time: Option<bool> = the_row(&answer)?.read(0)?;
        Ok(in_time.map(unlocked))
    }
}

/// The error of a procedure that commits before it notifies: it may be that alone which took the server too long.
pub(super) fn perhaps_done(error: Error) -> Error {
    match error.kind() {
        ErrorKind::Unavailable if is_said_by_server(&error) => error.after_something_was_done(),
        _ => error,
    }
}

/// Did the lease still run?
fn unlocked(in_time: bool) -> Unlocked {
    if in_time { Unlocked::Released } else { Unlocked::NotHeld }
}

/// What sends several releases.
pub(super) fn releases(server: &Arc<Server<Postgres>>, statements: &Arc<Statements>, most: usize) -> Arc<Releases> {
    let (server, statements) = (Arc::clone(server), Arc::clone(statements));
    let patience = server.timeout / 20;
    Batches::new(
        most,
        patience,
        Box::new(move |some| release_all(Arc::clone(&server), Arc::clone(&statements), some).boxed()),
    )
}

async fn release_all(
    server: Arc<Server<Postgres>>,
    statements: Arc<Statements>,
    releases: Vec<Release>,
) -> Vec<Result<Option<bool>>> {
    let keys: Vec<_> = releases.iter().map(|release| release.key.as_str()).collect();
    let owners: Vec<_> = releases.iter().map(|release| release.owner.as_str()).collect();
    let asked = async {
        // Sent again, it would say that they were not held.
        let answer = server.run(&statements.release_unwaited, arguments!(keys, owners), Again::No).await?;
        let released = answer.rows.iter().map(|row| Ok((row.read("who")?, row.read("in_time")?)));
        released.collect::<Result<HashMap<String, bool>>>()
    };
    match asked.await {
        Ok(released) => releases.iter().map(|release| Ok(released.get(&release.owner).copied())).collect(),
        Err(error) => vec![Err(error); releases.len()],
    }
}
