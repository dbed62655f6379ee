//! What a server does to locks by itself: it drops them when its memory is full, and its clock is set. No lock survives
//! that by time alone; the holder is told, and the tokens rise.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{BOUND, LONG, claim, holder, in_background, in_line, raw, soon, until};
use lock_core::{DistributedLock, ErrorKind, LockName, Locks, Renewal, StoreToken, Unlocked};
use lock_redis::{RedisLock, RedisOptions};
use test_servers::{Proxy, RedisServer};

/// Its first renewal comes after a third of it.
const LEASE: Duration = Duration::from_secs(15);

const HOUR: Duration = Duration::from_secs(3600);

async fn client(server: &RedisServer) -> Arc<RedisLock> {
    Arc::new(RedisLock::connect(&server.url(), "oarlock").await.unwrap())
}

fn locks(lock: &Arc<RedisLock>) -> Locks {
    Locks::builder(Arc::clone(lock) as Arc<dyn DistributedLock>).lease(LEASE).build().unwrap()
}

/// When a lease has been renewed once, or has not. Before its end, so that what is told then was told by the store.
async fn one_renewal<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LEASE * 4 / 5, future).await.unwrap_or_else(|_| panic!("not by the next renewal: {what}"))
}

/// 69. A full server drops the lock: told at the next renewal, and the next token is higher though the last one was
/// dropped too.
#[tokio::test]
async fn redis_evicted() {
    let server = RedisServer::start();
    let lock = client(&server).await;
    let guard = locks(&lock).mutex("x").lock().await.unwrap();
    raw::<()>(server.address(), &["CONFIG", "SET", "maxmemory-policy", "volatile-lru"]).await;
    raw::<()>(server.address(), &["CONFIG", "SET", "maxmemory", "1"]).await;
    until("the eviction", async || holder(server.address(), "x").await.is_none()).await;
    raw::<()>(server.address(), &["CONFIG", "SET", "maxmemory", "0"]).await;
    let next = lock.try_lock(&claim("x", "next")).await.unwrap().unwrap();
    assert!(next.token > guard.fencing_token().store());
    one_renewal("the loss", guard.lost()).await;
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    let found = lock.doctor().await.unwrap();
    assert!(found.iter().any(|finding| finding.setting == "maxmemory-policy=volatile-lru"), "{found:?}");
}

/// 83. An hour ahead: every lease is over at once, which its holder is told at the next renewal.
#[tokio::test]
async fn server_wall_plus_1h() {
    let (server, clock) = RedisServer::start_with_clock();
    let lock = client(&server).await;
    let guard = locks(&lock).mutex("x").lock().await.unwrap();
    clock.ahead(HOUR);
    until("the end of the lease", async || holder(server.address(), "x").await.is_none()).await;
    let next = lock.try_lock(&claim("x", "next")).await.unwrap().unwrap();
    assert!(next.token > guard.fencing_token().store());
    one_renewal("the loss", guard.lost()).await;
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// 83. An hour back: a lease lasts an hour longer, until it is renewed; tokens rise all the same, and a waiter is given
/// no more time than is surely its own.
#[tokio::test]
async fn server_wall_minus_1h() {
    let (server, clock) = RedisServer::start_with_clock();
    let lock = client(&server).await;
    let remaining = async || {
        let status = lock.inspect(&LockName::new("x").unwrap()).await.unwrap();
        status.into_holder().map_or(Duration::ZERO, |holder| holder.remaining)
    };
    let held = claim("x", "holder");
    let first = lock.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&lock, &claim("x", "next"));
    until("the next in line", async || in_line(&lock, "x").await == 1).await;
    clock.behind(HOUR);
    assert!(remaining().await > LONG + HOUR / 2);
    assert!(matches!(lock.renew(std::slice::from_ref(&held)).await[..], [Ok(Renewal::Held { .. })]));
    assert!(remaining().await < LONG + BOUND);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    let next = soon("the hand-over", waiting).await.unwrap().unwrap();
    assert!(next.token > first.token);
    assert!(next.valid_until <= lock.clock().now() + LONG);
    assert_eq!(lock.unlock(&claim("x", "next")).await.unwrap(), Unlocked::Released);
    let last = lock.try_lock(&claim("x", "last")).await.unwrap().unwrap();
    assert!(last.token > next.token);
}

/// The server's clock gains on ours while somebody waits, and the message of the grant comes late: the lease is no longer
/// for that.
#[tokio::test]
async fn what_a_clock_gains_during_a_wait_is_no_part_of_the_lease() {
    const GAINED: Duration = Duration::from_secs(2);
    let (server, clock) = RedisServer::start_with_clock();
    let proxy = Proxy::new(server.address());
    let options = RedisOptions::new(&format!("redis://{}", proxy.address())).unwrap().timeout(BOUND);
    let (holding, waiting) = (client(&server).await, Arc::new(options.connect().await.unwrap()));
    let (first, second) = (claim("x", "first"), claim("x", "second"));
    holding.try_lock(&first).await.unwrap().unwrap();
    let granted = in_background(&waiting, &second);
    until("the second in line", async || in_line(&holding, "x").await == 1).await;
    clock.ahead(GAINED);
    let looks = async || {
        let stats: String = raw(server.address(), &["INFO", "commandstats"]).await;
        stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")?.split(',').next()?.parse::<u64>().ok())
    };
    let before = looks().await.unwrap();
    // When the second is asked, the first was answered.
    until("two looks", async || looks().await.unwrap() >= before + 2).await;
    proxy.hold_s2c();
    assert_eq!(holding.unlock(&first).await.unwrap(), Unlocked::Released);
    assert_eq!(holder(server.address(), "x").await.as_deref(), Some("second"));
    let latest = waiting.clock().now();
    tokio::time::sleep(GAINED).await;
    proxy.forward();
    let granted = soon("the grant", granted).await.unwrap().unwrap();
    assert!(granted.valid_until <= latest + LONG);
}

/// 122. A token that was raised above the clock is kept for good, also once it was granted, renewed and released.
#[tokio::test]
async fn a_raised_token_outlives_its_disuse() {
    let server = RedisServer::start();
    let lock = client(&server).await;
    let name = LockName::new("x").unwrap();
    let held = claim("x", "holder");
    let first = lock.try_lock(&held).await.unwrap().unwrap().token;
    let above = StoreToken::new(first.get() + 30 * 24 * HOUR.as_micros() as u64).unwrap();
    let kept = async || {
        let without_end: i64 = raw(server.address(), &["PTTL", "oarlock-tokens"]).await;
        assert_eq!(without_end, -1);
    };
    lock.raise_tokens(&name, above).await.unwrap();
    kept().await;
    assert_eq!(lock.try_lock(&held).await.unwrap().unwrap().token, first);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    let next = claim("x", "next");
    assert!(lock.try_lock(&next).await.unwrap().unwrap().token > above);
    kept().await;
    assert!(matches!(lock.renew(std::slice::from_ref(&next)).await[..], [Ok(Renewal::Held { .. })]));
    kept().await;
    assert_eq!(lock.unlock(&next).await.unwrap(), Unlocked::Released);
    kept().await;
}

/// 86. The clock is set ahead by half a lease after the grant: the renewal comes before the end, and all is as it was.
#[tokio::test]
async fn server_clock_at_renew() {
    let (server, clock) = RedisServer::start_with_clock();
    let lock = client(&server).await;
    let guard = locks(&lock).mutex("x").lock().await.unwrap();
    clock.ahead(LEASE / 2);
    let remaining: i64 = raw(server.address(), &["PTTL", "oarlock:x"]).await;
    assert!(remaining < LEASE.as_millis() as i64 / 2 + 100, "{remaining}");
    one_renewal("the renewal", async {
        until("the renewal", async || {
            let remaining: i64 = raw(server.address(), &["PTTL", "oarlock:x"]).await;
            remaining > LEASE.as_millis() as i64 * 3 / 4
        })
        .await;
    })
    .await;
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
}
