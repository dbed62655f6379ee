//! `oarlock run` when nothing goes wrong with the lock.

use std::fs;
use std::process::{Command, Stdio};

use crate::common::{Place, code, is_stopped, wait_for};
use nix::sys::signal::Signal;

#[test]
fn two_runs_do_not_overlap() {
    let place = Place::new();
    let script = "echo in >>log; sleep 0.2; echo out >>log";
    let runs: Vec<_> = (0..3).map(|_| place.start(&["job"], script)).collect();
    for run in runs {
        assert_eq!(run.code(), 0);
    }
    assert_eq!(place.lines("log"), ["in", "out"].repeat(3));
}

#[test]
fn a_counter_loses_no_update() {
    let place = Place::new();
    fs::write(place.path("n"), "0\n").unwrap();
    let increment = "n=$(cat n); echo $((n + 1)) >n";
    let oarlock = env!("CARGO_BIN_EXE_oarlock");
    let script = format!("for i in $(seq 250); do '{oarlock}' run counter -- sh -c '{increment}' || exit 1; done");
    let workers: Vec<_> = (0..4)
        .map(|_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).current_dir(place.path(".")).env("OARLOCK_URL", place.url());
            shell.spawn().unwrap()
        })
        .collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    assert_eq!(place.read("n"), "1000\n");
}

#[test]
fn the_exit_code_is_the_commands() {
    let place = Place::new();
    for (script, expected) in
        [("exit 0", 0), ("exit 3", 3), ("exit 255", 255), ("kill -9 $$", 137), ("kill -15 $$", 143)]
    {
        let output = place.output(&["run", "job", "--", "sh", "-c", script]);
        assert_eq!(code(output.status), expected, "{script}");
        assert!(output.stderr.is_empty(), "{script}: {output:?}");
    }
    fs::write(place.path("text"), "x").unwrap();
    assert_eq!(code(place.output(&["run", "job", "--", "./missing"]).status), 127);
    assert_eq!(code(place.output(&["run", "job", "--", "./text"]).status), 126);
    assert_eq!(place.inspect("job")["held"], false);
}

#[test]
fn a_conflict_has_a_code_of_its_own() {
    let place = Place::new();
    let holder = place.start(&["job"], "echo >started; read line <wait || sleep 1000");
    place.wait_lines("started", 1);
    for (args, expected) in [
        (&["--try"][..], 1),
        (&["--try", "-E", "99"], 99),
        (&["--wait", "100ms"], 1),
        (&["--wait", "100ms", "-E", "0"], 0),
    ] {
        let output = place.start(&[&["job"], args].concat(), "echo >>ran").output();
        assert_eq!(code(output.status), expected, "{args:?}");
        let told = String::from_utf8(output.stderr).unwrap();
        assert!(told.contains("job") && told.contains("sh@"), "the holder is named: {told}");
    }
    assert_eq!(place.read("ran"), "");
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.code(), 143);
    assert_eq!(place.start(&["job", "--try"], "echo >>ran").code(), 0);
    assert_eq!(place.read("ran"), "\n");
}

#[test]
fn the_command_finds_the_name_and_a_rising_token() {
    let place = Place::new();
    let mut last = 0;
    for _ in 0..3 {
        let output = place.start(&["a name"], "echo \"$OARLOCK_NAME\"; echo $OARLOCK_TOKEN").output();
        let text = String::from_utf8(output.stdout).unwrap();
        let (name, token) = text.trim().split_once('\n').unwrap();
        let token: u64 = token.parse().unwrap();
        assert_eq!(name, "a name");
        assert!(token > last);
        last = token;
    }
}

#[test]
fn input_and_output_pass_through() {
    let place = Place::new();
    fs::write(place.path("in"), "hello\n").unwrap();
    let mut command = place.oarlock(&["run", "job", "--", "sh", "-c", "cat; echo told >&2"]);
    let output = command.stdin(fs::File::open(place.path("in")).unwrap()).output().unwrap();
    assert_eq!(output.stdout, b"hello\n");
    assert_eq!(output.stderr, b"told\n");
}

#[test]
fn the_command_inherits_nothing_of_ours() {
    let place = Place::new();
    let output = place.output(&["run", "job", "--", "sh", "-c", "ls -1 /proc/self/fd | wc -l"]);
    let direct = Command::new("sh").args(["-c", "ls -1 /proc/self/fd | wc -l"]).stdin(Stdio::null()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&direct.stdout));
}

#[test]
fn signals_are_passed_on() {
    let place = Place::new();
    let names = ["INT", "HUP", "QUIT", "USR1", "USR2"];
    let traps: String = names.map(|name| format!("trap 'echo {name} >>got' {name}; ")).concat();
    let script = format!("{traps} trap 'exit 7' TERM; echo >started; while :; do sleep 0.02; done");
    let run = place.start(&["job"], &script);
    place.wait_lines("started", 1);
    let signals = [Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGUSR1, Signal::SIGUSR2];
    for (sent, signal) in signals.into_iter().enumerate() {
        run.signal(signal);
        assert_eq!(place.wait_lines("got", sent + 1)[sent], names[sent]);
    }
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 7);
}

#[test]
fn signals_reach_a_command_that_left_the_group() {
    let place = Place::new();
    let inner = "trap 'exit 9' TERM; echo >started; while :; do sleep 0.02; done";
    let run = place.start(&["job"], &format!("exec setsid sh -c \"{inner}\""));
    place.wait_lines("started", 1);
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 9);
}

#[test]
fn a_stopped_command_can_be_terminated() {
    let place = Place::new();
    let run = place.start(&["job"], "echo $$ >pid; kill -STOP $$; sleep 1000");
    let pid = &place.wait_lines("pid", 1)[0];
    wait_for("the stop", || is_stopped(pid).then_some(()));
    run.signal(Signal::SIGTERM);
    assert_eq!(run.code(), 143);
}

#[test]
fn ignored_signals_stay_ignored() {
    let place = Place::new();
    let oarlock = env!("CARGO_BIN_EXE_oarlock");
    let script = format!("trap '' HUP; exec '{oarlock}' run job -- sh -c 'kill -HUP $$; echo survived'");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).env("OARLOCK_URL", place.url());
    assert_eq!(shell.output().unwrap().stdout, b"survived\n");
}

#[test]
fn an_interrupted_wait_leaves_the_queue() {
    let place = Place::new();
    let holder = place.start(&["job"], "echo >started; sleep 1000");
    place.wait_lines("started", 1);
    for (signal, expected) in [(Signal::SIGINT, 130), (Signal::SIGTERM, 143)] {
        let mut command = place.oarlock(&["run", "job", "--", "sh", "-c", "echo >>ran"]);
        let mut waiter = command.env("OARLOCK_FAIR", "true").spawn().unwrap();
        wait_for("the ticket", || (place.inspect("job")["waiters"].as_array().unwrap().len() == 1).then_some(()));
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(waiter.id() as i32), signal).unwrap();
        assert_eq!(code(waiter.wait().unwrap()), expected);
        assert_eq!(place.inspect("job")["waiters"], serde_json::json!([]));
    }
    holder.signal(Signal::SIGTERM);
    assert_eq!(holder.code(), 143);
    assert_eq!(place.start(&["job", "--try"], "exit 0").code(), 0);
    assert_eq!(place.read("ran"), "");
}

#[test]
fn several_locks_are_held_together() {
    let place = Place::new();
    let script = "echo \"$OARLOCK_NAME\" >>held; echo \"$OARLOCK_TOKEN\" >>held; echo \"$OARLOCK_TOKENS\" >>held; \
                  echo >>held; exec sleep 1000";
    let both = place.start(&["b", "--also", "a", "--also", "b"], script);
    let held = place.wait_lines("held", 4);
    let tokens: serde_json::Value = serde_json::from_str(&held[2]).unwrap();
    assert_eq!((held[0].as_str(), tokens["b"].as_str()), ("b", Some(held[1].as_str())));
    assert!(tokens["a"].is_string() && tokens.as_object().unwrap().len() == 2, "{tokens}");
    assert_eq!((&place.inspect("a")["held"], &place.inspect("b")["held"]), (&true.into(), &true.into()));
    // One of two is not free: the other is not kept.
    let output = place.output(&["run", "0", "--also", "a", "--try", "--", "true"]);
    assert_eq!(code(output.status), 1, "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("\"a\" is held by sh@"), "{output:?}");
    assert_eq!(place.inspect("0")["held"], false);
    both.signal(Signal::SIGTERM);
    assert_eq!(both.code(), 143);
    assert_eq!((&place.inspect("a")["held"], &place.inspect("b")["held"]), (&false.into(), &false.into()));
}

#[test]
fn the_loss_of_one_of_several_ends_the_command() {
    let place = Place::new();
    let both = place.start(&["a", "--also", "b", "--lease", "3s"], "echo >held; exec sleep 1000");
    place.wait_lines("held", 1);
    assert_eq!(code(place.output(&["evict", "b", "--yes"]).status), 0);
    let output = both.output();
    assert_eq!(code(output.status), 75, "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("\"b\": "), "{output:?}");
    assert_eq!(place.inspect("a")["held"], false);
}

#[test]
fn opposite_orders_are_no_deadlock() {
    let place = Place::made();
    let oarlock = env!("CARGO_BIN_EXE_oarlock");
    let workers: Vec<_> = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"]]
        .map(|[one, two, three]| {
            let run =
                format!("'{oarlock}' run {one} --also {two} --also {three} --wait 60s -- sh -c 'echo in; echo out'");
            let script = format!("for i in $(seq 20); do {run} >>log || exit 1; done");
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).current_dir(place.path(".")).env("OARLOCK_URL", place.url());
            shell.spawn().unwrap()
        })
        .into();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    assert_eq!(place.lines("log"), ["in", "out"].repeat(60));
}

#[test]
fn one_of_several_locks_is_shared() {
    let place = Place::new();
    let held = "echo \"$OARLOCK_SHARED\" >>held; exec sleep 1000";
    let reader = place.start(&["catalog", "--shared"], held);
    place.wait_lines("held", 1);
    let both = place.start(&["accounts", "--also-shared", "catalog"], held);
    assert_eq!(place.wait_lines("held", 2), ["1", ""]);
    for (args, free) in [
        (&["accounts", "--try"][..], false),
        (&["catalog", "--try"], false),
        (&["catalog", "--shared", "--also", "other", "--try"], true),
        (&["exports", "--of", "2", "--also-shared", "catalog", "--try"], true),
        (&["exports", "--of", "2", "--also", "catalog", "--try"], false),
    ] {
        assert_eq!(place.start(args, "exit 0").code(), if free { 0 } else { 1 }, "{args:?}");
    }
    for run in [reader, both] {
        run.signal(Signal::SIGTERM);
        assert_eq!(run.code(), 143);
    }
}
