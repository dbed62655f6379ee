//! `oarlock run --rate`.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::common::{Place, code};

#[test]
fn commands_begin_at_the_rate() {
    let place = Place::made();
    let began = Instant::now();
    let oarlock = env!("CARGO_BIN_EXE_oarlock");
    let script = format!(
        "for i in 1 2 3; do '{oarlock}' run mails --rate 5/s -- sh -c 'echo $OARLOCK_NAME >>log' || exit 1; done"
    );
    let workers: Vec<_> = (0..2)
        .map(|_| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script]).current_dir(place.path(".")).env("OARLOCK_URL", place.url());
            shell.spawn().unwrap()
        })
        .collect();
    for mut worker in workers {
        assert!(worker.wait().unwrap().success());
    }
    assert_eq!(place.lines("log"), ["mails"; 6]);
    // The first begins at once, and the others a fifth of a second apart.
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_command_whose_turn_comes_too_late_does_not_begin() {
    let place = Place::new();
    let rate = ["--rate", "1/h"];
    // The command's exit code and its variables are its own.
    let first = place
        .oarlock(&["run", "x", "--rate", "1/h", "--", "sh", "-c", "env >env; exit 7"])
        .env("OARLOCK_TOKEN", "5")
        .status();
    assert_eq!(code(first.unwrap()), 7);
    let variables = place.read("env");
    assert!(variables.contains("OARLOCK_NAME=x\n") && !variables.contains("OARLOCK_TOKEN"), "{variables}");
    for (args, expected, told) in [
        (&["--try"][..], 1, "lets nobody begin"),
        (&["--wait", "5s"], 1, "the permits come in "),
        (&["--wait", "5s", "-E", "9"], 9, "the permits come in "),
    ] {
        let output = place.output(&[&["run", "x"], &rate[..], args, &["--", "sh", "-c", "echo >>ran"]].concat());
        assert_eq!(code(output.status), expected, "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{output:?}");
    }
    assert_eq!(place.read("ran"), "");
    // It holds no lock.
    assert_eq!(place.inspect("x")["held"], false);
    assert_eq!(code(place.output(&["run", "y", "--rate", "1/h", "--", "no-such-program"]).status), 127);
}
