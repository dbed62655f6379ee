//! SQLite: without contention a lock's two statements against a bare insert and delete, by `sqlx` and by `rusqlite`, on
//! files with the same settings; many tasks against one; and processes against `flock` and against few.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use lock_core::Locks;
use lock_sql::SqliteLock;
use rusqlite::Connection;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous};
use sqlx::{ConnectOptions, Connection as _};

use crate::contended::{self, Load, run};
use crate::{Figure, PAUSE, interleaved, tasks};

/// The table of the bare pairs.
const HELD: &str = "CREATE TABLE held (name TEXT PRIMARY KEY, owner TEXT, expires INTEGER) STRICT, WITHOUT ROWID";

async fn locks(file: &Path) -> Locks {
    Locks::new(Arc::new(SqliteLock::open(file, "bench").await.expect("a new file")))
}

/// Lock and unlock, nobody else there: the median time, per that of a bare insert-and-delete pair.
pub async fn uncontended(folder: &Path, rounds: usize, each: Duration) -> Figure {
    let _one_core = OneCore::take();
    let locks = locks(&folder.join("ours.db")).await;
    let mutex = locks.mutex("bench");
    let mut bare = SqliteConnectOptions::new()
        .filename(folder.join("bare.db"))
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Normal)
        .connect()
        .await
        .expect("a new file");
    sqlx::query(HELD).execute(&mut bare).await.expect("a new table");
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

/// The same, per that of a bare pair by `rusqlite`: the statements are prepared once, and no other thread is asked.
pub async fn beside_the_library(folder: &Path, rounds: usize, each: Duration) -> Figure {
    let _one_core = OneCore::take();
    let locks = locks(&folder.join("ours-too.db")).await;
    let mutex = locks.mutex("bench");
    let bare = Connection::open(folder.join("library.db")).expect("a new file");
    bare.execute_batch(&format!("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; {HELD}"))
        .expect("a new table");
    let mut insert = bare.prepare("INSERT INTO held VALUES (?, ?, ?)").expect("a statement");
    let mut delete = bare.prepare("DELETE FROM held WHERE name = ? AND owner = ?").expect("a statement");
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let pair = async || {
            insert.execute(("bench", "owner", 1)).expect("free");
            delete.execute(("bench", "owner")).expect("held");
        };
        let cycle = async || mutex.lock().await.expect("free").unlock().await.expect("held");
        let [ours, base] = interleaved(each, cycle, pair).await;
        println!("    sqlite: {:.1} us, insert + delete by rusqlite {:.1} us", ours * 1e6, base * 1e6);
        ratios.push(ours / base);
    }
    drop(locks.shutdown(Duration::from_secs(1)).await);
    Figure::at_most("sqlite: lock + unlock, median time / insert + delete by rusqlite", ratios, 2.5)
}

/// 64 tasks on 64 names: their rate, per that of one task.
pub async fn many_names(folder: &Path, rounds: usize, each: Duration) -> Figure {
    let locks = locks(&folder.join("names.db")).await;
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let one = tasks::apart(&locks, 1, each).await.rate;
        let many = tasks::apart(&locks, 64, each).await.rate;
        println!("    sqlite: 64 tasks on 64 names {many:.0}/s, one task {one:.0}/s");
        ratios.push(many / one);
    }
    Figure::at_least("sqlite: 64 tasks on 64 names, rate / one task", ratios, 2.0)
}

/// A hundred processes on one name, per two of them.
pub fn crowded(rounds: usize, during: Duration) -> Figure {
    let start = || tempfile::tempdir().expect("a temporary folder");
    contended::crowded(("sqlite", "sqlite"), rounds, during, start, |folder| folder.path().join("crowd.db"))
}

/// 8 processes on one name, with holds and pauses of 2 ms: acquisitions per second, per those by `flock`; and
/// statements per acquisition.
pub fn contended(folder: &Path, rounds: usize, during: Duration) -> [Figure; 2] {
    let load = Load::even(PAUSE, during);
    let (mut rates, mut statements) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let base = run("flock", folder, load);
        let ours = run("sqlite", folder.join(format!("{round}.db")), load);
        rates.push(ours.rate / base.rate);
        statements.push(ours.statements as f64 / (ours.rate * during.as_secs_f64()));
    }
    [
        Figure::at_least("sqlite: 8 processes, 2 ms holds and pauses / flock", rates, 0.8),
        Figure::at_most("sqlite: 8 processes, statements per acquisition", statements, 12.0),
    ]
}

/// As long as it lives, this thread runs on one core, and so do the threads that it starts meanwhile.
///
/// The client crate runs the statements of each connection on a thread of its own. One of these that sits on the core
/// of the thread that asks is woken in a microsecond, one on another core that has gone to sleep takes 40, twice a
/// statement. Where each of the two connections that are compared comes to sit is the scheduler's whim, and stays so
/// for a whole round: the same two pairs differed by 2.9 times in one round and by 0.4 in the next. Here both sit
/// alike.
pub(crate) struct OneCore(CpuSet);

impl OneCore {
    pub(crate) fn take() -> Self {
        let before = sched_getaffinity(None).expect("the cores of this thread");
        let first = (0..CpuSet::MAX_CPU).find(|&core| before.is_set(core)).expect("a core that it runs on");
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one).expect("one of its own");
        Self(before)
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        sched_setaffinity(None, &self.0).expect("as it was");
    }
}
