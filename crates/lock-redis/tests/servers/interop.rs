//! Others who lock with `SET … NX PX` and a compare-and-delete: `redis-cli`, and redis-py's `Lock`.

use std::process::Stdio;
use std::time::Duration;

use lock_core::Locks;
use lock_redis::RedisLock;
use test_servers::RedisServer;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

/// Longer than any step takes, shorter than the leases.
const BOUND: Duration = Duration::from_secs(20);

async fn locks(server: &RedisServer) -> Locks {
    Locks::new(std::sync::Arc::new(RedisLock::connect(&server.url(), "").await.unwrap()))
}

async fn redis_cli(server: &RedisServer, arguments: &[&str]) -> String {
    let port = server.address().port().to_string();
    let mut command = Command::new("redis-cli");
    command.args(["-p", &port]).args(arguments).stdin(Stdio::null());
    let output = command.output().await.expect("redis-cli is installed (Debian's package redis-tools)");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

const COMPARE_AND_DELETE: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

#[tokio::test]
async fn a_shell_script_with_redis_cli_is_excluded_and_excludes() {
    let server = RedisServer::start();
    let locks = locks(&server).await;
    let ours = locks.mutex("job").lock().await.unwrap();
    assert_eq!(redis_cli(&server, &["SET", "job", "theirs", "NX", "PX", "60000"]).await, "");
    assert_eq!(redis_cli(&server, &["EVAL", COMPARE_AND_DELETE, "1", "job", "theirs"]).await, "0");
    assert!(ours.is_held());
    ours.unlock().await.unwrap();

    assert_eq!(redis_cli(&server, &["SET", "job", "theirs", "NX", "PX", "60000"]).await, "OK");
    assert!(locks.mutex("job").try_lock().await.unwrap().is_none());
    let holder = locks.inspect("job").await.unwrap().into_holder().unwrap();
    assert_eq!(holder.owner.as_str(), "theirs");
    assert!(holder.remaining <= Duration::from_secs(60) && holder.remaining > BOUND);
    let waiting = tokio::spawn({
        let mutex = locks.mutex("job");
        async move { mutex.lock().await.unwrap() }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!waiting.is_finished());
    // It tells nobody: that costs its successor at most about a second.
    assert_eq!(redis_cli(&server, &["EVAL", COMPARE_AND_DELETE, "1", "job", "theirs"]).await, "1");
    let guard = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap();
    assert_eq!(redis_cli(&server, &["GET", "job"]).await, guard.owner().as_str());
}

/// A foreign hold without a message ends with its lease: its successor acts then.
#[tokio::test]
async fn a_foreign_lease_that_runs_out_is_noticed() {
    let server = RedisServer::start();
    let locks = locks(&server).await;
    assert_eq!(redis_cli(&server, &["SET", "job", "theirs", "NX", "PX", "400"]).await, "OK");
    let guard = locks.mutex("job").wait(BOUND).lock().await.unwrap();
    assert!(guard.is_held());
}

/// redis-py's `Lock`, told what to do line by line.
const REDIS_PY: &str = r#"
import sys, redis
lock = redis.Redis(port=int(sys.argv[1])).lock("job", timeout=60, blocking=False)
for line in sys.stdin:
    if line == "acquire\n":
        print(lock.acquire(), flush=True)
    else:
        lock.release()
        print("released", flush=True)
"#;

#[tokio::test]
async fn redis_py_is_excluded_and_excludes() {
    let server = RedisServer::start();
    let locks = locks(&server).await;
    let port = server.address().port().to_string();
    // Debian's own, which has Debian's package python3-redis.
    let mut command = Command::new("/usr/bin/python3");
    command.args(["-c", REDIS_PY, &port]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    let mut python = command.spawn().expect("python3 and python3-redis are installed");
    let mut orders = python.stdin.take().unwrap();
    let mut answers = BufReader::new(python.stdout.take().unwrap()).lines();
    let mut ask = async |order: &str| {
        orders.write_all(order.as_bytes()).await.unwrap();
        let answer = tokio::time::timeout(BOUND, answers.next_line()).await.unwrap();
        answer.unwrap().expect("python3-redis is installed")
    };
    let ours = locks.mutex("job").lock().await.unwrap();
    assert_eq!(ask("acquire\n").await, "False");
    ours.unlock().await.unwrap();
    assert_eq!(ask("acquire\n").await, "True");
    assert!(locks.mutex("job").try_lock().await.unwrap().is_none());
    assert_eq!(ask("release\n").await, "released");
    assert!(locks.mutex("job").try_lock().await.unwrap().is_some());
}
