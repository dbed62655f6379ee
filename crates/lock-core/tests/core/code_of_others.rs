//! Code of others that the engine runs: nothing is locked meanwhile, so it may come back here.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use lock_core::Locks;

use crate::common::setup;

/// A waker that comes back to the locks, for the same name and for all that have a line.
struct ComesBack {
    locks: Locks,
    calls: AtomicUsize,
}

impl Wake for ComesBack {
    fn wake(self: Arc<Self>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let mutex = self.locks.mutex("a");
        let trying = pin!(mutex.try_lock());
        let answer = trying.poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(answer, Poll::Ready(Ok(None))), "another has it");
        assert!(format!("{:?}", self.locks).contains("Locks"));
    }
}

/// Runs this, which may come to wait for itself.
fn ends(what: impl FnOnce() + Send + 'static) {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        what();
        ended.send(()).unwrap();
    });
    end.recv_timeout(Duration::from_secs(60)).expect("it ends, without a panic");
}

#[test]
fn whoever_is_woken_may_come_back() {
    ends(|| {
        let (_, _, locks) = setup();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let held = runtime.block_on(locks.mutex("a").lock()).unwrap();
        let woken = Arc::new(ComesBack { locks: locks.clone(), calls: AtomicUsize::new(0) });
        let waker = Waker::from(Arc::clone(&woken));
        let mutex = locks.mutex("a");
        let mut waiting = pin!(mutex.lock());
        assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        runtime.block_on(held.unlock()).unwrap();
        assert_eq!(woken.calls.load(Ordering::SeqCst), 1);
        assert!(matches!(waiting.poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(guard)) if guard.is_held()));
    });
}
