//! What the torture's locks protect: counters in files, or in places where an application's own checks of fencing
//! tokens are attacked. Each lock protects a counter in every place.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::{BoxFuture, try_join_all};
use lock_core::{Lease, Mode};
use rustix::io::Errno;
use rustix::process::{Resource as Limited, getrlimit};

use crate::history::{Log, What, monotonic};
use crate::resource::{Access, Kind, Resource};
use crate::workload::Workload;

/// What a holder shows of its lock to a resource. It goes on to show it after the lock was lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The lock's name.
    pub lock: String,
    /// The fencing token.
    pub token: u64,
    /// Is the lock held beside others?
    pub shared: bool,
    /// The permits of a semaphore that are held; none of a lock.
    pub slots: Vec<u32>,
}

impl Shown {
    /// Of a holder that has a lock alone.
    pub fn alone(lock: &str, token: u64) -> Self {
        Self { lock: lock.to_owned(), token, shared: false, slots: Vec::new() }
    }
}

impl From<&Lease> for Shown {
    fn from(lease: &Lease) -> Self {
        let (shared, slots) = (lease.mode() == Mode::Shared, lease.slots().to_vec());
        Self { shared, slots, ..Self::alone(lease.name().as_str(), lease.fencing_token().get()) }
    }
}

/// What a holder wants of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Its value, for a later write.
    Read,
    /// Its value, to look at beside others.
    Share,
    /// A new value.
    Write(u64),
}

impl Wanted {
    /// What it is in a log.
    pub fn kind(self) -> Kind {
        match self {
            Self::Read => Kind::Read,
            Self::Share => Kind::Share,
            Self::Write(_) => Kind::Write,
        }
    }
}

/// A place with counters that locks protect. Each has a log of what it let in.
#[async_trait]
pub trait Protected: Send + Sync {
    /// One access. Answers the counter's value after it, or `None` if the token was refused. A counter that was never
    /// written to is 0. The access is put down in the log in the same step as its check and its change.
    ///
    /// # Errors
    /// If the place cannot be used. It is not struck, so the torture ends with that.
    async fn access(&self, resource: &str, shown: &Shown, wanted: Wanted) -> io::Result<Option<u64>>;

    /// What this resource let in, in its order. Empty if it was never used.
    ///
    /// # Errors
    /// If the place cannot be read.
    async fn log(&self, resource: &str) -> io::Result<Vec<Access>>;
}

/// Opens the place of this URL.
pub type Open = fn(String) -> BoxFuture<'static, io::Result<Box<dyn Protected>>>;

/// Places that the torture uses in the stead of files. They are not struck. The workers open them too: see
/// [`worker_main_with`](crate::worker_main_with).
#[derive(Clone, Debug)]
pub struct Elsewhere {
    /// Where they are. Each has another scheme, by which the report calls it.
    pub urls: Vec<String>,
    /// How they are opened.
    pub open: Open,
}

/// How long a worker that may open nothing waits before it tries again.
pub(crate) const HUNGRY: Duration = Duration::from_millis(20);

/// Is this process starved, as by [`Blow::Starve`](crate::torture::Blow::Starve), or was it until just now? One that leaks
/// descriptors cannot even look how many it has.
pub(crate) fn is_hungry(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::MFILE.raw_os_error())
        && (getrlimit(Limited::Nofile).current == Some(0) || std::fs::read_dir("/proc/self/fd").is_ok())
}

/// Counters in files of a folder.
struct Files(PathBuf);

#[async_trait]
impl Protected for Files {
    /// It may block for as long as another process is stopped in the middle of one.
    async fn access(&self, resource: &str, shown: &Shown, wanted: Wanted) -> io::Result<Option<u64>> {
        let (path, token) = (Workload::resource(&self.0, resource), shown.token);
        let done = tokio::task::spawn_blocking(move || {
            let mut resource = loop {
                match Resource::open(&path) {
                    Err(error) if is_hungry(&error) => sleep(HUNGRY),
                    opened => break opened?,
                }
            };
            match wanted {
                Wanted::Read => resource.read(token),
                Wanted::Share => resource.share(token),
                Wanted::Write(value) => resource.write(token, value),
            }
        });
        Ok(done.await.map_err(io::Error::other)??.ok())
    }

    async fn log(&self, resource: &str) -> io::Result<Vec<Access>> {
        let path = Workload::resource(&self.0, resource);
        if path.exists() { Resource::log(&path) } else { Ok(Vec::new()) }
    }
}

/// A holder on its way to a resource, and the history that tells of it.
pub(crate) struct Visitor<'a> {
    pub(crate) shown: Shown,
    /// Does it still hold?
    pub(crate) held: Box<dyn Fn() -> bool + Send + Sync + 'a>,
    pub(crate) log: &'a Log,
}

/// All places, by their names.
pub(crate) struct Places(Vec<(String, Box<dyn Protected>)>);

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

impl Places {
    /// Files in this folder alone.
    pub(crate) fn files(folder: &Path) -> Self {
        Self(vec![("files".to_owned(), Box::new(Files(folder.to_owned())))])
    }

    /// The places of these URLs.
    pub(crate) async fn open(urls: &[String], open: Open) -> io::Result<Self> {
        let opened = urls.iter().map(async |url| {
            let name = url.split(':').next().unwrap_or_default().to_owned();
            Ok::<_, io::Error>((name, open(url.clone()).await?))
        });
        Ok(Self(try_join_all(opened).await?))
    }

    /// In each place: reads, thinks, and writes one more, without asking whether the lock is still held. That is what
    /// the token is for. Answers whether any place let the write in.
    pub(crate) async fn count(
        &self,
        resource: &str,
        visitor: &Visitor<'_>,
        thinks: impl Future<Output = ()>,
    ) -> io::Result<bool> {
        let all = 0..self.0.len();
        let values = try_join_all(all.clone().map(|place| self.access(place, resource, visitor, Wanted::Read))).await?;
        if values.iter().all(Option::is_none) {
            return Ok(false);
        }
        thinks.await;
        let values = all.zip(values).filter_map(|(place, value)| Some((place, Wanted::Write(value? + 1))));
        let writes = values.map(|(place, write)| self.access(place, resource, visitor, write));
        Ok(try_join_all(writes).await?.iter().any(Option::is_some))
    }

    /// Looks at it in each place, beside others.
    pub(crate) async fn share(&self, resource: &str, visitor: &Visitor<'_>) -> io::Result<()> {
        let looks = (0..self.0.len()).map(|place| self.access(place, resource, visitor, Wanted::Share));
        try_join_all(looks).await.map(drop)
    }

    async fn access(
        &self,
        place: usize,
        resource: &str,
        visitor: &Visitor<'_>,
        wanted: Wanted,
    ) -> io::Result<Option<u64>> {
        let Visitor { shown, held, log } = visitor;
        let (name, place) = &self.0[place];
        let (sent, late) = (monotonic(), !held());
        let value = place.access(resource, shown, wanted).await?;
        let what = What::Used {
            place: name.clone(),
            resource: resource.to_owned(),
            kind: wanted.kind(),
            token: shown.token,
            sent,
            late,
            value,
            held: held(),
        };
        log.log(0, what);
        Ok(value)
    }

    /// What each of these resources let in, in each place.
    pub(crate) async fn logs(&self, resources: impl Iterator<Item = String>) -> io::Result<Vec<Logged>> {
        let mut logs = Vec::new();
        for resource in resources {
            for (place, protected) in &self.0 {
                let accesses = protected.log(&resource).await?;
                logs.push(Logged { place: place.clone(), resource: resource.clone(), accesses });
            }
        }
        Ok(logs)
    }
}

/// What a resource let in.
#[derive(Debug)]
pub(crate) struct Logged {
    pub(crate) place: String,
    pub(crate) resource: String,
    pub(crate) accesses: Vec<Access>,
}
