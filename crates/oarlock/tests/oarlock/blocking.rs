//! The locks of programs without a runtime.

use std::thread;
use std::time::Duration;

use oarlock::ErrorKind;
use oarlock::blocking::{self, Locks};
use tempfile::TempDir;

/// For what needs no lease's end.
const BOUND: Duration = Duration::from_secs(20);

/// Short, so that a loss is soon noticed.
const LEASE: Duration = Duration::from_secs(1);

fn store() -> (TempDir, String) {
    let dir = TempDir::new().unwrap();
    let url = format!("sqlite:{}/locks.db", dir.path().display());
    (dir, url)
}

#[test]
fn a_waiter_has_it_after_the_release_and_is_told_of_a_loss() {
    let (_dir, url) = store();
    let (one, other) = (blocking::connect(&url).unwrap(), blocking::connect(&url).unwrap());
    let guard = one.mutex("x").lock().unwrap();
    assert!(other.mutex("x").try_lock().unwrap().is_none());
    let timeout = other.mutex("x").wait(Duration::from_millis(50)).lock().unwrap_err();
    assert_eq!(timeout.kind(), ErrorKind::Timeout);
    let waiting = thread::spawn(move || other.mutex("x").lease(LEASE).wait(BOUND).lock().map(|guard| (other, guard)));
    while one.inspect("x").unwrap().waiters.is_empty() {
        thread::sleep(Duration::from_millis(5));
    }
    let token = guard.fencing_token();
    guard.unlock().unwrap();
    let (other, guard) = waiting.join().unwrap().unwrap();
    assert!(guard.fencing_token() > token && guard.is_held());
    assert!(!guard.lost_within(Duration::from_millis(10)).unwrap());
    assert!(one.evict("x").unwrap().is_some());
    // It is told by the renewal, if by nothing else.
    assert!(guard.lost_within(BOUND).unwrap());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Lost);
    assert!(other.shutdown(BOUND).unwrap().unreleased.is_empty());
}

#[test]
fn what_is_dropped_is_released_when_the_last_handle_goes() {
    let (_dir, url) = store();
    let locks = blocking::connect(&url).unwrap();
    let guard = locks.mutex("x").lock().unwrap();
    drop(locks);
    assert!(guard.is_held());
    drop(guard);
    let next = blocking::connect(&url).unwrap();
    assert!(next.mutex("x").try_lock().unwrap().is_some());
}

#[test]
fn the_last_handle_may_go_inside_a_runtime() {
    let (_dir, url) = store();
    let guard = blocking::connect(&url).unwrap().mutex("x").lock().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { drop(guard) });
    // Sooner than at the end of its lease.
    blocking::connect(&url).unwrap().mutex("x").wait(BOUND).lock().unwrap().unlock().unwrap();
}

#[test]
fn a_section_runs_with_the_lock() {
    let locks = blocking::connect("memory:").unwrap();
    let lease = locks.run("x", |lease| lease.is_held().then_some(lease)).unwrap().unwrap();
    assert!(!lease.is_held());
    let error = locks
        .run("x", |_| {
            locks.evict("x").unwrap().unwrap();
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

/// Each call, as a task of a runtime makes it: an error, and nothing waits or panics.
#[test]
fn inside_a_runtime_it_is_an_error() {
    let locks = blocking::connect("memory:").unwrap();
    let (held, dropped) = (locks.mutex("x").lock().unwrap(), locks.mutex("y").lock().unwrap());
    let calls = |locks: &Locks| {
        [
            blocking::connect("memory:").map(drop),
            locks.mutex("z").lock().map(drop),
            locks.mutex("z").try_lock().map(drop),
            locks.run("z", |_| ()),
            locks.inspect("z").map(drop),
            locks.evict("z").map(drop),
            locks.shutdown(BOUND).map(drop),
            held.lost_within(BOUND).map(drop),
            held.unlock(),
        ]
    };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for called in runtime.block_on(async {
        drop(dropped);
        let called = calls(&locks);
        // The last handle, too.
        drop(locks.clone());
        called
    }) {
        let error = called.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("spawn_blocking"), "{error}");
    }
    // What was given back there is free.
    for name in ["x", "y"] {
        locks.mutex(name).wait(BOUND).lock().unwrap().unlock().unwrap();
    }
}
