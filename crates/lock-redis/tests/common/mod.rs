//! What the tests with servers share.
#![allow(dead_code, reason = "each test target uses some of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use lock_redis::RedisLock;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisResult};

/// Never over while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// For what needs no lease's end.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

pub(crate) fn claim(name: &str, owner: &str) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), LONG)
}

/// A command, by a connection that knows nothing of locks.
pub(crate) async fn try_raw<T: FromRedisValue>(server: SocketAddr, cmd: &[&str]) -> RedisResult<T> {
    try_raw_of(server, 0, cmd).await
}

async fn try_raw_of<T: FromRedisValue>(server: SocketAddr, database: u64, cmd: &[&str]) -> RedisResult<T> {
    let client = redis::Client::open(format!("redis://{server}/{database}"))?;
    // The default, half a second, is about how fast a machine is.
    let config = AsyncConnectionConfig::new().set_connection_timeout(Some(BOUND)).set_response_timeout(Some(BOUND));
    let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
    let mut raw = Cmd::new();
    raw.arg(cmd);
    raw.query_async(&mut connection).await
}

pub(crate) async fn raw<T: FromRedisValue>(server: SocketAddr, cmd: &[&str]) -> T {
    try_raw(server, cmd).await.unwrap()
}

/// In this database.
pub(crate) async fn raw_of<T: FromRedisValue>(server: SocketAddr, database: u64, cmd: &[&str]) -> T {
    try_raw_of(server, database, cmd).await.unwrap()
}

pub(crate) async fn holder(server: SocketAddr, name: &str) -> Option<String> {
    raw(server, &["GET", &format!("oarlock:{name}")]).await
}

pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

pub(crate) async fn in_line(lock: &RedisLock, name: &str) -> usize {
    lock.inspect(&LockName::new(name).unwrap()).await.unwrap().waiters.len()
}

pub(crate) fn in_background(
    lock: &Arc<RedisLock>,
    claim: &Claim,
) -> tokio::task::JoinHandle<lock_core::Result<lock_core::Grant>> {
    let (lock, claim) = (Arc::clone(lock), claim.clone());
    tokio::spawn(async move { lock.lock(&claim).await })
}
