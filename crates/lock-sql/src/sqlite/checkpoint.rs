//! Keeps the write-ahead log short.
//!
//! SQLite by itself does that within a request, so that its answer waits for the disk; and only at the end of a statement
//! that is read to its end, which ours seldom are. Here another connection does it, beside the requests.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};
use tokio::sync::Mutex;

use super::connection::beside;
use super::statements::CHECKPOINTS;

/// How long a log is emptied, in bytes.
pub(super) const LONG: u64 = 8 << 20;

/// One in so many requests looks how long it is, the first among them: some processes make only a few.
const LOOK: u32 = 64;

/// For how long a checkpoint keeps others from writing, at the most, because somebody does not get done with reading.
const PATIENCE: Duration = Duration::from_millis(100);

/// Between two checkpoints, however fast the log grows.
const PAUSE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Checkpoints {
    requests: AtomicU32,
    turn: Arc<Mutex<()>>,
}

impl Checkpoints {
    /// After a request: has the log emptied in the background, if it has become long.
    pub(super) fn consider(&self, path: &Path) {
        if !self.requests.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK) || length_of_log(path) < LONG {
            return;
        }
        // Given back if the runtime goes meanwhile.
        let Ok(turn) = Arc::clone(&self.turn).try_lock_owned() else { return };
        let path = path.to_owned();
        tokio::spawn(async move {
            let emptying = tokio::task::spawn_blocking(move || {
                if let Err(error) = empty_log(&path) {
                    tracing::warn!(path = %path.display(), %error, "the write-ahead log could not be emptied");
                }
            });
            let _ = emptying.await;
            tokio::time::sleep(PAUSE).await;
            drop(turn);
        });
    }
}

fn empty_log(path: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(PATIENCE)?;
    for checkpoint in CHECKPOINTS {
        connection.query_row(checkpoint, [], |_| Ok(()))?;
    }
    connection.close().map_err(|(_, error)| error)
}

/// Zero where there is none.
pub(super) fn length_of_log(path: &Path) -> u64 {
    fs::metadata(beside(path, "-wal")).map_or(0, |metadata| metadata.len())
}
