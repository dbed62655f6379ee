//! What a case has in its hands: a fresh store, its clients, and the helpers that most cases need.

use std::fmt::Debug;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::{Claim, DistributedLock, LockGuard, LockName, Locks, OwnerId, Renewal, StoreToken};
use nix::unistd::Pid;
use rand::RngExt;

use crate::harness::{Fault, Harness, Store};
use crate::history::{Event, Log};
use crate::host::Host;
use crate::oracle::{self, Tolerance, Verdict};
use crate::worker::{Answer, Role, Worker};
use crate::workload::Workload;
use lock_core::testing::Faulty;

/// A lease that never ends while a case runs: what comes sooner did not come of its end.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// How long something may take that takes no lease's end. Far more than it needs on any machine, far less than
/// [`LONG`].
pub(crate) const BOUND: Duration = Duration::from_secs(60);

/// A case's store and clients. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Ctx(Arc<Inner>);

struct Inner {
    harness: &'static dyn Harness,
    store: Box<dyn Store>,
    /// Does no other case use the store's server?
    alone: bool,
    processes: Processes,
    lease: Duration,
}

/// The worker processes of a case, to be killed should it not end.
pub(crate) type Processes = Arc<Mutex<Vec<Pid>>>;

impl Ctx {
    pub(crate) async fn new(harness: &'static dyn Harness, alone: bool, processes: Processes) -> Self {
        let store = if alone { harness.store_alone().await } else { harness.store().await };
        let shortest = store.connect().await.capabilities().min_lease;
        let lease = Duration::from_millis(1200).max(shortest);
        Self(Arc::new(Inner { harness, store, alone, processes, lease }))
    }

    /// A lease whose end a case can wait for.
    pub(crate) fn lease(&self) -> Duration {
        self.0.lease
    }

    pub(crate) fn harness(&self) -> &'static dyn Harness {
        self.0.harness
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.0.store
    }

    /// A new client.
    pub(crate) async fn backend(&self) -> Arc<dyn DistributedLock> {
        self.0.store.connect().await
    }

    /// A new client's locks, with this lease.
    pub(crate) async fn locks(&self, lease: Duration) -> Locks {
        locks(self.backend().await, lease)
    }

    /// The same of a client that soon takes a server for gone that does not answer.
    pub(crate) async fn impatient(&self, lease: Duration) -> Locks {
        locks(self.0.store.connect_impatient().await, lease)
    }

    /// A new client's locks, and the way to make the client misbehave.
    pub(crate) async fn faulty(&self, lease: Duration) -> (Faulty, Locks) {
        let faulty = Faulty::new(self.backend().await);
        let locks = locks(faulty.backend(), lease);
        (faulty, locks)
    }

    /// Does this to the store.
    pub(crate) async fn inject(&self, fault: Fault) {
        let harms_others = matches!(fault, Fault::Restart | Fault::ReplaceStore);
        assert!(self.0.alone || !harms_others, "a case with {fault:?} is marked in the table of cases");
        if self.0.store.inject(fault.clone()).await.is_err() {
            panic!("the harness cannot do {fault:?}: let it do so, or declare the cases that need it");
        }
    }

    /// The URL by which other processes connect.
    pub(crate) fn url(&self) -> String {
        self.0.store.url().expect("other processes can connect, or the cases that need them are declared")
    }

    /// A worker process that follows orders.
    pub(crate) async fn worker(&self, lease: Duration) -> Worker {
        self.ready(self.start(lease, None, None)).await
    }

    /// A worker process on this host.
    pub(crate) async fn worker_on_host(&self, lease: Duration, host: &Host) -> Worker {
        self.ready(self.start(lease, None, Some(host))).await
    }

    async fn ready(&self, mut worker: Worker) -> Worker {
        assert_eq!(worker.answer().await.unwrap(), Answer::Ready);
        worker
    }

    /// A worker process that works by itself.
    pub(crate) fn worker_on(&self, lease: Duration, workload: Workload) -> Worker {
        self.start(lease, Some(workload), None)
    }

    fn start(&self, lease: Duration, workload: Option<Workload>, host: Option<&Host>) -> Worker {
        let lease_ms = lease.as_millis() as u64;
        let role = Role { url: self.url(), lease_ms, workload, task: None };
        let worker = Worker::spawn(&role, host).unwrap();
        self.0.processes.lock().unwrap_or_else(PoisonError::into_inner).extend(worker.pid());
        worker
    }
}

fn locks(backend: Arc<dyn DistributedLock>, lease: Duration) -> Locks {
    Locks::builder(backend).label("suite").lease(lease).build().unwrap()
}

/// The lock's name.
pub(crate) fn name(name: &str) -> LockName {
    LockName::new(name).unwrap()
}

/// A claim by an owner of its own.
pub(crate) fn claim(lock: &str, lease: Duration) -> Claim {
    let owner = OwnerId::from_store(&format!("suite@test:1#{:032x}", rand::rng().random::<u128>()));
    Claim::new(name(lock), owner, lease)
}

/// Does the store say that this claim holds the lock? (It prolongs it, too.)
pub(crate) async fn holds(backend: &dyn DistributedLock, claim: &Claim) -> bool {
    let answers = backend.renew(std::slice::from_ref(claim)).await;
    assert_eq!(answers.len(), 1, "one answer for each claim");
    matches!(answers[0].as_ref().unwrap(), Renewal::Held { .. })
}

/// Takes a lock that is free or soon will be.
pub(crate) async fn take(locks: &Locks, name: &str) -> LockGuard {
    locks.mutex(name).wait(BOUND).lock().await.unwrap()
}

/// The token of the lock's holder.
pub(crate) async fn token_in_store(locks: &Locks, name: &str) -> Option<StoreToken> {
    locks.inspect(name).await.unwrap().into_holder().map(|holder| holder.token)
}

/// Waits for something that needs no lease's end.
pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

/// Asks again and again until it is so.
pub(crate) async fn until(what: &str, so: impl AsyncFn() -> bool) {
    soon(what, async {
        while !so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// How many wait for the lock, by what the store says.
pub(crate) async fn waiters(backend: &dyn DistributedLock, lock: &str) -> usize {
    backend.inspect(&name(lock)).await.unwrap().waiters.len()
}

/// The oracle finds nothing in this log.
pub(crate) fn judge(log: &Log) -> Verdict {
    judge_events(&log.events())
}

/// The oracle finds nothing in these events.
pub(crate) fn judge_events(events: &[Event]) -> Verdict {
    let verdict = oracle::check(events, Tolerance { notice: None, grace: Duration::from_secs(5) });
    none(&verdict.violations);
    verdict
}

/// There is nothing here.
pub(crate) fn none<T: Debug>(found: &[T]) {
    assert!(found.is_empty(), "{} found, the first: {:#?}", found.len(), found.first());
}
