//! Connections that nobody uses just now, and that lead to a server that is gone.

use std::sync::Arc;

use crate::common::{BOUND, claim, soon, until};
use futures_util::future::join_all;
use lock_core::{DistributedLock, Renewal, Result, Unlocked};
use lock_sql::{MySqlLock, PostgresLock, ServerOptions};
use sqlx::{Connection, Executor, PgConnection};
use test_servers::{MariaDbServer, PostgresServer, Proxy};
use tokio::runtime::Builder;

const CONNECTIONS: usize = 8;

/// All connections of a client die in silence, as in a fail-over where nobody is told, and new ones reach a server: one
/// request is lost, not one for each connection, so that no lease runs out over it.
#[tokio::test]
async fn a_silent_fail_over_costs_one_request() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let url = PostgresServer::url_at(proxy.address());
    let lock = Arc::new(PostgresLock::connect(&url, "oarlock").await.unwrap());
    let held = claim("x", "holder");
    lock.try_lock(&held).await.unwrap().unwrap();
    // As many requests at a time as there may be connections.
    let mut raw = PgConnection::connect(&server.url()).await.unwrap();
    let mut transaction = raw.begin().await.unwrap();
    transaction.execute("SELECT FROM oarlock_lock FOR UPDATE").await.unwrap();
    let renewals = tokio::spawn({
        let (lock, held) = (Arc::clone(&lock), held.clone());
        async move { join_all((0..CONNECTIONS).map(|_| lock.renew(std::slice::from_ref(&held)))).await }
    });
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    until("all wait", async || {
        let waiting =
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'oarlock'";
        sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut other).await.unwrap() as usize == CONNECTIONS
    })
    .await;
    transaction.rollback().await.unwrap();
    soon("the renewals", renewals).await.unwrap();

    proxy.hold_present();
    let mut failed = 0;
    while !matches!(lock.renew(std::slice::from_ref(&held)).await[..], [Ok(Renewal::Held { .. })]) {
        failed += 1;
        assert!(failed < 2, "another dead connection was used");
    }
}

/// A runtime ends, and with it the connections that were opened on it: what another runtime of the process asks next goes
/// over a new one, and is not unknown.
#[tokio::test]
async fn a_runtime_takes_its_connections_along() {
    let (postgres, mysql) = (PostgresServer::start(), MariaDbServer::start());
    releases_elsewhere(PostgresLock::with(one(&postgres.url()))).await;
    releases_elsewhere(MySqlLock::with(one(&mysql.url()))).await;
}

/// With one connection at a time.
fn one(url: &str) -> ServerOptions {
    ServerOptions::new(url).unwrap().connections(1)
}

async fn releases_elsewhere<L: DistributedLock>(connecting: impl Future<Output = Result<L>> + Send + 'static) {
    let taking = async {
        let (lock, held) = (connecting.await.unwrap(), claim("x", "holder"));
        lock.try_lock(&held).await.unwrap().unwrap();
        // Until it sweeps no more, which has the connection in turn.
        for _ in 0..20 {
            lock.holder(&held.name).await.unwrap();
        }
        (lock, held)
    };
    let ending = Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (lock, held) = ending.spawn(taking).await.unwrap();
    tokio::task::spawn_blocking(move || ending.shutdown_timeout(BOUND)).await.unwrap();
    assert_eq!(lock.unlock(&held).await.unwrap(), Unlocked::Released);
}
