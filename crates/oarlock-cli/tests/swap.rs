//! Another store is another URL, and nothing else.
#![cfg(all(feature = "redis", feature = "zookeeper"))]

mod common;

use std::process::Stdio;

use common::{Place, code};
use test_servers::{RedisServer, ZookeeperServers};

#[test]
fn two_runs_do_not_overlap_whatever_the_url() {
    let (redis, zookeeper) = (RedisServer::start(), ZookeeperServers::start());
    for url in [redis.url(), zookeeper.url()] {
        let place = Place::new();
        let script = "echo in >>log; sleep 0.2; echo out >>log";
        let start = |_| {
            let mut run = place.bare(&["--url", &url, "run", "job", "--", "sh", "-c", script]);
            run.stdout(Stdio::null()).spawn().unwrap()
        };
        let runs: Vec<_> = (0..3).map(start).collect();
        for mut run in runs {
            assert_eq!(code(run.wait().unwrap()), 0);
        }
        assert_eq!(place.lines("log"), ["in", "out"].repeat(3), "{url}");
        assert_eq!(place.bare(&["--url", &url, "inspect", "job"]).output().unwrap().stdout, b"free\n");
    }
}
