//! Opening the file, and for a grant making it and our tables. It is known by its inode from then on.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use rustix::fs::{Access, access};
use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection as _, SqliteConnection};
use tokio::time::{Instant, sleep};

use super::error::{Code, of_opening};
use super::mode_statements::{MODES, WAITERS_HAVE_MODES};
use super::statements::{IS_MADE, PROBE, SCHEMA, USE_WAL, VALUES, VERSION};

/// How long to wait before trying again what SQLite does not wait for by itself.
const PAUSE: Duration = Duration::from_millis(5);

/// Which file a path leads to. As long as we have the file open, no other gets the same numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId(u64, u64);

impl FileId {
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self(metadata.dev(), metadata.ino()))
    }
}

/// An open connection, and which file it is to.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) connection: SqliteConnection,
    file: FileId,
    undone: Arc<AtomicBool>,
}

impl Opened {
    /// Is another file at the path by now, or none?
    pub(super) fn is_replaced(&self, path: &Path) -> bool {
        FileId::of(path).ok() != Some(self.file)
    }

    /// From now on, what is rolled back and not committed after that shows in [`is_undone`](Self::is_undone).
    pub(super) fn expect_commit(&self) {
        self.undone.store(false, Ordering::Relaxed);
    }

    /// Was the last that ended rolled back?
    pub(super) fn is_undone(&self) -> bool {
        self.undone.load(Ordering::Relaxed)
    }
}

/// Opens the file, in bounded time; what SQLite itself has to wait for takes up to `busy` each. What is missing, the
/// file or our tables, is made only if `makes` says so; otherwise nothing is written, and the answer is `None`.
pub(super) async fn open(path: &Path, busy: Duration, deadline: Instant, makes: bool) -> Result<Option<Opened>> {
    check_folder(path, false)?;
    loop {
        let before = FileId::of(path).ok();
        if before.is_none() && !makes {
            return Ok(None);
        }
        if before.is_some() && access(path, Access::WRITE_OK).is_err() {
            // SQLite would let us read, and leave files of ours beside it that keep others from writing.
            let message =
                format!("the file {} may not be written to by this user; check its mode and group", path.display());
            return Err(Error::new(ErrorKind::Refused, message));
        }
        let creating = match before {
            None => creation_lock(path, deadline).await?,
            Some(_) => None,
        };
        let mut connection = match connect(path, busy, makes).await {
            Err(_) if !makes && FileId::of(path).is_err() => return Ok(None),
            connected => connected?,
        };
        if !makes && !is_made(&mut connection, path).await? {
            close(connection).await;
            return Ok(None);
        }
        // This is also what makes the file.
        use_log(&mut connection, path, deadline).await?;
        drop(creating);
        // Only a file that was there before and after is surely the one that SQLite opened.
        if let Some(file) = before
            && FileId::of(path).ok() == before
        {
            make_tables(&mut connection, path).await?;
            let undone = make_ready(&mut connection).await.map_err(|error| of_opening(path, error))?;
            return Ok(Some(Opened { connection, file, undone }));
        }
        connection.close().await.map_err(|error| of_opening(path, error))?;
        if Instant::now() >= deadline {
            return Err(Error::new(
                ErrorKind::Unavailable,
                format!("the file {} is replaced again and again", path.display()),
            ));
        }
    }
}

/// `relative`: is the path one that was written without a slash at its beginning, perhaps by mistake?
pub(super) fn check_folder(path: &Path, relative: bool) -> Result<()> {
    let refused = |wrong: String| Err(Error::new(ErrorKind::Refused, wrong));
    let folder = path.parent().unwrap_or(path);
    match fs::metadata(folder) {
        Ok(metadata) if metadata.is_dir() => {}
        Ok(_) => {
            return refused(format!("{} is not a folder, so {} cannot be in it", folder.display(), path.display()));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let hint = if relative { "; or is the path absolute? That is written sqlite:/…" } else { "" };
            return refused(format!("the folder {} is missing; make it first (mkdir -p){hint}", folder.display()));
        }
        Err(error) => {
            let message = format!("the folder {} cannot be entered", folder.display());
            return Err(Error::new(ErrorKind::Refused, message).with_source(error));
        }
    }
    if path.is_dir() {
        return refused(format!("{} is a folder; name a file in it", path.display()));
    }
    Ok(())
}

/// What SQLite keeps beside the file.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut beside = path.as_os_str().to_owned();
    beside.push(suffix);
    beside.into()
}

/// Makes sure that one process at a time creates the file, and that it starts without the log of a file that was moved
/// away: a log and an index of pages that the old file's users still have open would be shared with the new file.
async fn creation_lock(path: &Path, deadline: Instant) -> Result<Option<File>> {
    // A lock on the folder and not on the file: closing a file drops all locks of SQLite on it in the process.
    let Ok(folder) = File::open(path.parent().unwrap_or(path)) else { return Ok(None) };
    while let Err(error) = folder.try_lock() {
        match error {
            fs::TryLockError::Error(_) => return Ok(None),
            fs::TryLockError::WouldBlock if Instant::now() < deadline => sleep(PAUSE).await,
            fs::TryLockError::WouldBlock => {
                return Err(Error::new(
                    ErrorKind::Unavailable,
                    format!("another process does not get done with making {}; look for a stopped one", path.display()),
                ));
            }
        }
    }
    if FileId::of(path).is_err() {
        for suffix in ["-wal", "-shm"] {
            // If it cannot be removed, the file cannot be made either, and that error says more.
            let _ = fs::remove_file(beside(path, suffix));
        }
    }
    Ok(Some(folder))
}

async fn connect(path: &Path, busy: Duration, makes: bool) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(makes)
        .busy_timeout(busy)
        // A write costs its pages: ours are few and their rows short. A file that exists keeps its own size.
        .page_size(2048)
        .pragma("wal_autocheckpoint", "0")
        // A crash of the host may take the last commits, but it takes every holder too, and tokens also follow the
        // clock. What has no holder is made to last by itself: see `Store::make_last`.
        .synchronous(SqliteSynchronous::Normal)
        // Dropped requests must not make the next one wait for room.
        .command_buffer_size(1024)
        .thread_name(|_| "oarlock-sqlite".to_owned())
        .disable_statement_logging();
    options.connect().await.map_err(|error| of_opening(path, error))
}

/// SQLite does not wait when it changes the mode of the journal.
async fn use_log(connection: &mut SqliteConnection, path: &Path, deadline: Instant) -> Result<()> {
    loop {
        match sqlx::query(USE_WAL).fetch_all(&mut *connection).await {
            Ok(_) => return Ok(()),
            Err(error) if Code::of(&error) == Code::Busy && Instant::now() < deadline => sleep(PAUSE).await,
            Err(error) => return Err(of_opening(path, error)),
        }
    }
}

async fn is_made(connection: &mut SqliteConnection, path: &Path) -> Result<bool> {
    let made = sqlx::query_scalar(IS_MADE).fetch_one(connection).await;
    made.map(|tables: i64| tables > 0).map_err(|error| of_opening(path, error))
}

async fn make_tables(connection: &mut SqliteConnection, path: &Path) -> Result<()> {
    let wrong = |error| of_opening(path, error);
    if !is_made(connection, path).await? {
        sqlx::raw_sql(SCHEMA).execute(&mut *connection).await.map_err(wrong)?;
    }
    // Where it is there, this only looks.
    sqlx::raw_sql(VALUES).execute(&mut *connection).await.map_err(wrong)?;
    let have_modes: i64 = sqlx::query_scalar(WAITERS_HAVE_MODES).fetch_one(&mut *connection).await.map_err(wrong)?;
    if have_modes == 0 {
        make_modes(connection).await.map_err(wrong)?;
    }
    let (version, floor): (Option<i64>, Option<i64>) =
        sqlx::query_as(PROBE).fetch_one(&mut *connection).await.map_err(wrong)?;
    match (version, floor) {
        (Some(VERSION), Some(_)) => Ok(()),
        (Some(version), _) if version > VERSION => Err(Error::new(
            ErrorKind::Refused,
            format!(
                "the file {} has tables of version {version}, and this program knows version {VERSION}: \
                 upgrade it, or name another file",
                path.display()
            ),
        )),
        _ => Err(Error::new(
            ErrorKind::Refused,
            format!(
                "the file {} has a table oarlock_meta of another shape; \
                 remove it while no program uses it, or name another file",
                path.display()
            ),
        )),
    }
}

/// Makes what several holders need. Somebody else may be about to do the same.
async fn make_modes(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut *connection).await?;
    let have_modes: i64 = sqlx::query_scalar(WAITERS_HAVE_MODES).fetch_one(&mut *connection).await?;
    let made = match have_modes {
        0 => sqlx::raw_sql(MODES).execute(&mut *connection).await.map(drop),
        _ => Ok(()),
    };
    let end = if made.is_ok() { "COMMIT" } else { "ROLLBACK" };
    sqlx::raw_sql(end).execute(&mut *connection).await?;
    made
}

/// From here on, the store itself waits for other writers, and is told of rollbacks.
async fn make_ready(connection: &mut SqliteConnection) -> sqlx::Result<Arc<AtomicBool>> {
    sqlx::query("PRAGMA busy_timeout = 0").execute(&mut *connection).await?;
    let undone = Arc::new(AtomicBool::new(false));
    let mut handle = connection.lock_handle().await?;
    // A rollback with a commit after it is only SQLite starting again, because somebody else made a table.
    let committed = Arc::clone(&undone);
    handle.set_commit_hook(move || {
        committed.store(false, Ordering::Relaxed);
        true
    });
    let rolled_back = Arc::clone(&undone);
    handle.set_rollback_hook(move || rolled_back.store(true, Ordering::Relaxed));
    Ok(undone)
}

/// Closes a connection and waits for its last statement, so that none of them lands after what a later one does.
pub(super) async fn close(connection: SqliteConnection) {
    if let Err(error) = connection.close().await {
        tracing::debug!(%error, "a connection did not close cleanly");
    }
}
