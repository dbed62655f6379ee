//! Requests that wait at the same moment, and futures that are kept or dropped.

use std::fs;
use std::pin::pin;
use std::task::{Context, Waker};

use futures_util::FutureExt;
use futures_util::future::join_all;

use super::*;

fn poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    match future.poll_unpin(&mut Context::from_waker(Waker::noop())) {
        std::task::Poll::Ready(output) => Some(output),
        std::task::Poll::Pending => None,
    }
}

#[tokio::test]
async fn a_future_that_is_kept_and_not_polled_blocks_nobody() {
    let file = File::new();
    let lock = file.open().await;
    // At first there is no file; each is kept at another await.
    for polls in 1..6 {
        let kept = claim("kept", &format!("k{polls}"), LEASE);
        let held = claim("held", &format!("h{polls}"), LEASE);
        let mut keeps = Box::pin(lock.lock(&kept));
        for _ in 0..polls {
            if poll_once(&mut keeps).is_some() {
                break;
            }
        }
        let others = async {
            taken(&lock, &held).await;
            let renewed = lock.renew(std::slice::from_ref(&held)).await;
            assert!(matches!(renewed[..], [Ok(Renewal::Held { .. })]));
            assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
        };
        timeout(lock.store.busy, others).await.expect("nobody waits for who does not go on");
        drop(keeps);
        lock.unlock(&kept).await.unwrap();
    }
}

#[tokio::test]
async fn what_was_given_up_does_not_land_after_its_unlock() {
    let file = File::new();
    let (lock, other) = (file.made().await, file.open().await);
    for polls in 0..6 {
        let claims: Vec<_> = (0..5).map(|number| claim(&format!("n{number}"), &format!("o{polls}"), LEASE)).collect();
        let mut given_up: Vec<_> = claims.iter().map(|claim| Box::pin(lock.lock(claim))).collect();
        for _ in 0..polls {
            given_up.retain_mut(|future| poll_once(future).is_none());
        }
        drop(given_up);
        let unlocked = join_all(claims.iter().map(|claim| lock.unlock(claim))).await;
        assert!(unlocked.iter().all(Result::is_ok));
        // Whatever was still to run has run.
        taken(&lock, &claim("last", "last", LEASE)).await;
        lock.unlock(&claim("last", "last", LEASE)).await.unwrap();
        for claim in &claims {
            let status = other.inspect(&claim.name).await.unwrap();
            assert_eq!((status.holder(), status.waiters.len()), (None, 0), "after {polls} polls");
        }
    }
}

#[tokio::test]
async fn those_who_ask_together_share_a_transaction() {
    let file = File::new();
    let lock = file.made().await;
    let log = || fs::metadata(file.folder.path().join("locks.db-wal")).unwrap().len();
    let claims = |kind: &str| (0..32).map(|number| claim(&format!("{kind}{number}"), "o", LEASE)).collect::<Vec<_>>();
    let before = log();
    for claim in claims("alone") {
        taken(&lock, &claim).await;
    }
    let alone = log() - before;
    let together = claims("together");
    let granted = join_all(together.iter().map(|claim| lock.try_lock(claim))).await;
    assert!(granted.iter().all(|grant| matches!(grant, Ok(Some(_)))));
    let shared = log() - before - alone;
    assert!(shared * 4 < alone, "{shared} bytes together, {alone} one by one");
}

#[tokio::test]
async fn one_that_fails_undoes_none_of_those_beside_it() {
    let file = File::new();
    let lock = file.made().await;
    // The one fails when it runs, the other only when its transaction is committed.
    for (round, spoils) in
        ["SELECT RAISE(ABORT, 'spoilt')", "INSERT INTO child VALUES (1)", "SELECT RAISE(ROLLBACK, 'all spoilt')"]
            .into_iter()
            .enumerate()
    {
        let trigger = format!(
            "CREATE TABLE IF NOT EXISTS parent (id INTEGER PRIMARY KEY);
             CREATE TABLE IF NOT EXISTS child (id INTEGER REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
             DROP TRIGGER IF EXISTS spoil;
             CREATE TRIGGER spoil AFTER INSERT ON oarlock_lock WHEN NEW.name LIKE '%bad%' BEGIN {spoils}; END"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(trigger)).execute(&mut file.raw().await).await.unwrap();
        let claims: Vec<_> = ["a", "bad", "b", "a"]
            .into_iter()
            .enumerate()
            .map(|(number, name)| claim(&format!("{name}{round}"), &format!("o{number}"), LEASE))
            .collect();
        let answers = join_all(claims.iter().map(|claim| lock.try_lock(claim))).await;
        assert!(matches!(answers[0], Ok(Some(_))), "{answers:?}");
        assert_eq!(answers[1].as_ref().unwrap_err().kind(), ErrorKind::Refused);
        assert!(matches!(answers[2], Ok(Some(_))), "{answers:?}");
        assert!(matches!(answers[3], Ok(None)), "{answers:?}");
        let other = file.open().await;
        for (claim, is_held) in claims.iter().zip([true, false, true]) {
            assert_eq!(other.inspect(&claim.name).await.unwrap().holder().is_some(), is_held, "{:?}", claim.name);
        }
    }
}

#[tokio::test]
async fn all_who_wait_find_it_closed() {
    let file = File::new();
    let lock = file.made().await;
    let held = claim("job", "held", LEASE);
    taken(&lock, &held).await;
    let waiter = claim("job", "waiter", LEASE);
    let mut waits = pin!(lock.lock(&waiter));
    assert!(timeout(Duration::from_millis(20), &mut waits).await.is_err());
    lock.close().await.unwrap();
    assert_eq!(timeout(LEASE, waits).await.unwrap().unwrap_err().kind(), ErrorKind::Closed);
}
