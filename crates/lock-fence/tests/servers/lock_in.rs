//! `fence::sql::lock_in` beside leases of the same name in the same database.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{DistributedLock, ErrorKind, Locks};
use lock_fence::{Access, Stale, sql};
use lock_sql::{MySqlLock, PostgresLock, PostgresSessionLock};
use sqlx::{Executor, MySql, Pool, Postgres};
use test_servers::{MariaDbServer, PostgresServer};

use crate::databases::{LEVELS, mysql, postgres};

const NAME: &str = "orders/42";

fn locks(store: impl DistributedLock + 'static) -> Locks {
    Locks::new(Arc::new(store))
}

/// A case for both databases at each isolation level.
macro_rules! each {
    ($case:ident) => {{
        let (server, mariadb) = (PostgresServer::start(), MariaDbServer::start());
        for level in LEVELS {
            println!("{level}");
            let leases = locks(PostgresLock::connect(&server.url(), "oarlock").await.unwrap());
            let pool = postgres(&server, level).await;
            $case!(pool, leases, Postgres);
            let leases = locks(MySqlLock::connect(&mariadb.url(), "oarlock").await.unwrap());
            let pool = mysql(&mariadb, level).await;
            $case!(pool, leases, MySql);
        }
    }};
}

macro_rules! excludes_and_is_excluded {
    ($pool:ident, $leases:ident, $database:ty) => {{
        let pool: &Pool<$database> = &$pool;
        pool.execute(sql::schema::<$database>()).await.unwrap();
        // While a lease runs, of whatever mode, the transaction fails, and harms no holder.
        let mutex = $leases.mutex(NAME);
        let guard = mutex.lock().await.unwrap();
        let error = sql::lock_in(&mut pool.begin().await.unwrap(), NAME).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
        let earlier = Access::from(&guard);
        guard.unlock().await.unwrap();
        let reader = $leases.rw_lock("catalog").unwrap().read().await.unwrap();
        let error = sql::lock_in(&mut pool.begin().await.unwrap(), "catalog").await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
        reader.unlock().await.unwrap();

        // While the transaction lasts, nobody is granted a lease, nor another transaction the lock.
        let mut tx = pool.begin().await.unwrap();
        let access = sql::lock_in(&mut tx, NAME).await.unwrap();
        sql::check(&mut tx, &access).await.unwrap();
        let leased = tokio::spawn({
            let mutex = $leases.mutex(NAME);
            async move { mutex.lock().await }
        });
        let other = tokio::spawn({
            let pool = pool.clone();
            async move {
                let mut tx = pool.begin().await.unwrap();
                sql::lock_in(&mut tx, "orders/43").await.unwrap();
                let locked = sql::lock_in(&mut tx, NAME).await;
                tx.commit().await.unwrap();
                locked
            }
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!leased.is_finished() && !other.is_finished(), "overtook the transaction");
        tx.commit().await.unwrap();
        let later = leased.await.unwrap().unwrap();
        // Whoever came second of the two: only a lease or a commit that its snapshot has not may be in the way.
        match other.await.unwrap() {
            Ok(other) => assert!(access.token() < other.token()),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
        }
        assert!(earlier.token() < access.token() && access.token() < later.fencing_token().get());
        // A holder that was paused comes too late.
        let error = sql::check(&mut pool.begin().await.unwrap(), &earlier).await.unwrap_err();
        let stale = Stale::of(&error).unwrap();
        assert_eq!((stale.presented, stale.newest), (earlier.token(), access.token()));
        later.unlock().await.unwrap();
        // A rollback leaves nothing.
        let mut tx = pool.begin().await.unwrap();
        sql::lock_in(&mut tx, NAME).await.unwrap();
        tx.rollback().await.unwrap();
        let guard = $leases.mutex(NAME).lock().await.unwrap();
        guard.unlock().await.unwrap();
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_and_a_lease_exclude_each_other() {
    each!(excludes_and_is_excluded);
}

macro_rules! counts {
    ($pool:ident, $leases:ident, $database:ty) => {{
        let pool: &Pool<$database> = &$pool;
        pool.execute("DROP TABLE IF EXISTS counter").await.unwrap();
        pool.execute("CREATE TABLE counter (n BIGINT NOT NULL)").await.unwrap();
        pool.execute("INSERT INTO counter VALUES (0)").await.unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let pool = pool.clone();
                tokio::spawn(async move {
                    for _ in 0..5 {
                        loop {
                            let mut tx = pool.begin().await.unwrap();
                            match sql::lock_in(&mut tx, "counter").await {
                                Err(error) if error.kind() == ErrorKind::Conflict => continue,
                                locked => drop(locked.unwrap()),
                            }
                            // What is read is written back: a second at the same time would lose a count.
                            let n: i64 = sqlx::query_scalar("SELECT n FROM counter").fetch_one(&mut *tx).await.unwrap();
                            tokio::task::yield_now().await;
                            let update = format!("UPDATE counter SET n = {}", n + 1);
                            sqlx::query(sqlx::AssertSqlSafe(update)).execute(&mut *tx).await.unwrap();
                            tx.commit().await.unwrap();
                            break;
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let n: i64 = sqlx::query_scalar("SELECT n FROM counter").fetch_one(pool).await.unwrap();
        assert_eq!(n, 40);
        drop($leases);
    }};
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn transactions_follow_each_other() {
    each!(counts);
}

#[tokio::test]
async fn without_rows_it_is_refused() {
    let server = PostgresServer::start();
    let pool = postgres(&server, LEVELS[0]).await;
    for sessions in [false, true] {
        if sessions {
            let store = PostgresSessionLock::connect(&server.url(), "oarlock").await.unwrap();
            locks(store).mutex(NAME).lock().await.unwrap().unlock().await.unwrap();
        }
        let error = sql::lock_in(&mut pool.begin().await.unwrap(), NAME).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Refused, "{error:?}");
        assert!(error.to_string().contains("lock store with rows"), "{error:?}");
    }
}
