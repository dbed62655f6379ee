//! `oarlock compare` on a file and on a Redis server.

use std::process::{Command, Output};

use nix::sys::signal::Signal;
use serde_json::Value;
use test_servers::RedisServer;

use crate::common::{Place, Running, children, code, is_alive, is_stopped, wait_dead, wait_for};

/// Every figure, and whether it is there for every store.
const FIGURES: [(&str, bool); 28] = [
    ("alone_p50_us", true),
    ("alone_p99_us", true),
    ("names_per_s", true),
    ("tasks_per_s", true),
    ("tasks_p50_us", true),
    ("tasks_p99_us", true),
    ("pair_per_s", true),
    ("pair_p50_us", true),
    ("pair_p99_us", true),
    ("eight_per_s", true),
    ("eight_p50_us", true),
    ("eight_p99_us", true),
    ("eight_fairness", true),
    ("eight_longest_wait_us", true),
    ("wake_p50_us", true),
    ("wake_p99_us", true),
    ("recovery_us", true),
    ("read_p50_us", true),
    ("read_p99_us", true),
    ("readers_per_s", true),
    ("permit_p50_us", true),
    ("permit_p99_us", true),
    ("permits_per_s", true),
    ("permits_longest_wait_us", true),
    ("idle_core_share", true),
    ("renewals_us", true),
    ("alone_messages", false),
    ("eight_messages", false),
];

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// What is held on the server by whoever compares.
fn held(server: &RedisServer) -> Vec<String> {
    let port = server.address().port().to_string();
    let keys = Command::new("redis-cli").args(["-p", &port, "--scan", "--pattern", "compare-oarlock-*"]).output();
    String::from_utf8(keys.unwrap().stdout).unwrap().lines().map(str::to_owned).collect()
}

fn assert_nothing_is_left(place: &Place, server: &RedisServer, report: &Value) {
    let prefix = report["prefix"].as_str().unwrap();
    for url in [place.url(), server.url()] {
        let listed = place.output(&["list", "--json", "--url", &format!("{url}?prefix={prefix}")]);
        assert_eq!(json(&listed), serde_json::json!([]), "{url}");
    }
    assert_eq!(held(server), Vec::<String>::new());
}

#[test]
fn stores_are_measured_and_left_as_they_were() {
    let (place, server) = (Place::new(), RedisServer::start());
    let redis = format!("cache={}", server.url());
    let output = place.output(&["compare", &place.url(), &redis, "--seconds", "5", "--json", "--html", "page.html"]);
    assert_eq!(code(output.status), 0, "{output:?}");
    let page = place.read("page.html");
    assert!(page.ends_with("</html>\n") && page.contains(">cache</th>") && !page.contains("<script"), "{page}");
    let report = json(&output);
    assert_eq!((&report["complete"], &report["rounds"]), (&Value::Bool(true), &Value::from(3)));
    assert!(report["machine"]["cores"].as_u64() > Some(0) && report["started"].is_string());
    let backends = report["backends"].as_array().unwrap();
    let names: Vec<_> = backends.iter().map(|backend| backend["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["sqlite", "cache"]);
    for backend in backends {
        let name = &backend["name"];
        assert_eq!((&backend["overlaps"], &backend["failures"]), (&Value::from(0), &serde_json::json!([])), "{name}");
        assert!(backend["findings"].is_array() && backend["fair"] == true && backend["min_lease_ms"].is_u64());
        let found: Vec<_> = backend["figures"].as_object().unwrap().keys().map(String::as_str).collect();
        let everywhere = |always: bool| always || name == "cache";
        let mut expected: Vec<_> = FIGURES.iter().filter(|row| everywhere(row.1)).map(|row| row.0).collect();
        expected.sort_unstable();
        assert_eq!(found, expected, "{name}");
        for (key, figure) in backend["figures"].as_object().unwrap() {
            let [low, median, high] = ["low", "median", "high"].map(|part| figure[part].as_f64().unwrap());
            assert!(0.0 <= low && low <= median && median <= high && high > 0.0, "{name}: {key}: {figure}");
            assert!((1..=3).contains(&figure["rounds"].as_u64().unwrap()));
        }
        // Killed just after the grant, with a lease of 2 s: it was not passed on before, and not forgotten.
        assert!(backend["figures"]["recovery_us"]["low"].as_f64().unwrap() > 1e6);
        for step in ["alone", "eight", "wake"] {
            let bins = backend["distributions"][step].as_array().unwrap();
            assert!(bins.iter().all(|bin| bin["count"].as_u64() > Some(0) && bin["from_us"].as_f64() > Some(0.0)));
        }
    }
    // One request takes the lock, one gives it back; the rest is a look each second and the like.
    let messages = backends[1]["figures"]["alone_messages"]["median"].as_f64().unwrap();
    assert!((2.0..4.0).contains(&messages), "{messages}");
    assert_nothing_is_left(&place, &server, &report);
}

#[test]
fn interrupted_it_reports_what_it_has() {
    let (place, server) = (Place::new(), RedisServer::start());
    let running =
        Running::start(&mut place.oarlock(&["compare", &server.url(), &place.url(), "--seconds", "600", "--json"]));
    // The first step with the second store comes when that with the first is done.
    let workers = wait_for("a lock of the second store", || {
        let workers = children(&running);
        (place.path("locks.db-wal").metadata().is_ok_and(|file| file.len() > 100_000) && !workers.is_empty())
            .then_some(workers)
    });
    // Not SIGINT, which is ignored by whoever was started in the background.
    running.signal(Signal::SIGTERM);
    let output = running.output();
    assert_eq!(code(output.status), 143, "{output:?}");
    assert!(workers.iter().all(|worker| !is_alive(worker)), "no worker is left");
    let report = json(&output);
    assert_eq!(report["complete"], false);
    assert_eq!(report["backends"][0]["figures"]["alone_p50_us"]["rounds"], 1);
    assert_nothing_is_left(&place, &server, &report);
}

#[test]
fn killed_it_leaves_no_worker_and_no_lock() {
    let (place, server) = (Place::new(), RedisServer::start());
    let running = Running::start(&mut place.oarlock(&["compare", &server.url(), "--seconds", "600"]));
    // Stopped, it starts no more of them; but a step may have ended just before, and its worker with it.
    let workers = wait_for("a worker with a lock", || {
        if held(&server).is_empty() {
            return None;
        }
        running.signal(Signal::SIGSTOP);
        wait_for("the stop", || is_stopped(&running.pid().to_string()).then_some(()));
        let workers = children(&running);
        if workers.is_empty() {
            running.signal(Signal::SIGCONT);
        }
        Some(workers).filter(|workers| !workers.is_empty())
    });
    running.signal(Signal::SIGKILL);
    wait_dead(&workers);
    assert_eq!(held(&server), Vec::<String>::new());
}
