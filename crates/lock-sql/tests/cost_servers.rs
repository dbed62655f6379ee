//! What a lock costs that nobody else wants, on servers.
//!
//! In a program of its own, and one store after the other: `tracing` may take another thread's word that nobody listens
//! to what is counted here.

mod two_statements;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use lock_core::{Claim, DistributedLock, LockName, Mode, OwnerId, Unlocked};
use lock_sql::{MySqlLock, MySqlSessionLock, PostgresLock, PostgresSessionLock, ServerOptions};
use sqlx::{Connection, Executor, MySqlConnection, PgConnection};
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
    modes_cost_hardly_more_than_the_mutex(&server).await;
    let sessions = ServerOptions::new(&server.url()).unwrap().table("sessions").unwrap();
    counted(Arc::new(MySqlSessionLock::with(sessions).await.unwrap())).await;
}

/// Who waits for MySQL's readers, writers or permits has them for one more statement than the mutex at most.
async fn modes_cost_hardly_more_than_the_mutex(server: &MariaDbServer) {
    let permits = Mode::Permits { take: 1, of: 1 };
    let kinds = [
        ("mutex", [Mode::Exclusive; 2]),
        ("read and write", [Mode::Shared, Mode::Exclusive]),
        ("permits", [permits; 2]),
    ];
    let mut costs = Vec::new();
    for (name, modes) in kinds {
        costs.push(of_two_turns(server, name, modes).await);
    }
    assert!(costs.iter().all(|two| *two <= costs[0] + 2), "two turns of each: {costs:?}");
}

/// The statements of two turns, each of which begins when another has the lock, and ends when the next one does.
async fn of_two_turns(server: &MariaDbServer, name: &str, modes: [Mode; 2]) -> u64 {
    const TURNS: usize = 40;
    let connect = async || Arc::new(MySqlLock::connect(&server.url(), "t").await.unwrap());
    let clients = [connect().await, connect().await, connect().await];
    let claim = |turn: usize| {
        let owner = OwnerId::from_store(&format!("{name} {turn}"));
        let mut claim = Claim::new(LockName::new(name).unwrap(), owner, LONG);
        claim.mode = modes[turn % 2];
        claim
    };
    let mut raw = MySqlConnection::connect(&server.url()).await.unwrap();
    let statements = Statements::listen();
    clients[0].lock(&claim(0)).await.unwrap();
    let (mut costs, mut before) = (Vec::new(), statements.sent());
    for turn in 1..=TURNS {
        let (waiter, waits) = (Arc::clone(&clients[turn % 3]), claim(turn));
        let waiting = tokio::spawn(async move { waiter.lock(&waits).await });
        let in_line = "SELECT COUNT(*) FROM oarlock_waiter WHERE token = 0";
        while sqlx::query_scalar::<_, i64>(in_line).fetch_one(&mut raw).await.unwrap() == 0 {
            sleep(Duration::from_millis(1)).await;
        }
        let has = &clients[(turn - 1) % 3];
        assert_eq!(has.unlock(&claim(turn - 1)).await.unwrap(), Unlocked::Released);
        waiting.await.unwrap().unwrap();
        if turn % 2 == 0 {
            costs.push(statements.sent() - before);
            before = statements.sent();
        }
    }
    // At first nobody has a bell, and now and then a client shows that it lives.
    costs.sort_unstable();
    println!("{name}: {costs:?}");
    costs[costs.len() / 2]
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
