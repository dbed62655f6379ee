//! The file: how a request waits for its answer, in bounded time, and how a turn at the file is used.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant as Real};

use futures_util::future::{Either, select};
use lock_core::{Clock, Error, ErrorKind, Instant, Result};

use super::batch::{self, At};
use super::checkpoint::Checkpoints;
use super::connection::{self, Opened, beside};
use super::error::{Code, of_statement};
use super::host_clock::HostClock;
use super::options::make_folder_of;
use super::queue::{Queue, Slot, Turn, Waits};
use super::row::Row;
use super::statements::Ask;
use crate::keys::{SENT, SWEPT};

/// What a request may take beyond the time that SQLite waits for another writer.
const GRACE: Duration = Duration::from_secs(2);

/// The file, and the one connection to it.
///
/// One connection and not a pool: the requests run in the order in which they came. So whatever an `unlock` finds done or
/// not done, nothing asked for before lands after it.
pub(super) struct Store {
    pub(super) path: PathBuf,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) host: HostClock,
    pub(super) busy: Duration,
    /// Is the folder ours to make?
    owns_folder: bool,
    queue: Arc<Queue>,
    checkpoints: Checkpoints,
}

/// The rows that a statement answered, after it was committed, and when it was sent.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) rows: Vec<Row>,
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

/// The pauses while another process writes: none at first, since a write takes some ten microseconds, and then a
/// sixteenth of the time waited so far. Who was unlucky so far is not to come last again: where many write, others get
/// on meanwhile. SQLite's own begin with a millisecond, and would keep the turn from all others.
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
    ) -> Result<Arc<Self>> {
        let checkpoints = Checkpoints::default();
        let store = Arc::new(Self { path, clock, host, busy, owns_folder, queue: Queue::new(), checkpoints });
        let opens = Arc::clone(&store);
        let opening = tokio::task::spawn_blocking(move || match opens.queue.turn() {
            Some(mut turn) => opens.opened(&mut turn.slot, Real::now() + opens.limit(), false).map(drop),
            None => Ok(()),
        });
        match tokio::time::timeout(store.limit(), opening).await {
            Ok(Ok(Err(Failure::Error(error)))) => Err(error),
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

    /// Runs a statement. If the future is dropped, the statement may still run, but before any that comes later. If it is
    /// only not polled, it runs with those that come later.
    pub(super) async fn run(self: &Arc<Self>, ask: Ask<'_>) -> Result<Answer, Failure> {
        let start = Real::now();
        // Here, so that it belongs to the caller's span: another may run the statement.
        match ask.beside {
            true => tracing::trace!(target: SWEPT, statement = ask.statement),
            false => tracing::trace!(target: SENT, statement = ask.statement),
        }
        let mut waits = self.queue.put(ask, start);
        let answering = self.answered(&mut waits, start);
        match tokio::time::timeout_at((start + self.limit()).into(), answering).await {
            Ok(answer) => answer,
            Err(_) => Err(self.too_slow(waits.progress.sent.load(Ordering::Relaxed)).into()),
        }
    }

    async fn answered(self: &Arc<Self>, waits: &mut Waits, start: Real) -> Result<Answer, Failure> {
        let mut pauses = Pauses::default();
        // Who asks at the same moment shares the transaction.
        tokio::task::yield_now().await;
        loop {
            if let Some(answer) = waits.answered() {
                return answer;
            }
            let freed = self.queue.freed();
            let Some(turn) = self.queue.turn() else {
                match select(&mut waits.answer, std::pin::pin!(freed)).await {
                    Either::Left((answer, _)) => return answer.unwrap_or_else(|_| Err(Error::closed().into())),
                    Either::Right(_) => continue,
                }
            };
            self.serve(turn).await;
            if let Some(answer) = waits.answered() {
                return answer;
            }
            if waits.progress.busy.load(Ordering::Relaxed) {
                let pause = std::pin::pin!(pauses.next(start.elapsed()));
                if let Either::Left((answer, _)) = select(&mut waits.answer, pause).await {
                    return answer.unwrap_or_else(|_| Err(Error::closed().into()));
                }
            }
        }
    }

    /// Uses the turn here, or on a thread for blocking calls if that may take long. There, it goes on if the future is
    /// dropped.
    async fn serve(self: &Arc<Self>, mut turn: Turn) {
        if !turn.blocks {
            return self.use_turn(&mut turn);
        }
        let store = Arc::clone(self);
        // What is not done when a runtime ends goes back to the queue with the turn.
        let _ = tokio::task::spawn_blocking(move || store.use_turn(&mut turn)).await;
    }

    /// Runs what the turn has. What is left in it found the file busy.
    fn use_turn(&self, turn: &mut Turn) {
        while let Some(job) = turn.jobs.front() {
            match self.opened(&mut turn.slot, job.start + self.limit(), job.asked.makes) {
                Ok(()) => break,
                Err(failure) => {
                    if let Some(job) = turn.jobs.pop_front() {
                        job.answer(Err(failure));
                    }
                }
            }
        }
        let Slot::Open(opened) = &turn.slot else { return };
        let jobs: Vec<_> = turn.jobs.iter().collect();
        if jobs.is_empty() {
            return;
        }
        let at = At { clock: &*self.clock, host: &self.host };
        let mut ran = batch::run(&opened.connection, &jobs, at);
        // After the commit, so that a grant in a file that others no longer see is not taken for one.
        let replaced = opened.is_replaced(&self.path);
        if replaced {
            tracing::warn!(path = %self.path.display(), "the file was replaced: everything held in it is lost");
        }
        let broken = ran.iter().any(|ran| ran.as_ref().is_err_and(|error| Code::of(error).ends_the_connection()));
        if replaced || broken {
            turn.slot = Slot::Empty;
        }
        for job in std::mem::take(&mut turn.jobs) {
            match ran.remove(0) {
                _ if replaced => job.answer(Err(Failure::Replaced)),
                Err(error) if Code::of(&error) == Code::Busy => match job.start.elapsed() >= self.busy {
                    true => job.answer(Err(of_statement(&self.path, error).into())),
                    false => {
                        job.progress.busy.store(true, Ordering::Relaxed);
                        turn.jobs.push_back(job);
                    }
                },
                ran => {
                    self.checkpoints.consider(&self.path);
                    job.answer(ran.map_err(|error| of_statement(&self.path, error).into()));
                }
            }
        }
    }

    /// Opens the file if it is not.
    fn opened(&self, slot: &mut Slot, deadline: Real, makes: bool) -> Result<(), Failure> {
        match slot {
            Slot::Open(_) => return Ok(()),
            Slot::Closed => return Err(Error::closed().into()),
            Slot::Empty => {}
        }
        if self.owns_folder {
            match makes {
                true => make_folder_of(&self.path)?,
                false if !self.path.exists() => return Err(self.unmade()),
                false => {}
            }
        }
        let opened: Option<Opened> = connection::open(&self.path, self.busy, deadline, makes)?;
        *slot = Slot::Open(opened.ok_or_else(|| self.unmade())?);
        Ok(())
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
    pub(super) async fn close(self: &Arc<Self>) -> Result<()> {
        let closing = async {
            let mut turn = loop {
                let freed = self.queue.freed();
                match self.queue.turn() {
                    Some(turn) => break turn,
                    None => freed.await,
                }
            };
            let store = Arc::clone(self);
            // What was asked for before comes first. The last connection to close moves the log into the file.
            let ending = move || {
                store.use_turn(&mut turn);
                turn.slot = Slot::Closed;
            };
            let _ = tokio::task::spawn_blocking(ending).await;
        };
        tokio::time::timeout(self.limit(), closing).await.map_err(|_| self.too_slow(false))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The last connection to close waits for the disk, which a runtime's thread must not.
        let Some(mut turn) = self.queue.turn() else { return };
        if let Slot::Open(opened) = std::mem::replace(&mut turn.slot, Slot::Closed) {
            let _ = std::thread::Builder::new().name("oarlock-sqlite".to_owned()).spawn(move || drop(opened));
        }
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
