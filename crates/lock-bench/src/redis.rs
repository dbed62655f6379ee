//! Redis without contention: a lock's two scripts against a bare `SET NX PX` and a compare-and-delete script by the same
//! client crate, on the same server.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{Claim, DistributedLock, LockName, OwnerId};
use lock_redis::RedisLock;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo, Script};
use test_servers::RedisServer;

use crate::Figure;

/// Long enough for any run.
const LEASE: Duration = Duration::from_secs(60);

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";

/// What is measured: all rounds of one kind of cycle.
#[derive(Default)]
struct Run {
    times: Vec<Duration>,
    took: Duration,
}

impl Run {
    fn middle(mut self) -> f64 {
        let at = self.times.len() / 2;
        self.times.select_nth_unstable(at).1.as_secs_f64()
    }

    fn rate(&self) -> f64 {
        self.times.len() as f64 / self.took.as_secs_f64()
    }
}

/// One task, the median cycle per bare one; and 64 tasks on 64 names, in cycles per bare one.
pub async fn uncontended(rounds: usize, each: Duration) -> [Figure; 2] {
    let server = RedisServer::start();
    let lock = Arc::new(RedisLock::connect(&server.url(), "bench").await.expect("a server"));
    let mut info = server.url().into_connection_info().expect("a URL");
    // As ours, or it would wait for more to send.
    info = info.set_tcp_settings(redis::io::tcp::TcpSettings::default().set_nodelay(true));
    let client = Client::open(info).expect("a URL");
    let patient = AsyncConnectionConfig::new().set_response_timeout(Some(LEASE));
    let bare = client.get_multiplexed_async_connection_with_config(&patient).await.expect("a server");
    let release = Arc::new(Script::new(RELEASE));
    let (mut times, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        for tasks in [1, 64] {
            let (bare, release, lock) = (bare.clone(), Arc::clone(&release), Arc::clone(&lock));
            let base = run(tasks, each, move |task| bare_cycle(bare.clone(), Arc::clone(&release), task)).await;
            let ours = run(tasks, each, move |task| our_cycle(Arc::clone(&lock), task)).await;
            println!("    redis, {tasks} tasks: {:.0} cycles/s, bare pair {:.0} cycles/s", ours.rate(), base.rate());
            match tasks {
                1 => times.push(ours.middle() / base.middle()),
                _ => rates.push(ours.rate() / base.rate()),
            }
        }
    }
    [
        Figure::at_most("redis: lock + unlock, median time / bare pair", times, 1.25),
        Figure::at_least("redis: 64 tasks on 64 names, rate / bare pair", rates, 0.55),
    ]
}

async fn our_cycle(lock: Arc<RedisLock>, task: usize) {
    let name = LockName::new(&task.to_string()).expect("a name");
    let claim = Claim::new(name, OwnerId::from_store(&format!("bench@host:1#{task}")), LEASE);
    lock.lock(&claim).await.expect("free");
    lock.unlock(&claim).await.expect("held");
}

async fn bare_cycle(mut bare: MultiplexedConnection, release: Arc<Script>, task: usize) {
    let (key, owner) = (format!("bare:{task}"), format!("bench@host:1#{task}"));
    let mut set = redis::cmd("SET");
    set.arg(&key).arg(&owner).arg("NX").arg("PX").arg(60_000).exec_async(&mut bare).await.expect("free");
    let released: i64 = release.key(&key).arg(&owner).invoke_async(&mut bare).await.expect("held");
    assert_eq!(released, 1);
}

/// Runs cycles in so many tasks, for this long.
async fn run<F>(tasks: usize, during: Duration, cycle: impl Fn(usize) -> F + Clone + Send + 'static) -> Run
where
    F: Future<Output = ()> + Send,
{
    let start = Instant::now();
    let running: Vec<_> = (0..tasks)
        .map(|task| {
            let cycle = cycle.clone();
            tokio::spawn(async move {
                let mut times = Vec::new();
                while start.elapsed() < during {
                    let begun = Instant::now();
                    cycle(task).await;
                    times.push(begun.elapsed());
                }
                times
            })
        })
        .collect();
    let mut all = Run::default();
    for task in running {
        all.times.extend(task.await.expect("no panic"));
    }
    all.took = start.elapsed();
    all
}
