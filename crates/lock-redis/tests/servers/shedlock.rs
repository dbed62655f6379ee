//! [ShedLock](https://github.com/lukas-krecan/ShedLock), whose jobs run once where ours do: its Redis providers of
//! release 7, by the commands that their `InternalRedisLockProvider` sends.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::common::{LONG, raw, until};
use lock_core::{DistributedLock, LockName, Locks, OnceRun, Skipped};
use lock_redis::RedisLock;
use redis::Value;
use test_servers::RedisServer;

/// ShedLock's own prefix, and the name of an environment for which none was given.
const PREFIX: &str = "job-lock:default";

const KEY: &str = "job-lock:default:report";

/// What it writes into the key.
const VALUE: &str = "ADDED:2026-11-23T05:00:00.000Z@worker-7:0b7c2d0e-5d0c-4a53-8a2e-0d3f7f1f9a11";

const REST: Duration = Duration::from_millis(500);

/// What `safeUpdate` has it run.
const DELETE: &str = r#"
        if redis.call("get",KEYS[1]) == ARGV[1] then
            return redis.call("del",KEYS[1])
        else
            return 0
        end
        "#;
const EXPIRE: &str = "
        if redis.call('get', KEYS[1]) == ARGV[1] then
           return redis.call('pexpire', KEYS[1], ARGV[2])
        else
           return 0
        end
        ";

async fn locks(server: &RedisServer) -> (Locks, Arc<RedisLock>) {
    let lock = Arc::new(RedisLock::connect(&server.url(), PREFIX).await.unwrap());
    (Locks::new(Arc::clone(&lock) as Arc<dyn DistributedLock>), lock)
}

/// Does it get to run its job?
async fn it_locks(server: SocketAddr) -> bool {
    raw::<Value>(server, &["SET", KEY, VALUE, "NX", "PX", "300000"]).await == Value::Okay
}

/// Its job has ended, and counts as done for so long.
async fn it_keeps(server: SocketAddr, rest: Duration) {
    raw::<()>(server, &["SET", KEY, VALUE, "XX", "PX", &rest.as_millis().to_string()]).await;
}

async fn run(locks: &Locks, at_least: Duration) -> OnceRun<()> {
    locks.once("report").at_least(at_least).run(async |_| ()).await.unwrap()
}

/// While our job runs, and until the time is over for which it counts as done, it does not run there.
#[tokio::test]
async fn what_ran_here_does_not_run_there() {
    let server = RedisServer::start();
    let (locks, lock) = locks(&server).await;
    let job = locks.once("report").at_least(LONG);
    let ran = job.run(async |_| assert!(!it_locks(server.address()).await)).await.unwrap();
    assert_eq!(ran, OnceRun::Ran(()));
    assert!(!it_locks(server.address()).await);
    assert!(lock.evict(&LockName::new("report").unwrap()).await.unwrap().unwrap().kept);
    let began = Instant::now();
    assert_eq!(run(&locks, REST).await, OnceRun::Ran(()));
    until("it may run there", async || it_locks(server.address()).await).await;
    assert!(began.elapsed() >= REST, "after {:?}", began.elapsed());
}

/// The reverse; a job that ended before its `lockAtLeastFor` is over, and one that ended after it.
#[tokio::test]
async fn what_ran_there_does_not_run_here() {
    let server = RedisServer::start();
    let (locks, _) = locks(&server).await;
    assert!(it_locks(server.address()).await);
    let OnceRun::Skipped(Skipped { by, remaining, .. }) = run(&locks, LONG).await else { panic!("it ran twice") };
    assert_eq!(by.unwrap().as_str(), VALUE);
    assert!(remaining <= Duration::from_secs(300) && remaining > Duration::from_secs(200), "{remaining:?}");
    it_keeps(server.address(), Duration::from_secs(60)).await;
    let OnceRun::Skipped(Skipped { remaining, .. }) = run(&locks, LONG).await else { panic!("it ran twice") };
    assert!(remaining <= Duration::from_secs(60), "{remaining:?}");
    let began = Instant::now();
    it_keeps(server.address(), REST).await;
    until("it may run here", async || matches!(run(&locks, Duration::from_millis(1)).await, OnceRun::Ran(()))).await;
    assert!(began.elapsed() >= REST, "after {:?}", began.elapsed());
    until("it may run there", async || it_locks(server.address()).await).await;
    raw::<i64>(server.address(), &["DEL", KEY]).await;
    assert_eq!(run(&locks, LONG).await, OnceRun::Ran(()));
}

/// Its job took longer than its `lockAtMostFor`, and meanwhile ours ran: with `safeUpdate`, ours counts all the same.
#[tokio::test]
async fn what_it_ends_too_late_is_not_ours() {
    let server = RedisServer::start();
    let (locks, _) = locks(&server).await;
    assert!(it_locks(server.address()).await);
    raw::<i64>(server.address(), &["DEL", KEY]).await;
    assert_eq!(run(&locks, LONG).await, OnceRun::Ran(()));
    assert_eq!(raw::<i64>(server.address(), &["EVAL", DELETE, "1", KEY, VALUE]).await, 0);
    assert_eq!(raw::<i64>(server.address(), &["EVAL", EXPIRE, "1", KEY, VALUE, "1"]).await, 0);
    let OnceRun::Skipped(skipped) = run(&locks, LONG).await else { panic!("it ran twice") };
    assert!(skipped.done);
    assert!(!it_locks(server.address()).await);
}
