//! PostgreSQL: requests of a client for different names that are sent as one call.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::common::{LONG, claim, granted, in_background, in_line, until};
use futures_util::future::join_all;
use lock_core::{DistributedLock, LockName, Unlocked};
use lock_sql::{PostgresLock, ServerOptions};
use sqlx::{Connection, Executor, PgConnection};
use test_servers::PostgresServer;

/// Of each client. More than are sent alone, so that most are sent with others.
const TASKS: usize = 24;
const NAMES: usize = 12;
const ROUNDS: usize = 30;

async fn client(server: &PostgresServer) -> Arc<PostgresLock> {
    Arc::new(PostgresLock::with(ServerOptions::new(&server.url()).unwrap().connections(2)).await.unwrap())
}

/// Two clients, many tasks each, and fewer names: no name has two holders, its tokens rise, and whoever released it had it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_lock_is_had_by_one() {
    let server = PostgresServer::start();
    let clients = [client(&server).await, client(&server).await];
    let names: Arc<Vec<(AtomicBool, AtomicU64)>> = Arc::new((0..NAMES).map(|_| Default::default()).collect());
    let task = |number: usize| {
        let (lock, names) = (Arc::clone(&clients[number % 2]), Arc::clone(&names));
        tokio::spawn(async move {
            for round in 0..ROUNDS {
                let at = (number * 7 + round * 5) % NAMES;
                let claim = claim(&format!("n{at}"), &format!("o-{number}-{round}"));
                let grant = match round % 3 {
                    0 => lock.lock(&claim).await.unwrap(),
                    _ => match lock.try_lock(&claim).await.unwrap() {
                        Some(grant) => grant,
                        None => continue,
                    },
                };
                let (held, last) = &names[at];
                assert!(!held.swap(true, Ordering::SeqCst), "two holders of {}", claim.name);
                assert!(last.swap(grant.token.get(), Ordering::SeqCst) < grant.token.get(), "{}", claim.name);
                tokio::task::yield_now().await;
                held.store(false, Ordering::SeqCst);
                assert_eq!(lock.unlock(&claim).await.unwrap(), Unlocked::Released);
            }
        })
    };
    for ended in join_all((0..2 * TASKS).map(task)).await {
        ended.unwrap();
    }
    let status = clients[0].inspect(&LockName::new("n0").unwrap()).await.unwrap();
    assert!(status.holder().is_none() && status.waiters.is_empty());
}

/// Of those sent together each has its own answer: a free lock is granted, one that another holds is denied, one with a
/// line is handed over at its release, and an owner that has given up gets nothing.
#[tokio::test]
async fn each_has_its_own_answer() {
    let server = PostgresServer::start();
    let (lock, other) = (client(&server).await, client(&server).await);
    let (held, waited_for) = (claim("held", "other"), claim("waited-for", &ours("waited-for")));
    other.try_lock(&held).await.unwrap().unwrap();
    lock.try_lock(&waited_for).await.unwrap().unwrap();
    let waiter = in_background(&other, &claim("waited-for", "other"));
    until("it waits", async || in_line(&*lock, "waited-for").await == 1).await;
    let mut raw = PgConnection::connect(&server.url()).await.unwrap();
    raw.execute("INSERT INTO oarlock_gone VALUES ('gone', oarlock_now())").await.unwrap();

    for number in 0..5 {
        let made = claim(&format!("free-{number}"), "made");
        lock.try_lock(&made).await.unwrap().unwrap();
        lock.unlock(&made).await.unwrap();
    }
    let tries = ["free-0", "free-1", "held", "free-2", "free-3", "gone"].map(|name| {
        let (lock, owner) = (Arc::clone(&lock), if name == "gone" { "gone".to_owned() } else { ours(name) });
        let name = if name == "gone" { "free-4" } else { name };
        async move { (name, lock.try_lock(&claim(name, &owner)).await) }
    });
    let told: HashMap<_, _> = join_all(tries).await.into_iter().collect();
    for name in ["free-0", "free-1", "free-2", "free-3"] {
        assert!(told[name].as_ref().unwrap().is_some(), "{name}");
    }
    assert!(told["held"].as_ref().unwrap().is_none());
    assert!(told["free-4"].is_err(), "{:?}", told["free-4"]);
    assert!(lock.holder(&LockName::new("free-4").unwrap()).await.unwrap().is_none());

    let releases = ["free-0", "free-1", "waited-for", "free-2", "held", "free-3"].map(|name| {
        let lock = Arc::clone(&lock);
        async move { (name, lock.unlock(&claim(name, &ours(name))).await.unwrap()) }
    });
    for (name, unlocked) in join_all(releases).await {
        assert_eq!(unlocked, if name == "held" { Unlocked::NotHeld } else { Unlocked::Released }, "{name}");
    }
    let granted = granted(waiter).await;
    assert!(granted.valid_until > other.clock().now() + LONG / 2);
    assert_eq!(other.unlock(&held).await.unwrap(), Unlocked::Released);
}

fn ours(name: &str) -> String {
    format!("our {name}")
}
