//! A command does not outlive its lock.

use std::time::{Duration, Instant};

use crate::common::{Place, code, is_alive, is_stopped, wait_dead, wait_for};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const LEASE: Duration = Duration::from_secs(2);
const LEASE_ARG: &str = "2s";

/// A shell, its child, and a child of a shell in between: the pids of all, each on its line.
const FAMILY: &str = "
    echo $$ >>pids
    sh -c 'echo $$ >>pids; sleep 1000 & echo $! >>pids; wait' &
    sleep 1000 & echo $! >>pids
    wait";

#[test]
fn an_evicted_run_is_ended_with_its_family() {
    let place = Place::new();
    let run = place.start(&["job", "--lease", LEASE_ARG], FAMILY);
    let pids = place.wait_lines("pids", 4);
    assert_eq!(code(place.output(&["evict", "job", "--yes"]).status), 0);
    let output = run.output();
    assert_eq!(code(output.status), 75);
    assert!(String::from_utf8(output.stderr).unwrap().contains("lost"));
    wait_dead(&pids);
}

#[test]
fn who_ignores_sigterm_is_killed_after_the_grace() {
    let place = Place::new();
    let run = place.start(&["job", "--lease", LEASE_ARG, "--grace", "300ms"], &format!("trap '' TERM; {FAMILY}"));
    let pids = place.wait_lines("pids", 4);
    assert_eq!(code(place.output(&["evict", "job", "--yes"]).status), 0);
    assert_eq!(run.code(), 75);
    wait_dead(&pids);
}

#[test]
fn a_command_has_the_grace_to_clean_up() {
    let place = Place::new();
    // The shell ends at once; its child, which still cleans up, has the grace all the same.
    let script =
        "sh -c 'trap \"sleep 0.5; echo >cleaned; exit\" TERM; echo >started; while :; do sleep 0.02; done' & wait";
    let run = place.start(&["job", "--lease", LEASE_ARG, "--grace", "30s"], script);
    place.wait_lines("started", 1);
    assert_eq!(code(place.output(&["evict", "job", "--yes"]).status), 0);
    assert_eq!(run.code(), 75);
    assert_eq!(place.read("cleaned"), "\n");
}

#[test]
fn a_group_of_its_own_does_not_save_a_command() {
    let place = Place::new();
    let run = place.start(
        &["job", "--lease", LEASE_ARG, "--grace", "300ms"],
        "exec timeout 1000 sh -c '
        trap \"\" TERM; echo $$ >>pids; sleep 1000 & echo $! >>pids; wait'",
    );
    let pids = place.wait_lines("pids", 2);
    assert_eq!(code(place.output(&["evict", "job", "--yes"]).status), 0);
    assert_eq!(run.code(), 75);
    wait_dead(&pids);
}

#[test]
fn a_killed_oarlock_takes_its_command_with_it() {
    let place = Place::new();
    let run = place.start(&["job", "--lease", LEASE_ARG], FAMILY);
    let pids = place.wait_lines("pids", 4);
    let waiter = place.start(&["job", "--lease", LEASE_ARG], "date +%s.%N >next");
    run.signal(Signal::SIGKILL);
    let killed = Instant::now();
    wait_dead(&pids);
    place.wait_lines("next", 1);
    let waited = killed.elapsed();
    assert!(waited <= LEASE + Duration::from_secs(1), "the next holder came after {waited:?}");
    assert_eq!(waiter.code(), 0);
    assert_eq!(run.code(), -9);
}

#[test]
fn a_killed_oarlock_is_told_of_each_time() {
    let place = Place::new();
    for round in 1..=10 {
        let run = place.start(&[&format!("job {round}")], "echo $$ >>pids; sleep 1000");
        place.wait_lines("pids", round);
        run.signal(Signal::SIGKILL);
        // Its guardian has the same standard error, so that this is all until that has ended.
        let told = String::from_utf8(run.output().stderr).unwrap();
        assert_eq!(told, "oarlock: oarlock itself was killed: ending the command\n", "round {round}");
    }
}

#[test]
fn a_killed_guardian_takes_the_command_with_it() {
    let place = Place::new();
    let run = place.start(&["job"], &format!("echo $PPID >guardian; {FAMILY}"));
    let pids = place.wait_lines("pids", 4);
    let guardian = place.read("guardian").trim().parse().unwrap();
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(guardian), Signal::SIGKILL).unwrap();
    assert_eq!(run.code(), 137);
    wait_dead(&pids);
    assert_eq!(place.inspect("job")["held"], false);
}

#[test]
fn a_stopped_oarlock_loses_lock_and_command_in_time() {
    let place = Place::new();
    // What ignores SIGTERM would live on into the grace: none is given.
    let script = "trap '' TERM; echo $$ >pid; while :; do echo first >>log; sleep 0.005; done";
    let run = place.start(&["job", "--lease", LEASE_ARG, "--grace", "0"], script);
    let pids = place.wait_lines("pid", 1);
    let stopped = Instant::now();
    run.signal(Signal::SIGSTOP);
    let next = place.start(&["job", "--lease", LEASE_ARG], "echo next >>log; sleep 0.3; echo next >>log");
    assert_eq!(next.code(), 0);
    assert!(!is_alive(&pids[0]), "the command outlived its lock");
    std::thread::sleep((2 * LEASE).saturating_sub(stopped.elapsed()));
    run.signal(Signal::SIGCONT);
    let output = run.output();
    assert_eq!(code(output.status), 75);
    let log = place.lines("log");
    let handed_over = log.iter().position(|line| line == "next").unwrap();
    assert_eq!(log[handed_over..], ["next", "next"]);
}

#[test]
fn a_stopped_guardian_hears_what_was_said_meanwhile() {
    let place = Place::new();
    let run = place.start(&["job", "--lease", LEASE_ARG], "echo $PPID >guardian; sleep 0.3; exit 4");
    let guardian = Pid::from_raw(place.wait_lines("guardian", 1)[0].parse().unwrap());
    kill(guardian, Signal::SIGSTOP).unwrap();
    std::thread::sleep(2 * LEASE);
    kill(guardian, Signal::SIGCONT).unwrap();
    assert_eq!(run.code(), 4, "the lock was held all the time");
}

#[test]
fn a_stopped_command_is_ended_too() {
    let place = Place::new();
    let script = "trap 'echo >told; exit' TERM; echo $$ >pid; kill -STOP $$; sleep 1000 & wait";
    let run = place.start(&["job", "--lease", LEASE_ARG], script);
    let pids = place.wait_lines("pid", 1);
    wait_for("the stop", || is_stopped(&pids[0]).then_some(()));
    assert_eq!(code(place.output(&["evict", "job", "--yes"]).status), 0);
    assert_eq!(run.code(), 75);
    assert_eq!(place.read("told"), "\n", "it was killed without having been told");
    wait_dead(&pids);
}

#[test]
fn an_eviction_is_acted_on_before_the_lease_is_over() {
    let place = Place::new();
    let lease = Duration::from_secs(9);
    let run = place.start(&["job", "--lease", "9s"], "echo >started; sleep 1000");
    place.wait_lines("started", 1);
    assert_eq!(code(place.output(&["evict", "job", "--yes"]).status), 0);
    let evicted = Instant::now();
    assert_eq!(run.code(), 75);
    // It is noticed at the next renewal, of which there is one every third of the lease.
    assert!(evicted.elapsed() < lease / 2, "{:?}", evicted.elapsed());
}

#[test]
fn a_renewed_lock_is_not_lost() {
    let place = Place::new();
    let script = format!("sleep {}", 2 * LEASE.as_secs());
    assert_eq!(place.start(&["job", "--lease", LEASE_ARG], &script).code(), 0);
}
