//! Acquisitions that are logged as they happen: the client side of a history.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{ErrorKind, FencingToken, Holder, Lease, LockGuard, Locks, Mode, Mutex, OnceGuard, Result};

use crate::history::{Log, What, monotonic, nanos};
use crate::protected::Visitor;

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
    guard: Option<Guard>,
    log: Log,
    op: u64,
}

#[derive(Debug)]
enum Guard {
    Lock(LockGuard),
    /// And how long since its beginning it counts as done then.
    Job(OnceGuard, Duration),
}

impl Guard {
    fn lease(&self) -> &Lease {
        match self {
            Self::Lock(guard) => guard,
            Self::Job(guard, _) => guard,
        }
    }

    /// What is logged before it is over.
    fn over(&self) -> What {
        match self {
            Self::Lock(_) => What::Release,
            Self::Job(_, at_least) => What::Keep { at_least: nanos(*at_least) },
        }
    }
}

/// What this waits for. A wait that is over is a denial, `None`.
pub(crate) async fn waited(lock: impl Future<Output = Result<LockGuard>>) -> Result<Option<LockGuard>> {
    match lock.await {
        Err(error) if error.kind() == ErrorKind::Timeout => Ok(None),
        answer => answer.map(Some),
    }
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
        self.taking(&name_of(mutex), Mode::Exclusive, lease, waited(mutex.lock())).await
    }

    /// Takes the lock as [`Mutex::try_lock`] does.
    ///
    /// # Errors
    /// As [`Mutex::try_lock`].
    pub async fn try_lock(&self, mutex: &Mutex, lease: Duration) -> Result<Option<Recorded>> {
        self.taking(&name_of(mutex), Mode::Exclusive, lease, mutex.try_lock()).await
    }

    /// Takes it in this mode, as the future does.
    ///
    /// # Errors
    /// As the future.
    pub async fn taking(
        &self,
        name: &str,
        mode: Mode,
        lease: Duration,
        take: impl Future<Output = Result<Option<LockGuard>>>,
    ) -> Result<Option<Recorded>> {
        let op = self.begin(name.to_owned(), mode, lease);
        let answer = take.await;
        self.end(op, answer.map(|guard| guard.map(Guard::Lock)))
    }

    /// Begins a job of this name, as [`lock_core::Once::begin`] does. Released, it is done for so long since its beginning.
    ///
    /// # Errors
    /// As [`lock_core::Once::begin`].
    pub async fn once(
        &self,
        locks: &Locks,
        name: &str,
        lease: Duration,
        at_least: Duration,
    ) -> Result<Option<Recorded>> {
        let op = self.begin(name.to_owned(), Mode::Exclusive, lease);
        let answer = locks.once(name).lease(lease).at_least(at_least).begin().await;
        self.end(op, answer.map(|begun| begun.ok().map(|guard| Guard::Job(guard, at_least))))
    }

    /// Logs who was seen to hold a lock, and what that one shows.
    pub fn seen(&self, name: &str, holder: &Holder) {
        let (token, value) = (FencingToken::new(holder.token).get(), holder.value.as_ref().map(ToString::to_string));
        self.log.log(0, What::Seen { name: name.to_owned(), token, value });
    }

    fn begin(&self, name: String, mode: Mode, lease: Duration) -> u64 {
        let op = self.next.fetch_add(1, Ordering::Relaxed);
        self.log.log(op, What::Acquire { name, mode, lease: nanos(lease), watched: true });
        op
    }

    fn end(&self, op: u64, answer: Result<Option<Guard>>) -> Result<Option<Recorded>> {
        let (what, answer) = match answer {
            Ok(Some(guard)) => {
                let (at, token) = (monotonic(), guard.lease().fencing_token().get());
                let until = at + nanos(guard.lease().remaining());
                let slots = guard.lease().slots().to_vec();
                if !slots.is_empty() {
                    self.log.log_at(at, op, What::Slots { slots });
                }
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
    fn lease(&self) -> &Lease {
        self.guard.as_ref().expect("only `unlock` takes it, and `self` with it").lease()
    }

    /// The permits that are held.
    pub fn slots(&self) -> &[u32] {
        self.lease().slots()
    }

    /// The holder on its way to what the lock protects.
    pub(crate) fn visitor(&self) -> Visitor<'_> {
        Visitor { shown: self.lease().into(), held: Box::new(|| self.lease().is_held()), log: &self.log }
    }

    /// The fencing token.
    pub fn token(&self) -> FencingToken {
        self.lease().fencing_token()
    }

    /// Logs what is shown with it, since its grant.
    pub fn shows(&self, value: &str) {
        self.log.log(self.op, What::Showed { value: value.to_owned() });
    }

    /// Asks whether it is still held.
    pub fn check(&self) -> bool {
        let at = monotonic();
        let held = self.lease().is_held();
        let until = at + nanos(self.lease().remaining());
        self.log.log_at(at, self.op, What::Checked { held, until });
        held
    }

    /// Runs a future and logs a loss that is told while it runs; the future goes on all the same, as a careless
    /// application would. Until then it [checks](Self::check) this often, so that the history knows what was believed.
    pub async fn carelessly<T>(&self, every: Duration, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut lost = std::pin::pin!(self.lease().lost());
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

    /// Releases it; of a job it says that it is done.
    ///
    /// # Errors
    /// As [`LockGuard::unlock`].
    ///
    /// # Panics
    /// Never: the guard is there until now.
    pub async fn unlock(mut self) -> Result<()> {
        let guard = self.guard.take().expect("taken only here");
        self.log.log(self.op, guard.over());
        let answer = match guard {
            Guard::Lock(guard) => guard.unlock().await,
            Guard::Job(guard, _) => guard.done().await,
        };
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
        if let Some(guard) = &self.guard {
            self.log.log(self.op, guard.over());
        }
    }
}
