//! `oarlock fence check`: scripts that refuse a holder that comes too late.

use std::process::{Command, Output};
use std::time::Duration;

use crate::common::{Place, Running, code};

const PROGRAM: &str = env!("CARGO_BIN_EXE_oarlock");

/// `oarlock fence check --file state ARGS…` of the holder of `a` with this token.
fn check(place: &Place, token: &str, args: &[&str]) -> Command {
    let mut command = place.bare(&[&["fence", "check", "--file", "state"], args].concat());
    command.env("OARLOCK_NAME", "a").env("OARLOCK_TOKEN", token);
    command
}

#[track_caller]
fn ends(output: &Output, with: i32, says: &str) {
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(code(output.status) == with && told.contains(says), "{with} {says:?}: {output:?}");
}

#[track_caller]
fn passes(output: &Output) {
    ends(output, 0, "");
    assert!(output.stdout.is_empty() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn a_holder_that_comes_too_late_is_refused() {
    let place = Place::new();
    for token in ["7", "7", "9"] {
        passes(&check(&place, token, &[]).output().unwrap());
    }
    let late = check(&place, "7", &[]).output().unwrap();
    ends(&late, 75, "token 7 was refused, as 9 was seen already");
    ends(&check(&place, "8", &["--", "touch", "written"]).output().unwrap(), 75, "8");
    assert!(!place.path("written").exists(), "the command of a late holder does not run");
    // Of another lock it is the first.
    passes(&check(&place, "7", &["--name", "b"]).output().unwrap());
    passes(&check(&place, "7", &["--token", "10"]).output().unwrap());
    assert_eq!(place.read("state"), "oarlock-fence 1\n10 - a\n7 - b\n\n");
}

/// The tokens come from the locks, in each way in which these are held.
#[test]
fn each_run_passes_its_token_on() {
    let place = Place::new();
    let runs = |args: &[&str], script: &str| {
        let mut command = place.oarlock(&["run"]);
        command.args(args).args(["--", "sh", "-c", &format!("fence() {{ {PROGRAM} fence check \"$@\"; }}; {script}")]);
        command.output().unwrap()
    };
    passes(&runs(&["a"], "echo $OARLOCK_TOKEN >first; fence --file state"));
    passes(&runs(&["a"], "fence --file state && fence --file state"));
    ends(&runs(&["b"], "fence --file state --name a --token $(cat first)"), 75, "was seen already");
    // A reader leaves nothing, and may come in any order.
    passes(&runs(&["c", "--shared"], "fence --file readers && test ! -e readers"));
    passes(&runs(&["exports", "--of", "3", "--permits", "2"], "fence --file permits"));
    let permits = place.read("permits");
    assert!(permits.contains(" 0 exports\n") && permits.contains(" 1 exports\n"), "{permits}");
    let both = "fence --file both && fence --file both --name e && fence --file both --name f";
    ends(&runs(&["d", "--also", "e"], both), 64, "\"f\" is none of the locks that are held (d, e)");
    let marks = place.lines("both");
    assert!(marks[1].ends_with(" - d") && marks[2].ends_with(" - e"), "{marks:?}");
    assert_ne!(marks[1].split(' ').next(), marks[2].split(' ').next(), "each has its own token");
}

/// What the environment says of one lock is not taken for another's.
#[test]
fn a_run_within_a_run_has_only_its_own_variables() {
    let place = Place::new();
    let script = "echo $OARLOCK_NAME ${OARLOCK_SHARED-none} ${OARLOCK_SLOT-none} ${OARLOCK_TOKENS-none}";
    for outer in [&["a", "--of", "2"][..], &["a", "--shared"], &["a", "--also", "c"]] {
        let mut command = place.oarlock(&["run"]);
        command.args(outer).args(["--", PROGRAM, "run", "b", "--", "sh", "-c", script]);
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "b none none none\n", "{outer:?} {output:?}");
    }
}

#[test]
fn the_command_runs_as_it_is() {
    let place = Place::new();
    let run = |command: &[&str]| check(&place, "7", &[&["--"], command].concat()).output().unwrap();
    let output = run(&["sh", "-c", "echo $OARLOCK_TOKEN; exit 9"]);
    assert_eq!((code(output.status), &output.stdout[..]), (9, &b"7\n"[..]));
    assert_eq!(code(run(&["sh", "-c", "kill -TERM $$"]).status), -15);
    ends(&run(&["./none"]), 127, "cannot run ./none");
    ends(&run(&["/dev/null"]), 126, "cannot run /dev/null");
    // Nobody of them has kept its turn.
    passes(&check(&place, "7", &[]).output().unwrap());
}

/// Between the check and the end of the command, no later holder passes; a command that is stopped has its turn still.
#[test]
fn a_later_holder_waits_for_the_command() {
    let place = Place::new();
    let start = |token: &str, script: &str| Running::start(&mut check(&place, token, &["--", "sh", "-c", script]));
    let go = "until [ -e go ]; do sleep 0.01; done";
    let first = start("7", &format!("echo begin >>log; {go}; echo end >>log"));
    place.wait_lines("log", 1);
    let mut second = start("9", "echo later >>log");
    std::thread::sleep(Duration::from_millis(200));
    assert!(!second.has_ended());
    std::fs::write(place.path("go"), "").unwrap();
    assert_eq!((first.code(), second.code()), (0, 0));
    assert_eq!(place.lines("log"), ["begin", "end", "later"]);
    ends(&check(&place, "7", &[]).output().unwrap(), 75, "9 was seen already");
}

/// Those who do not exclude each other by the lock do not wait for each other.
#[test]
fn readers_and_permits_run_beside_each_other() {
    for (name, options) in
        [("reader", [["--shared"].as_slice(), &["--shared"]]), ("permit", [&["--slot", "0"], &["--slot", "1"]])]
    {
        let place = Place::new();
        // Each ends when both have begun.
        let script = "echo >>log; until [ $(wc -l <log) = 2 ]; do sleep 0.01; done";
        let running = options.map(|options| {
            let args = [options, &["--", "sh", "-c", script]].concat();
            Running::start(&mut check(&place, "7", &args))
        });
        assert_eq!(running.map(Running::code), [0, 0], "{name}");
    }
}

#[test]
fn what_cannot_be_checked_says_why() {
    let place = Place::new();
    let bare = |args: &[&str]| place.bare(&[&["fence", "check"], args].concat()).output().unwrap();
    ends(&bare(&[]), 64, "--file");
    ends(&bare(&["--file", "state"]), 64, "run this by oarlock run, or use --name NAME");
    ends(&bare(&["--file", "state", "--name", "a"]), 64, "run this by oarlock run, or use --token TOKEN");
    ends(&check(&place, "seven", &[]).output().unwrap(), 64, "$OARLOCK_TOKEN has \"seven\"");
    ends(&bare(&["--file", "state", "--name", "a", "--token", "-7"]), 64, "");
    ends(&bare(&["--file", "none/state", "--name", "a", "--token", "7"]), 71, "cannot find none/state");
    std::fs::write(place.path("data"), "something of mine").unwrap();
    ends(&bare(&["--file", "data", "--name", "a", "--token", "7", "--", "touch", "written"]), 64, "move this one away");
    assert_eq!(place.read("data"), "something of mine");
    assert!(!place.path("written").exists());
}
