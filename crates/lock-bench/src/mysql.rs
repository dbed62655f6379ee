//! MariaDB: a lock's two statements against a bare upsert and delete by the same driver with the same durability; and
//! eight processes on one name.

use std::path::Path;
use std::time::Duration;

use lock_sql::MySqlLock;
use sqlx::mysql::MySqlPoolOptions;
use sqlx::{Connection, MySqlConnection, Row};
use test_servers::MariaDbServer;

use crate::contended::{Load, run};
use crate::{Figure, PAUSE, cycle, idle, interleaved};

/// Lock and unlock, nobody else there: the median time, per that of the bare pair.
pub async fn uncontended(rounds: usize, each: Duration) -> Figure {
    let server = MariaDbServer::start_durable();
    let lock = MySqlLock::connect(&server.url(), "bench").await.expect("a server");
    // A pool like ours: as large, and a connection that was used just now is not asked whether it works.
    let pool = MySqlPoolOptions::new().max_connections(8).test_before_acquire(false);
    let bare = pool.connect(&server.url()).await.expect("a server");
    sqlx::query(
        "CREATE TABLE bare (name VARBINARY(255) PRIMARY KEY, owner VARBINARY(255), expires BIGINT) ENGINE=InnoDB",
    )
    .execute(&bare)
    .await
    .expect("a new table");
    let mut cycle = cycle(&lock);
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let pair = async || {
            let insert = sqlx::query("INSERT INTO bare VALUES (?, ?, ?) ON DUPLICATE KEY UPDATE owner = VALUES(owner)");
            insert.bind("bench").bind("bench@host:1#1").bind(1_i64).execute(&bare).await.expect("free");
            let delete =
                sqlx::query("DELETE FROM bare WHERE name = ? AND owner = ?").bind("bench").bind("bench@host:1#1");
            assert_eq!(delete.execute(&bare).await.expect("held").rows_affected(), 1);
        };
        let [ours, base] = interleaved(each, &mut cycle, pair).await;
        println!("    mariadb: {:.0} us, bare upsert + delete {:.0} us", ours * 1e6, base * 1e6);
        ratios.push(ours / base);
    }
    Figure::at_most("mariadb: lock + unlock, median time / bare upsert + delete", ratios, 1.2)
}

/// 8 processes on one name, with 2 ms holds and pauses: the rate, per that of `flock` in the same round; and statements
/// per acquisition.
pub async fn eight_processes(folder: &Path, rounds: usize, each: Duration) -> [Figure; 2] {
    let load = Load { pause: PAUSE, during: each };
    let server = MariaDbServer::start_durable();
    drop(MySqlLock::connect(&server.url(), "bench").await.expect("a server"));
    let (mut rates, mut statements) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let base = run("flock", folder, load);
        let before = executed(&server).await;
        let ours = run("mysql", server.url(), load);
        let asked = executed(&server).await - before;
        println!("    mysql: {asked} statements");
        rates.push(ours.rate / base.rate);
        statements.push(asked as f64 / (ours.rate * each.as_secs_f64()));
    }
    [
        Figure::at_least("mariadb: 8 processes, 2 ms holds and pauses / flock", rates, 0.55),
        Figure::at_most("mariadb: 8 processes, statements per acquisition", statements, 8.0),
    ]
}

/// `count` clients, as of so many processes, that wait for one lock which nobody releases: what each of them asks in a
/// second.
pub async fn waiting(count: usize, during: Duration) -> Figure {
    let server = MariaDbServer::start_with(&["--max-connections=300"]);
    let connect = async || MySqlLock::connect(&server.url(), "bench").await.expect("a server");
    let rate = idle(count, during, connect, async || executed(&server).await as f64).await;
    Figure::at_most(format!("mariadb: statements a second of each of {count} waiters"), vec![rate], 2.0)
}

/// How many prepared statements were executed, which all of ours are.
async fn executed(server: &MariaDbServer) -> u64 {
    let mut bare = MySqlConnection::connect(&server.url()).await.expect("a server");
    let row = sqlx::query("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'").fetch_one(&mut bare).await.expect("a row");
    row.get::<String, _>(1).parse().expect("a number")
}
