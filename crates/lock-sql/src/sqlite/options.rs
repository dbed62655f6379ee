//! From a URL or options to an open file.

use std::ffi::OsString;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{
    BackendFactory, Clock, DistributedLock, Error, ErrorKind, Result, SystemClock, Target, check_prefix, warn_of,
};

use super::SqliteLock;
use super::connection::check_folder;
use super::host_clock::HostClock;
use super::store::Store;

/// Longer than anybody waits for another writer, and short enough for SQLite.
const LONGEST_BUSY: Duration = Duration::from_secs(3600);

/// What can be chosen when a file is opened.
#[derive(Debug)]
pub struct SqliteOptions {
    path: PathBuf,
    prefix: String,
    busy: Duration,
    clock: Arc<dyn Clock>,
    owns_folder: bool,
    pub(super) host: HostClock,
}

impl SqliteOptions {
    /// The file at this path, made at the first grant in a folder that exists, with the prefix `oarlock`.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self {
            path: path.as_ref().to_owned(),
            prefix: "oarlock".to_owned(),
            busy: Duration::from_secs(5),
            clock: Arc::new(SystemClock),
            owns_folder: false,
            host: HostClock::new(),
        }
    }

    /// The prefix of the locks: the same name under another prefix is another lock.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = prefix.to_owned();
        self
    }

    /// How long SQLite waits for another process that is writing; 5 s unless set. A request takes at most two seconds
    /// more.
    pub fn busy(mut self, busy: Duration) -> Self {
        self.busy = busy;
        self
    }

    /// The clock that [`Grant::valid_until`](lock_core::Grant::valid_until) is counted on. The leases in the file
    /// always go by the host's own clock.
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Opens the file if it is there, in bounded time, and logs a warning for each setting that voids a promise; the first
    /// grant makes it. It must be called, and the lock be used, within a tokio runtime
    /// that has I/O and time enabled.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for a path that is not UTF-8, a prefix that cannot be, and a `busy` above an hour; [`ErrorKind::Refused`] if the folder is missing, something is not writable, the disk is full, or the file
    /// is not a database or has other tables than ours; [`ErrorKind::Unavailable`] if another process keeps writing to
    /// it.
    ///
    /// # Cancel safety
    /// Nothing is held yet, and nothing was made.
    pub async fn open(self) -> Result<SqliteLock> {
        let invalid = |wrong: String| Err(Error::new(ErrorKind::Invalid, wrong));
        if self.path.to_str().is_none() {
            return invalid(format!("the path {} is not UTF-8, which SQLite needs", self.path.display()));
        }
        check_prefix(&self.prefix, None)?;
        if self.busy > LONGEST_BUSY {
            return invalid(format!("busy is {:?}, longer than an hour", self.busy));
        }
        // A later change of the working folder must not lead to another file.
        let path = std::path::absolute(&self.path)
            .map_err(|error| Error::new(ErrorKind::Invalid, "an empty path names no file").with_source(error))?;
        if !self.owns_folder {
            check_folder(&path, self.path.is_relative())?;
        }
        let store = Store::open(path, self.clock, self.host, self.busy, self.owns_folder).await?;
        let lock = SqliteLock::new(store, &self.prefix);
        lock.sweep_if_due();
        warn_of(&lock.findings().await.unwrap_or_default(), lock.store.path.display());
        Ok(lock)
    }
}

/// Where the locks of `sqlite:` without a path live: `oarlock/locks.db` in the user's state folder, which is
/// `$XDG_STATE_HOME` or `~/.local/state`.
///
/// # Errors
/// [`ErrorKind::Invalid`] if neither `XDG_STATE_HOME` nor `HOME` is an absolute path.
pub fn default_path() -> Result<PathBuf> {
    default_path_in(std::env::var_os("XDG_STATE_HOME"), std::env::var_os("HOME"))
}

fn default_path_in(state: Option<OsString>, home: Option<OsString>) -> Result<PathBuf> {
    // A relative path in it is to be ignored, says the XDG base directory specification.
    let absolute = |path: Option<OsString>| path.map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute(state).or_else(|| Some(absolute(home)?.join(".local/state")));
    match state {
        Some(state) => Ok(state.join("oarlock/locks.db")),
        None => Err(Error::new(
            ErrorKind::Invalid,
            "there is no default place for the locks, as neither XDG_STATE_HOME nor HOME is an absolute path: \
             name a file, as in sqlite:/var/lib/app/locks.db",
        )),
    }
}

pub(super) fn make_folder_of(path: &Path) -> Result<()> {
    let folder = path.parent().unwrap_or(path);
    DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| {
        let message = format!("the folder {} cannot be made; name a file elsewhere", folder.display());
        Error::new(ErrorKind::Refused, message).with_source(error)
    })
}

/// Opens `sqlite:path`, `sqlite:///path`, and `sqlite:` for the [`default_path`], whose folder the first grant makes with mode 0700.
///
/// Its own setting is `busy`, see [`SqliteOptions::busy`].
#[derive(Clone, Copy, Debug, Default)]
pub struct SqliteFactory;

#[async_trait]
impl BackendFactory for SqliteFactory {
    fn schemes(&self) -> &'static [&'static str] {
        &["sqlite"]
    }

    async fn connect(&self, target: Target) -> Result<Arc<dyn DistributedLock>> {
        let Target { url, prefix, mut params, .. } = target;
        let busy = params.take_duration("busy")?;
        params.finish("sqlite", &["busy"])?;
        let named = url.path()?;
        if named.starts_with(":memory:") {
            return Err(Error::new(
                ErrorKind::Invalid,
                "locks in the memory of one process are what the URL memory: gives",
            ));
        }
        let owns_folder = named.is_empty();
        let path = if owns_folder { default_path()? } else { PathBuf::from(named) };
        let mut options = SqliteOptions { owns_folder, ..SqliteOptions::new(path).prefix(&prefix) };
        if let Some(busy) = busy {
            options = options.busy(busy);
        }
        Ok(Arc::new(options.open().await?))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_default_place_follows_the_environment() {
        let place =
            |state: Option<&str>, home: Option<&str>| default_path_in(state.map(Into::into), home.map(Into::into));
        assert_eq!(place(Some("/s"), Some("/h")).unwrap(), Path::new("/s/oarlock/locks.db"));
        for ignored in [None, Some(""), Some("relative")] {
            assert_eq!(place(ignored, Some("/h")).unwrap(), Path::new("/h/.local/state/oarlock/locks.db"));
        }
        let error = place(None, Some("")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("HOME") && error.to_string().contains("sqlite:/"), "{error}");
    }

    #[test]
    fn the_folder_is_the_users_alone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("state/oarlock/locks.db");
        make_folder_of(&path).unwrap();
        make_folder_of(&path).unwrap();
        for folder in ["state", "state/oarlock"] {
            assert_eq!(root.path().join(folder).metadata().unwrap().permissions().mode() & 0o777, 0o700);
        }
    }
}
