//! What a lock costs that nobody else wants, on servers.
//!
//! In a program of its own, and one store after the other: `tracing` may take another thread's word that nobody listens
//! to what is counted here.

mod two_statements;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Claim, DistributedLock, LockName, OwnerId, Unlocked};
use lock_sql::{MySqlLock, MySqlSessionLock, PostgresLock, PostgresSessionLock, ServerOptions};
use sqlx::{Connection, Executor, PgConnection};
use test_servers::{MariaDbServer, PostgresServer, Statements};
use tokio::task::yield_now;
use tokio::time::sleep;
use two_statements::counted;

const LONG: Duration = Duration::from_secs(300);

#[tokio::test]
async fn postgres_and_mysql() {
    let server = PostgresServer::start();
    counted(Arc::new(PostgresLock::connect(&server.url(), "t").await.unwrap())).await;
    let sessions = ServerOptions::new(&server.url()).unwrap().table("sessions").unwrap();
    counted(Arc::new(PostgresSessionLock::with(sessions).await.unwrap())).await;
    many_names_share_statements(&server).await;
    let server = MariaDbServer::start();
    counted(Arc::new(MySqlLock::connect(&server.url(), "t").await.unwrap())).await;
    let sessions = ServerOptions::new(&server.url()).unwrap().table("sessions").unwrap();
    counted(Arc::new(MySqlSessionLock::with(sessions).await.unwrap())).await;
}

/// Of requests for different names that wait at the same moment, PostgreSQL is sent a few.
async fn many_names_share_statements(server: &PostgresServer) {
    const NAMES: u64 = 100;
    // Who waits for a twentieth of that is sent alone.
    let options = ServerOptions::new(&server.url()).unwrap().connections(2).timeout(Duration::from_secs(60));
    let lock = PostgresLock::with(options).await.unwrap();
    let claims: Vec<_> = (0..NAMES)
        .map(|number| {
            Claim::new(LockName::new(&format!("n{number}")).unwrap(), OwnerId::from_store(&format!("o{number}")), LONG)
        })
        .collect();
    // Their rows are made one by one.
    for claim in &claims {
        lock.try_lock(claim).await.unwrap().unwrap();
        lock.unlock(claim).await.unwrap();
    }
    let statements = Statements::listen();
    let tried = join_all(claims.iter().map(|claim| lock.try_lock(claim)));
    assert!(all_at_once(server, tried).await.into_iter().all(|grant| grant.unwrap().is_some()));
    let released = join_all(claims.iter().map(|claim| lock.unlock(claim)));
    assert!(all_at_once(server, released).await.into_iter().all(|released| released.unwrap() == Unlocked::Released));
    // One alone, while the others came, and these together.
    assert_eq!(statements.sent(), 4);
}

/// Has all of them asked before any is answered: the first one waits for a row.
async fn all_at_once<T>(server: &PostgresServer, asked: impl Future<Output = T>) -> T {
    let mut raw = PgConnection::connect(&server.url()).await.unwrap();
    let mut transaction = raw.begin().await.unwrap();
    transaction.execute("SELECT FROM oarlock_lock FOR UPDATE").await.unwrap();
    let mut other = PgConnection::connect(&server.url()).await.unwrap();
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND application_name = 'oarlock'";
    let go_on = async {
        while sqlx::query_scalar::<_, i64>(waits).fetch_one(&mut other).await.unwrap() == 0 {
            sleep(Duration::from_millis(5)).await;
        }
        // `join_all` asks a few each time that it is polled.
        for _ in 0..1000 {
            yield_now().await;
        }
        transaction.rollback().await.unwrap();
    };
    tokio::join!(asked, go_on).0
}
