//! Grants that count only when replicas have them.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{LONG, claim, holder, in_background, in_line, raw, soon, until};
use lock_core::{Config, DistributedLock, ErrorKind, Registry, Renewal, Unlocked};
use lock_redis::{RedisFactory, RedisLock, RedisOptions};
use test_servers::RedisServer;

async fn pair() -> (RedisServer, RedisServer, Arc<RedisLock>) {
    let primary = RedisServer::start();
    let replica = RedisServer::start_replica(&primary, &[]);
    let options = RedisOptions::new(&primary.url()).unwrap().replicas(1).timeout(Duration::from_secs(1));
    (primary, replica, Arc::new(options.connect().await.unwrap()))
}

#[tokio::test]
async fn a_replica_has_what_was_granted() {
    let (primary, replica, lock) = pair().await;
    for round in 0..20 {
        let owner = format!("owner {round}");
        let held = claim("x", &owner);
        lock.try_lock(&held).await.unwrap().unwrap();
        assert_eq!(holder(replica.address(), "x").await, Some(owner));
        assert!(matches!(lock.renew(std::slice::from_ref(&held)).await[..], [Ok(Renewal::Held { .. })]));
        let next = in_background(&lock, &claim("x", "next"));
        until("the next in line", async || in_line(&lock, "x").await == 1).await;
        assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
        let handed_over = soon("the hand-over", next).await.unwrap().unwrap();
        assert!(handed_over.valid_until <= lock.clock().now() + LONG);
        assert_eq!(holder(replica.address(), "x").await.as_deref(), Some("next"));
        assert_eq!(lock.unlock(&claim("x", "next")).await.unwrap(), Unlocked::Released);
    }
    drop(primary);
}

/// The replica stops: nothing is granted, handed over or renewed any more, and nothing is left behind.
#[tokio::test]
async fn what_no_replica_has_is_no_grant() {
    let (primary, replica, lock) = pair().await;
    let held = claim("held", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    let waiting = in_background(&lock, &claim("held", "waiter"));
    until("the waiter in line", async || in_line(&lock, "held").await == 1).await;
    replica.pause();
    let error = lock.try_lock(&claim("free", "first")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error:?}");
    assert_eq!(holder(primary.address(), "free").await, None);
    let renewed = lock.renew(std::slice::from_ref(&held)).await.pop().unwrap();
    assert_eq!(renewed.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
    let error = soon("the refusal", waiting).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
    assert_eq!(holder(primary.address(), "held").await, None);
    replica.resume();
    until("the replica is in step", async || lock.try_lock(&claim("free", "second")).await.is_ok()).await;
}

/// Many who ask at once share a few rounds of waiting for the replicas, and do not wait one after the other.
#[tokio::test]
async fn rounds_are_shared() {
    const TASKS: usize = 64;
    let (primary, replica, lock) = pair().await;
    let waits = async || {
        let stats: String = raw(primary.address(), &["INFO", "commandstats"]).await;
        let waits = stats.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls="));
        waits.and_then(|waits| waits.split(',').next()?.parse::<usize>().ok()).unwrap_or(0)
    };
    let before = waits().await;
    replica.pause();
    let tasks: Vec<_> = (0..TASKS)
        .map(|number| in_background(&lock, &claim(&format!("x{number}"), &format!("owner {number}"))))
        .collect();
    for task in tasks {
        assert_eq!(soon("the refusal", task).await.unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    }
    let waits = waits().await - before;
    assert!(waits <= TASKS / 8, "{waits} rounds for {TASKS}");
}

/// The setting, and a server without any replica.
#[tokio::test]
async fn a_server_without_replicas_grants_nothing() {
    let server = RedisServer::start();
    let mut registry = Registry::new();
    registry.register(RedisFactory);
    let url = format!("{}?replicas=1&timeout=400ms", server.url());
    let locks = registry.connect(Config::from_url(&url).unwrap()).await.unwrap();
    let told = locks.mutex("x").outage(Duration::ZERO);
    assert_eq!(told.lock().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(holder(server.address(), "x").await, None);
}
