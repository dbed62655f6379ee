//! Holds that outlive their owners, as the server has them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{BOUND, LONG, claim, holder, in_background, in_line, raw, soon, try_raw, until};
use futures_util::StreamExt;
use lock_core::{Claim, DistributedLock, ErrorKind, Kept, LockValue, Renewal, Unlocked};
use lock_redis::{RedisLock, RedisOptions};
use redis::Value;
use test_servers::{Proxy, RedisServer};

const REST: Duration = Duration::from_millis(400);

async fn connect(server: &RedisServer) -> Arc<RedisLock> {
    Arc::new(RedisLock::connect(&server.url(), "oarlock").await.unwrap())
}

async fn taken(lock: &RedisLock, name: &str, owner: &str) -> Claim {
    let held = claim(name, owner);
    lock.try_lock(&held).await.unwrap().unwrap();
    held
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// To others it is a lock that is held, also if they knew its owner, until the time is over.
#[tokio::test]
async fn whoever_locks_in_the_common_way_is_excluded_until_the_end() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    let held = taken(&lock, "x", "owner").await;
    let began = Instant::now();
    assert_eq!(lock.keep(&held, REST).await.unwrap(), Kept::Kept);
    assert_eq!(holder(server.address(), "x").await.as_deref(), Some("kept#owner"));
    let left: i64 = raw(server.address(), &["PTTL", "oarlock:x"]).await;
    assert!(left <= REST.as_millis() as i64, "{left}");
    assert_eq!(raw::<i64>(server.address(), &["EVAL", COMPARE_AND_DELETE, "1", "oarlock:x", "owner"]).await, 0);
    until("it is theirs", async || {
        raw::<Value>(server.address(), &["SET", "oarlock:x", "theirs", "NX", "PX", "60000"]).await == Value::Okay
    })
    .await;
    assert!(began.elapsed() >= REST, "free after {:?}", began.elapsed());
    // Too late, it changes nothing.
    assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::NotHeld);
    assert_eq!(holder(server.address(), "x").await.as_deref(), Some("theirs"));
}

/// What comes from the owner afterwards changes nothing, though the server forgot all scripts in between.
#[tokio::test]
async fn nothing_of_the_owner_changes_it() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    let held = taken(&lock, "x", "owner").await;
    let forgets = async || raw::<()>(server.address(), &["SCRIPT", "FLUSH"]).await;
    forgets().await;
    assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::Kept);
    for _ in 0..2 {
        forgets().await;
        assert!(matches!(lock.renew(std::slice::from_ref(&held)).await[..], [Ok(Renewal::NotHeld)]));
        assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::NotHeld);
        assert_eq!(lock.keep(&held, LONG * 2).await.unwrap(), Kept::Kept);
        assert!(lock.try_lock(&held).await.unwrap().is_none());
    }
    assert_eq!(holder(server.address(), "x").await.as_deref(), Some("kept#owner"));
    assert!(raw::<u64>(server.address(), &["PTTL", "oarlock:x"]).await <= LONG.as_millis() as u64);
    let evicted = lock.evict(&held.name).await.unwrap().unwrap();
    assert!(evicted.kept && evicted.owner == held.owner);
    assert_eq!(raw::<u64>(server.address(), &["EXISTS", "oarlock:x", "oarlock-grant-of:{oarlock:x}"]).await, 0);
}

/// Others see its token and since when it is held, though it was not written down before: it had been held for a moment.
#[tokio::test]
async fn its_grant_is_that_of_its_owner() {
    const ROUNDS: usize = 30;
    let server = RedisServer::start();
    let (ours, other) = (connect(&server).await, connect(&server).await);
    for round in 0..ROUNDS {
        let held = claim(&round.to_string(), &format!("owner {round}"));
        let token = ours.try_lock(&held).await.unwrap().unwrap().token;
        if round % 3 == 0 {
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        assert_eq!(ours.keep(&held, LONG * 2).await.unwrap(), Kept::Kept);
        let seen = other.holder(&held.name).await.unwrap().unwrap();
        assert_eq!((seen.kept, &seen.owner, seen.token), (true, &held.owner, token));
        assert!(seen.held_for < LONG && seen.remaining > LONG, "{seen:?}");
        let left: i64 = raw(server.address(), &["PTTL", &format!("oarlock-grant-of:{{oarlock:{round}}}")]).await;
        assert!(left > LONG.as_millis() as i64, "{left}");
    }
}

/// The client of the first in line is told when it is over, if that is earlier than it was told before.
#[tokio::test]
async fn the_first_in_line_is_told_of_an_earlier_end() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    let client = redis::Client::open(server.url()).unwrap();
    let mut listening = client.get_async_pubsub().await.unwrap();
    listening.subscribe("oarlock-client:first").await.unwrap();
    for (name, rest) in [("later", LONG * 2), ("x", Duration::from_millis(5000)), ("y", Duration::from_micros(70_001))]
    {
        let held = taken(&lock, name, "owner").await;
        let line = format!("oarlock-line-of:{{oarlock:{name}}}");
        for (score, place) in ["1", "2"].into_iter().zip(["first{7} 300000 ghost", "second 300000 ghost"]) {
            raw::<i64>(server.address(), &["ZADD", &line, score, place]).await;
        }
        assert_eq!(lock.keep(&held, rest).await.unwrap(), Kept::Kept);
    }
    let mut told = listening.on_message();
    for expected in ["kept 5000", "kept 71"] {
        let message = soon("a message", told.next()).await.unwrap();
        assert_eq!(message.get_payload::<String>().unwrap(), expected);
    }
}

/// A waiter that is told so is granted the lock, and is not passed by who asks later. It does not wait for its next look
/// first, which would be a second later each time.
#[tokio::test]
async fn who_waits_has_it_after_the_end() {
    const ROUNDS: u64 = 30;
    assert!(Duration::from_secs(ROUNDS) > BOUND);
    soon("as many turns", turns(ROUNDS)).await;
}

async fn turns(rounds: u64) {
    let server = RedisServer::start();
    let (ours, other) = (connect(&server).await, connect(&server).await);
    for round in 0..rounds {
        let name = round.to_string();
        let held = taken(&ours, &name, "owner").await;
        let second = claim(&name, "second");
        let waiting = in_background(&other, &second);
        until("the second in line", async || in_line(&ours, &name).await == 1).await;
        assert_eq!(ours.keep(&held, REST / 10).await.unwrap(), Kept::Kept);
        until("the end", async || holder(server.address(), &name).await.as_deref() != Some("kept#owner")).await;
        // Who asks serves the line.
        if round == 0 {
            assert!(ours.try_lock(&claim(&name, "third")).await.unwrap().is_none());
        }
        soon("the grant", waiting).await.unwrap().unwrap();
        assert_eq!(other.unlock(&second).await.unwrap(), Unlocked::Released);
    }
}

/// A server that writes each change to its disk is killed and restarted: it is kept for as long as it was.
#[tokio::test]
async fn a_restart_with_persistence_changes_nothing() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let lock = connect(&server).await;
    let mut held = claim("x", "owner");
    held.value = Some(LockValue::new("shown").unwrap());
    lock.try_lock(&held).await.unwrap().unwrap();
    assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::Kept);
    let before = lock.holder(&held.name).await.unwrap().unwrap();
    server.restart();
    let after = lock.holder(&held.name).await.unwrap().unwrap();
    assert!(after.kept && after.remaining <= before.remaining);
    assert_eq!((after.token, after.value), (before.token, held.value.clone()));
    assert_eq!(lock.keep(&held, LONG).await.unwrap(), Kept::Kept);
}

/// As a grant, it counts only when the replicas have it.
#[tokio::test]
async fn replicas_have_it() {
    let server = RedisServer::start();
    let replica = RedisServer::start_replica(&server, &[]);
    let options = RedisOptions::new(&server.url()).unwrap().replicas(1).timeout(Duration::from_secs(1));
    let lock = options.connect().await.unwrap();
    let held = [taken(&lock, "x", "first").await, taken(&lock, "y", "second").await];
    assert_eq!(lock.keep(&held[0], LONG).await.unwrap(), Kept::Kept);
    assert_eq!(holder(replica.address(), "x").await.as_deref(), Some("kept#first"));
    replica.pause();
    let error = lock.keep(&held[1], LONG).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    replica.resume();
    until("it is kept", async || lock.keep(&held[1], LONG).await.is_ok_and(|kept| kept == Kept::Kept)).await;
    assert_eq!(holder(replica.address(), "y").await.as_deref(), Some("kept#second"));
}

/// A lock's key that is no text is an error, and stays what it is.
#[tokio::test]
async fn what_is_no_lock_is_not_kept() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    raw::<i64>(server.address(), &["LPUSH", "oarlock:x", "no lock"]).await;
    lock.keep(&claim("x", "owner"), LONG).await.unwrap_err();
    assert_eq!(try_raw::<String>(server.address(), &["TYPE", "oarlock:x"]).await.unwrap(), "list");
}

/// 256. A hold is kept for a moment, and the answer is lost: nobody says that the lock was not held until then.
#[tokio::test]
async fn a_keeping_whose_answer_is_lost_is_unknown() {
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let lock = Arc::new(RedisLock::connect(&format!("redis://{}", proxy.address()), "oarlock").await.unwrap());
    // From then on the server knows the script.
    let moment = Duration::from_millis(1);
    assert_eq!(lock.keep(&taken(&lock, "y", "first").await, moment).await.unwrap(), Kept::Kept);
    let held = taken(&lock, "x", "holder").await;
    proxy.hold_s2c();
    let keeping = tokio::spawn(async move { lock.keep(&held, moment).await });
    until("its end", async || holder(server.address(), "x").await.is_none()).await;
    proxy.reset();
    proxy.forward();
    let error = soon("an answer", keeping).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
}
