//! `oarlock run --once`: one of many runs the command, and the others skip it.

use std::process::Output;

use crate::common::{Place, code, wait_dead, wait_for};
use nix::sys::signal::Signal;

const SLOT: &[&str] = &["job", "--once", "--slot", "1"];

fn told(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// `oarlock run ARGS… -- sh -c SCRIPT`, to its end.
fn run(place: &Place, args: &[&str], more: &[&str], script: &str) -> Output {
    place.start(&[args, more].concat(), script).output()
}

/// One that skipped the command, with this exit code and one line that says why.
#[track_caller]
fn assert_skipped(output: &Output, expected: i32, says: &str) {
    assert_eq!(code(output.status), expected, "{output:?}");
    let told = told(output);
    assert!(told.lines().count() == 1 && told.contains("is skipped") && told.contains(says), "{told}");
}

#[test]
fn of_many_at_a_time_one_runs_the_command() {
    let place = Place::new();
    let runs: Vec<_> = (0..4).map(|_| place.start(SLOT, "echo >>ran; sleep 0.3")).collect();
    let outputs: Vec<_> = runs.into_iter().map(crate::common::Running::output).collect();
    assert_eq!(place.lines("ran").len(), 1);
    let (ran, skipped): (Vec<_>, Vec<_>) = outputs.iter().partition(|output| output.stderr.is_empty());
    assert_eq!((ran.len(), code(ran[0].status)), (1, 0));
    for output in skipped {
        assert_skipped(output, 0, "\"job@1\" is skipped");
        assert!(told(output).contains("sh@"), "{}", told(output));
    }
}

#[test]
fn one_that_comes_later_skips_what_is_done_and_runs_another_slot() {
    let place = Place::new();
    let first = run(&place, SLOT, &[], "echo \"$OARLOCK_NAME\" >>ran; echo $OARLOCK_TOKEN >>tokens; exit 3");
    assert_eq!((code(first.status), told(&first).as_str()), (3, ""), "the code is the command's");
    assert_skipped(&run(&place, SLOT, &[], "echo >>ran"), 0, "done by sh@");
    let later = run(&place, SLOT, &["--skipped", "9"], "echo >>ran");
    assert_skipped(&later, 9, " for another 23h 59m");
    let next = run(&place, &["job", "--once"], &["--slot", "2"], "echo \"$OARLOCK_NAME\" >>ran");
    assert_eq!(code(next.status), 0);
    assert_eq!(place.lines("ran"), ["job@1", "job@2"]);
    assert!(place.lines("tokens")[0].parse::<u64>().unwrap() > 0);
}

#[test]
fn a_kept_hold_is_shown_as_done() {
    let place = Place::new();
    assert_eq!(code(run(&place, &["job", "--once", "--at-least", "1h"], &[], "exit 0").status), 0);
    let status = place.inspect("job");
    assert_eq!((&status["held"], &status["holder"]["kept"]), (&true.into(), &true.into()));
    assert!((3_500_000..3_600_000).contains(&status["holder"]["remaining_ms"].as_u64().unwrap()));
    let leader: serde_json::Value =
        serde_json::from_slice(&place.output(&["leader", "job", "--json", "--exit-code"]).stdout).unwrap();
    assert_eq!((&leader["state"], &leader["held"]), (&"kept".into(), &status["held"]));
    assert_eq!(leader["holder"]["kept"], status["holder"]["kept"]);
    assert_eq!(code(place.output(&["leader", "job", "--exit-code"]).status), 0, "as `inspect` has it");
    let shown = String::from_utf8(place.output(&["inspect", "job"]).stdout).unwrap();
    assert!(shown.contains("done by sh@") && shown.contains(" for another 59m"), "{shown}");
    for look in [&["list"][..], &["top"]] {
        let table = String::from_utf8(place.output(look).stdout).unwrap();
        assert!(table.lines().count() == 2 && table.contains("done by sh "), "{table}");
    }
    let busy = place.start(&["job", "--try"], "exit 0").output();
    assert!(code(busy.status) == 1 && told(&busy).contains("\"job\" is done by sh@"), "{busy:?}");
    let busy = place.start(&["job", "--wait", "1s"], "exit 0").output();
    assert!(code(busy.status) == 1 && told(&busy).contains("keeps it for another"), "{busy:?}");
    // An operator has it run again.
    assert_eq!(code(place.output(&["evict", "job", "--yes"]).status), 0);
    assert_eq!(code(run(&place, &["job", "--once", "--at-least", "1h"], &[], "exit 5").status), 5);
}

#[test]
fn it_is_run_again_when_its_time_is_over() {
    let place = Place::new();
    let job = ["job", "--once", "--at-least", "3s"];
    assert_eq!(code(run(&place, &job, &[], "echo >>ran").status), 0);
    assert_skipped(&run(&place, &job, &[], "echo >>ran"), 0, "done by sh@");
    wait_for("the end of its time", || (place.inspect("job")["held"] == false).then_some(()));
    assert_eq!(code(run(&place, &job, &[], "echo >>ran").status), 0);
    assert_eq!(place.lines("ran").len(), 2);
}

#[test]
fn a_failure_counts_as_done_unless_it_is_to_be_run_again() {
    let place = Place::new();
    let again = ["job", "--once", "--slot", "2", "--again-on-failure"];
    for (args, expected) in [(SLOT, 0), (&again, 4)] {
        assert_eq!(code(run(&place, args, &[], "exit 4").status), 4);
        assert_eq!(code(run(&place, args, &["--skipped", "0"], "exit 4").status), expected);
    }
    assert_eq!(code(run(&place, &again, &[], "exit 0").status), 0);
    assert_skipped(&run(&place, &again, &[], "exit 4"), 0, "done by");
}

/// It may be that this host alone has no such command.
#[test]
fn what_cannot_be_started_is_not_done() {
    let place = Place::new();
    std::fs::write(place.path("text"), "").unwrap();
    for (command, expected) in [("./missing", 127), ("./missing", 127), ("./text", 126)] {
        let output = place.output(&["run", "job", "--once", "--slot", "1", "--", command]);
        assert_eq!(code(output.status), expected, "{output:?}");
    }
    // A shell that did not find a command has begun.
    assert_eq!(code(run(&place, SLOT, &[], "exit 127").status), 127);
    assert_skipped(&run(&place, SLOT, &[], "exit 0"), 0, "done by");
}

#[test]
fn a_signal_is_passed_on_and_counts_as_a_failure() {
    let place = Place::new();
    let again = ["job", "--once", "--slot", "1", "--again-on-failure"];
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let script = "trap 'exit 0' TERM INT; echo >>started; while :; do sleep 0.02; done";
        let started = place.lines("started").len();
        let asked = place.start(&again, script);
        place.wait_lines("started", started + 1);
        asked.signal(signal);
        assert_eq!(asked.code(), 0, "the command's own code");
    }
    // Where a failure counts as done, that one does.
    let asked = place.start(&["other", "--once", "--slot", "1"], "echo >other; sleep 1000");
    place.wait_lines("other", 1);
    asked.signal(Signal::SIGTERM);
    assert_eq!(asked.code(), 143);
    assert_skipped(&run(&place, &["other", "--once", "--slot", "1"], &[], "exit 0"), 0, "done by");
}

#[test]
fn a_job_that_lost_its_lock_is_ended_and_run_again() {
    let place = Place::new();
    let job = place.start(&[SLOT, &["--lease", "2s"]].concat(), "echo $$ >>pids; sleep 1000");
    let pids = place.wait_lines("pids", 1);
    assert_eq!(code(place.output(&["evict", "job@1", "--yes"]).status), 0);
    let output = job.output();
    assert!(code(output.status) == 75 && told(&output).contains("\"job@1\" was lost"), "{output:?}");
    wait_dead(&pids);
    assert_eq!(code(run(&place, SLOT, &[], "exit 6").status), 6);
}

#[test]
fn a_job_that_takes_too_long_is_ended_before_another_runs_it() {
    let place = Place::new();
    // It ends only when it is killed, at the end of the grace.
    let script = "trap '' TERM; echo $$ >pids; while :; do echo first >>log; sleep 0.02; done";
    let job = place.start(&[SLOT, &["--at-most", "2s", "--grace", "500ms"]].concat(), script);
    let pids = place.wait_lines("pids", 1);
    wait_for("another", || {
        let other = run(&place, SLOT, &[], "echo next >>log; sleep 0.2; exit 8");
        (code(other.status) == 8).then_some(())
    });
    wait_dead(&pids);
    let output = job.output();
    let told = told(&output);
    assert!(code(output.status) == 75 && told.contains("took longer than --at-most 2s"), "{output:?}");
    assert!(told.contains("held for as long as it may be") && !told.contains("lost"), "{told}");
    assert_eq!(place.lines("log").last().unwrap(), "next");
}

#[test]
fn a_job_whose_oarlock_was_killed_is_run_again_after_the_lease() {
    let place = Place::new();
    let job = place.start(&[SLOT, &["--lease", "2s"]].concat(), "echo $$ >pids; sleep 1000");
    let pids = place.wait_lines("pids", 1);
    job.signal(Signal::SIGKILL);
    wait_for("another", || (code(run(&place, SLOT, &[], "exit 8").status) == 8).then_some(()));
    wait_dead(&pids);
    assert_eq!(job.code(), -9);
}

#[test]
fn what_a_store_or_a_name_does_not_take_is_refused() {
    let place = Place::new();
    let long = "x".repeat(510);
    for (args, expected, says) in [
        (&["job", "--once", "--slot", "1", "--at-most", "1ms"][..], 78, "--at-most is 1ms, shorter than"),
        (&["job", "--once", "--at-least", "400d"], 64, "--at-least <DURATION>': it is longer than 366 days"),
        (
            &["job", "--once", "--slot", "1", "--at-most", "367d"],
            64,
            "--at-most <DURATION>': it is longer than 366 days",
        ),
        (&["job", "--once", "--slot", &long], 64, "name"),
        (&["job", "--once", "--slot", "a\nb"], 64, "name"),
        (&["job", "--once", "--slot", "a@b"], 64, "cannot have an @"),
        (&["", "--once", "--slot", "1"], 64, "empty"),
    ] {
        let output = run(&place, args, &[], "echo >ran");
        assert_eq!(code(output.status), expected, "{args:?}: {output:?}");
        assert!(told(&output).contains(says), "{args:?}: {output:?}");
    }
    let no_store = ["run", "--url", "redis://127.0.0.1:1", "job", "--once", "--slot", "1", "--", "true"];
    assert_eq!(code(place.bare(&no_store).output().unwrap().status), 69);
    assert_eq!(place.read("ran"), "");
}
