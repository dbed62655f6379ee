//! `fence::sql` at each isolation level of each database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lock_core::{ErrorKind, LockName, Result};
use lock_fence::{Access, Stale, sql};
use sqlx::{Connection, Executor, MySqlConnection, PgConnection, PgPool};
use test_servers::{MariaDbServer, PostgresServer, Proxy};
use tokio::sync::oneshot;

use crate::databases::{Database, LEVELS, each, mysql, postgres};

const NAME: &str = "orders/42";

fn access(token: u64) -> Access {
    Access::new(NAME, token).unwrap()
}

/// A write as an application makes it: again, while another transaction is in the way.
async fn write(database: &Arc<dyn Database>, access: &Access) -> Result<()> {
    loop {
        let mut tx = database.begin().await;
        match tx.check(access.clone()).await {
            Err(error) if error.kind() == ErrorKind::Conflict => continue,
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        tx.write(access.token()).await;
        if tx.commit().await.is_ok() {
            return Ok(());
        }
    }
}

async fn history(database: &Arc<dyn Database>) -> Vec<u64> {
    database.begin().await.history().await
}

#[track_caller]
fn assert_stale(result: Result<()>, presented: u64, newest: u64) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
    let stale = Stale { resource: NAME.to_owned(), presented, newest };
    assert_eq!(Stale::of(&error), Some(&stale), "{error:?}");
}

#[tokio::test]
async fn a_writer_that_was_paused_is_refused() {
    each(async |_, database| {
        for token in [7, 7, 9] {
            write(&database, &access(token)).await.unwrap();
        }
        assert_stale(write(&database, &access(7)).await, 7, 9);
        write(&database, &access(9)).await.unwrap();
        assert_eq!(history(&database).await, [7, 7, 9, 9]);
        // Of another lock it is the first.
        write(&database, &Access::new("orders/43", 1_u64).unwrap()).await.unwrap();
    })
    .await;
}

/// The tokens of readers are in no order: none refuses another, nor the writer that may be the next.
#[tokio::test]
async fn readers_refuse_nobody_and_are_refused_after_a_writer() {
    each(async |_, database| {
        let check = async |access: Access| database.begin().await.check(access).await;
        write(&database, &access(5)).await.unwrap();
        for reader in [7, 6, 5] {
            let mut tx = database.begin().await;
            tx.check(access(reader).shared()).await.unwrap();
            tx.commit().await.unwrap();
        }
        write(&database, &access(6)).await.unwrap();
        write(&database, &access(9)).await.unwrap();
        assert_stale(check(access(7).shared()).await, 7, 9);
        check(access(9).shared()).await.unwrap();
        check(Access::new("orders/43", 1_u64).unwrap().shared()).await.unwrap();
    })
    .await;
}

/// Two readers have their transactions at the same time, and the next writer comes after both. (SQLite's readers have
/// their state of the file, and keep no writer waiting.)
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_read_together() {
    each(async |name, database| {
        if name == "SQLite" {
            return;
        }
        write(&database, &access(5)).await.unwrap();
        let (mut one, mut other) = (database.begin().await, database.begin().await);
        one.check(access(7).shared()).await.unwrap();
        other.check(access(6).shared()).await.unwrap();
        let writer = tokio::spawn({
            let database = Arc::clone(&database);
            async move { write(&database, &access(9)).await }
        });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!writer.is_finished(), "{name}: a writer overtook readers that have not ended");
        one.commit().await.unwrap();
        other.commit().await.unwrap();
        writer.await.unwrap().unwrap();
    })
    .await;
}

#[tokio::test]
async fn each_slot_has_a_mark_of_its_own() {
    each(async |_, database| {
        let longest = LockName::new(&"x".repeat(512)).unwrap();
        for name in [LockName::new(NAME).unwrap(), longest] {
            let with =
                |token: u64, slots: &[u32]| Access::new(name.clone(), token).unwrap().with_slots(slots.iter().copied());
            write(&database, &with(9, &[0])).await.unwrap();
            write(&database, &with(7, &[1, 2])).await.unwrap();
            write(&database, &with(8, &[2])).await.unwrap();
            let refused = write(&database, &with(7, &[1, 2])).await.unwrap_err();
            assert_eq!(Stale::of(&refused).map(|stale| (stale.presented, stale.newest)), Some((7, 8)));
            // Nothing of it is to be kept, and nothing was.
            write(&database, &with(7, &[1])).await.unwrap();
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_rolled_back_refuses_nobody() {
    each(async |_, database| {
        let mut tx = database.begin().await;
        tx.check(access(9)).await.unwrap();
        drop(tx);
        write(&database, &access(7)).await.unwrap();
        assert_eq!(history(&database).await, [7]);
    })
    .await;
}

/// The earlier holder was first: the later one comes after what that wrote, and sees it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_later_holder_waits_for_the_earlier_ones_transaction() {
    each(async |name, database| {
        let mut earlier = database.begin().await;
        earlier.check(access(7)).await.unwrap();
        earlier.write(7).await;
        let (begins, begun) = oneshot::channel();
        let later = tokio::spawn({
            let database = Arc::clone(&database);
            async move {
                let mut begins = Some(begins);
                loop {
                    let mut tx = database.begin().await;
                    begins.take().map(|begins| begins.send(()));
                    match tx.check(access(9)).await {
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
                        Ok(()) => return tx.history().await,
                    }
                }
            }
        });
        begun.await.unwrap();
        // It may be at the row by now, or not yet: either is right.
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!later.is_finished(), "{name}: the later holder overtook the transaction of the earlier");
        earlier.commit().await.unwrap();
        assert_eq!(later.await.unwrap(), [7], "{name}");
    })
    .await;
}

/// The later holder was first: the earlier one may have begun before that, and may have read.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_earlier_holder_is_refused_whenever_it_began() {
    each(async |name, database| {
        write(&database, &access(7)).await.unwrap();
        for (committed, later) in [(true, 9), (false, 11)] {
            // With a snapshot from before, where there are such.
            let mut earlier = database.begin().await;
            earlier.look_aside().await;
            let mut tx = database.begin().await;
            tx.check(access(later)).await.unwrap();
            tx.write(later).await;
            let checked = if committed {
                tx.commit().await.unwrap();
                earlier.check(access(7)).await
            } else {
                let (checked, done) = tokio::join!(earlier.check(access(7)), async {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    tx.commit().await
                });
                done.unwrap();
                checked
            };
            let error = checked.unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Stale | ErrorKind::Conflict), "{name}: {error:?}");
            drop(earlier);
            assert_stale(write(&database, &access(7)).await, 7, later);
        }
        assert_eq!(history(&database).await, [7, 9, 11], "{name}");
    })
    .await;
}

/// Holders of rising tokens, all at once, on a name that has no row yet: what is accepted is in order. At the levels
/// where no transaction fails because of another's commit, none is in another's way either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_is_in_order_and_free_of_deadlocks() {
    const TOKENS: u64 = 24;
    each(async |name, database| {
        let accepted = Arc::new(AtomicUsize::new(0));
        let mut writers = Vec::new();
        for token in (1..=TOKENS).flat_map(|token| [token, TOKENS + 1 - token]) {
            let (database, accepted) = (Arc::clone(&database), Arc::clone(&accepted));
            writers.push(tokio::spawn(async move {
                match write(&database, &access(token)).await {
                    Ok(()) => drop(accepted.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}"),
                }
            }));
        }
        for writer in writers {
            writer.await.unwrap();
        }
        let history = history(&database).await;
        assert!(history.is_sorted(), "{name}: {history:?}");
        assert_eq!(history.len(), accepted.load(Ordering::Relaxed), "{name}");
        assert_eq!(history.last(), Some(&TOKENS), "{name}");
    })
    .await;
}

/// Many at one name at once: none of them ends in a deadlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_name_is_no_deadlock() {
    async fn crowd<DB>(pool: sqlx::Pool<DB>, level: &str, name: &'static str)
    where
        DB: sql::Fenced,
    {
        let tasks = (0..40_u64).map(|token| {
            let pool = pool.clone();
            tokio::spawn(async move {
                let mut tx = pool.begin().await.unwrap();
                let checked = sql::check(&mut tx, (name, 100 + token / 4)).await;
                tx.commit().await.unwrap();
                checked
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            if let Err(error) = task.await.unwrap() {
                assert_eq!(error.kind(), ErrorKind::Stale, "{level}: {error:?}");
            }
        }
    }
    let (server, mariadb) = (PostgresServer::start(), MariaDbServer::start());
    for (level, name) in LEVELS.into_iter().zip(["one", "two", "three"]) {
        let pool = mysql(&mariadb, level).await;
        pool.execute(sql::schema::<sqlx::MySql>()).await.unwrap();
        crowd(pool, level, name).await;
    }
    // PostgreSQL's other levels have every transaction fail that began before another's commit.
    let pool = postgres(&server, LEVELS[0]).await;
    pool.execute(sql::schema::<sqlx::Postgres>()).await.unwrap();
    crowd(pool, LEVELS[0], "one").await;
}

#[tokio::test]
async fn each_name_has_a_mark_of_its_own() {
    let long = "\u{10ffff}".repeat(LockName::MAX_LEN / 4);
    let names = [
        "a",
        "A",
        "a ",
        " a",
        "á",
        "a\u{301}",
        "ä",
        "a'b",
        "a\"b",
        "a`b",
        "a\\b",
        "a%",
        "a_",
        "a;--",
        "$1",
        "?",
        "{t}",
        "日本語",
        "🔒",
        &long,
        &long[..508],
    ];
    each(async |kind, database| {
        for (at, name) in names.into_iter().enumerate().rev() {
            let token = at as u64 + 10;
            write(&database, &Access::new(name, token).unwrap()).await.unwrap();
        }
        for (name, token) in names.into_iter().zip(10_u64..) {
            let error = write(&database, &Access::new(name, token - 1).unwrap()).await.unwrap_err();
            assert_eq!(Stale::of(&error).map(|stale| stale.newest), Some(token), "{kind}: {name:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn the_highest_tokens_are_told_apart() {
    each(async |name, database| {
        write(&database, &access(Access::MAX_TOKEN - 1)).await.unwrap();
        write(&database, &access(Access::MAX_TOKEN)).await.unwrap();
        let stale = write(&database, &access(Access::MAX_TOKEN - 1)).await;
        println!("{name}");
        assert_stale(stale, Access::MAX_TOKEN - 1, Access::MAX_TOKEN);
    })
    .await;
}

/// Nobody knows whether it was done: done again, it is accepted, and no earlier holder is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_may_be_repeated() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let pool = postgres(&server, LEVELS[0]).await;
    pool.execute(sql::schema::<sqlx::Postgres>()).await.unwrap();
    let proxied = PgPool::connect(&PostgresServer::url_at(proxy.address())).await.unwrap();
    let mut tx = proxied.begin().await.unwrap();
    sql::check(&mut tx, (NAME, 9)).await.unwrap();
    proxy.hold_s2c();
    let committing = tokio::spawn(tx.commit());
    // It is done when another sees it.
    let done = async {
        while sqlx::query("SELECT FROM oarlock_fence").fetch_optional(&pool).await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), done).await.expect("the commit arrives");
    proxy.cut();
    committing.await.unwrap().unwrap_err();
    let mut tx = pool.begin().await.unwrap();
    sql::check(&mut tx, (NAME, 9)).await.unwrap();
    tx.commit().await.unwrap();
    assert_stale(sql::check(&mut pool.begin().await.unwrap(), (NAME, 7)).await, 7, 9);
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let (server, mariadb) = (PostgresServer::start(), MariaDbServer::start());
    let mut postgres = PgConnection::connect(&server.url()).await.unwrap();
    let mut mysql = MySqlConnection::connect(&mariadb.url()).await.unwrap();
    let mut sqlite = sqlx::SqliteConnection::connect("sqlite::memory:").await.unwrap();
    let errors = [
        sql::check(&mut postgres.begin().await.unwrap(), (NAME, 7)).await.unwrap_err(),
        sql::check(&mut mysql.begin().await.unwrap(), (NAME, 7)).await.unwrap_err(),
        sql::check(&mut sqlite.begin().await.unwrap(), (NAME, 7)).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        assert!(error.to_string().contains("fence::sql::schema()"), "{error:?}");
        assert_eq!(error.name().map(LockName::as_str), Some(NAME));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_connection_a_transaction_is_gone() {
    let server = PostgresServer::start();
    let proxy = Proxy::new(server.address());
    let mut connection = PgConnection::connect(&PostgresServer::url_at(proxy.address())).await.unwrap();
    let mut tx = connection.begin().await.unwrap();
    proxy.reset();
    let error = sql::check(&mut tx, (NAME, 7)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
}
