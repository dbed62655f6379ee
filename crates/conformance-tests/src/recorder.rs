//! Acquisitions that are logged as they happen: the client side of a history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{ErrorKind, FencingToken, LockGuard, Mutex, Result};

use crate::history::{Log, What, monotonic, nanos};

/// Takes locks and logs it. Cheap to clone; the clones are one client.
#[derive(Clone, Debug)]
pub struct Recorder {
    log: Log,
    next: Arc<AtomicU64>,
}

/// A lock that is held and logged. Dropping it drops the guard, and logs that.
#[derive(Debug)]
pub struct Recorded {
    /// `None` once it is released.
    guard: Option<LockGuard>,
    log: Log,
    op: u64,
}

fn name_of(mutex: &Mutex) -> String {
    mutex.name().map(ToString::to_string).unwrap_or_default()
}

impl Recorder {
    /// A recorder for the log's client.
    pub fn new(log: Log) -> Self {
        Self { log, next: Arc::new(AtomicU64::new(1)) }
    }

    /// Takes the lock as [`Mutex::lock`] does. A wait that is over is a denial, `None`.
    ///
    /// # Errors
    /// As [`Mutex::lock`], except for the end of the wait.
    pub async fn lock(&self, mutex: &Mutex, lease: Duration) -> Result<Option<Recorded>> {
        let op = self.begin(mutex, lease);
        let answer = match mutex.lock().await {
            Err(error) if error.kind() == lock_core::ErrorKind::Timeout => Ok(None),
            answer => answer.map(Some),
        };
        self.end(op, answer)
    }

    /// Takes the lock as [`Mutex::try_lock`] does.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`].
    pub async fn try_lock(&self, mutex: &Mutex, lease: Duration) -> Result<Option<Recorded>> {
        let op = self.begin(mutex, lease);
        let answer = mutex.try_lock().await;
        self.end(op, answer)
    }

    fn begin(&self, mutex: &Mutex, lease: Duration) -> u64 {
        let op = self.next.fetch_add(1, Ordering::Relaxed);
        self.log.log(op, What::Acquire { name: name_of(mutex), lease: nanos(lease), watched: true });
        op
    }

    fn end(&self, op: u64, answer: Result<Option<LockGuard>>) -> Result<Option<Recorded>> {
        let (what, answer) = match answer {
            Ok(Some(guard)) => {
                let (at, token) = (monotonic(), guard.fencing_token().get());
                let until = at + nanos(guard.remaining());
                self.log.log(op, What::Granted { token, until });
                return Ok(Some(Recorded { guard: Some(guard), log: self.log.clone(), op }));
            }
            Ok(None) => (What::Denied, Ok(None)),
            Err(error) => (What::Failed { unknown: !error.is_refused() }, Err(error)),
        };
        self.log.log(op, what);
        answer
    }
}

impl Recorded {
    /// The guard, for what is not logged.
    pub fn guard(&self) -> &LockGuard {
        self.guard.as_ref().expect("only `unlock` takes it, and `self` with it")
    }

    /// The fencing token.
    pub fn token(&self) -> FencingToken {
        self.guard().fencing_token()
    }

    /// Asks whether it is still held.
    pub fn check(&self) -> bool {
        let at = monotonic();
        let held = self.guard().is_held();
        let until = at + nanos(self.guard().remaining());
        self.log.log_at(at, self.op, What::Checked { held, until });
        held
    }

    /// Runs a future and logs a loss that is told while it runs; the future goes on all the same, as a careless
    /// application would. Until then it [checks](Self::check) this often, so that the history knows what was believed.
    pub async fn carelessly<T>(&self, every: Duration, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut lost = std::pin::pin!(self.guard().lost());
        loop {
            tokio::select! {
                biased;
                () = &mut lost => {
                    self.log.log(self.op, What::Told);
                    return work.await;
                }
                answer = &mut work => return answer,
                () = tokio::time::sleep(every) => {
                    self.check();
                }
            }
        }
    }

    /// Releases it.
    ///
    /// # Errors
    /// As [`LockGuard::unlock`].
    ///
    /// # Panics
    /// Never: the guard is there until now.
    pub async fn unlock(mut self) -> Result<()> {
        self.log.log(self.op, What::Release);
        let guard = self.guard.take().expect("taken only here");
        let answer = guard.unlock().await;
        let what = match &answer {
            Ok(()) => What::Released { held: true },
            Err(error) if error.kind() == ErrorKind::Lost => What::Released { held: false },
            Err(_) => What::ReleaseFailed,
        };
        self.log.log(self.op, what);
        answer
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if self.guard.is_some() {
            self.log.log(self.op, What::Release);
        }
    }
}
