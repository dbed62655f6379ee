//! What a job that runs once comes to, by a clock that the test moves.

use std::time::Duration;

use lock_core::memory::Verb;
use lock_core::{ErrorKind, OnceRun, Skipped};

use crate::common::{LEASE, advance, settle, setup};

const HOUR: Duration = Duration::from_secs(3600);

fn skipped<T: std::fmt::Debug>(run: OnceRun<T>) -> Skipped {
    match run {
        OnceRun::Skipped(skipped) => skipped,
        OnceRun::Ran(ran) => panic!("{ran:?}"),
    }
}

#[tokio::test]
async fn it_counts_from_its_beginning() {
    let (_, clock, locks) = setup();
    let job = locks.once("job").at_least(HOUR);
    let ran = job.run(async |lease| {
        // Renewed all the time.
        for _ in 0..180 {
            advance(&clock, Duration::from_secs(10)).await;
        }
        lease.is_held()
    });
    assert_eq!(ran.await.unwrap(), OnceRun::Ran(true));
    let done = skipped(job.run(async |_| ()).await.unwrap());
    assert!(done.done && done.remaining == HOUR / 2, "{done:?}");
    assert!(done.by.as_ref().is_some_and(|by| by.label() == Some("test")));
    assert!(done.to_string().contains("has done it, and nobody does it again for 30m"), "{done}");
    advance(&clock, HOUR / 2).await;
    assert_eq!(job.run(async |_| ()).await.unwrap(), OnceRun::Ran(()));
}

#[tokio::test]
async fn one_that_takes_longer_than_it_counts_is_over_at_its_end() {
    let (_, clock, locks) = setup();
    let job = locks.once("job").at_least(LEASE);
    let ran = job.run(async |_| {
        for _ in 0..6 {
            advance(&clock, LEASE / 3).await;
        }
    });
    assert_eq!(ran.await.unwrap(), OnceRun::Ran(()));
    assert_eq!(job.run(async |_| ()).await.unwrap(), OnceRun::Ran(()));
}

#[tokio::test]
async fn another_that_runs_it_is_named() {
    let (_, _, locks) = setup();
    let job = locks.once("job").slot("1");
    let ran = job.run(async |_| {
        let other = skipped(job.run(async |_| ()).await.unwrap());
        assert!(!other.done && other.remaining <= LEASE && other.by.is_some(), "{other:?}");
    });
    assert_eq!(ran.await.unwrap(), OnceRun::Ran(()));
}

#[tokio::test]
async fn a_shutdown_in_the_middle_is_a_loss() {
    let (store, clock, locks) = setup();
    let job = locks.once("job").slot("1");
    let error = job.run(async |_| drop(locks.shutdown(LEASE).await)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    let others = lock_core::Locks::new(std::sync::Arc::new(store.client()));
    assert_eq!(others.once("job").slot("1").run(async |_| ()).await.unwrap(), OnceRun::Ran(()));
    drop(clock);
}

#[tokio::test]
async fn what_the_store_did_not_hear_is_said_for_a_lease() {
    let (store, clock, locks) = setup();
    store.script().fail(Verb::Keep, ErrorKind::Unavailable, 3);
    let job = locks.once("job").at_least(HOUR);
    assert_eq!(job.run(async |_| ()).await.unwrap(), OnceRun::Ran(()));
    assert!(!skipped(job.run(async |_| ()).await.unwrap()).done);
    for _ in 0..10 {
        advance(&clock, Duration::from_millis(200)).await;
    }
    settle().await;
    assert!(skipped(job.run(async |_| ()).await.unwrap()).done);
}

#[tokio::test]
async fn one_by_hand_is_done_or_to_be_run_again_as_it_says() {
    let (_, clock, locks) = setup();
    for keep in [true, false] {
        let job = locks.once(format!("job {keep}")).at_least(HOUR).keep_on_failure(keep);
        job.begin().await.unwrap().unwrap().again().await.unwrap();
        let begun = job.begin().await.unwrap().unwrap();
        assert!(begun.is_held() && !job.begin().await.unwrap().unwrap_err().done);
        // The same in the foreground and in the background.
        if keep {
            begun.failed().await.unwrap()
        } else {
            drop(begun)
        }
        settle().await;
        match job.begin().await.unwrap() {
            Ok(begun) if !keep => begun.done().await.unwrap(),
            Err(skipped) if keep => assert!(skipped.done),
            other => panic!("{keep}: {other:?}"),
        }
        assert!(job.begin().await.unwrap().unwrap_err().done);
    }
    let job = locks.once("long").slot("1").at_most(LEASE);
    let begun = job.begin().await.unwrap().unwrap();
    advance(&clock, LEASE).await;
    assert_eq!(begun.run(async {}).await.unwrap_err().kind(), ErrorKind::Lost);
    assert_eq!(begun.done().await.unwrap_err().kind(), ErrorKind::Lost);
    job.begin().await.unwrap().unwrap().done().await.unwrap();
}

#[tokio::test]
async fn a_job_says_for_how_long_it_is_done() {
    let (_, _, locks) = setup();
    for (job, wrong) in [
        (locks.once("job"), "`at_least`"),
        (locks.once("job").at_least(Duration::from_secs(1 << 40)), "at_least is longer"),
        (locks.once("").slot("1"), "name"),
        (locks.once("job").slot("a\nb"), "name"),
        (locks.once("job").slot(""), "slot cannot be empty"),
        (locks.once("job").slot("1@2"), "slot \"1@2\" cannot have an @"),
        (locks.once("job").slot("1").at_most(Duration::ZERO), "max_hold"),
    ] {
        let error = job.run(async |_| ()).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains(wrong), "{error}");
    }
}
