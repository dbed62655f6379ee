//! The locks of programs without a runtime.

use std::thread;
use std::time::Duration;

use oarlock::blocking::{self, Locks};
use oarlock::{ErrorKind, LockValue, Observed, OnceRun, Skipped};
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
    let locks = blocking::connect("memory:a_section_runs_with_the_lock").unwrap();
    let lease = locks.run("x", |lease| lease.is_held().then_some(lease)).unwrap().unwrap();
    assert!(!lease.is_held());
    let error = locks
        .run("x", |_| {
            locks.evict("x").unwrap().unwrap();
        })
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
}

#[test]
fn readers_share_and_permits_are_counted() {
    let (_dir, url) = store();
    let (one, other) = (blocking::connect(&url).unwrap(), blocking::connect(&url).unwrap());
    let (here, there) = (one.rw_lock("x").unwrap(), other.rw_lock("x").unwrap());
    let (reader, second) = (here.read().unwrap(), there.try_read().unwrap().unwrap());
    assert!(here.try_write().unwrap().is_none());
    let evicted = one.evict_owner("x", second.owner()).unwrap().unwrap();
    assert_eq!(evicted.owner, *second.owner());
    assert!(second.lost_within(BOUND).unwrap() && reader.is_held());
    reader.unlock().unwrap();
    assert!(here.run_write(|lease| lease.is_held()).unwrap());
    assert_eq!(there.run_read(|_| 7).unwrap(), 7);

    let semaphores = [one.semaphore("y", 2).unwrap(), other.semaphore("y", 2).unwrap()];
    let guard = semaphores[0].acquire_many(2).unwrap();
    assert!(semaphores[1].try_acquire().unwrap().is_none());
    assert!(other.resize("y", 3).unwrap());
    assert_eq!(semaphores[1].acquire().unwrap_err().kind(), ErrorKind::Invalid);
    let third = other.semaphore("y", 3).unwrap().try_acquire_many(1).unwrap().unwrap();
    assert_eq!((guard.slots(), third.slot()), (&[0, 1][..], Some(2)));
    assert!(one.semaphore("y", 0).is_err());
}

#[test]
fn several_locks_have_modes_and_rates_and_latches_are_there() {
    let (_dir, url) = store();
    let (one, other) = (blocking::connect(&url).unwrap(), blocking::connect(&url).unwrap());
    let guard = one.all(["a"]).and_read("b").and_permits("c", 1, 2).lock().unwrap();
    assert!(other.all(["a", "d"]).try_lock().unwrap().is_none());
    assert!(other.all(["d"]).and_read("b").and_permits("c", 1, 2).try_lock().unwrap().is_some());
    guard.unlock().unwrap();

    let hour = Duration::from_secs(3600);
    let limiter = one.rate_limiter("r", 1, hour).unwrap().block(1).wait(None);
    limiter.acquire(1).unwrap();
    assert!(!other.rate_limiter("r", 1, hour).unwrap().try_acquire(1).unwrap());
    assert_eq!(limiter.wait(LEASE).acquire(1).unwrap_err().kind(), ErrorKind::Timeout);

    let latch = one.latch("l", 2).generation(7).keep(hour);
    assert!(!latch.arrive("x").unwrap().is_open());
    assert_eq!(latch.clone().within(Duration::from_millis(10)).wait().unwrap_err().kind(), ErrorKind::Timeout);
    let waiting = thread::spawn(move || latch.within(BOUND).wait());
    other.latch("l", 2).generation(7).arrive("y").unwrap();
    waiting.join().unwrap().unwrap();
    assert_eq!(other.latch("l", 2).generation(7).arrived().unwrap(), ["x", "y"]);
}

fn skipped<T: std::fmt::Debug>(run: OnceRun<T>) -> Skipped {
    match run {
        OnceRun::Skipped(skipped) => skipped,
        OnceRun::Ran(ran) => panic!("{ran:?}"),
    }
}

#[test]
fn a_job_runs_once() {
    let locks = blocking::connect("memory:a_job_runs_once").unwrap();
    let job = locks.once("job").slot("1");
    let ran = job.run(|lease| {
        assert!(!skipped(job.run(|_| ()).unwrap()).done);
        // Other calls are none inside a runtime.
        locks.inspect("job@1").unwrap();
        lease.is_held()
    });
    assert_eq!(ran.unwrap(), OnceRun::Ran(true));
    assert!(skipped(job.run(|_| ()).unwrap()).done);
    for keep in [true, false] {
        let job = locks.once(format!("failing {keep}")).at_least(BOUND).keep_on_failure(keep);
        assert_eq!(job.try_run(|_| Err::<(), _>("no")).unwrap(), OnceRun::Ran(Err("no")));
        let again = job.try_run(|_| Ok::<_, ()>(())).unwrap();
        assert_eq!(matches!(again, OnceRun::Ran(Ok(()))), !keep);
        assert!(skipped(job.run(|_| ()).unwrap()).done);
    }
    let lost = locks.once("lost").at_least(BOUND).run(|_| locks.evict("lost").unwrap().is_some());
    assert_eq!(lost.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(locks.once("lost").run(|_| ()).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn a_job_by_hand_says_what_came_of_it() {
    let locks = blocking::connect("memory:a_job_by_hand_says_what_came_of_it").unwrap();
    let job = locks.once("job").at_least(BOUND).at_most(BOUND).lease(BOUND);
    let begun = || job.begin().unwrap().unwrap();
    begun().again().unwrap();
    let guard = begun();
    assert!(guard.is_held() && guard.lease().is_held() && !guard.lost_within(Duration::from_millis(1)).unwrap());
    guard.failed().unwrap();
    assert!(job.begin().unwrap().unwrap_err().done);
    locks.evict("job").unwrap().unwrap();
    begun().done().unwrap();
    assert!(job.begin().unwrap().unwrap_err().done);
    // A panic is a failure.
    let job = locks.once("panics").at_least(BOUND).keep_on_failure(false);
    let panicking = std::panic::AssertUnwindSafe(|| job.run(|_| panic!("at the section's end")));
    assert!(std::panic::catch_unwind(panicking).is_err());
    let again = std::time::Instant::now();
    while matches!(job.run(|_| ()).unwrap(), OnceRun::Skipped(_)) {
        assert!(again.elapsed() < BOUND);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_leader_is_seen_with_its_value() {
    let locks = blocking::connect("memory:a_leader_is_seen_with_its_value").unwrap();
    let election = locks.election("x").lease(BOUND).outage(BOUND).wait(BOUND);
    let mut observer = election.observe().unwrap();
    let mut seen = || match observer.next().unwrap() {
        Observed::Held(holder) => holder.value.map(|value| value.as_str().to_owned()),
        Observed::Free => Some("free".to_owned()),
        other => panic!("{other:?}"),
    };
    assert_eq!(seen().as_deref(), Some("free"));
    let leadership = election.campaign("a").unwrap();
    assert_eq!(seen().as_deref(), Some("a"));
    leadership.proclaim("b").unwrap();
    assert_eq!(seen().as_deref(), Some("b"));
    assert_eq!(election.leader().unwrap().unwrap().value, Some(LockValue::new("b").unwrap()));
    assert!(leadership.lease().is_held() && !leadership.lost_within(Duration::from_millis(1)).unwrap());
    let late = election.clone().wait(Duration::from_millis(50)).campaign("c").unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Timeout);
    leadership.resign().unwrap();
    assert_eq!(seen().as_deref(), Some("free"));
    let guard = locks.mutex("x").value("d").lock().unwrap();
    assert_eq!(seen().as_deref(), Some("d"));
    guard.unlock().unwrap();
    let mut observer = locks.observe("x").unwrap();
    assert!(matches!(observer.next_within(BOUND).unwrap(), Some(Observed::Free)));
    assert!(observer.next_within(Duration::from_millis(20)).unwrap().is_none());
    assert!(locks.shutdown(BOUND).unwrap().unreleased.is_empty());
    assert_eq!(observer.next().unwrap_err().kind(), ErrorKind::Closed);
}

#[test]
fn a_candidate_runs_its_section_again_after_a_loss() {
    let locks = blocking::connect("memory:a_candidate_runs_its_section_again_after_a_loss").unwrap();
    let mut times = 0;
    let answer = locks.election("x").run("a", |leadership| {
        times += 1;
        if times == 1 {
            locks.evict("x").unwrap().unwrap();
        }
        leadership.fencing_token();
        times
    });
    assert_eq!(answer.unwrap(), 2);
    for (name, value, wrong) in [("", "a", "name"), ("x", "", "value")] {
        let error = locks.election(name).run(value, |_| ()).unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(wrong), "{error}");
    }
    assert!(locks.shutdown(BOUND).unwrap().unreleased.is_empty());
    assert_eq!(locks.election("x").run("a", |_| ()).unwrap_err().kind(), ErrorKind::Closed);
}

/// Each call, as a task of a runtime makes it: an error, and nothing waits or panics.
#[test]
fn inside_a_runtime_it_is_an_error() {
    let locks = blocking::connect("memory:inside_a_runtime_it_is_an_error").unwrap();
    let (held, dropped) = (locks.mutex("x").lock().unwrap(), locks.mutex("y").lock().unwrap());
    let (job, election) = (locks.once("once").at_least(BOUND), locks.election("election"));
    let begun = ["done", "failed", "again"].map(|end| {
        let job = locks.once(format!("to be {end}")).at_least(BOUND).keep_on_failure(false);
        job.begin().unwrap().unwrap()
    });
    let (leadership, mut observer) = (locks.election("led").campaign("a").unwrap(), election.observe().unwrap());
    let calls = |locks: &Locks| {
        let [done, failed, again] = begun;
        [
            job.run(|_| ()).map(drop),
            job.try_run(|_| Ok::<_, ()>(())).map(drop),
            job.begin().map(drop),
            done.lost_within(BOUND).map(drop),
            done.done(),
            failed.failed(),
            again.again(),
            election.campaign("a").map(drop),
            election.run("a", |_| ()),
            election.leader().map(drop),
            election.observe().map(drop),
            locks.observe("x").map(drop),
            observer.next().map(drop),
            observer.next_within(BOUND).map(drop),
            leadership.proclaim("b"),
            leadership.lost_within(BOUND).map(drop),
            leadership.resign(),
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
    for name in ["x", "y", "led", "to be done", "to be failed", "to be again"] {
        locks.mutex(name).wait(BOUND).lock().unwrap().unlock().unwrap();
    }
}
