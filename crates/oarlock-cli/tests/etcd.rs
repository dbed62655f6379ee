//! The program on etcd: nothing but the URL is another than with Redis.
#![cfg(all(feature = "etcd", feature = "redis"))]

mod common;

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use common::{Place, code};
use test_servers::{EtcdCluster, RedisServer};

#[test]
fn etcd_for_redis_is_another_url() {
    let (cluster, redis) = (EtcdCluster::start(1), RedisServer::start());
    let place = Place::new();
    for url in [redis.url(), cluster.url()] {
        let mut holder = place.bare(&["run", "--url", &url, "job", "--", "sh", "-c", "echo $OARLOCK_TOKEN; read line"]);
        let mut holder = holder.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut first = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut first).unwrap();
        let first: u64 = first.trim().parse().unwrap();
        let refused = place.bare(&["run", "--url", &url, "--try", "job", "--", "true"]).output().unwrap();
        assert_eq!(code(refused.status), 1, "{refused:?}");
        let shown = place.bare(&["inspect", "--url", &url, "job", "--json"]).output().unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["holder"]["token"], first.to_string(), "{shown}");
        drop(holder.stdin.take());
        holder.wait().unwrap();
        let next =
            place.bare(&["run", "--url", &url, "job", "--", "sh", "-c", "echo $OARLOCK_TOKEN"]).output().unwrap();
        let next: u64 = String::from_utf8(next.stdout).unwrap().trim().parse().unwrap();
        assert!(next > first, "{next} after {first}");
    }
}
