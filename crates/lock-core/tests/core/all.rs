//! Several locks at once: all of them or none.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lock_core::testing::{Effect, Faulty, Verb};
use lock_core::{ErrorKind, Locks};

use crate::common::{LEASE, advance, settle, setup};

const SECOND: Duration = Duration::from_secs(1);

async fn is_free(locks: &Locks, name: &str) -> bool {
    locks.inspect(name).await.unwrap().holder().is_none()
}

/// Clients and tasks of one client, each of which names the same locks in an order of its own.
#[tokio::test]
async fn opposite_orders_are_no_deadlock_and_no_overlap() {
    const ORDERS: [[&str; 3]; 4] = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "d"], ["d", "a", "c"]];
    let (store, clock, locks) = setup();
    let other = Locks::new(Arc::new(store));
    let inside: Arc<[AtomicU32; 4]> = Arc::default();
    let mut tasks = Vec::new();
    for (number, names) in ORDERS.into_iter().cycle().take(12).enumerate() {
        let (locks, inside) = (if number % 2 == 0 { locks.clone() } else { other.clone() }, Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            for _ in 0..20 {
                // Far beyond what it takes.
                let guard = locks.all(names).wait(600 * SECOND).lock().await.unwrap();
                let mine = names.map(|name| &inside[usize::from(name.as_bytes()[0] - b'a')]);
                for lock in mine {
                    assert_eq!(lock.fetch_add(1, Ordering::SeqCst), 0);
                }
                tokio::task::yield_now().await;
                for lock in mine {
                    lock.fetch_sub(1, Ordering::SeqCst);
                }
                guard.unlock().await.unwrap();
            }
        }));
    }
    // Time passes for what looks now and then.
    while tasks.iter().any(|task| !task.is_finished()) {
        advance(&clock, SECOND / 100).await;
    }
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn each_lock_is_taken_once_and_has_its_token() {
    let (_, _, locks) = setup();
    let guard = locks.all(["b", "a", "b"]).lock().await.unwrap();
    let names: Vec<_> = guard.iter().map(|lease| lease.name().as_str()).collect();
    assert_eq!(names, ["a", "b"]);
    let tokens = ["a", "b"].map(|name| guard.get(name).unwrap().fencing_token());
    assert!(guard.get("c").is_none());
    guard.unlock().await.unwrap();
    let again = locks.all(["a", "b"]).try_lock().await.unwrap().unwrap();
    for (name, token) in ["a", "b"].into_iter().zip(tokens) {
        assert!(again.get(name).unwrap().fencing_token() > token);
    }
    assert!(again.is_held() && again.remaining() > LEASE / 2);
}

#[tokio::test]
async fn where_one_is_not_free_none_is_taken() {
    let (_, clock, locks) = setup();
    let _held = locks.mutex("b").lock().await.unwrap();
    let all = locks.all(["a", "b", "c"]);
    assert!(all.try_lock().await.unwrap().is_none());
    assert!(is_free(&locks, "a").await && is_free(&locks, "c").await);
    let waiting = tokio::spawn(async move { all.wait(SECOND).lock().await });
    settle().await;
    assert!(!is_free(&locks, "a").await);
    for _ in 0..4 {
        advance(&clock, SECOND / 2).await;
    }
    assert_eq!(waiting.await.unwrap().unwrap_err().kind(), ErrorKind::Timeout);
    settle().await;
    assert!(is_free(&locks, "a").await && is_free(&locks, "c").await);
}

#[tokio::test]
async fn the_loss_of_one_is_the_loss_of_all() {
    let (_, clock, locks) = setup();
    let guard = locks.all(["a", "b"]).lock().await.unwrap();
    locks.evict("b").await.unwrap().unwrap();
    let section = guard.run(std::future::pending::<()>());
    let time = async {
        for _ in 0..20 {
            advance(&clock, SECOND).await;
        }
    };
    let (ended, ()) = tokio::join!(section, time);
    let error = ended.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("\"b\""), "{error}");
    assert_eq!(guard.check().unwrap_err().kind(), ErrorKind::Lost);
    assert!(!guard.is_held() && guard.remaining().is_zero() && guard.get("a").unwrap().is_held());
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(is_free(&locks, "a").await);
}

/// Another has what was lost while the second lock was waited for.
#[tokio::test]
async fn what_is_lost_during_the_wait_is_taken_anew() {
    let (store, clock, locks) = setup();
    let others = Locks::new(Arc::new(store));
    let second = others.mutex("b").lock().await.unwrap();
    let all = locks.all(["a", "b"]);
    let waiting = tokio::spawn(async move { all.lock().await });
    settle().await;
    locks.evict("a").await.unwrap().unwrap();
    let thief = others.mutex("a").try_lock().await.unwrap().unwrap();
    for _ in 0..20 {
        advance(&clock, SECOND).await;
    }
    second.unlock().await.unwrap();
    settle().await;
    assert!(!waiting.is_finished());
    let token = thief.fencing_token();
    thief.unlock().await.unwrap();
    settle().await;
    assert!(waiting.is_finished());
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.is_held() && guard.get("a").unwrap().fencing_token() > token);
}

#[tokio::test]
async fn a_dropped_wait_leaves_nothing() {
    let (_, _, locks) = setup();
    let second = locks.mutex("b").lock().await.unwrap();
    let all = locks.all(["a", "b"]);
    let waiting = tokio::spawn(async move { all.lock().await.map(drop) });
    settle().await;
    assert!(!is_free(&locks, "a").await);
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    second.unlock().await.unwrap();
    settle().await;
    assert!(is_free(&locks, "a").await && is_free(&locks, "b").await);
    assert_eq!(locks.all(["a", "b"]).run(async |leases| leases.iter().count()).await.unwrap(), 2);
    settle().await;
    assert!(is_free(&locks, "a").await && is_free(&locks, "b").await);
}

#[tokio::test]
async fn what_cannot_be_taken_is_told() {
    let (_, _, locks) = setup();
    for (names, told) in [(&[][..], "at least one"), (&["a", ""], "name")] {
        let error = locks.all(names.iter().copied()).lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(told), "{error}");
        assert!(locks.all(names.iter().copied()).try_lock().await.is_err());
    }
    assert!(is_free(&locks, "a").await);
}

#[tokio::test]
async fn one_request_takes_what_is_free() {
    let (store, clock, others) = setup();
    let faulty = Faulty::new(Arc::new(store));
    let locks = Locks::new(faulty.backend());
    let calls = || [Verb::TryLockAll, Verb::TryLock, Verb::Lock].map(|verb| faulty.calls(verb));
    locks.all(["a", "b", "c"]).lock().await.unwrap().unlock().await.unwrap();
    locks.all(["a", "b"]).try_lock().await.unwrap().unwrap().unlock().await.unwrap();
    assert_eq!(calls(), [2, 0, 0]);
    // One alone, and other modes, are asked for as ever.
    locks.all(["a"]).lock().await.unwrap().unlock().await.unwrap();
    locks.all(["a"]).and_read("b").lock().await.unwrap().unlock().await.unwrap();
    assert_eq!(calls(), [2, 0, 3]);
    // What this process holds is not asked for in vain.
    let held = locks.mutex("b").lock().await.unwrap();
    assert!(locks.all(["a", "b"]).try_lock().await.unwrap().is_none());
    assert_eq!(calls(), [2, 1, 4]);
    held.unlock().await.unwrap();
    // What others hold is, once.
    let held = others.mutex("b").lock().await.unwrap();
    assert!(locks.all(["a", "b"]).try_lock().await.unwrap().is_none());
    assert_eq!(calls(), [3, 3, 4]);
    held.unlock().await.unwrap();
    // It takes no longer than the wait allows, and whatever becomes of it is undone.
    faulty.once(Verb::TryLockAll, Effect::DelayReply(600 * SECOND));
    let waiting = tokio::spawn({
        let all = locks.all(["a", "b"]).wait(SECOND);
        async move { all.lock().await }
    });
    settle().await;
    for _ in 0..8 {
        advance(&clock, SECOND / 4).await;
    }
    assert!(waiting.await.unwrap().is_err());
    settle().await;
    assert!(is_free(&others, "a").await && is_free(&others, "b").await);
}

#[tokio::test]
async fn each_name_has_one_mode() {
    let (_, _, locks) = setup();
    let guard = locks.all(["b"]).and_read("a").and_read("a").and_permits("c", 2, 3).lock().await.unwrap();
    assert_eq!(guard.iter().map(|lease| lease.name().as_str()).collect::<Vec<_>>(), ["a", "b", "c"]);
    assert_eq!(guard.get("c").unwrap().slots(), [0, 1]);
    assert!(locks.rw_lock("a").unwrap().try_read().await.unwrap().is_some());
    assert!(locks.rw_lock("b").unwrap().try_read().await.unwrap().is_none());
    for all in [locks.all(["a"]).and_read("a"), locks.all(["a"]).and_permits("c", 1, 2).and_permits("c", 1, 3)] {
        let error = all.lock().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("name it once"), "{error}");
    }
}
