//! A fleet moves from Redis to ZooKeeper, one by one, while it counts.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use test_servers::{RedisServer, ZookeeperServers};

use crate::common::{Place, wait_for};

/// Reads, waits, and writes: who is not alone loses an update. The token is that of the run.
const COUNT: &str = "n=$(cat count); sleep 0.02; echo $((n+1)) > count; echo $OARLOCK_TOKEN >> tokens";

const PROCESSES: usize = 4;

/// Each process is one run of the program, started anew as soon as it has ended: with the URL that its place in the fleet
/// then has. Whoever moves has run there before the next one moves.
#[test]
fn a_fleet_moves_from_redis_to_zookeeper() {
    let (redis, zookeeper) = (RedisServer::start(), ZookeeperServers::start());
    let both = |tokens: &str| format!("both:?from={}&to={}&tokens={tokens}", redis.url(), zookeeper.url());
    let place = Place::new();
    fs::write(place.path("count"), "0\n").unwrap();
    let urls = [(); PROCESSES].map(|()| Mutex::new(redis.url()));
    let runs = [(); PROCESSES].map(|()| AtomicUsize::new(0));
    let over = AtomicBool::new(false);
    let run = |number: usize| {
        while !over.load(Ordering::Relaxed) {
            let url = urls[number].lock().unwrap().clone();
            let mut command =
                place.bare(&["--url", &url, "run", "--wait", "60s", "orders/42", "--", "sh", "-c", COUNT]);
            let output = command.output().unwrap();
            assert!(output.status.success(), "{url}: {output:?}");
            runs[number].fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let run = &run;
        let workers = [0, 1, 2, 3].map(|number| scope.spawn(move || run(number)));
        // Also if this thread panics, which would otherwise wait for the others for ever.
        let over = Over(&over);
        for url in [redis.url(), both("from"), both("to"), zookeeper.url()] {
            for (number, moving) in urls.iter().enumerate() {
                moving.lock().unwrap().clone_from(&url);
                let before = runs[number].load(Ordering::Relaxed);
                // The first of them may have begun before it moved.
                wait_for("two runs after a move", || {
                    assert!(workers.iter().all(|worker| !worker.is_finished()), "a run failed");
                    (runs[number].load(Ordering::Relaxed) >= before + 2).then_some(())
                });
            }
        }
        drop(over);
    });
    let ran: usize = runs.iter().map(|runs| runs.load(Ordering::Relaxed)).sum();
    assert_eq!(place.read("count").trim(), ran.to_string(), "no update is lost");
    let tokens: Vec<u64> = place.lines("tokens").iter().map(|token| token.parse().unwrap()).collect();
    assert_eq!(tokens.len(), ran);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

/// Ends the workers when it goes.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
