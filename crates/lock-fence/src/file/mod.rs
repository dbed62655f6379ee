//! A file that carries the fencing token of its last writer.
//!
//! The marks and the data are in one file, so they change together. A write goes to a temporary file beside it, which is
//! made durable and renamed into place. A crash leaves the old file or the new one, and no reader sees half of one.
//! Writers of all processes take turns, by `flock` on a third file. For `data.json`, these are `data.json.tmp` and
//! `data.json.lock`; the latter stays.
//!
//! ```
//! # use lock_fence as fence;
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("report.json");
//! # let [lease, later] = [("report", 7), ("report", 9)];
//! fence::file::write(&path, lease, b"{}")?;
//! assert_eq!(fence::file::read(&path)?, b"{}");
//! // What is written depends on what is there:
//! fence::file::update(&path, later, |text| [text, b"\n"].concat())?;
//! assert_eq!(fence::file::write(&path, lease, b"[]").unwrap_err().kind(), lock_core::ErrorKind::Stale);
//! # Ok::<_, Box<dyn std::error::Error>>(())
//! ```
//!
//! The functions block, on the disk and while another process has its turn. In asynchronous code, call them on a thread
//! for that, such as by `tokio::task::spawn_blocking`.
//!
//! It does not cover:
//!
//! - **Others who write.** A program that writes to the file without this check is not held back. A program that
//!   reads it must know the lines before the data; see [`read`].
//! - **Who only reads.** [`read`] checks nothing. A holder that reads to decide what to write uses [`update`], or
//!   [`check`] before it reads.
//! - **Network file systems**, unless their `flock` holds between hosts and their renames are atomic. On NFS, a client
//!   that was cut off may lose its `flock` to another and not know.
//! - **A file with two names.** A hard link of it keeps the old marks. A symbolic link leads to the same file and marks,
//!   also to one that is still to be made.
//! - **A lock file that is removed** while somebody has its turn: the next one does not wait for them.
//! - **A holder that is stopped in its turn.** It keeps the others waiting, until it goes on or ends.
//!
//! # Errors
//! Those of all functions here:
//!
//! - [`ErrorKind::Stale`]: a later holder was here. [`Stale::of`](crate::Stale::of) has both tokens.
//! - [`ErrorKind::Invalid`]: the access is none, or the file is not one of ours. Nothing was done.
//! - [`ErrorKind::Refused`]: the system refused. Nothing was done.
//! - [`ErrorKind::Unknown`]: the file was replaced, and the system did not confirm that this outlives a crash. Do it
//!   again, with the same token.
//!
//! An error of the system is the source of those of the last two kinds.

mod content;
mod places;

use std::fs::File;
use std::path::Path;

use lock_core::{Error, ErrorKind, Result};

use crate::Access;
use places::Places;

/// The data of this file, without a check. A file that is not there, or has only been checked, has none.
///
/// Before the data are the line `oarlock-fence 1`, a line for each mark, and an empty line. A mark's line has the token,
/// the number of the permit or a dash, and the name.
///
/// # Errors
/// As [above](self#errors).
pub fn read(path: impl AsRef<Path>) -> Result<Vec<u8>> {
    Ok(Places::of(path.as_ref())?.read()?.data)
}

/// Writes this in the place of what the file has, unless a later holder was here.
///
/// A reader's access, and one of permits that others have too, keep their holders from being late, not from each other:
/// the data are those of who wrote last.
///
/// # Errors
/// As [above](self#errors).
pub fn write<A>(path: impl AsRef<Path>, access: A, data: impl AsRef<[u8]>) -> Result<()>
where
    A: TryInto<Access>,
    Error: From<A::Error>,
{
    update(path, access, |_| data.as_ref().to_vec())
}

/// Writes what this function makes of what the file has, unless a later holder was here. Nobody writes in between.
///
/// # Errors
/// As [above](self#errors).
pub fn update<A>(path: impl AsRef<Path>, access: A, change: impl FnOnce(&[u8]) -> Vec<u8>) -> Result<()>
where
    A: TryInto<Access>,
    Error: From<A::Error>,
{
    with(&access.try_into()?, |access| {
        let places = Places::of(path.as_ref())?;
        let _turn = places.turn(None, false)?;
        let mut content = places.read()?;
        content.check(access)?;
        content.data = change(&content.data);
        places.replace(&content)
    })
}

/// Checks that no later holder was here, and refuses all earlier ones from now on. The data stay.
///
/// What the caller does afterwards is no part of it: between the check and that, a later holder may come. [`hold`]
/// leaves no such gap.
///
/// # Errors
/// As [above](self#errors).
pub fn check<A>(path: impl AsRef<Path>, access: A) -> Result<()>
where
    A: TryInto<Access>,
    Error: From<A::Error>,
{
    hold(path, access).map(drop)
}

/// The same, and others who check are kept waiting until what this returns is dropped, however long that takes. So
/// whatever is done until then is done before a later holder passes its check.
///
/// [Readers](Access::shared) have their turns at the same time, and so do holders of different
/// [permits](Access::with_slots), for each of which there is one more file, such as `data.json.slot2.lock`. A lock and a
/// semaphore do not keep each other out.
///
/// # Errors
/// As [above](self#errors).
pub fn hold<A>(path: impl AsRef<Path>, access: A) -> Result<Held>
where
    A: TryInto<Access>,
    Error: From<A::Error>,
{
    with(&access.try_into()?, |access| {
        let places = Places::of(path.as_ref())?;
        // In rising order, so that nobody waits in a circle.
        let mut turns = Vec::new();
        for &slot in access.slots() {
            turns.push(places.turn(Some(slot), access.is_shared())?);
        }
        let turn = places.turn(None, access.is_shared())?;
        let mut content = places.read()?;
        if content.check(access)? {
            places.replace(&content)?;
        }
        if turns.is_empty() {
            turns.push(turn);
        }
        Ok(Held { turns })
    })
}

/// Keeps others who [`hold`], [`check`] or [write](write()) the same waiting, until it is dropped or the process ends.
#[derive(Debug)]
#[must_use = "others are kept waiting only until it is dropped"]
pub struct Held {
    turns: Vec<File>,
}

impl Held {
    /// The files whose `flock` it is. A process that inherits them keeps the others waiting too.
    pub fn files(&self) -> &[File] {
        &self.turns
    }
}

fn with<T>(access: &Access, work: impl FnOnce(&Access) -> Result<T>) -> Result<T> {
    work(access).map_err(|error| error.with_context("fence", "file", Some(access.name())))
}

fn refused(what: &str, path: &Path, error: std::io::Error) -> Error {
    Error::new(ErrorKind::Refused, format!("cannot {what} {}", path.display())).with_source(error)
}
