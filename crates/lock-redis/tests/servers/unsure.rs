//! What took effect, or may have, is never called refused: nobody would undo it.

use std::sync::Arc;

use crate::common::{claim, holder, in_background, in_line, raw, soon, until};
use lock_core::{DistributedLock, ErrorKind, Unlocked};
use lock_redis::{RedisLock, RedisOptions};
use test_servers::{Cluster, Proxy, RedisServer};

/// Nobody without a login may run scripts any more, or may again.
async fn scripts(server: std::net::SocketAddr, may: bool) {
    let rights = if may { ["+eval", "+evalsha"] } else { ["-eval", "-evalsha"] };
    raw::<()>(server, &[&["ACL", "SETUSER", "default"], &rights[..]].concat()).await;
}

/// The server knows the scripts, so that no request needs a second one.
async fn warm_up(lock: &RedisLock, name: &str) {
    let early = claim(name, "early");
    lock.try_lock(&early).await.unwrap().unwrap();
    assert_eq!(lock.unlock(&early).await.unwrap(), Unlocked::Released);
}

/// A request is done and its answer lost; its second copy is refused.
#[tokio::test]
async fn a_request_that_was_done_is_not_refused_when_it_is_sent_again() {
    let server = RedisServer::start();
    let proxy = Proxy::new(server.address());
    let lock = Arc::new(RedisLock::connect(&format!("redis://{}", proxy.address()), "oarlock").await.unwrap());
    warm_up(&lock, "x").await;
    let ours = claim("x", "ours");
    proxy.hold_s2c();
    let asked = in_background(&lock, &ours);
    until("it is done", async || holder(server.address(), "x").await.is_some()).await;
    scripts(server.address(), false).await;
    proxy.reset();
    proxy.forward();
    let error = soon("an answer", asked).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error:?}");
    scripts(server.address(), true).await;
    assert_eq!(lock.unlock(&ours).await.unwrap(), Unlocked::Released);
}

/// The same in a cluster, where the node has not the slot any more, and nobody has.
#[tokio::test]
async fn a_request_that_was_done_in_a_cluster_is_not_unavailable_afterwards() {
    let cluster = Cluster::start();
    let lock = Arc::new(RedisOptions::new(&cluster.url()).unwrap().connect().await.unwrap());
    let (node, proxy) = (cluster.addresses()[0], cluster.proxies().next().unwrap());
    warm_up(&lock, "a{3}").await;
    proxy.hold_s2c();
    let asked = in_background(&lock, &claim("a{3}", "ours"));
    until("it is done", async || holder(node, "a{3}").await.is_some()).await;
    let slot: u16 = raw(node, &["CLUSTER", "KEYSLOT", "3"]).await;
    raw::<()>(node, &["CLUSTER", "DELSLOTS", &slot.to_string()]).await;
    proxy.reset();
    proxy.forward();
    let error = soon("an answer", asked).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error:?}");
}

/// A waiter is handed the lock, and may not ask any more whether the replicas have that.
#[tokio::test]
async fn a_lock_that_was_handed_over_is_not_refused() {
    let server = RedisServer::start();
    let _replica = RedisServer::start_replica(&server, &[]);
    raw::<()>(server.address(), &["ACL", "SETUSER", "other", "on", ">pw", "+@all", "~*", "&*"]).await;
    let connect = async |url: String| Arc::new(RedisOptions::new(&url).unwrap().replicas(1).connect().await.unwrap());
    let ours = connect(server.url()).await;
    let other = connect(format!("redis://other:pw@{}", server.address())).await;
    let (first, second) = (claim("x", "first"), claim("x", "second"));
    other.try_lock(&first).await.unwrap().unwrap();
    let waiting = in_background(&ours, &second);
    until("the second in line", async || in_line(&other, "x").await == 1).await;
    scripts(server.address(), false).await;
    assert_eq!(other.unlock(&first).await.unwrap(), Unlocked::Released);
    let error = soon("an answer", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error:?}");
    scripts(server.address(), true).await;
    assert_eq!(ours.unlock(&second).await.unwrap(), Unlocked::Released);
}

/// A request for a free lock fails while the line is served: whoever asked is not left in line.
#[tokio::test]
async fn who_is_refused_is_not_in_line() {
    let server = RedisServer::start();
    let lock = RedisLock::connect(&server.url(), "oarlock").await.unwrap();
    // Somebody ahead who lives, and no token to be had.
    raw::<()>(server.address(), &["SET", "oarlock-client:alive", ""]).await;
    raw::<i64>(server.address(), &["ZADD", "oarlock-line-of:{oarlock:x}", "1", "alive 300000 ahead"]).await;
    raw::<i64>(server.address(), &["LPUSH", "oarlock-tokens", "no token"]).await;
    let error = lock.lock(&claim("x", "ours")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
    let line: Vec<String> = raw(server.address(), &["ZRANGE", "oarlock-line-of:{oarlock:x}", "0", "-1"]).await;
    assert!(!line.iter().any(|place| place.ends_with("ours")), "{line:?}");
}
