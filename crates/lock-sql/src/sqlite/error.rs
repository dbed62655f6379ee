//! What SQLite's errors mean to a caller, each with the file's path and the way out.

use std::path::Path;

use lock_core::{Error, ErrorKind};

/// What SQLite answered, as far as it matters here: the low byte of its result codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Code {
    Shape,
    Rights,
    Busy,
    ReadOnly,
    Io,
    Corrupt,
    Full,
    CannotOpen,
    NotADatabase,
    Other,
}

impl Code {
    pub(super) fn of(error: &rusqlite::Error) -> Self {
        /// The shared-memory file could not grow: that happens on a full disk, before anything is written.
        const IOERR_SHMSIZE: i32 = 4874;
        let (rusqlite::Error::SqliteFailure(error, _) | rusqlite::Error::SqlInputError { error, .. }) = error else {
            return Self::Other;
        };
        match error.extended_code & 0xff {
            _ if error.extended_code == IOERR_SHMSIZE => Self::Full,
            // A constraint fails only where a table is not ours.
            1 | 19 | 20 => Self::Shape,
            3 | 23 => Self::Rights,
            5 | 6 => Self::Busy,
            8 => Self::ReadOnly,
            10 => Self::Io,
            11 => Self::Corrupt,
            13 => Self::Full,
            14 => Self::CannotOpen,
            26 => Self::NotADatabase,
            _ => Self::Other,
        }
    }

    /// Is a new connection needed before anything else can work?
    pub(super) fn ends_the_connection(self) -> bool {
        matches!(self, Self::Io | Self::Corrupt | Self::CannotOpen | Self::NotADatabase)
    }

    fn explain(self) -> (ErrorKind, &'static str) {
        use ErrorKind::{Refused, Unavailable, Unknown};
        match self {
            Self::Shape => (
                Refused,
                "has tables of another shape than this version's; \
                 remove it while no program uses it, or name another file",
            ),
            Self::Rights => (Refused, "may not be used; check its owner and mode"),
            Self::Busy => (
                Unavailable,
                "is being written to by another process, and has been for longer than `busy`; \
                 look for a stopped process that has it open (`fuser` names them), or raise `busy`",
            ),
            Self::ReadOnly => (
                Refused,
                "cannot be written to; check the mode and the owner of it, of the -wal and -shm beside it, and the file system",
            ),
            Self::Io => (Unknown, "could not be read or written; check the disk"),
            Self::Corrupt => (Unknown, "is damaged; stop its users, then move it and its -wal and -shm away"),
            Self::Full => (Refused, "cannot grow: the disk is full, or a quota is reached; make room"),
            Self::CannotOpen => (
                Refused,
                "cannot be opened; it and its folder must be writable, since SQLite keeps a -wal and a -shm file beside it",
            ),
            Self::NotADatabase => (Refused, "is not an SQLite database; name another file"),
            Self::Other => (Unknown, "could not be used"),
        }
    }
}

/// The error of a statement.
pub(super) fn of_statement(path: &Path, error: rusqlite::Error) -> Error {
    let (kind, wrong) = Code::of(&error).explain();
    Error::new(kind, format!("the file {} {wrong}", path.display())).with_source(error)
}

/// The error of opening: nothing was asked yet, so nothing can be unknown.
pub(super) fn of_opening(path: &Path, error: rusqlite::Error) -> Error {
    let (kind, wrong) = Code::of(&error).explain();
    let kind = if kind == ErrorKind::Unknown { ErrorKind::Unavailable } else { kind };
    Error::new(kind, format!("the file {} {wrong}", path.display())).with_source(error)
}
