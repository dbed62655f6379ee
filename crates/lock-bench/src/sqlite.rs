//! SQLite: without contention a lock's two statements against a bare insert and delete by the same client crate, on a
//! file with the same settings; and eight processes against `flock`.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Locks;
use lock_sql::SqliteLock;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection};

use crate::contended::{Load, run};
use crate::{Figure, PAUSE, interleaved};

/// Lock and unlock, nobody else there: the median time, per that of a bare insert-and-delete pair.
pub async fn uncontended(folder: &Path, rounds: usize, each: Duration) -> Figure {
    let store = SqliteLock::open(folder.join("ours.db"), "bench").await.expect("a new file");
    let locks = Locks::new(Arc::new(store));
    let mutex = locks.mutex("bench");
    let mut bare = SqliteConnectOptions::new()
        .filename(folder.join("bare.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .connect()
        .await
        .expect("a new file");
    sqlx::query("CREATE TABLE held (name TEXT PRIMARY KEY, owner TEXT, expires INTEGER) STRICT, WITHOUT ROWID")
        .execute(&mut bare)
        .await
        .expect("a new table");
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let pair = async || {
            let insert = sqlx::query("INSERT INTO held VALUES (?, ?, ?)").bind("bench").bind("owner").bind(1_i64);
            insert.execute(&mut bare).await.expect("free");
            let delete = sqlx::query("DELETE FROM held WHERE name = ? AND owner = ?").bind("bench").bind("owner");
            delete.execute(&mut bare).await.expect("held");
        };
        let cycle = async || mutex.lock().await.expect("free").unlock().await.map(drop).expect("held");
        let [ours, base] = interleaved(each, cycle, pair).await;
        println!("    sqlite: {:.0} us, bare insert + delete {:.0} us", ours * 1e6, base * 1e6);
        ratios.push(ours / base);
    }
    drop(locks.shutdown(Duration::from_secs(1)).await);
    bare.close().await.expect("no statement is open");
    Figure::at_most("sqlite: lock + unlock, median time / bare insert + delete", ratios, 1.2)
}

/// 8 processes on one name, with holds and pauses of 2 ms: acquisitions per second, per those by `flock`.
pub fn contended(folder: &Path, rounds: usize, during: Duration) -> Figure {
    let load = Load { pause: PAUSE, during };
    let ratio = |round: usize| {
        let base = run("flock", folder, load);
        run("sqlite", folder.join(format!("{round}.db")), load).rate / base.rate
    };
    Figure::at_least("sqlite: 8 processes, 2 ms holds and pauses / flock", (0..rounds).map(ratio).collect(), 0.8)
}
