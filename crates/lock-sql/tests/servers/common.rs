//! What the tests with servers share.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{
    Claim, Config, DistributedLock, Grant, LockName, LockValue, Locks, OwnerId, Registry, Renewal, Result,
};
use lock_sql::{MySqlFactory, PostgresFactory};
use sqlx::{Connection, Executor, PgConnection};
use test_servers::PostgresServer;
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

/// The claim, which shows this.
pub(crate) fn showing(mut claim: Claim, text: &str) -> Claim {
    claim.value = Some(LockValue::new(text).unwrap());
    claim
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

pub(crate) async fn in_line(lock: &(impl DistributedLock + ?Sized), name: &str) -> usize {
    lock.inspect(&LockName::new(name).unwrap()).await.unwrap().waiters.len()
}

pub(crate) fn in_background<L: DistributedLock + ?Sized>(lock: &Arc<L>, claim: &Claim) -> JoinHandle<Result<Grant>> {
    let (lock, claim) = (Arc::clone(lock), claim.clone());
    tokio::spawn(async move { lock.lock(&claim).await })
}

pub(crate) async fn granted(waiting: JoinHandle<Result<Grant>>) -> Grant {
    soon("the grant", waiting).await.unwrap().unwrap()
}

pub(crate) async fn renewed(lock: &(impl DistributedLock + ?Sized), claim: &Claim) -> Renewal {
    lock.renew(std::slice::from_ref(claim)).await.pop().unwrap().unwrap()
}

/// Waits for a standby that is not there at each commit, until [`LET_COMMIT`] is done. The server's processes hear of a
/// setting one after the other: so it waits until a commit does hang, one of its own, which the task that it answers
/// makes again and again.
pub(crate) async fn have_commits_hang(server: &PostgresServer, admin: &mut PgConnection) -> JoinHandle<()> {
    for statement in ["ALTER SYSTEM SET synchronous_standby_names = 'nobody'", "SELECT pg_reload_conf()"] {
        admin.execute(statement).await.unwrap();
    }
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    let commits =
        tokio::spawn(
            async move { while other.execute("SELECT pg_logical_emit_message(true, '', '')").await.is_ok() {} },
        );
    until("commits hang", async || hangs(admin, "%pg_logical_emit_message%").await).await;
    commits
}

pub(crate) const LET_COMMIT: [&str; 2] = ["ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()"];

/// Does the commit of such a statement hang?
pub(crate) async fn hangs(admin: &mut PgConnection, statement: &str) -> bool {
    let query = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE $1)";
    sqlx::query_scalar(query).bind(statement).fetch_one(admin).await.unwrap()
}
