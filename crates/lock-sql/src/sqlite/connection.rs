//! Opening the file, and for a grant making it and our tables. It is known by its inode from then on.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use lock_core::{Error, ErrorKind, Result};
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access};

use super::error::{Code, of_opening};
use super::mode_statements::{MODES, SECOND, WAITERS_HAVE_MODES};
use super::statements::{
    BEGIN, COMMIT, IS_MADE, PROBE, ROLLBACK, SCHEMA, SETTINGS, USE_WAL, VALUES, VERSION, WAIT_FOR_NOBODY,
};

/// How long to wait before trying again what SQLite does not wait for by itself.
const PAUSE: Duration = Duration::from_millis(5);

/// How many statements stay prepared: all of ours.
const STATEMENTS: usize = 64;

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
    pub(super) connection: Connection,
    file: FileId,
}

impl Opened {
    /// Is another file at the path by now, or none?
    pub(super) fn is_replaced(&self, path: &Path) -> bool {
        FileId::of(path).ok() != Some(self.file)
    }
}

/// Opens the file, in bounded time; what SQLite itself has to wait for takes up to `busy` each. What is missing, the
/// file or our tables, is made only if `makes` says so; otherwise nothing is written, and the answer is `None`.
pub(super) fn open(path: &Path, busy: Duration, deadline: Instant, makes: bool) -> Result<Option<Opened>> {
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
            None => creation_lock(path, deadline)?,
            Some(_) => None,
        };
        let connection = match connect(path, busy, makes) {
            Err(_) if !makes && FileId::of(path).is_err() => return Ok(None),
            connected => connected?,
        };
        if !makes && !is_made(&connection, path)? {
            drop(connection);
            return Ok(None);
        }
        // This is also what makes the file.
        use_log(&connection, path, deadline)?;
        drop(creating);
        // Only a file that was there before and after is surely the one that SQLite opened.
        if let Some(file) = before
            && FileId::of(path).ok() == before
        {
            make_tables(&connection, path)?;
            connection.execute_batch(WAIT_FOR_NOBODY).map_err(|error| of_opening(path, error))?;
            return Ok(Some(Opened { connection, file }));
        }
        connection.close().map_err(|(_, error)| of_opening(path, error))?;
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
fn creation_lock(path: &Path, deadline: Instant) -> Result<Option<File>> {
    // A lock on the folder and not on the file: closing a file drops all locks of SQLite on it in the process.
    let Ok(folder) = File::open(path.parent().unwrap_or(path)) else { return Ok(None) };
    while let Err(error) = folder.try_lock() {
        match error {
            fs::TryLockError::Error(_) => return Ok(None),
            fs::TryLockError::WouldBlock if Instant::now() < deadline => sleep(PAUSE),
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

fn connect(path: &Path, busy: Duration, makes: bool) -> Result<Connection> {
    let wrong = |error| of_opening(path, error);
    let creates = if makes { OpenFlags::SQLITE_OPEN_CREATE } else { OpenFlags::empty() };
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX | creates;
    let connection = Connection::open_with_flags(path, flags).map_err(wrong)?;
    connection.busy_timeout(busy).map_err(wrong)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    connection.execute_batch(SETTINGS).map_err(wrong)?;
    Ok(connection)
}

/// SQLite does not wait when it changes the mode of the journal.
fn use_log(connection: &Connection, path: &Path, deadline: Instant) -> Result<()> {
    loop {
        match connection.query_row(USE_WAL, [], |_| Ok(())) {
            Ok(_) => return Ok(()),
            Err(error) if Code::of(&error) == Code::Busy && Instant::now() < deadline => sleep(PAUSE),
            Err(error) => return Err(of_opening(path, error)),
        }
    }
}

fn is_made(connection: &Connection, path: &Path) -> Result<bool> {
    let made = connection.query_row(IS_MADE, [], |row| row.get::<_, i64>(0));
    made.map(|tables| tables > 0).map_err(|error| of_opening(path, error))
}

fn make_tables(connection: &Connection, path: &Path) -> Result<()> {
    let wrong = |error| of_opening(path, error);
    if !is_made(connection, path)? {
        connection.execute_batch(SCHEMA).map_err(wrong)?;
    }
    // Where it is there, this only looks.
    connection.execute_batch(VALUES).map_err(wrong)?;
    let have_modes: i64 = connection.query_row(WAITERS_HAVE_MODES, [], |row| row.get(0)).map_err(wrong)?;
    if have_modes == 0 {
        make_modes(connection).map_err(wrong)?;
    }
    connection.execute_batch(SECOND).map_err(wrong)?;
    let (version, floor): (Option<i64>, Option<i64>) =
        connection.query_row(PROBE, [], |row| Ok((row.get(0)?, row.get(1)?))).map_err(wrong)?;
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
fn make_modes(connection: &Connection) -> rusqlite::Result<()> {
    connection.execute_batch(BEGIN)?;
    let have_modes: i64 = connection.query_row(WAITERS_HAVE_MODES, [], |row| row.get(0))?;
    let made = match have_modes {
        0 => connection.execute_batch(MODES).map(drop),
        _ => Ok(()),
    };
    let end = if made.is_ok() { COMMIT } else { ROLLBACK };
    connection.execute_batch(end)?;
    made
}
