//! Marks that several processes share, as the layer of HTTP asks them.

use lock_core::{ErrorKind, LockName, Result};
use lock_fence::{Access, Marks, RedisMarks, SqlMarks, Stale, sql};
use redis::Client;
use sqlx::{Executor, MySql, MySqlPool, PgPool, Postgres};
use test_servers::{MariaDbServer, PostgresServer, RedisServer};

const NAME: &str = "/orders/42";

fn access(token: u64) -> Access {
    Access::new(NAME, token).unwrap()
}

#[track_caller]
fn assert_stale(result: Result<()>, presented: u64, newest: u64) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error:?}");
    assert_eq!(Stale::of(&error), Some(&Stale { resource: NAME.to_owned(), presented, newest }));
    assert_eq!(error.name().map(LockName::as_str), Some(NAME));
}

/// What one sees, the other refuses.
async fn are_shared(one: impl Marks, other: impl Marks) {
    one.check(&access(7).shared()).await.unwrap();
    one.check(&access(5)).await.unwrap();
    other.check(&access(9)).await.unwrap();
    other.check(&access(9)).await.unwrap();
    assert_stale(one.check(&access(7)).await, 7, 9);
    assert_stale(one.check(&access(8).shared()).await, 8, 9);
    one.check(&access(10).shared()).await.unwrap();
    one.check(&access(9)).await.unwrap();
    // Slots have marks of their own. Of several, all are raised or none.
    one.check(&access(3).with_slots([1])).await.unwrap();
    assert_stale(other.check(&access(2).with_slots([0, 1])).await, 2, 3);
    other.check(&access(1).with_slots([0])).await.unwrap();
    other.check(&access(4).with_slots([0, 1])).await.unwrap();
    assert_stale(one.check(&access(3).with_slots([0])).await, 3, 4);
}

#[tokio::test]
async fn in_redis() {
    let server = RedisServer::start();
    let connect = async || Client::open(server.url()).unwrap().get_multiplexed_async_connection().await.unwrap();
    are_shared(RedisMarks::new(connect().await), RedisMarks::new(connect().await)).await;
}

#[tokio::test]
async fn in_postgres() {
    let server = PostgresServer::start();
    let connect = async || PgPool::connect(&server.url()).await.unwrap();
    connect().await.execute(sql::schema::<Postgres>()).await.unwrap();
    are_shared(SqlMarks::new(connect().await), SqlMarks::new(connect().await)).await;
}

#[tokio::test]
async fn in_mariadb() {
    let server = MariaDbServer::start();
    let connect = async || MySqlPool::connect(&server.url()).await.unwrap();
    connect().await.execute(sql::schema::<MySql>()).await.unwrap();
    are_shared(SqlMarks::new(connect().await), SqlMarks::new(connect().await)).await;
}
