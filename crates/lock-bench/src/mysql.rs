//! MariaDB: a lock's two statements against a bare upsert and delete by the same driver with the same durability; and
//! eight processes on one name.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Locks;
use lock_sql::MySqlLock;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Connection, MySqlConnection, MySqlPool, Row};
use test_servers::MariaDbServer;

use crate::contended::{self, Load, by_sessions, run};
use crate::peers::GET_LOCK;
use crate::{Figure, PAUSE, cycle, idle, interleaved, middle, tasks};

/// Lock and unlock, nobody else there: the median time, per that of the bare pair.
pub async fn uncontended(rounds: usize, each: Duration) -> Figure {
    let server = MariaDbServer::start_durable();
    let lock = MySqlLock::connect(&server.url(), "bench").await.expect("a server");
    let bare = bare(&server).await;
    let mut cycle = cycle(&lock);
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let [ours, base] = interleaved(each, &mut cycle, async || pair(&bare).await).await;
        println!("    mariadb: {:.0} us, bare upsert + delete {:.0} us", ours * 1e6, base * 1e6);
        ratios.push(ours / base);
    }
    Figure::at_most("mariadb: lock + unlock, median time / bare upsert + delete", ratios, 1.2)
}

/// A pool like ours: as large, and a connection that was used just now is not asked whether it works.
async fn bare(server: &MariaDbServer) -> MySqlPool {
    let pool = MySqlPoolOptions::new().max_connections(8).test_before_acquire(false);
    let bare = pool.connect(&server.url()).await.expect("a server");
    let table =
        "CREATE TABLE bare (name VARBINARY(255) PRIMARY KEY, owner VARBINARY(255), expires BIGINT) ENGINE=InnoDB";
    sqlx::query(table).execute(&bare).await.expect("a new table");
    bare
}

async fn pair(bare: &MySqlPool) {
    pair_of(bare.clone(), "bench".to_owned()).await;
}

async fn pair_of(bare: MySqlPool, name: String) {
    let insert = sqlx::query("INSERT INTO bare VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE owner = VALUES(owner)");
    insert.bind(&name).bind("bench@host:1#1").bind(1_i64).execute(&bare).await.expect("free");
    let delete = sqlx::query("DELETE FROM bare WHERE name = ? AND owner = ?").bind(&name).bind("bench@host:1#1");
    assert_eq!(delete.execute(&bare).await.expect("held").rows_affected(), 1);
}

/// 64 tasks on 64 names, per as many bare pairs over a pool like ours.
pub async fn many_names(rounds: usize, each: Duration) -> Figure {
    let server = MariaDbServer::start_durable();
    let locks = Locks::new(Arc::new(MySqlLock::connect(&server.url(), "bench").await.expect("a server")));
    let bare = bare(&server).await;
    let ratios = tasks::per_pair("mariadb", &locks, (bare, pair_of), rounds, each).await;
    Figure::at_least("mariadb: 64 tasks on 64 names, rate / bare pairs on 8 connections", ratios, 0.9)
}

/// 8 processes on one name: with 2 ms holds and pauses the rate, per that of `flock` in the same round; and with
/// sections of nothing the median hand-off, per bare pair, and Jain's index.
pub async fn eight_processes(folder: &Path, rounds: usize, each: Duration) -> [Figure; 3] {
    let server = MariaDbServer::start_durable();
    drop(MySqlLock::connect(&server.url(), "bench").await.expect("a server"));
    let bare = bare(&server).await;
    let (mut rates, mut hand_offs, mut fairness) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let load = Load::even(PAUSE, each);
        let base = run("flock", folder, load);
        rates.push(run("mysql", server.url(), load).rate / base.rate);
        let single = middle(Duration::from_secs(1), async || pair(&bare).await).await;
        println!("    mysql: bare pair {:.0} us", single * 1e6);
        let ours = run("mysql", server.url(), Load::even(Duration::ZERO, each));
        hand_offs.push(ours.at(0.5).as_secs_f64() / single);
        fairness.push(ours.fairness);
    }
    [
        Figure::at_least("mariadb: 8 processes, 2 ms holds and pauses / flock", rates, 0.55),
        Figure::at_most("mariadb: 8 processes, median hand-off / bare pair", hand_offs, 2.5),
        Figure::at_least("mariadb: 8 processes, Jain's index", fairness, 0.99),
    ]
}

/// A hundred processes on one name, per two of them; and by sessions.
pub fn crowded(rounds: usize, during: Duration) -> [Figure; 2] {
    let start = || MariaDbServer::start_durable_with(&["--max-connections=1000"]);
    [("mariadb", "mysql"), ("mariadb by sessions", "mysql-session")]
        .map(|lock| contended::crowded(lock, rounds, during, start, MariaDbServer::url))
}

/// By sessions, per MySQL's own lock.
pub fn sessions(rounds: usize, during: Duration) -> [Figure; 2] {
    let server = MariaDbServer::start_durable();
    by_sessions(("mariadb", server.url()), ("mysql-session", GET_LOCK), 0.5, rounds, during)
}

/// `count` clients, as of so many processes, that wait for one lock which nobody releases: what each of them asks in a
/// second.
pub async fn waiting(count: usize, during: Duration) -> Figure {
    let server = MariaDbServer::start_with(&["--max-connections=500"]);
    let connect = async || MySqlLock::connect(&server.url(), "bench").await.expect("a server");
    let rate = idle(count, during, connect, async || executed(&server).await as f64).await;
    Figure::at_most(format!("mariadb: statements a second of each of {count} waiters"), vec![rate], 3.0)
}

/// How many statements were executed.
async fn executed(server: &MariaDbServer) -> u64 {
    let mut bare = MySqlConnection::connect(&server.url()).await.expect("a server");
    let row = sqlx::query("SHOW GLOBAL STATUS LIKE 'Questions'").fetch_one(&mut bare).await.expect("a row");
    row.get::<String, _>(1).parse().expect("a number")
}
