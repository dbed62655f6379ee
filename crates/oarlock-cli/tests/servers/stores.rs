//! `oarlock run` on every store with a server: nothing but the URL changes.

use std::process::Command;

use test_servers::{MariaDbServer, PostgresServer, RedisServer, ZookeeperServers};

use crate::common::Place;

/// Two runs at once, which do not overlap; the second one's token is higher.
fn runs(url: &str) {
    let place = Place::new();
    let run = || -> Command {
        let mut command = place.bare(&["--url", url, "run", "--wait", "60s", "job", "--", "sh", "-c"]);
        command.arg("echo start $OARLOCK_TOKEN >> log; sleep 0.2; echo end $OARLOCK_TOKEN >> log");
        command
    };
    let mut runs = [(); 2].map(|()| run().spawn().unwrap());
    for run in &mut runs {
        assert!(run.wait().unwrap().success());
    }
    let lines = place.lines("log");
    let tokens: Vec<u64> = lines.iter().map(|line| line.split(' ').nth(1).unwrap().parse().unwrap()).collect();
    assert_eq!(tokens.len(), 4);
    assert!(tokens[0] == tokens[1] && tokens[1] < tokens[2] && tokens[2] == tokens[3], "{lines:?}");
    let held = place.bare(&["--url", url, "list", "--json"]).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&held.stdout).trim(), "[]");
}

#[test]
fn redis() {
    runs(&RedisServer::start().url());
}

#[test]
fn postgres() {
    runs(&PostgresServer::start().url());
}

#[test]
fn mysql() {
    runs(&MariaDbServer::start().url());
}

#[test]
fn zookeeper() {
    runs(&ZookeeperServers::start().url());
}

#[cfg(feature = "etcd")]
#[test]
fn etcd() {
    runs(&test_servers::EtcdCluster::start(1).url());
}
