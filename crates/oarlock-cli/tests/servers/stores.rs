//! `oarlock run` and `oarlock elect` on every store with a server: nothing but the URL changes.

use std::fs::File;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::Value;
use test_servers::{MariaDbServer, PostgresServer, RedisServer, ZookeeperServers};

use crate::common::{Place, Running, code, wait_for};

fn works(url: &str) {
    runs(url);
    runs_once(url);
    leads(url);
}

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

/// One of two that come at the same time runs the job, and one that comes later skips it.
fn runs_once(url: &str) {
    let place = Place::new();
    let run = || {
        let mut command = place.bare(&["--url", url, "run", "once", "--once", "--slot", "1", "--skipped", "9"]);
        Running::start(command.args(["--", "sh", "-c", "echo >>ran; sleep 0.2"]))
    };
    let mut codes = [(); 2].map(|()| run()).map(Running::code);
    codes.sort_unstable();
    assert_eq!((codes, place.lines("ran").len()), ([0, 9], 1));
    let skipped = run().output();
    let told = String::from_utf8(skipped.stderr).unwrap();
    assert!(code(skipped.status) == 9 && told.contains("\"once@1\" is skipped: done by sh@"), "{told}");
    assert!(place.bare(&["--url", url, "evict", "once@1", "--yes"]).output().unwrap().status.success());
}

/// The next leader leads when the first one was asked to end, and all see which it is.
fn leads(url: &str) {
    let place = Place::new();
    let leader = || -> Value {
        let output = place.bare(&["--url", url, "leader", "x", "--json"]).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let elect = |value: &str| {
        let mut command = place.bare(&["--url", url, "elect", "x", "--value", value]);
        Running::start(command.args(["--", "sh", "-c", "echo >>led; sleep 1000"]))
    };
    let mut elected = elect("http://0");
    for round in 1..=2 {
        place.wait_lines("led", round);
        assert_eq!(leader()["holder"]["value"], format!("http://{}", round - 1));
        let next = elect(&format!("http://{round}"));
        elected.signal(Signal::SIGTERM);
        assert_eq!(elected.code(), 143);
        elected = next;
    }
    place.wait_lines("led", 3);
    elected.signal(Signal::SIGTERM);
    assert_eq!((elected.code(), leader()["state"].as_str()), (143, Some("free")));
}

#[test]
fn redis() {
    works(&RedisServer::start().url());
}

#[test]
fn postgres() {
    works(&PostgresServer::start().url());
}

#[test]
fn mysql() {
    works(&MariaDbServer::start().url());
}

#[test]
fn zookeeper() {
    works(&ZookeeperServers::start().url());
}

#[cfg(feature = "etcd")]
#[test]
fn etcd() {
    works(&test_servers::EtcdCluster::start(1).url());
}

/// A candidate comes while the store is away: it waits, and leads when the store is there.
#[test]
fn a_candidate_that_comes_before_its_store_leads_in_the_end() {
    let (server, place) = (RedisServer::start(), Place::new());
    server.pause();
    let told = File::create(place.path("told")).unwrap();
    let args = ["--url", &server.url(), "elect", "x", "--value", "v", "--", "sh", "-c", "echo >led"];
    let mut candidate = place.bare(&args).stderr(told).spawn().unwrap();
    wait_for("the trying on", || place.read("told").contains("trying on until the store is there").then_some(()));
    server.resume();
    place.wait_lines("led", 1);
    assert!(candidate.wait().unwrap().success(), "{}", place.read("told"));
    // A wrong password stays wrong.
    let wrong = server.url().replace("redis://", "redis://nobody:wrong@");
    let refused = place.bare(&["--url", &wrong, "elect", "x", "--value", "v", "--", "true"]).output().unwrap();
    assert_eq!(code(refused.status), 69, "{refused:?}");
}

/// The store stalls while a job comes to its end: it is told as soon as it answers again.
#[test]
fn a_store_that_was_away_hears_that_a_job_is_done() {
    let (server, place) = (RedisServer::start(), Place::new());
    let url = server.url();
    let once = |script: &str| {
        let args = ["--url", &url, "run", "job", "--once", "--slot", "1", "--skipped", "9", "--", "sh", "-c", script];
        place.bare(&args)
    };
    let told = File::create(place.path("told")).unwrap();
    let mut job = once("echo >started; sleep 1").stderr(told).spawn().unwrap();
    place.wait_lines("started", 1);
    server.pause();
    wait_for("the trying on", || place.read("told").contains("trying on for").then_some(()));
    server.resume();
    assert!(job.wait().unwrap().success(), "{}", place.read("told"));
    assert_eq!(code(once("echo >again").status().unwrap()), 9);
    assert_eq!(place.read("again"), "");
}
