//! `oarlock elect`, `oarlock leader` and `oarlock run --value`: who leads, and what it shows.

use std::fs::File;
use std::process::Stdio;

use crate::common::{Place, Running, code, is_alive, wait_dead, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

/// `oarlock elect NAME ARGS… -- sh -c SCRIPT`, started.
fn elect(place: &Place, args: &[&str], script: &str) -> Running {
    let mut command = place.oarlock(&["elect", "x"]);
    command.args(args).args(["--", "sh", "-c", script]);
    Running::start(&mut command)
}

fn text(place: &Place, args: &[&str]) -> String {
    String::from_utf8(place.output(args).stdout).unwrap()
}

fn waiters(place: &Place) -> usize {
    place.inspect("x")["waiters"].as_array().unwrap().len()
}

#[test]
fn the_leader_is_shown_and_the_next_one_leads_after_it() {
    let place = Place::made();
    assert_eq!(text(&place, &["leader", "x"]), "free\n");
    assert_eq!(code(place.output(&["leader", "x"]).status), 0, "as `inspect` has it");
    assert_eq!(code(place.output(&["leader", "x", "--exit-code"]).status), 1);
    let script = "echo \"$OARLOCK_NAME $OARLOCK_TOKEN\" >>led; sleep 1000";
    let first = elect(&place, &["--value", "http://a"], script);
    place.wait_lines("led", 1);
    let second = elect(&place, &["--value", "http://b"], script);
    wait_for("the second one", || (waiters(&place) == 1).then_some(()));

    let shown = text(&place, &["leader", "x"]);
    assert!(shown.starts_with("held by sh@") && shown.ends_with(": http://a\n"), "{shown}");
    assert_eq!(code(place.output(&["leader", "x", "--exit-code"]).status), 0);
    let json: Value = serde_json::from_str(&text(&place, &["leader", "x", "--json"])).unwrap();
    assert_eq!((&json["name"], &json["state"]), (&"x".into(), &"held".into()));
    assert_eq!((&json["holder"]["value"], &json["holder"]["pid"]), (&"http://a".into(), &first.pid().as_raw().into()));
    for look in [&["inspect", "x"][..], &["list"], &["top"]] {
        let table = text(&place, look);
        assert!(table.contains("VALUE") && table.contains("http://a") && !table.contains("http://b"), "{table}");
    }

    first.signal(Signal::SIGTERM);
    assert_eq!(first.code(), 143);
    let led = place.wait_lines("led", 2);
    assert!(text(&place, &["leader", "x"]).ends_with(": http://b\n"));
    let token = |line: &str| line.strip_prefix("x ").unwrap().parse::<u64>().unwrap();
    assert!(token(&led[1]) > token(&led[0]), "{led:?}");
    second.signal(Signal::SIGINT);
    assert_eq!(second.code(), 130);
    assert_eq!(text(&place, &["leader", "x"]), "free\n");
}

#[test]
fn it_ends_with_its_command() {
    let place = Place::new();
    for (script, expected) in [("exit 0", 0), ("exit 7", 7), ("kill -15 $$", 143)] {
        let output = elect(&place, &["--value", "v"], script).output();
        assert_eq!((code(output.status), output.stderr.is_empty()), (expected, true), "{script}: {output:?}");
    }
    let missing = place.output(&["elect", "x", "--value", "v", "--", "./missing"]);
    assert_eq!(code(missing.status), 127);
    assert_eq!(place.inspect("x")["held"], false);
}

#[test]
fn a_candidate_waits_for_a_store_that_is_away() {
    let place = Place::new();
    let elect = |url: &str| {
        let told = File::create(place.path("told")).unwrap();
        let mut command = place.bare(&["--url", url, "elect", "x", "--value", "v", "--", "sh", "-c", "echo >>led"]);
        command.stderr(told).spawn().unwrap()
    };
    let mut waits = elect("redis://127.0.0.1:1");
    place.wait_lines("told", 1);
    // Longer than until the next attempt, of which it says nothing new.
    std::thread::sleep(std::time::Duration::from_secs(3));
    let told = place.read("told");
    assert!(told.contains("127.0.0.1:1") && told.contains("trying on until the store is there"), "{told}");
    assert_eq!(told.lines().count(), 1, "{told}");
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(waits.id() as i32), Signal::SIGTERM).unwrap();
    assert_eq!(code(waits.wait().unwrap()), 143);
    // What is wrong stays wrong.
    for url in ["nonsense", "memory:", "redis://127.0.0.1:1?leese=1s", "paper://127.0.0.1"] {
        assert_eq!(code(elect(url).wait().unwrap()), 78, "{url}: {}", place.read("told"));
    }
    assert_eq!(place.read("led"), "");
}

#[test]
fn a_candidate_says_whom_it_waits_for() {
    let place = Place::new();
    let first = elect(&place, &["--value", "a"], "echo >led; sleep 1000");
    place.wait_lines("led", 1);
    let told = File::create(place.path("told")).unwrap();
    let mut command = place.oarlock(&["elect", "x", "--value", "b", "--", "true"]);
    let mut second = command.stderr(told).spawn().unwrap();
    let told = place.wait_lines("told", 1);
    assert!(told[0].starts_with("oarlock: waiting; \"x\" is led by sh@"), "{told:?}");
    first.signal(Signal::SIGTERM);
    assert_eq!((first.code(), code(second.wait().unwrap())), (143, 0));
    assert_eq!(place.lines("told").len(), 1);
}

#[test]
fn a_grace_that_the_lease_has_no_room_for_is_told() {
    let place = Place::new();
    let output = elect(&place, &["--value", "v", "--lease", "6s", "--grace", "30s"], "exit 0").output();
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("--grace 30s is cut to 1s") && told.contains("--lease 92s"), "{told}");
    let output = elect(&place, &["--value", "v", "--lease", "92s", "--grace", "30s"], "exit 0").output();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

#[test]
fn it_campaigns_again_after_a_loss() {
    let place = Place::new();
    let elected = elect(&place, &["--value", "v", "--lease", "2s"], "echo $$ >>pids; sleep 1000");
    for round in 1..=2 {
        let pids = place.wait_lines("pids", round);
        assert_eq!(code(place.output(&["evict", "x", "--yes"]).status), 0);
        place.wait_lines("pids", round + 1);
        wait_dead(&pids[round - 1..round]);
        assert!(text(&place, &["leader", "x"]).ends_with(": v\n"));
    }
    elected.signal(Signal::SIGTERM);
    let output = elected.output();
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!((code(output.status), told.matches("campaigns again").count()), (143, 2), "{told}");
}

#[test]
fn a_command_that_does_not_end_is_killed_before_another_leads() {
    let place = Place::new();
    let script = "trap '' TERM; echo $$ >pids; while :; do echo first >>log; sleep 0.02; done";
    let first = elect(&place, &["--value", "a", "--grace", "500ms"], script);
    let pids = place.wait_lines("pids", 1);
    let second = elect(&place, &["--value", "b"], "echo next >>log; sleep 0.2");
    wait_for("the second one", || (waiters(&place) == 1).then_some(()));
    first.signal(Signal::SIGTERM);
    assert_eq!(first.code(), 143);
    wait_dead(&pids);
    assert_eq!(second.code(), 0);
    assert_eq!(place.lines("log").last().unwrap(), "next");
}

#[test]
fn other_signals_are_passed_on_and_an_interrupted_campaign_leaves_the_line() {
    let place = Place::new();
    let script = "trap 'echo >>got' HUP USR1; echo >started; while :; do sleep 0.02; done";
    let leader = elect(&place, &["--value", "a"], script);
    place.wait_lines("started", 1);
    for (sent, signal) in [Signal::SIGHUP, Signal::SIGUSR1].into_iter().enumerate() {
        leader.signal(signal);
        place.wait_lines("got", sent + 1);
    }
    for (signal, expected) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let candidate = elect(&place, &["--value", "b"], "echo >>ran");
        wait_for("the candidate", || (waiters(&place) == 1).then_some(()));
        candidate.signal(signal);
        assert_eq!(candidate.code(), expected);
        assert_eq!(waiters(&place), 0);
    }
    leader.signal(Signal::SIGTERM);
    assert_eq!((leader.code(), place.read("ran").as_str()), (143, ""));
}

#[test]
fn an_elected_oarlock_that_is_killed_takes_its_command_with_it() {
    let place = Place::new();
    let first = elect(&place, &["--value", "a", "--lease", "2s"], "echo $$ >pids; sleep 1000");
    let pids = place.wait_lines("pids", 1);
    let second = elect(&place, &["--value", "b", "--lease", "2s"], "echo >led; sleep 1000");
    first.signal(Signal::SIGKILL);
    wait_dead(&pids);
    place.wait_lines("led", 1);
    assert!(text(&place, &["leader", "x"]).ends_with(": b\n"));
    second.signal(Signal::SIGTERM);
    assert_eq!((first.code(), second.code()), (-9, 143));
}

#[test]
fn a_command_has_ended_before_another_is_elected() {
    let place = Place::new();
    // It ends only when it is killed, and would have more grace than there is.
    let script = "trap '' TERM; echo $$ >>pids; while :; do echo first >>log; sleep 0.005; done";
    let first = elect(&place, &["--value", "a", "--lease", "3s", "--grace", "30s"], script);
    let pids = place.wait_lines("pids", 1);
    first.signal(Signal::SIGSTOP);
    let second = elect(&place, &["--value", "b"], "echo next >>log; echo >led; sleep 1000");
    place.wait_lines("led", 1);
    assert!(!is_alive(&pids[0]), "two lead");
    first.signal(Signal::SIGCONT);
    wait_for("the first one's campaign", || (waiters(&place) == 1).then_some(()));
    assert_eq!(place.lines("log").last().unwrap(), "next");
    for candidate in [first, second] {
        candidate.signal(Signal::SIGTERM);
        assert_eq!(candidate.code(), 143);
    }
}

#[test]
fn a_watcher_prints_a_line_for_each_change() {
    let place = Place::made();
    let watch = |file: &str, args: &[&str]| {
        let mut command = place.oarlock(&[&["leader", "x", "--watch"], args].concat());
        command.stdout(File::create(place.path(file)).unwrap()).stderr(Stdio::null()).spawn().unwrap()
    };
    let watchers = [watch("text", &[]), watch("json", &["--json"])];
    let mut lines = 0;
    let mut changed = || {
        lines += 1;
        (place.wait_lines("text", lines).pop().unwrap(), place.wait_lines("json", lines).pop().unwrap())
    };
    let state = |json: &str| serde_json::from_str::<Value>(json).unwrap()["state"].as_str().unwrap().to_owned();
    let (shown, json) = changed();
    assert_eq!((shown.as_str(), state(&json).as_str()), ("free", "free"));
    for value in ["http://a", "http://b"] {
        let leader = elect(&place, &["--value", value], "sleep 1000");
        let (shown, json) = changed();
        assert!(shown.starts_with("held by sh@") && shown.ends_with(&format!(": {value}")), "{shown}");
        let json: Value = serde_json::from_str(&json).unwrap();
        assert_eq!((&json["state"], &json["holder"]["value"]), (&"held".into(), &value.into()));
        leader.signal(Signal::SIGTERM);
        assert_eq!(leader.code(), 143);
        assert_eq!(changed().0, "free");
    }
    std::fs::rename(place.path("locks.db"), place.path("moved.db")).unwrap();
    let (shown, json) = changed();
    assert!(shown.starts_with("blind: ") && state(&json) == "blind", "{shown}");
    for (mut watcher, signal) in watchers.into_iter().zip([Signal::SIGTERM, Signal::SIGINT]) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(watcher.id() as i32), signal).unwrap();
        assert_eq!(code(watcher.wait().unwrap()), 128 + signal as i32);
    }
}

#[test]
fn a_run_shows_a_value_that_steers_no_terminal() {
    let place = Place::new();
    let value = "a\u{1b}[2J\r\nb\u{9b}31m\u{7f}";
    let holder = place.start(&["x", "--value", value], "echo >started; sleep 1000");
    place.wait_lines("started", 1);
    for look in [
        &["inspect", "x"][..],
        &["list"],
        &["top"],
        &["leader", "x"],
        &["inspect", "x", "--json"],
        &["list", "--json"],
        &["leader", "x", "--json"],
    ] {
        let shown = text(&place, look);
        assert!(!shown.contains(|c: char| c.is_control() && c != '\n'), "{look:?}: {shown:?}");
        assert!(shown.contains("[2J"), "{look:?}: {shown:?}");
    }
    assert_eq!(place.inspect("x")["holder"]["value"], value);
    // A value is no reason to wait, or not to.
    for args in [&["--try"][..], &["--wait", "100ms"]] {
        assert_eq!(place.start(&[&["x", "--value", "b", "-E", "9"], args].concat(), "exit 0").code(), 9, "{args:?}");
    }
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.code(), 143);
    let plain = place.start(&["x"], "echo >again; sleep 1000");
    place.wait_lines("again", 1);
    assert_eq!(place.inspect("x")["holder"]["value"], Value::Null);
    drop(plain);
}

/// Stopped between the grant and the start of its command, a candidate finds its lease over, and campaigns again.
#[test]
fn a_lease_that_is_over_before_the_command_begins_is_a_loss() {
    let place = Place::made();
    for round in 1..=6 {
        let told = format!("told-{round}");
        let file = File::create(place.path(&told)).unwrap();
        let args = ["-vv", "elect", "x", "--value", "v", "--lease", "1s", "--", "sh", "-c", "echo >>led; sleep 1000"];
        let mut candidate = Running::start_telling(&mut place.oarlock(&args), file);
        wait_for("the grant", || place.read(&told).contains("leads name=").then_some(()));
        candidate.signal(Signal::SIGSTOP);
        std::thread::sleep(std::time::Duration::from_millis(1500));
        candidate.signal(Signal::SIGCONT);
        // Either the command had begun, and was ended; or it had not. Then it is to begin in another term.
        let terms = || place.read(&told).matches("leads name=").count();
        wait_for("another term", || (terms() > 1 || candidate.has_ended()).then_some(()));
        assert!(!candidate.has_ended(), "{}", place.read(&told));
        candidate.signal(Signal::SIGTERM);
        assert_eq!(candidate.code(), 143, "{}", place.read(&told));
    }
}
