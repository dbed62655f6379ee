//! 101. The suite finds what it is there to find: three locks that are bad on purpose are caught.

mod bad;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use async_trait::async_trait;
use conformance_tests::history::{Event, Log};
use conformance_tests::oracle::{Tolerance, check, check_resource};
use conformance_tests::resource::Resource;
use conformance_tests::{Harness, NotOffered, Recorded, Recorder, Store, run_one};
use lock_core::memory::MemoryLock;
use lock_core::{DistributedLock, LockName, Locks, Result};

use bad::{Bad, Fault};

/// Clients of one store, each on a runtime of its own, so that one can be paused as a process can.
struct Clients {
    store: MemoryLock,
    fault: Fault,
    log: Log,
    folder: tempfile::TempDir,
    lease: Duration,
}

impl Clients {
    fn new(fault: Fault) -> Self {
        Self {
            store: MemoryLock::new(),
            fault,
            log: Log::in_memory("none"),
            folder: tempfile::tempdir().unwrap(),
            lease: Duration::from_millis(500),
        }
    }

    fn client(&self, name: &str) -> Client {
        let bad = Bad::new(Arc::new(self.store.client()), self.fault);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let locks = Locks::builder(Arc::new(bad)).label(name).lease(self.lease).build().unwrap();
        let resource = Resource::open(&self.folder.path().join("counter")).unwrap();
        Client { runtime, locks, recorder: Recorder::new(self.log.client(name)), lease: self.lease, resource }
    }

    /// The rules that were broken.
    fn broken(&self) -> Vec<&'static str> {
        let tolerance = Tolerance { notice: None, grace: Duration::from_secs(1) };
        let events: Vec<Event> = self.log.events();
        let mut violations = check(&events, tolerance).violations;
        violations.extend(check_resource(&Resource::log(&self.folder.path().join("counter")).unwrap()));
        let mut rules: Vec<_> = violations.iter().map(|violation| violation.rule).collect();
        rules.sort_unstable();
        rules.dedup();
        rules
    }
}

/// Its runtime runs only while it is asked to do something: the rest of the time it is paused.
struct Client {
    runtime: tokio::runtime::Runtime,
    locks: Locks,
    recorder: Recorder,
    lease: Duration,
    resource: Resource,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    fn lock(&self) -> Recorded {
        let mutex = self.locks.mutex("x");
        self.runtime.block_on(self.recorder.lock(&mutex, self.lease)).unwrap().unwrap()
    }

    fn unlock(&self, held: Recorded) {
        // What it answers is in the log.
        let _ = self.runtime.block_on(held.unlock());
    }

    /// Counts one, and answers whether it was let.
    fn count(&mut self, held: &Recorded) -> bool {
        let token = held.token().get();
        match self.resource.read(token).unwrap() {
            Ok(value) => self.resource.write(token, value + 1).unwrap().is_ok(),
            Err(_) => false,
        }
    }
}

/// A holder is paused for two leases in its section; another takes its turn; the first wakes, asks, counts and releases
/// while the other is in its section; and a third takes the lock.
fn pause_in_a_section(fault: Fault) -> (Vec<&'static str>, bool) {
    let clients = Clients::new(fault);
    let (mut one, mut other, third) = (clients.client("one"), clients.client("other"), clients.client("third"));
    let first = one.lock();
    assert!(one.count(&first));
    std::thread::sleep(clients.lease * 2);
    let second = other.lock();
    assert!(second.check());
    let let_in = other.count(&second);
    first.check();
    // Whether or not it is let, it has an older token.
    one.count(&first);
    one.unlock(first);
    let mutex = third.locks.mutex("x");
    let taken = third.runtime.block_on(third.recorder.try_lock(&mutex, clients.lease)).unwrap();
    second.check();
    if let Some(taken) = taken {
        third.unlock(taken);
    }
    other.unlock(second);
    (clients.broken(), let_in)
}

/// A store of bad locks, for the cases.
struct BadHarness(Fault);

struct BadStore(MemoryLock, Fault);

#[async_trait]
impl Harness for BadHarness {
    fn name(&self) -> &'static str {
        "bad"
    }

    async fn store(&self) -> Box<dyn Store> {
        Box::new(BadStore(MemoryLock::new(), self.0))
    }
}

#[async_trait]
impl Store for BadStore {
    async fn connect(&self) -> Arc<dyn DistributedLock> {
        Arc::new(Bad::new(Arc::new(self.0.client()), self.1))
    }

    fn url(&self) -> Option<String> {
        None
    }

    async fn raw_holder(&self, name: &LockName) -> Option<String> {
        self.0.inspect(name).await.unwrap().into_holder().map(|holder| holder.owner.as_str().to_owned())
    }

    async fn inject(&self, _: conformance_tests::Fault) -> Result<(), NotOffered> {
        Err(NotOffered)
    }
}

/// The oracle objects by these rules, and these cases fail.
fn is_caught(harness: &'static BadHarness, rules: &[&str], cases: &[&str]) {
    let (broken, _) = pause_in_a_section(harness.0);
    assert!(rules.iter().all(|rule| broken.contains(rule)), "{broken:?}");
    thread::scope(|scope| {
        for case in cases {
            scope.spawn(move || assert_eq!(run_one(&BadHarness(Fault::None), case), Ok(()), "{case}"));
            scope.spawn(move || assert!(run_one(harness, case).is_err(), "{case} does not catch {:?}", harness.0));
        }
    });
}

#[test]
fn a_good_lock_is_not_objected_to() {
    assert_eq!(pause_in_a_section(Fault::None), (vec![], true));
}

#[test]
fn a_release_that_deletes_whatever_is_there_is_caught() {
    is_caught(
        &BadHarness(Fault::PlainDelete),
        &["B1", "S0"],
        &["unlock_foreign", "unlock_after_expiry", "unlock_retry"],
    );
}

#[test]
fn a_holder_without_a_deadline_is_caught() {
    let cases = ["promise_covered", "fixed_hold_ends", "lost_on_cut", "renew_drops_only", "starved_runtime"];
    is_caught(&BadHarness(Fault::NoDeadline), &["B1", "S0"], &cases);
}

#[test]
fn a_token_from_a_local_counter_is_caught() {
    is_caught(&BadHarness(Fault::LocalTokens), &["T1", "T2"], &["tokens_rise", "token_from_store", "dup_request"]);
}

#[test]
fn a_fault_that_the_harness_does_not_offer_fails_its_case() {
    let error = run_one(&BadHarness(Fault::None), "lost_on_admin_delete").unwrap_err();
    assert!(error.contains("declare"), "{error}");
    assert!(run_one(&BadHarness(Fault::None), "no_such_case").is_err());
}
