//! PostgreSQL: a lock's two statements against a bare upsert and delete by the same driver with the same durability;
//! eight processes on one name; and what it costs to keep many locks.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{DistributedLock, Locks};
use lock_sql::PostgresLock;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection, PgPool};
use test_servers::PostgresServer;

use crate::contended::{self, Load, by_sessions, run};
use crate::peers::ADVISORY;
use crate::{Figure, PAUSE, cycle, idle, interleaved, middle, tasks};

/// Lock and unlock, nobody else there: the median time, per that of the bare pair.
pub async fn uncontended(rounds: usize, each: Duration) -> Figure {
    let server = PostgresServer::start_durable(&[]);
    let lock = PostgresLock::connect(&server.url(), "bench").await.expect("a server");
    let bare = bare(&server).await;
    let mut cycle = cycle(&lock);
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let [ours, base] = interleaved(each, &mut cycle, async || pair(&bare).await).await;
        println!("    postgres: {:.0} us, bare upsert + delete {:.0} us", ours * 1e6, base * 1e6);
        ratios.push(ours / base);
    }
    Figure::at_most("postgres: lock + unlock, median time / bare upsert + delete", ratios, 1.2)
}

/// A pool like ours: as large, and a connection that was used just now is not asked whether it works.
async fn bare(server: &PostgresServer) -> PgPool {
    let pool = PgPoolOptions::new().max_connections(8).test_before_acquire(false);
    let bare = pool.connect(&server.url()).await.expect("a server");
    sqlx::query("CREATE TABLE bare (name text PRIMARY KEY, owner text, expires bigint)")
        .execute(&bare)
        .await
        .expect("a new table");
    bare
}

async fn pair(bare: &PgPool) {
    pair_of(bare.clone(), "bench".to_owned()).await;
}

async fn pair_of(bare: PgPool, name: String) {
    const INSERT: &str = "INSERT INTO bare VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE SET owner = excluded.owner,
        expires = excluded.expires WHERE bare.expires < 0";
    let insert = sqlx::query(INSERT).bind(&name).bind("bench@host:1#1").bind(1_i64).execute(&bare).await;
    assert_eq!(insert.expect("free").rows_affected(), 1);
    let delete = sqlx::query("DELETE FROM bare WHERE name = $1 AND owner = $2").bind(&name).bind("bench@host:1#1");
    assert_eq!(delete.execute(&bare).await.expect("held").rows_affected(), 1);
}

/// 64 tasks on 64 names, per as many bare pairs over a pool like ours: what waits at the same moment goes as one call.
pub async fn many_names(rounds: usize, each: Duration) -> Figure {
    let server = PostgresServer::start_durable(&[]);
    let locks = Locks::new(Arc::new(PostgresLock::connect(&server.url(), "bench").await.expect("a server")));
    let bare = bare(&server).await;
    let ratios = tasks::per_pair("postgres", &locks, (bare, pair_of), rounds, each).await;
    Figure::at_least("postgres: 64 tasks on 64 names, rate / bare pairs on 8 connections", ratios, 2.0)
}

/// 8 processes on one name, with 2 ms holds and pauses: the rate, per that of `flock` in the same round; the median
/// hand-off, per bare pair; statements per acquisition; and Jain's index. And with nothing between, the median
/// hand-off, and durable writes.
pub async fn eight_processes(folder: &Path, rounds: usize, each: Duration) -> [Figure; 6] {
    let load = Load::even(PAUSE, each);
    let server = PostgresServer::start_durable(&["track_functions=all"]);
    drop(PostgresLock::connect(&server.url(), "bench").await.expect("a server"));
    let bare = bare(&server).await;
    let (mut rates, mut hand_offs, mut statements, mut fairness) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut busy, mut writes) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let base = run("flock", folder, load);
        let single = middle(Duration::from_secs(1), async || pair(&bare).await).await;
        let before = counted(&server, CALLS).await;
        let ours = run("postgres", server.url(), load);
        let asked = counted(&server, CALLS).await - before;
        println!("    postgres: bare pair {:.0} us, {asked} statements", single * 1e6);
        rates.push(ours.rate / base.rate);
        hand_offs.push(ours.at(0.5).as_secs_f64() / single);
        statements.push(asked as f64 / (ours.rate * each.as_secs_f64()));
        fairness.push(ours.fairness);
        let before = counted(&server, WRITES).await;
        let ours = run("postgres", server.url(), Load::even(Duration::ZERO, each));
        writes.push((counted(&server, WRITES).await - before) as f64 / (ours.rate * each.as_secs_f64()));
        busy.push(ours.at(0.5).as_secs_f64() / single);
    }
    [
        Figure::at_least("postgres: 8 processes, 2 ms holds and pauses / flock", rates, 0.72),
        Figure::at_most("postgres: 8 processes, median hand-off / bare pair", hand_offs, 2.5),
        Figure::at_most("postgres: 8 processes, nothing between, median hand-off / bare pair", busy, 1.3),
        Figure::at_most("postgres: 8 processes, statements per acquisition", statements, 3.0),
        Figure::at_least("postgres: 8 processes, fairness", fairness, 0.99),
        Figure::reported("postgres: 8 processes, durable writes per acquisition", writes),
    ]
}

/// A hundred processes on one name, per two of them; and by sessions.
pub fn crowded(rounds: usize, during: Duration) -> [Figure; 2] {
    let start = || PostgresServer::start_durable(&["max_connections=1000"]);
    [("postgres", "postgres"), ("postgres by sessions", "postgres-session")]
        .map(|lock| contended::crowded(lock, rounds, during, start, PostgresServer::url))
}

/// `count` clients, as of so many processes, that wait for one lock which nobody releases: what each of them asks in a
/// second, which is to be no more than that it lives, every five seconds.
pub async fn waiting(count: usize, during: Duration) -> Figure {
    let server = PostgresServer::start_with(&["track_functions=all", "max_connections=500"]);
    let connect = async || PostgresLock::connect(&server.url(), "bench").await.expect("a server");
    let rate = idle(count, during, connect, async || counted(&server, CALLS).await as f64).await;
    Figure::at_most(format!("postgres: statements a second of each of {count} waiters"), vec![rate], 0.21)
}

/// Statements: each of ours that does anything calls one of these once.
const CALLS: &str = "SELECT coalesce(sum(calls), 0)::bigint FROM pg_stat_user_functions
    WHERE funcname IN ('oarlock_acquire', 'oarlock_release', 'oarlock_look')";

/// Writes of the server's that it waited for.
const WRITES: &str = "SELECT wal_sync FROM pg_stat_wal";

/// Transactions that were committed. A session's are counted at the latest when it ends.
const COMMITS: &str = "SELECT xact_commit FROM pg_stat_database WHERE datname = 'postgres'";

/// How many of these there were.
async fn counted(server: &PostgresServer, query: &'static str) -> i64 {
    tokio::time::sleep(Duration::from_millis(500)).await;
    let mut bare = PgConnection::connect(&server.url()).await.expect("a server");
    sqlx::query_scalar(query).fetch_one(&mut bare).await.expect("a number")
}

/// After so long the server has counted what a session did that is idle by then.
const COUNTED: Duration = Duration::from_secs(12);

/// By sessions, per `sqlx`'s advisory lock.
pub fn sessions(rounds: usize, during: Duration) -> [Figure; 2] {
    let server = PostgresServer::start_durable(&[]);
    by_sessions(("postgres", server.url()), ("postgres-session", ADVISORY), 0.6, rounds, during)
}

/// `count` locks held with the default lease: the most connections, and statements a second that renew them.
pub async fn kept(count: usize, during: Duration) -> [Figure; 2] {
    let server = PostgresServer::start_durable(&["autovacuum=off"]);
    let backend = Arc::new(PostgresLock::connect(&server.url(), "bench").await.expect("a server"));
    let locks = Locks::new(Arc::clone(&backend) as Arc<dyn DistributedLock>);
    let mut guards = Vec::new();
    for number in 0..count {
        guards.push(locks.mutex(format!("kept/{number}")).lock().await.expect("free"));
    }
    let mut bare = PgConnection::connect(&server.url()).await.expect("a server");
    tokio::time::sleep(COUNTED).await;
    let query = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'oarlock'";
    let (before, start, mut connections) = (counted(&server, COMMITS).await, Instant::now(), Vec::new());
    while start.elapsed() < during {
        let now: i64 = sqlx::query_scalar(query).fetch_one(&mut bare).await.expect("a number");
        connections.push(now as f64);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let took = start.elapsed().as_secs_f64();
    assert!(guards.iter().all(|guard| guard.is_held()), "all of them were renewed");
    let own = connections.len() as f64;
    // What the sessions did is counted when they end.
    backend.close().await.expect("it closes");
    let statements = (counted(&server, COMMITS).await - before) as f64 - own;
    let most = connections.into_iter().fold(0.0, f64::max);
    [
        Figure::at_most(format!("postgres: connections that keep {count} locks"), vec![most], 10.0),
        Figure::at_most(
            format!("postgres: statements a second that keep {count} locks"),
            vec![statements / took],
            50.0,
        ),
    ]
}
