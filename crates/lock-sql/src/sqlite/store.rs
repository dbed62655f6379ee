//! One connection to the file, through which all statements go one after the other, each in bounded time.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::{Clock, Error, ErrorKind, Instant, Result};
use sqlx::SqliteConnection;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use tokio::sync::Mutex;

use super::checkpoint::Checkpoints;
use super::connection::{self, Opened, beside};
use super::error::{Code, of_statement};
use super::host_clock::HostClock;
use super::options::make_folder_of;
use super::statements::Ask;
use crate::keys::{SENT, SWEPT};

/// What a request may take beyond the time that SQLite waits for another writer.
const GRACE: Duration = Duration::from_secs(2);

/// The file, and the one connection to it.
///
/// One connection and not a pool: its thread runs the statements in the order in which they were sent, also those of a
/// future that was dropped meanwhile. So whatever an `unlock` finds done or not done, nothing sent before lands after
/// it.
#[derive(Debug)]
pub(super) struct Store {
    pub(super) path: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) host: HostClock,
    pub(super) busy: Duration,
    /// Is the folder ours to make?
    owns_folder: bool,
    slot: Mutex<Slot>,
    checkpoints: Checkpoints,
}

enum Slot {
    Empty,
    Open(Opened),
    /// Must end before another is opened: a statement on its way would land after those of the next connection.
    Closing(BoxFuture<'static, ()>),
    Closed,
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Empty => "Empty",
            Self::Open(_) => "Open",
            Self::Closing(_) => "Closing",
            Self::Closed => "Closed",
        })
    }
}

/// The rows that a statement answered, after it was committed, and when it was sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<SqliteRow>,
    pub(super) sent: Instant,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another file is at the path, or none: every hold and every place in a line is gone. The next request opens what
    /// is there by then.
    Replaced,
    /// There is no file, or one without our tables, and the request was none that makes them. The error says which.
    Unmade(Error),
    Error(Error),
}

impl Failure {
    /// The same for who stands in line, or has written its value down, which has to be undone.
    pub(super) fn with_a_ticket(self) -> Self {
        match self {
            Self::Error(error) => Self::Error(error.after_something_was_done()),
            other => other,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

/// How one attempt to run a statement ended.
enum Attempt {
    /// Another process is writing. Nothing was done.
    Busy(sqlx::Error),
    Failed(Failure),
}

impl From<Failure> for Attempt {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// The pauses while another process writes: none at first, since a write takes some ten microseconds, and then a
/// sixteenth of the time waited so far. Who was unlucky so far is not to come last again: where many write, others get
/// on meanwhile. SQLite's own begin with a millisecond, and would keep the connection's thread from everything else.
#[derive(Default)]
struct Pauses(u32);

impl Pauses {
    async fn next(&mut self, waited: Duration) {
        self.0 += 1;
        match self.0 {
            ..=64 => tokio::task::yield_now().await,
            _ => tokio::time::sleep((waited / 16).clamp(Duration::from_millis(1), Duration::from_millis(20))).await,
        }
    }
}

impl Store {
    /// Opens the file if it is there, so that what is wrong with it shows at once. The first grant makes it.
    pub(super) async fn open(
        path: PathBuf,
        clock: Arc<dyn Clock>,
        host: HostClock,
        busy: Duration,
        owns_folder: bool,
    ) -> Result<Self> {
        let (slot, checkpoints) = (Mutex::new(Slot::Empty), Checkpoints::default());
        let store = Self { path, clock, host, busy, owns_folder, slot, checkpoints };
        let deadline = tokio::time::Instant::now() + store.limit();
        match tokio::time::timeout_at(deadline, async {
            store.slot.lock().await.opened(&store, deadline, false).await.map(drop)
        })
        .await
        {
            Ok(Err(Failure::Error(error))) => Err(error),
            Ok(_) => Ok(store),
            Err(_) => Err(store.too_slow(false)),
        }
    }

    /// Nothing of ours is at the path.
    fn unmade(&self) -> Failure {
        let path = self.path.display();
        let wrong = match self.path.exists() {
            true => {
                format!("the file {path} has no locks of Oarlock; check the path, or take a lock, which makes tables")
            }
            false => format!("the file {path} does not exist; check the path, or take a lock, which makes it"),
        };
        Failure::Unmade(Error::new(ErrorKind::Refused, wrong))
    }

    fn limit(&self) -> Duration {
        self.busy + GRACE
    }

    /// Runs a statement. If the future is dropped, the statement may still run, but before any that comes later.
    pub(super) async fn run(&self, ask: Ask<'_>) -> Result<Answer, Failure> {
        let sent = AtomicBool::new(false);
        let start = tokio::time::Instant::now();
        let running = async {
            let mut pauses = Pauses::default();
            loop {
                match self.run_once(ask, start + self.limit(), &sent).await {
                    Err(Attempt::Busy(error)) if start.elapsed() >= self.busy => {
                        return Err(of_statement(&self.path, error).into());
                    }
                    Err(Attempt::Busy(_)) => {
                        sent.store(false, Ordering::Relaxed);
                        pauses.next(start.elapsed()).await;
                    }
                    Err(Attempt::Failed(failure)) => return Err(failure),
                    Ok(answer) => return Ok(answer),
                }
            }
        };
        match tokio::time::timeout_at(start + self.limit(), running).await {
            Ok(answer) => answer,
            Err(_) => Err(self.too_slow(sent.into_inner()).into()),
        }
    }

    async fn run_once(
        &self,
        ask: Ask<'_>,
        deadline: tokio::time::Instant,
        is_sent: &AtomicBool,
    ) -> Result<Answer, Attempt> {
        let mut slot = self.slot.lock().await;
        let opened = slot.opened(self, deadline, ask.makes).await?;
        // In this order, and before sending: our own instant must be the earlier end of the lease.
        let sent = self.clock.now();
        let arguments = ask.arguments(self.host.boot(), self.host.now()).map_err(sqlx::Error::Encode);
        let arguments = arguments.map_err(|error| Failure::Error(of_statement(&self.path, error)))?;
        is_sent.store(true, Ordering::Relaxed);
        opened.expect_commit();
        match ask.beside {
            true => tracing::trace!(target: SWEPT, statement = ask.statement),
            false => tracing::trace!(target: SENT, statement = ask.statement),
        }
        let rows = fetch(&mut opened.connection, ask, arguments).await;
        let undone = opened.is_undone();
        // After the commit, so that a grant in a file that others no longer see is not taken for one.
        if opened.is_replaced(&self.path) {
            tracing::warn!(path = %self.path.display(), "the file was replaced: everything held in it is lost");
            slot.discard();
            return Err(Failure::Replaced.into());
        }
        match rows {
            Ok(rows) if !undone => {
                self.checkpoints.consider(&self.path);
                Ok(Answer { rows, sent })
            }
            Ok(_) => {
                slot.discard();
                let message = format!("the file {} could not be written; check the disk", self.path.display());
                Err(Failure::Error(Error::new(ErrorKind::Unknown, message)).into())
            }
            Err(error) if Code::of(&error) == Code::Busy => Err(Attempt::Busy(error)),
            Err(error) => {
                if Code::of(&error).ends_the_connection() {
                    slot.discard();
                }
                Err(Failure::Error(of_statement(&self.path, error)).into())
            }
        }
    }

    fn too_slow(&self, sent: bool) -> Error {
        let (kind, what) = match sent {
            true => (ErrorKind::Unknown, "did not answer"),
            false => (ErrorKind::Unavailable, "was busy with earlier requests of this process"),
        };
        let path = self.path.display();
        Error::new(
            kind,
            format!("the file {path} {what} for {:?}; look for a stuck disk or a stopped process", self.limit()),
        )
    }

    /// Waits until the disk has what was committed so far. Other commits do not wait for that.
    pub(super) async fn make_last(&self) -> Result<()> {
        let path = self.path.clone();
        let syncing = tokio::task::spawn_blocking(move || sync(&path));
        match tokio::time::timeout(self.limit(), syncing).await {
            Ok(Ok(Ok(()))) => Ok(()),
            Ok(Ok(Err(error))) => {
                let message = format!("the file {} could not be written; check the disk", self.path.display());
                Err(Error::new(ErrorKind::Unknown, message).with_source(error))
            }
            Ok(Err(_)) | Err(_) => Err(self.too_slow(true)),
        }
    }

    /// Closes the connection for good.
    pub(super) async fn close(&self) -> Result<()> {
        let closing = async {
            let mut slot = self.slot.lock().await;
            slot.discard();
            slot.settle().await;
            *slot = Slot::Closed;
        };
        tokio::time::timeout(self.limit(), closing).await.map_err(|_| self.too_slow(false))
    }
}

/// What was committed is in the log, or a checkpoint has moved it into the file, which waits for the disk by itself. The
/// file is not opened: to close it would end SQLite's locks on it in this process.
fn sync(path: &Path) -> io::Result<()> {
    match File::open(beside(path, "-wal")) {
        Ok(log) => log.sync_data()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    // Both may be new. Not every folder can be opened, and not every file system knows this.
    let _ = File::open(path.parent().unwrap_or(path)).and_then(|folder| folder.sync_all());
    Ok(())
}

/// Most statements answer with one row at most. Of these, sqlx sends the row after it has reset the statement, and so
/// after the commit: one message and one wake-up, where a statement that is read to its end takes two and a third more
/// time. It keeps silent about a commit that failed, though; SQLite rolls back then, which the caller counts.
async fn fetch(
    connection: &mut SqliteConnection,
    ask: Ask<'_>,
    arguments: SqliteArguments,
) -> sqlx::Result<Vec<SqliteRow>> {
    let query = sqlx::query_with(ask.statement, arguments);
    match ask.many {
        true => query.fetch_all(connection).await,
        false => Ok(query.fetch_optional(connection).await?.into_iter().collect()),
    }
}

impl Slot {
    async fn opened(
        &mut self,
        store: &Store,
        deadline: tokio::time::Instant,
        makes: bool,
    ) -> Result<&mut Opened, Failure> {
        self.settle().await;
        if let Self::Empty = self {
            if store.owns_folder {
                match makes {
                    true => make_folder_of(&store.path)?,
                    false if !store.path.exists() => return Err(store.unmade()),
                    false => {}
                }
            }
            let opened = connection::open(&store.path, store.busy, deadline, makes).await?;
            *self = Self::Open(opened.ok_or_else(|| store.unmade())?);
        }
        match self {
            Self::Open(opened) => Ok(opened),
            _ => Err(Error::closed().into()),
        }
    }

    fn discard(&mut self) {
        *self = match std::mem::replace(self, Self::Empty) {
            Self::Open(opened) => Self::Closing(Box::pin(connection::close(opened.connection))),
            other => other,
        };
    }

    /// Waits until a connection that was given up is closed. Cancel safe: the next caller waits on.
    async fn settle(&mut self) {
        if let Self::Closing(closing) = self {
            closing.await;
            *self = Self::Empty;
        }
    }
}
