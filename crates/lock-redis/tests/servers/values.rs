//! What holders show, as the server has it.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{LONG, claim, in_background, in_line, raw, soon, until};
use lock_core::{Claim, DistributedLock, Kept, ListQuery, LockValue, Proclaimed, Renewal, Unlocked};
use lock_redis::RedisLock;
use test_servers::{Cluster, RedisServer};

const DAY: Duration = Duration::from_secs(86_400);

async fn connect(server: &RedisServer) -> Arc<RedisLock> {
    Arc::new(RedisLock::connect(&server.url(), "oarlock").await.unwrap())
}

fn showing(name: &str, owner: &str, value: &str) -> Claim {
    let mut claim = claim(name, owner);
    claim.value = Some(LockValue::new(value).unwrap());
    claim
}

/// Of how many owners there are values.
async fn values(server: &RedisServer) -> usize {
    raw::<Vec<String>>(server.address(), &["KEYS", "oarlock-value*"]).await.len()
}

/// How long the only value that there is lasts.
async fn lasts(server: &RedisServer) -> Duration {
    let keys: Vec<String> = raw(server.address(), &["KEYS", "oarlock-value*"]).await;
    let [key] = &keys[..] else { panic!("{keys:?}") };
    Duration::from_millis(raw::<u64>(server.address(), &["PTTL", key]).await)
}

/// The key that is documented has it, and a lock whose holder shows nothing has none.
#[tokio::test]
async fn a_value_is_a_key_beside_its_lock() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    let held = showing("x", "me", "my address");
    lock.try_lock(&held).await.unwrap().unwrap();
    lock.try_lock(&claim("y", "another")).await.unwrap().unwrap();
    // The SHA-1 of "me".
    const KEY: &str = "oarlock-value-of:{oarlock:x}:b1c1d8736f20db3fb6c1c66bb1455ed43909f0d8";
    let keys: Vec<String> = raw(server.address(), &["KEYS", "oarlock-value*"]).await;
    assert_eq!(keys, [KEY]);
    assert_eq!(raw::<String>(server.address(), &["GET", KEY]).await, "my address");
    assert_eq!(lock.holder(&held.name).await.unwrap().unwrap().value, held.value);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    assert_eq!(values(&server).await, 0);
}

/// Whoever leaves leaves no value: after a release, a hand-over, a wait that was given up, a try in vain.
#[tokio::test]
async fn no_value_is_left_by_who_leaves() {
    let server = RedisServer::start();
    let (ours, other) = (connect(&server).await, connect(&server).await);
    let [first, second, third] = ["first", "second", "third"].map(|owner| showing("x", owner, owner));
    ours.try_lock(&first).await.unwrap().unwrap();
    assert!(other.try_lock(&second).await.unwrap().is_none());
    assert_eq!(values(&server).await, 1);
    let waiting = [in_background(&other, &second), in_background(&ours, &third)];
    until("two in line", async || in_line(&ours, "x").await == 2).await;
    assert_eq!(values(&server).await, 3);
    let [waits, gives_up] = waiting;
    gives_up.abort();
    let _ = gives_up.await;
    assert_eq!(ours.unlock(&third).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(values(&server).await, 2);
    assert_eq!(ours.unlock(&first).await.unwrap(), Unlocked::Released);
    soon("the hand-over", waits).await.unwrap().unwrap();
    assert_eq!(ours.holder(&second.name).await.unwrap().unwrap().value, second.value);
    assert_eq!(other.unlock(&second).await.unwrap(), Unlocked::Released);
    assert_eq!(values(&server).await, 0);
}

/// Those of clients that crashed end by themselves, and no others: renewals prolong that of a holder, among many that
/// show nothing.
#[tokio::test]
async fn a_value_lasts_as_long_as_it_is_needed() {
    let server = RedisServer::start();
    let (ours, other) = (connect(&server).await, connect(&server).await);
    let held = showing("x", "owner", "shown");
    ours.try_lock(&held).await.unwrap().unwrap();
    assert!(lasts(&server).await <= LONG + Duration::from_secs(1));
    let plain: Vec<_> = ["a", "b"].map(|name| claim(name, "plain")).into();
    for claim in &plain {
        ours.try_lock(claim).await.unwrap().unwrap();
    }
    let key: Vec<String> = raw(server.address(), &["KEYS", "oarlock-value*"]).await;
    raw::<()>(server.address(), &["PEXPIRE", &key[0], "60000"]).await;
    let claims = [plain[0].clone(), held.clone(), claim("c", "nobody"), plain[1].clone()];
    let renewed = ours.renew(&claims).await;
    let held_still: Vec<_> =
        renewed.into_iter().map(|renewal| matches!(renewal.unwrap(), Renewal::Held { .. })).collect();
    assert_eq!(held_still, [true, true, false, true]);
    let left = lasts(&server).await;
    assert!(left > LONG - Duration::from_secs(60) && left <= LONG + Duration::from_secs(1), "{left:?}");
    // What is shown after that too.
    raw::<()>(server.address(), &["PEXPIRE", &key[0], "60000"]).await;
    let another = LockValue::new("another").unwrap();
    assert_eq!(ours.proclaim(&held, &another).await.unwrap(), Proclaimed::Shown);
    assert!(lasts(&server).await > LONG - Duration::from_secs(60));
    // One who is handed the lock has its value for longer, until it is renewed for the first time.
    let next = showing("x", "next", "next");
    let waiting = in_background(&other, &next);
    until("the next in line", async || in_line(&ours, "x").await == 1).await;
    assert_eq!(ours.unlock(&held).await.unwrap(), Unlocked::Released);
    soon("the hand-over", waiting).await.unwrap().unwrap();
    let left = lasts(&server).await;
    assert!(left > DAY && left <= DAY + LONG + Duration::from_secs(1), "{left:?}");
    assert!(matches!(other.renew(std::slice::from_ref(&next)).await[..], [Ok(Renewal::Held { .. })]));
    assert!(lasts(&server).await <= LONG + Duration::from_secs(1));
}

/// Who waits for days shows its value all the same when it has the lock.
#[tokio::test]
async fn the_value_of_one_who_waits_long_is_there() {
    let server = RedisServer::start();
    let (ours, other) = (connect(&server).await, connect(&server).await);
    let (held, next) = (claim("x", "first"), showing("x", "next", "shown"));
    ours.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&other, &next);
    until("the next in line", async || in_line(&ours, "x").await == 1).await;
    // As when most of its time is over, or it was dropped.
    let key: Vec<String> = raw(server.address(), &["KEYS", "oarlock-value*"]).await;
    raw::<()>(server.address(), &["DEL", &key[0]]).await;
    tokio::time::pause();
    tokio::time::advance(DAY / 4 + Duration::from_secs(1)).await;
    tokio::time::resume();
    until("it is there again", async || values(&server).await == 1).await;
    assert!(lasts(&server).await > DAY);
    assert_eq!(in_line(&ours, "x").await, 1);
    assert_eq!(ours.unlock(&held).await.unwrap(), Unlocked::Released);
    soon("the hand-over", waiting).await.unwrap().unwrap();
    assert_eq!(ours.holder(&next.name).await.unwrap().unwrap().value, next.value);
}

/// In a cluster it is in the slot of its lock, also where the name makes that hard, from the grant until the end of a
/// hold whose owner has gone.
#[tokio::test]
async fn values_are_with_their_locks_in_a_cluster() {
    let cluster = Cluster::start();
    let connect = async || Arc::new(RedisLock::connect(&cluster.url(), "oarlock").await.unwrap());
    let (ours, other) = (connect().await, connect().await);
    for name in ["plain", "{a}b", "{}", "{}a", "a}", "}a{", "{a", "grant", "a{grant}"] {
        let first = showing(name, &format!("first {name}"), "first");
        let next = showing(name, &format!("next {name}"), "next");
        ours.try_lock(&first).await.unwrap().unwrap();
        let waiting = in_background(&other, &next);
        until("the next in line", async || in_line(&ours, name).await == 1).await;
        assert_eq!(ours.proclaim(&first, &LockValue::new("changed").unwrap()).await.unwrap(), Proclaimed::Shown);
        let shown = other.holder(&first.name).await.unwrap().unwrap().value.unwrap();
        assert_eq!(shown.as_str(), "changed", "{name}");
        assert_eq!(ours.unlock(&first).await.unwrap(), Unlocked::Released);
        soon("the hand-over", waiting).await.unwrap().unwrap();
        assert!(matches!(other.renew(std::slice::from_ref(&next)).await[..], [Ok(Renewal::Held { .. })]));
        assert_eq!(other.keep(&next, LONG).await.unwrap(), Kept::Kept);
        let kept = ours.holder(&next.name).await.unwrap().unwrap();
        assert_eq!((kept.kept, kept.owner, kept.value), (true, next.owner, next.value), "{name}");
    }
    let listed = ours.list(&ListQuery::new("")).await.unwrap().locks;
    assert_eq!(listed.iter().filter(|lock| lock.holder().is_some_and(|holder| holder.value.is_some())).count(), 9);
}

/// A server that forgot all scripts is told them again.
#[tokio::test]
async fn scripts_that_were_forgotten_are_told_again() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    let forgets = async || raw::<()>(server.address(), &["SCRIPT", "FLUSH"]).await;
    let (held, another) = (showing("x", "owner", "shown"), LockValue::new("another").unwrap());
    forgets().await;
    lock.try_lock(&held).await.unwrap().unwrap();
    forgets().await;
    assert_eq!(lock.proclaim(&held, &another).await.unwrap(), Proclaimed::Shown);
    forgets().await;
    assert_eq!(lock.holder(&held.name).await.unwrap().unwrap().value, Some(another));
    forgets().await;
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    assert_eq!(lock.proclaim(&held, &LockValue::new("late").unwrap()).await.unwrap(), Proclaimed::NotHeld);
    assert_eq!(values(&server).await, 0);
}

/// Claims that show nothing ask for nothing of values: their requests are those of before.
#[tokio::test]
async fn a_claim_without_a_value_costs_nothing() {
    let server = RedisServer::start();
    let lock = connect(&server).await;
    let held = claim("x", "owner");
    let calls = async || -> Vec<String> {
        let stats: String = raw(server.address(), &["INFO", "commandstats"]).await;
        let calls = |line: &str| Some(line.split_once(",usec")?.0.to_owned());
        let counted =
            |line: &String| !["info", "client", "auth", "hello", "select"].iter().any(|not| line.contains(not));
        stats.lines().filter_map(calls).filter(counted).collect()
    };
    lock.try_lock(&held).await.unwrap().unwrap();
    raw::<()>(server.address(), &["CONFIG", "RESETSTAT"]).await;
    lock.renew(std::slice::from_ref(&held)).await.pop().unwrap().unwrap();
    let asked = calls().await;
    let renewed = ["cmdstat_pexpire:calls=2", "cmdstat_get:calls=1"];
    assert!(renewed.iter().all(|call| asked.iter().any(|asked| asked == call)), "{asked:?}");
    raw::<()>(server.address(), &["CONFIG", "RESETSTAT"]).await;
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    let asked = calls().await;
    assert!(asked.contains(&"cmdstat_del:calls=1".to_owned()), "{asked:?}");
}
