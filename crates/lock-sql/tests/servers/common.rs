//! What the tests with servers share.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, Config, DistributedLock, Grant, LockName, Locks, OwnerId, Registry, Renewal, Result};
use lock_sql::{MySqlFactory, PostgresFactory};
use tokio::task::JoinHandle;

/// Never over while a test runs.
pub(crate) const LONG: Duration = Duration::from_secs(300);

/// For what needs no lease's end.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

pub(crate) fn claim(name: &str, owner: &str) -> Claim {
    lasting(name, owner, LONG)
}

pub(crate) fn lasting(name: &str, owner: &str, lease: Duration) -> Claim {
    Claim::new(LockName::new(name).unwrap(), OwnerId::from_store(owner), lease)
}

pub(crate) async fn connect(url: &str) -> Result<Locks> {
    let mut registry = Registry::new();
    registry.register(PostgresFactory);
    registry.register(MySqlFactory);
    soon("a connection", registry.connect(Config::from_url(url).unwrap())).await
}

pub(crate) async fn soon<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(BOUND, future).await.unwrap_or_else(|_| panic!("not within {BOUND:?}: {what}"))
}

pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

pub(crate) async fn in_line(lock: &impl DistributedLock, name: &str) -> usize {
    lock.inspect(&LockName::new(name).unwrap()).await.unwrap().waiters.len()
}

pub(crate) fn in_background<L: DistributedLock>(lock: &Arc<L>, claim: &Claim) -> JoinHandle<Result<Grant>> {
    let (lock, claim) = (Arc::clone(lock), claim.clone());
    tokio::spawn(async move { lock.lock(&claim).await })
}

pub(crate) async fn granted(waiting: JoinHandle<Result<Grant>>) -> Grant {
    soon("the grant", waiting).await.unwrap().unwrap()
}

pub(crate) async fn renewed(lock: &impl DistributedLock, claim: &Claim) -> Renewal {
    lock.renew(std::slice::from_ref(claim)).await.pop().unwrap().unwrap()
}
