//! What a lock costs that nobody else wants, on servers.
//!
//! In a program of its own, and one store after the other: `tracing` may take another thread's word that nobody listens
//! to what is counted here.

mod two_statements;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Claim, DistributedLock, LockName, OwnerId, Unlocked};
use lock_sql::{MySqlLock, PostgresLock};
use test_servers::{MariaDbServer, PostgresServer, Statements};
use two_statements::counted;

const LONG: Duration = Duration::from_secs(300);

#[tokio::test]
async fn postgres_and_mysql() {
    let server = PostgresServer::start();
    counted(Arc::new(PostgresLock::connect(&server.url(), "t").await.unwrap())).await;
    let server = MariaDbServer::start();
    counted(Arc::new(MySqlLock::connect(&server.url(), "t").await.unwrap())).await;
}

/// Of requests for different names that wait at the same moment, PostgreSQL is sent a few.
#[tokio::test]
async fn many_names_share_statements() {
    const NAMES: u64 = 100;
    let server = PostgresServer::start();
    let lock = PostgresLock::connect(&server.url(), "t").await.unwrap();
    let claims: Vec<_> = (0..NAMES)
        .map(|number| {
            Claim::new(LockName::new(format!("n{number}")).unwrap(), OwnerId::from_store(&format!("o{number}")), LONG)
        })
        .collect();
    for sent_at_most in [u64::MAX, NAMES / 4] {
        let statements = Statements::listen();
        let grants = join_all(claims.iter().map(|claim| lock.try_lock(claim))).await;
        assert!(grants.into_iter().all(|grant| grant.unwrap().is_some()));
        let released = join_all(claims.iter().map(|claim| lock.unlock(claim))).await;
        assert!(released.into_iter().all(|released| released.unwrap() == Unlocked::Released));
        // The first time, their rows are made one by one.
        assert!(statements.sent() <= sent_at_most, "{}", statements.sent());
    }
}
