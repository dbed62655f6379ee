//! Locks that several hold beside each other, where nobody else is there: how much that costs, and what it leaves.

use std::time::Duration;

use crate::common::{LONG, claim, raw};
use lock_core::{Claim, DistributedLock, LockName, Mode, OwnerId, Renewal, Unlocked};
use lock_redis::RedisLock;
use test_servers::RedisServer;

const MODES: [Mode; 2] = [Mode::Shared, Mode::Permits { take: 2, of: 3 }];

async fn connect(server: &RedisServer) -> RedisLock {
    RedisLock::connect(&server.url(), "oarlock").await.unwrap()
}

fn beside(owner: &str, lease: Duration, mode: Mode) -> Claim {
    let mut claim = Claim::new(LockName::new("x").unwrap(), OwnerId::from_store(owner), lease);
    claim.mode = mode;
    claim
}

/// How many commands the server did, by itself or in scripts.
async fn commands(server: &RedisServer) -> u64 {
    let stats: String = raw(server.address(), &["INFO", "commandstats"]).await;
    let calls = stats.lines().filter_map(|line| line.split_once(":calls=")?.1.split(',').next()?.parse::<u64>().ok());
    calls.sum()
}

/// A script is one command more than those in it, and so is the question.
#[tokio::test]
async fn who_is_alone_costs_few_commands() {
    const TURNS: u64 = 20;
    for mode in MODES {
        let server = RedisServer::start();
        let lock = connect(&server).await;
        let held = beside("one", LONG, mode);
        let turn = async || {
            lock.try_lock(&held).await.unwrap().unwrap();
            assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
        };
        turn().await;
        let before = commands(&server).await;
        for _ in 0..TURNS {
            turn().await;
        }
        let each = (commands(&server).await - before) as f64 / TURNS as f64;
        assert!(each < 15.0, "{each} commands for {mode:?} and its release");
        let keys: Vec<String> = raw(server.address(), &["KEYS", "*"]).await;
        assert_eq!(keys, ["oarlock-tokens"], "{mode:?}");
    }
}

/// Who comes while nobody is there has what others find as if it had come later: the mark, the owner, slots and a token,
/// which end together.
#[tokio::test]
async fn who_came_first_is_found_by_who_comes_later() {
    let server = RedisServer::start();
    let (one, two) = (connect(&server).await, connect(&server).await);
    for (mode, mark, slots) in [(MODES[0], "shared#", vec![]), (MODES[1], "permits#3", vec![0, 1])] {
        let (first, second) = (beside("first", LONG, mode), beside("second", LONG, mode));
        let granted = one.try_lock(&first).await.unwrap().unwrap();
        assert_eq!(granted.slots.as_slice(), slots, "{mode:?}");
        assert_eq!(raw::<String>(server.address(), &["GET", "oarlock:x"]).await, mark);
        for key in ["oarlock:x", "oarlock-holders-of:{oarlock:x}", "oarlock-modes-of:{oarlock:x}"] {
            let lasts: u64 = raw(server.address(), &["PTTL", key]).await;
            let lease = LONG.as_millis() as u64;
            assert!(lasts <= lease + 3 && lasts > lease - 100_000, "{key}: {lasts}");
        }
        // Asked again, it is the same grant.
        assert_eq!(one.try_lock(&first).await.unwrap().unwrap().token, granted.token);
        assert!(two.try_lock(&claim("x", "alone")).await.is_err() == mode.permits().is_some());
        let renewed = one.renew(std::slice::from_ref(&first)).await.pop().unwrap();
        assert!(matches!(renewed, Ok(Renewal::Held { .. })), "{renewed:?}");
        let holders = two.inspect(&first.name).await.unwrap().holders;
        assert_eq!((holders.len(), holders[0].token), (1, granted.token));
        // Another reader fits, and three permits are not there.
        let beside = two.try_lock(&second).await.unwrap();
        assert_eq!(beside.is_some(), mode == Mode::Shared);
        assert_eq!(one.unlock(&first).await.unwrap(), Unlocked::Released);
        assert_eq!(one.unlock(&first).await.unwrap(), Unlocked::NotHeld);
        let left = if beside.is_some() { Unlocked::Released } else { Unlocked::NotHeld };
        assert_eq!(two.unlock(&second).await.unwrap(), left);
        let keys: Vec<String> = raw(server.address(), &["KEYS", "oarlock*x*"]).await;
        assert!(keys.is_empty(), "{keys:?}");
    }
}

/// An operator deletes the lock's key alone: who had it then has nothing of the next one.
#[tokio::test]
async fn who_held_before_has_nothing_of_the_next() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    let (before, after) = (beside("before", LONG, Mode::Shared), beside("after", LONG, Mode::Shared));
    lock.try_lock(&before).await.unwrap().unwrap();
    raw::<u64>(server.address(), &["DEL", "oarlock:x"]).await;
    lock.try_lock(&after).await.unwrap().unwrap();
    assert_eq!(lock.unlock(&before).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(lock.unlock(&after).await.unwrap(), Unlocked::Released);
    assert_eq!(raw::<u64>(server.address(), &["EXISTS", "oarlock:x", "oarlock-holders-of:{oarlock:x}"]).await, 0);
}
