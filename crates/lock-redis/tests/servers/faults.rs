//! What the suite cannot see: connections that break, a server that is paused or starts anew, how much is asked.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{BOUND, LONG, claim, holder, in_background, in_line, raw, soon, until};
use conformance_tests::torture::Blow;
use lock_core::{Config, DistributedLock, ErrorKind, LockName, Locks, Registry, Renewal, Unlocked};
use lock_redis::{RedisFactory, RedisLock, RedisOptions};
use test_servers::{Proxy, RedisServer};

async fn client(proxy: &Proxy) -> Arc<RedisLock> {
    Arc::new(RedisLock::connect(&format!("redis://{}", proxy.address()), "oarlock").await.unwrap())
}

/// How many commands the server has done.
async fn commands(server: &RedisServer) -> u64 {
    let stats: String = raw(server.address(), &["INFO", "commandstats"]).await;
    let calls = |line: &str| {
        let counted = line.starts_with("cmdstat_eval");
        line.split_once("calls=").and_then(|(_, rest)| rest.split(',').next()?.parse::<u64>().ok()).filter(|_| counted)
    };
    stats.lines().filter_map(calls).sum()
}

/// A request is stuck on a connection that is given up; the release goes over the next one. When the stuck one lands,
/// it does nothing any more.
#[tokio::test]
async fn a_request_of_a_connection_given_up_is_never_done() {
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let url = format!("redis://{}", proxy.address());
    let options = RedisOptions::new(&url).unwrap().timeout(Duration::from_millis(300));
    let lock = options.connect().await.unwrap();
    // The server knows the script, so that the late request needs no second one.
    let early = claim("x", "early");
    lock.try_lock(&early).await.unwrap().unwrap();
    lock.unlock(&early).await.unwrap();
    proxy.hold_c2s_of_present();
    let late = claim("x", "late");
    let error = lock.try_lock(&late).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    // The second request without an answer ends the connection, and is sent again over a new one.
    lock.try_lock(&late).await.unwrap().unwrap();
    assert_eq!(lock.unlock(&late).await.unwrap(), Unlocked::Released);
    assert_eq!(proxy.connections(), 2);
    proxy.forward();
    for _ in 0..20 {
        assert_eq!(holder(server.address(), "x").await, None);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The server cannot write to its disk, and ends for that where it is to save each write: it grants nothing meanwhile, and
/// knows all that it had granted when it is started again.
#[tokio::test]
async fn a_full_disk_grants_nothing_and_loses_nothing() {
    let mut servers = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]).apart();
    let server = &mut servers[0];
    let lock = RedisLock::connect(&format!("redis://{}", server.address()), "oarlock").await.unwrap();
    let before = lock.try_lock(&claim("held", "first")).await.unwrap().unwrap();
    server.strike(Blow::FullDisk);
    lock.try_lock(&claim("x", "second")).await.unwrap_err();
    server.relieve(Blow::FullDisk);
    assert_eq!(holder(server.address(), "held").await.as_deref(), Some("first"));
    assert_eq!(holder(server.address(), "x").await, None);
    assert!(lock.try_lock(&claim("x", "third")).await.unwrap().unwrap().token > before.token);
}

/// The connections break while some wait: they keep their places, and are granted in their order.
#[tokio::test]
async fn waiters_keep_their_places_over_a_reset() {
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let (one, other) = (client(&proxy).await, client(&proxy).await);
    let first = claim("x", "first");
    one.try_lock(&first).await.unwrap().unwrap();
    let second = in_background(&other, &claim("x", "second"));
    until("the second in line", async || in_line(&one, "x").await == 1).await;
    let third = in_background(&one, &claim("x", "third"));
    until("the third in line", async || in_line(&one, "x").await == 2).await;
    proxy.reset();
    until("both clients connected anew", async || proxy.connections() == 4).await;
    // Subscribed before anything else is asked.
    until("both clients looked", async || {
        let clients: String = raw(server.address(), &["CLIENT", "LIST"]).await;
        clients.matches("sub=1").count() == 2
    })
    .await;
    assert_eq!(one.unlock(&first).await.unwrap(), Unlocked::Released);
    let second = tokio::time::timeout(BOUND, second).await.unwrap().unwrap().unwrap();
    assert_eq!(other.unlock(&claim("x", "second")).await.unwrap(), Unlocked::Released);
    let third = tokio::time::timeout(BOUND, third).await.unwrap().unwrap().unwrap();
    assert!(third.token > second.token);
}

/// A client that had a lock at once, and waits for another just after, is known to live by then.
#[tokio::test]
async fn who_waits_after_a_free_lock_keeps_its_place() {
    let server = RedisServer::start();
    let connect = async || Arc::new(RedisLock::connect(&server.url(), "oarlock").await.unwrap());
    let (one, other) = (connect().await, connect().await);
    one.try_lock(&claim("x", "first")).await.unwrap().unwrap();
    other.lock(&claim("y", "free")).await.unwrap();
    let second = in_background(&other, &claim("x", "second"));
    until("the second in line", async || {
        raw::<u64>(server.address(), &["ZCARD", "oarlock-line-of:{oarlock:x}"]).await == 1
    })
    .await;
    one.unlock(&claim("x", "first")).await.unwrap();
    assert_eq!(holder(server.address(), "x").await.as_deref(), Some("second"));
    tokio::time::timeout(BOUND, second).await.unwrap().unwrap().unwrap();
}

/// A lock whose key was deleted by hand is listed while its waiter has not noticed.
#[tokio::test]
async fn a_lock_that_is_only_waited_for_is_listed() {
    let server = RedisServer::start();
    let lock = Arc::new(RedisLock::connect(&server.url(), "oarlock").await.unwrap());
    lock.try_lock(&claim("x", "first")).await.unwrap().unwrap();
    let second = in_background(&lock, &claim("x", "second"));
    until("the second in line", async || in_line(&lock, "x").await == 1).await;
    raw::<()>(server.address(), &["DEL", "oarlock:x"]).await;
    let listed = lock.list(&Default::default()).await.unwrap().locks;
    assert_eq!(listed.len(), 1, "{listed:?}");
    tokio::time::timeout(BOUND, second).await.unwrap().unwrap().unwrap();
}

/// Somebody in line whose client seems to live, but hears of nothing, does not keep the lock: not at a release, and not
/// when a look serves the line.
#[tokio::test]
async fn a_lock_is_not_left_with_one_who_does_not_hear_of_it() {
    let server = RedisServer::start();
    let lock = Arc::new(RedisLock::connect(&server.url(), "oarlock").await.unwrap());
    let first = claim("x", "first");
    raw::<()>(server.address(), &["SET", "oarlock-client:deaf", ""]).await;
    let deaf = ["ZADD", "oarlock-line-of:{oarlock:x}", "1", "deaf 300000 ghost"];
    lock.try_lock(&first).await.unwrap().unwrap();
    raw::<()>(server.address(), &deaf).await;
    assert_eq!(lock.unlock(&first).await.unwrap(), Unlocked::Released);
    assert_eq!(holder(server.address(), "x").await, None);
    lock.try_lock(&first).await.unwrap().unwrap();
    let second = in_background(&lock, &claim("x", "second"));
    until("the second in line", async || in_line(&lock, "x").await == 1).await;
    let line = "redis.call('DEL', KEYS[1], KEYS[2]) redis.call('ZADD', KEYS[2], 1, ARGV[1])";
    raw::<()>(server.address(), &["EVAL", line, "2", "oarlock:x", deaf[1], deaf[3]]).await;
    tokio::time::timeout(BOUND, second).await.unwrap().unwrap().unwrap();
}

/// The message of a grant is lost with its connection: the waiter finds the lock its own.
#[tokio::test]
async fn a_grant_whose_message_was_lost_is_found() {
    let server = RedisServer::start();
    let (direct, proxy) = (Proxy::new(server.address()), Proxy::new(server.address()));
    let (one, other) = (client(&direct).await, client(&proxy).await);
    let first = claim("x", "first");
    one.try_lock(&first).await.unwrap().unwrap();
    let waiting = in_background(&other, &claim("x", "second"));
    until("the second in line", async || in_line(&one, "x").await == 1).await;
    proxy.hold_s2c();
    one.unlock(&first).await.unwrap();
    assert_eq!(holder(server.address(), "x").await.as_deref(), Some("second"));
    proxy.reset();
    proxy.forward();
    let granted = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap().unwrap();
    assert!(granted.valid_until <= other.clock().now() + LONG);
    assert_eq!(other.unlock(&claim("x", "second")).await.unwrap(), Unlocked::Released);
}

/// A server that keeps nothing is restarted: the hold is lost, which the next renewal says, and waiters are served.
#[tokio::test]
async fn a_restart_without_persistence_is_a_loss() {
    let mut server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let (one, other) = (client(&proxy).await, client(&proxy).await);
    let first = claim("x", "first");
    let before = one.try_lock(&first).await.unwrap().unwrap();
    let waiting = in_background(&other, &claim("x", "second"));
    until("the second in line", async || in_line(&one, "x").await == 1).await;
    server.restart();
    assert_eq!(one.renew(std::slice::from_ref(&first)).await.pop().unwrap().unwrap(), Renewal::NotHeld);
    let after = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap().unwrap();
    assert!(after.token > before.token);
}

/// The same as a holder sees it: told when the server is back, and not at the next renewal, which is far away.
#[tokio::test]
async fn a_restart_without_persistence_is_told_at_once() {
    let mut server = RedisServer::start();
    let lock = RedisLock::connect(&server.url(), "oarlock").await.unwrap();
    let locks = Locks::builder(Arc::new(lock)).lease(LONG).build().unwrap();
    let guards = [locks.mutex("x").lock().await.unwrap(), locks.mutex("y").lock().await.unwrap()];
    server.restart();
    for guard in guards {
        soon("the loss", guard.lost()).await;
        assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    }
}

/// A connection that breaks is no loss, and the hold is renewed at once.
#[tokio::test]
async fn a_broken_connection_is_no_loss() {
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let locks = Locks::builder(client(&proxy).await).lease(LONG).build().unwrap();
    let guard = locks.mutex("x").lock().await.unwrap();
    let before = commands(&server).await;
    proxy.reset();
    until("the renewal", async || commands(&server).await > before).await;
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
}

/// A server that writes each change to its disk is killed and restarted: the hold is what it was.
#[tokio::test]
async fn a_restart_with_persistence_is_none() {
    let mut server = RedisServer::start_with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let lock = RedisLock::connect(&server.url(), "oarlock").await.unwrap();
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    server.restart();
    let answer = lock.renew(std::slice::from_ref(&held)).await.pop().unwrap().unwrap();
    assert!(matches!(answer, Renewal::Held { .. }));
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    assert!(lock.doctor().await.unwrap().is_empty());
}

/// A paused server costs every request a bounded wait, and those who wait in line as well; then all goes on.
#[tokio::test]
async fn a_paused_server_is_an_error_in_time() {
    let server = RedisServer::start();
    let options = RedisOptions::new(&server.url()).unwrap().timeout(Duration::from_millis(200));
    let lock = Arc::new(options.connect().await.unwrap());
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&lock, &claim("x", "waiter"));
    until("the waiter in line", async || in_line(&lock, "x").await == 1).await;
    server.pause();
    let waited = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap().unwrap_err();
    assert_eq!(waited.kind(), ErrorKind::Unknown, "{waited}");
    let refused = tokio::time::timeout(BOUND, lock.try_lock(&claim("y", "other"))).await.unwrap().unwrap_err();
    assert!(matches!(refused.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{refused}");
    server.resume();
    assert_eq!(lock.unlock(&claim("x", "waiter")).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}

/// The lock goes from one to the next with two requests for each, whatever the number of those who wait; and a thousand
/// waiters behind one holder ask less than twenty times a second, over one connection.
#[tokio::test]
async fn waiting_costs_little() {
    const WAITERS: u64 = 1000;
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let (holder, waiter) = (client(&proxy).await, client(&proxy).await);
    let held = claim("x", "holder");
    holder.try_lock(&held).await.unwrap().unwrap();
    let before = commands(&server).await;
    let waiting: Vec<_> = (0..WAITERS)
        .map(|number| {
            let (waiter, claim) = (Arc::clone(&waiter), claim("x", &format!("waiter {number}")));
            tokio::spawn(async move {
                waiter.lock(&claim).await.unwrap();
                waiter.unlock(&claim).await.unwrap()
            })
        })
        .collect();
    until("all in line", async || in_line(&holder, "x").await as u64 == WAITERS).await;
    let idle = commands(&server).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let looks = commands(&server).await - idle;
    assert!((1..=3 * 20).contains(&looks), "{looks} requests in 3 s");
    holder.unlock(&held).await.unwrap();
    for waiting in waiting {
        tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap();
    }
    let all = commands(&server).await - before;
    assert!(all < 3 * WAITERS, "{all} requests for {WAITERS} acquisitions");
    assert_eq!(proxy.connections(), 2);
}

/// A line of thousands is read some places at a time, so that the server does other things between; and whoever asks for
/// the holder alone reads none of it.
#[tokio::test]
async fn a_long_line_is_read_in_parts() {
    const WAITERS: usize = 10_000;
    const AT_ONCE: u64 = 1000;
    let server = RedisServer::start();
    let lock = RedisLock::connect(&server.url(), "oarlock").await.unwrap();
    let places = "for place = 1, ARGV[1] do redis.call('ZADD', KEYS[1], place, 'alive 300000 owner ' .. place) end";
    let line = "oarlock-line-of:{oarlock:x}";
    raw::<()>(server.address(), &["SET", "oarlock-client:alive", ""]).await;
    raw::<()>(server.address(), &["EVAL", places, "1", line, &WAITERS.to_string()]).await;
    raw::<()>(server.address(), &["SET", "oarlock:x", "holder"]).await;
    let before = commands(&server).await;
    let waiters = lock.inspect(&LockName::new("x").unwrap()).await.unwrap().waiters;
    let all = (1..=WAITERS).map(|place| format!("owner {place}"));
    assert!(waiters.iter().map(|waiter| waiter.owner.as_str().to_owned()).eq(all));
    assert!(commands(&server).await - before >= WAITERS as u64 / AT_ONCE);
    let reads = async || {
        let stats: String = raw(server.address(), &["INFO", "commandstats"]).await;
        stats.lines().find(|line| line.starts_with("cmdstat_zrange:")).map(str::to_owned)
    };
    let before = reads().await;
    assert_eq!(lock.evict(&LockName::new("x").unwrap()).await.unwrap().unwrap().owner.as_str(), "holder");
    assert_eq!(reads().await, before);
}

/// Without anybody else, a lock and its release are two requests: of one client in a row, a flight and a script.
#[tokio::test]
async fn an_uncontended_cycle_is_two_requests() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(&server.url(), "oarlock").await.unwrap();
    let cycle = async |owner: &str| {
        let held = claim("x", owner);
        lock.lock(&held).await.unwrap();
        lock.unlock(&held).await.unwrap();
    };
    // The first of each script says it in full.
    cycle("warm").await;
    let flights = async || {
        let stats: String = raw(server.address(), &["INFO", "commandstats"]).await;
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_incr:calls=")?.split(',').next());
        calls.map_or(0, |calls| calls.parse::<u64>().unwrap())
    };
    let before = commands(&server).await + flights().await;
    for round in 0..10 {
        cycle(&round.to_string()).await;
    }
    assert_eq!(commands(&server).await + flights().await - before, 20);
}

/// A full memory refuses a lock, and lets one go.
#[tokio::test]
async fn a_full_server_refuses_and_releases() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(&server.url(), "oarlock").await.unwrap();
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    raw::<()>(server.address(), &["CONFIG", "SET", "maxmemory", "1"]).await;
    let error = lock.try_lock(&claim("y", "other")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    assert!(error.to_string().contains("memory"), "{error}");
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}

/// By the Unix socket, in another database, under no prefix.
#[tokio::test]
async fn over_a_socket() {
    let server = RedisServer::start();
    let mut registry = Registry::new();
    registry.register(RedisFactory);
    let url = format!("unix:{}?db=3&prefix=", server.socket().display());
    let locks: Locks = registry.connect(Config::from_url(&url).unwrap()).await.unwrap();
    let guard = locks.mutex("plain").lock().await.unwrap();
    let client = redis::Client::open(format!("{}/3", server.url())).unwrap();
    let mut connection = client.get_multiplexed_async_connection().await.unwrap();
    let holder: String = redis::cmd("GET").arg("plain").query_async(&mut connection).await.unwrap();
    assert_eq!(holder, guard.owner().as_str());
    guard.unlock().await.unwrap();
}
