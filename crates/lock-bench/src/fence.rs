//! A write with a check of its fencing token beside the same write without, over the same connection.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_fence::{Access, redis as fence, sql};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection, Executor, MySql, MySqlConnection, PgConnection, Postgres, Sqlite};
use test_servers::{MariaDbServer, PostgresServer, RedisServer};

use crate::peers::bare_connection;
use crate::sqlite::OneCore;
use crate::tasks::run;
use crate::{Figure, interleaved};

const VALUE: [u8; 100] = [b'x'; 100];

/// A value of 100 bytes, where nothing is saved and where each write is: the median time by one task, and the rate by
/// 64.
pub async fn redis(rounds: usize, each: Duration) -> [Figure; 4] {
    let [times, rates] = beside_bare(&RedisServer::start(), rounds, each).await;
    let [saved_times, saved_rates] = beside_bare(&RedisServer::start_durable(), rounds, each).await;
    [
        Figure::at_most("redis: a checked SET, median time / SET", times, 1.1),
        Figure::at_least("redis: 64 tasks, checked SETs, rate / SET", rates, 0.25),
        Figure::at_most("redis: each write saved, a checked SET, median time / SET", saved_times, 1.1),
        Figure::at_least("redis: each write saved, 64 tasks, checked SETs, rate / SET", saved_rates, 0.5),
    ]
}

async fn beside_bare(server: &RedisServer, rounds: usize, each: Duration) -> [Vec<f64>; 2] {
    let connection = bare_connection(&server.url()).await;
    let access = Access::new("orders/42", 7_u64).expect("a name");
    let (mut times, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (mut bare, mut checking) = (connection.clone(), connection.clone());
        let [base, ours] =
            interleaved(each, async || set(&mut bare, 0).await, async || checked_set(&mut checking, &access, 0).await)
                .await;
        times.push(ours / base);
        println!("    redis: a checked SET in {:.1} us, SET in {:.1} us", ours * 1e6, base * 1e6);
        let (bare, checking, access) = (connection.clone(), connection.clone(), access.clone());
        let base = run(64, each, move |task| {
            let mut bare = bare.clone();
            async move {
                set(&mut bare, task).await;
                Instant::now()
            }
        });
        let base = base.await;
        let ours = run(64, each, move |task| {
            let (mut checking, access) = (checking.clone(), access.clone());
            async move {
                checked_set(&mut checking, &access, task).await;
                Instant::now()
            }
        });
        let ours = ours.await;
        rates.push(ours.rate / base.rate);
        println!("    redis, 64 tasks: {:.0} checked SETs/s, {:.0} SETs/s", ours.rate, base.rate);
    }
    [times, rates]
}

async fn set(connection: &mut MultiplexedConnection, task: usize) {
    let () = connection.set(format!("orders/{task}"), &VALUE).await.expect("a server");
}

async fn checked_set(connection: &mut MultiplexedConnection, access: &Access, task: usize) {
    fence::set(connection, access, format!("orders/{task}"), &VALUE).await.expect("no later holder");
}

/// What the check may add to a transaction with one write, where the commit waits for the disk. Elsewhere there is no bar: the
/// check is one statement beside the three of such a transaction, so a fourth round trip.
const BAR: f64 = 1.3;

/// What was measured, and the rounds.
type Ratios = (String, Vec<f64>);

fn figures(saved: Ratios, unsaved: Ratios) -> [Figure; 2] {
    [Figure::at_most(saved.0, saved.1, BAR), Figure::reported(unsaved.0, unsaved.1)]
}

/// A transaction that updates a row of 100 bytes by its key, with and without the check: the median times by one task, as
/// a macro since each driver has types of its own.
macro_rules! transactions {
    ($database:ty, $connection:expr, $update:literal, $what:expr, $rounds:expr, $each:expr) => {{
        let (what, connection) = ($what, &mut $connection);
        let tables = ["CREATE TABLE data (id BIGINT PRIMARY KEY, value VARCHAR(100))", sql::schema::<$database>()];
        for statement in tables {
            connection.execute(statement).await.expect("a new database");
        }
        connection.execute("INSERT INTO data VALUES (1, ''), (2, '')").await.expect("two rows");
        // One at a time uses it, and the borrows of two closures cannot tell.
        let connection = tokio::sync::Mutex::new(connection);
        let number = AtomicU64::new(0);
        let write = async |id: i64, checked: bool| {
            // Each writes another value for another holder: MariaDB saves nothing that is as it was.
            let number = number.fetch_add(1, Ordering::Relaxed) + 1;
            let mut connection = connection.lock().await;
            let mut tx = connection.begin().await.expect("a server");
            if checked {
                sql::check(&mut tx, ("orders/42", number)).await.expect("no later holder");
            }
            let update = sqlx::query($update).bind(format!("{number:0100}")).bind(id);
            assert_eq!(update.execute(&mut *tx).await.expect("a row").rows_affected(), 1);
            tx.commit().await.expect("a server");
        };
        let mut ratios = Vec::new();
        for _ in 0..$rounds {
            let [base, ours] = interleaved($each, async || write(1, false).await, async || write(2, true).await).await;
            println!("    {what}, checked {:.0} us, without {:.0} us", ours * 1e6, base * 1e6);
            ratios.push(ours / base);
        }
        (format!("{what}, checked, median time / unchecked"), ratios)
    }};
}

/// The check in PostgreSQL, where a commit waits for the disk, and where none does.
pub async fn postgres(rounds: usize, each: Duration) -> [Figure; 2] {
    let (durable, quick) = (PostgresServer::start_durable(&[]), PostgresServer::start());
    let saved = postgres_at(&durable, "postgres: a transaction with one write", rounds, each).await;
    let unsaved = postgres_at(&quick, "postgres: no disk, a transaction with one write", rounds, each).await;
    figures(saved, unsaved)
}

async fn postgres_at(server: &PostgresServer, what: &str, rounds: usize, each: Duration) -> Ratios {
    let mut connection = PgConnection::connect(&server.url()).await.expect("a server");
    transactions!(Postgres, connection, "UPDATE data SET value = $1 WHERE id = $2", what, rounds, each)
}

/// The check in MariaDB, where a commit waits for the disk, and where none does.
pub async fn mariadb(rounds: usize, each: Duration) -> [Figure; 2] {
    let (durable, quick) = (MariaDbServer::start_durable(), MariaDbServer::start());
    let saved = mariadb_at(&durable, "mariadb: a transaction with one write", rounds, each).await;
    let unsaved = mariadb_at(&quick, "mariadb: no disk, a transaction with one write", rounds, each).await;
    figures(saved, unsaved)
}

async fn mariadb_at(server: &MariaDbServer, what: &str, rounds: usize, each: Duration) -> Ratios {
    let mut connection = MySqlConnection::connect(&server.url()).await.expect("a server");
    transactions!(MySql, connection, "UPDATE data SET value = ? WHERE id = ?", what, rounds, each)
}

/// The check in SQLite, where a commit waits for the disk, and where none does: the usual settings of applications.
pub async fn sqlite(folder: &Path, rounds: usize, each: Duration) -> [Figure; 2] {
    let _one_core = OneCore::take();
    let file = |name: &str| {
        SqliteConnectOptions::new()
            .filename(folder.join(name))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
    };
    let (durable, quick) = (file("saved.db"), file("later.db").synchronous(SqliteSynchronous::Normal));
    let saved = sqlite_at(durable, "sqlite: a transaction with one write", rounds, each).await;
    let unsaved = sqlite_at(quick, "sqlite: synchronous = NORMAL, a transaction with one write", rounds, each).await;
    figures(saved, unsaved)
}

async fn sqlite_at(file: SqliteConnectOptions, what: &str, rounds: usize, each: Duration) -> Ratios {
    let mut connection = file.connect().await.expect("a new file");
    transactions!(Sqlite, connection, "UPDATE data SET value = $1 WHERE id = $2", what, rounds, each)
}
