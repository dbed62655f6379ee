//! Runs the requests of a turn: one alone commits by itself, several share one transaction.
//!
//! In a transaction, a statement that fails is undone alone, and the others stay. Where SQLite undoes all of it, as on
//! a full disk, nothing was committed, and each runs again alone. No answer is given before the commit.

use std::sync::atomic::Ordering;

use lock_core::Clock;
use rusqlite::Connection;

use super::error::Code;
use super::host_clock::HostClock;
use super::queue::Job;
use super::row::{Columns, Row};
use super::statements::{BEGIN, COMMIT, ROLLBACK};
use super::store::Answer;

/// What the requests are run with.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    pub(super) clock: &'a dyn Clock,
    pub(super) host: &'a HostClock,
}

/// How a request went, before it is known that the file is still the same.
pub(super) type Ran = rusqlite::Result<Answer>;

/// Runs the requests, and answers how each went, in their order.
pub(super) fn run(connection: &Connection, jobs: &[&Job], at: At<'_>) -> Vec<Ran> {
    let alone = |job: &&Job| execute(connection, job, at);
    if jobs.len() < 2 {
        return jobs.iter().map(alone).collect();
    }
    if let Err(error) = connection.execute_batch(BEGIN) {
        // Somebody else writes: who only reads need not wait for that. Any other error each has for itself.
        let busy = Code::of(&error) == Code::Busy;
        return jobs
            .iter()
            .map(|job| if busy && writes(connection, job) { Err(busy_error()) } else { alone(job) })
            .collect();
    }
    let mut ran = Vec::with_capacity(jobs.len());
    for job in jobs {
        ran.push(execute(connection, job, at));
        if connection.is_autocommit() {
            // All was undone.
            return jobs.iter().map(alone).collect();
        }
    }
    let Err(error) = connection.execute_batch(COMMIT) else { return ran };
    // Without a transaction there is nothing to roll back; otherwise, closing does it.
    let undone = connection.is_autocommit() || connection.execute_batch(ROLLBACK).is_ok();
    match Code::of(&error) {
        Code::Busy if undone => jobs.iter().map(|_| Err(busy_error())).collect(),
        code if undone && !code.ends_the_connection() => jobs.iter().map(alone).collect(),
        _ => jobs.iter().map(|_| Err(uncommitted())).collect(),
    }
}

fn writes(connection: &Connection, job: &Job) -> bool {
    connection.prepare_cached(job.asked.statement).is_ok_and(|statement| !statement.readonly())
}

fn busy_error() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None)
}

/// Nobody knows whether it will be found after a crash: the connection is given up, too.
fn uncommitted() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR), None)
}

/// Reads all the rows: before the last, a commit by itself has not happened, nor shown that it failed.
fn execute(connection: &Connection, job: &Job, at: At<'_>) -> Ran {
    // In this order, and before sending: our own instant must be the earlier end of the lease.
    let sent = at.clock.now();
    let now = at.host.now();
    let asked = &job.asked;
    job.progress.sent.store(true, Ordering::Relaxed);
    let mut statement = connection.prepare_cached(asked.statement)?;
    asked.bind(&mut statement, at.host.boot(), now)?;
    let mut columns: Option<Columns> = None;
    let mut found = Vec::new();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let columns =
            columns.get_or_insert_with(|| row.as_ref().column_names().into_iter().map(str::to_owned).collect());
        found.push(Row::read(columns, row)?);
    }
    Ok(Answer { rows: found, sent })
}
