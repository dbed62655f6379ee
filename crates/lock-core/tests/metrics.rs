//! What operators count, read through a recorder.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use lock_core::memory::{MemoryLock, Verb};
use lock_core::{ErrorKind, Locks, ManualClock};
use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn everything_that_happens_to_a_lock_is_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    // The runtime has this one thread, so a recorder of the thread is enough.
    metrics::with_local_recorder(&recorder, || runtime.block_on(work()));
    let mut seen = BTreeMap::new();
    for (key, _, _, value) in snapshotter.snapshot().into_vec() {
        let mut labels: Vec<_> = key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        labels.sort();
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.len() as f64,
        };
        seen.insert(format!("{} {}", key.key().name(), labels.join(" ")), value);
    }
    let expected = [
        ("oarlock_wait_seconds backend=memory outcome=granted", 4.0),
        ("oarlock_wait_seconds backend=memory outcome=busy", 1.0),
        ("oarlock_wait_seconds backend=memory outcome=timeout", 1.0),
        ("oarlock_wait_seconds backend=memory outcome=failed", 1.0),
        ("oarlock_timeouts_total backend=memory", 1.0),
        ("oarlock_hold_seconds backend=memory", 4.0),
        ("oarlock_hand_overs_total backend=memory", 2.0),
        ("oarlock_at_risk_total backend=memory", 1.0),
        ("oarlock_lost_total backend=memory reason=not_held", 1.0),
        ("oarlock_renewal_seconds backend=memory", 3.0),
        ("oarlock_renewals_total backend=memory outcome=failed", 1.0),
        // The answer that it is not held is an answer as well.
        ("oarlock_renewals_total backend=memory outcome=renewed", 2.0),
        ("oarlock_queue_length backend=memory", 0.0),
    ];
    let expected: BTreeMap<_, _> = expected.into_iter().map(|(what, value)| (what.to_owned(), value)).collect();
    assert_eq!(seen, expected);
}

/// Four grants, two of them handed over, the last one lost; one who finds it busy, one whose wait is over, one failure.
async fn work() {
    let clock = ManualClock::new();
    let store = MemoryLock::with_clock(Arc::new(clock.clone()));
    let locks = Locks::builder(Arc::new(store.clone())).hand_over_for(Duration::from_secs(30)).build().unwrap();
    let held = locks.mutex("a").lock().await.unwrap();
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let mutex = locks.mutex("a");
            tokio::spawn(async move { mutex.lock().await })
        })
        .collect();
    assert!(locks.mutex("a").try_lock().await.unwrap().is_none());
    let impatient = tokio::spawn({
        let mutex = locks.mutex("a").wait(Duration::from_secs(1));
        async move { mutex.lock().await }
    });
    settle().await;
    clock.advance(Duration::from_secs(1));
    assert_eq!(impatient.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    held.unlock().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().unwrap().unlock().await.unwrap();
    }
    store.script().fail(Verb::Lock, ErrorKind::Unavailable, 1);
    locks.mutex("b").outage(Duration::ZERO).lock().await.unwrap_err();
    let lost = locks.mutex("b").lock().await.unwrap();
    store.script().fail(Verb::Renew, ErrorKind::Unavailable, 1);
    for step in [10, 2, 10] {
        clock.advance(Duration::from_secs(step));
        settle().await;
        if step == 2 {
            assert!(lost.is_held());
            store.script().lose("b");
        }
    }
    assert!(!lost.is_held());
}

/// A recorder that comes back to the locks, for the same name and for all that have a line.
struct ComesBack {
    locks: Locks,
    calls: Cell<usize>,
}

impl ComesBack {
    fn come(&self) {
        self.calls.set(self.calls.get() + 1);
        // What it does here is told to it as well.
        if self.calls.get() < 100 {
            let mutex = self.locks.mutex("a");
            let trying = pin!(mutex.try_lock());
            assert!(matches!(trying.poll(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(_))));
            assert!(format!("{:?}", self.locks).contains("Locks"));
        }
    }
}

impl Recorder for ComesBack {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, _: &Key, _: &Metadata<'_>) -> Counter {
        self.come();
        Counter::noop()
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        self.come();
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        self.come();
        Histogram::noop()
    }
}

/// Nothing is locked while it is told.
#[test]
fn whoever_is_told_may_come_back() {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let clock = ManualClock::new();
        let locks = Locks::new(Arc::new(MemoryLock::with_clock(Arc::new(clock.clone()))));
        let recorder = ComesBack { locks: locks.clone(), calls: Cell::new(0) };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        metrics::with_local_recorder(&recorder, || {
            let guard = runtime.block_on(locks.mutex("a").lock()).unwrap();
            clock.advance(Duration::from_secs(30));
            // Who comes next is the first to see that it is over.
            runtime.block_on(async { locks.mutex("a").lock().await.unwrap().unlock().await.unwrap() });
            drop(guard);
        });
        ended.send(recorder.calls.get()).unwrap();
    });
    let calls = end.recv_timeout(Duration::from_secs(60)).expect("it ends, without a panic");
    assert!(calls > 3, "told {calls} times");
}
