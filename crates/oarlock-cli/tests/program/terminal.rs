//! `oarlock run` as a job of an interactive shell.

use crate::common::{Place, Terminal, code, is_stopped, wait_for};

#[test]
fn the_command_reads_from_the_terminal() {
    let place = Place::new();
    let line = "$OARLOCK run job -- sh -c 'read line; echo \"$line\" >got; exit 5'";
    let output = Terminal::start(&place, line).type_in("hello\n").output();
    assert_eq!(code(output.status), 5, "{output:?}");
    assert_eq!(place.read("got"), "hello\n");
}

#[test]
fn control_c_reaches_the_command() {
    let place = Place::new();
    let line =
        "$OARLOCK run job -- sh -c 'trap \"echo >got; exit 6\" INT; echo >started; while :; do sleep 0.02; done'";
    let terminal = Terminal::start(&place, line);
    place.wait_lines("started", 1);
    let output = terminal.type_in("\x03").output();
    assert_eq!(code(output.status), 6, "{output:?}");
    assert_eq!(place.lines("got").len(), 1);
}

#[test]
fn the_terminal_is_ours_again_at_the_end() {
    let place = Place::new();
    let line = "$OARLOCK run job -- true; read line; echo \"$line\" >got";
    let output = Terminal::start(&place, line).type_in("hello\n").output();
    assert_eq!((code(output.status), place.read("got").as_str()), (0, "hello\n"), "{output:?}");
}

#[test]
fn a_job_is_suspended_and_continued() {
    let place = Place::new();
    let script = "echo $$ >pid; read line; echo \"$line\" >got; exit 8";
    let terminal = Terminal::start(&place, "bash --norc --noprofile -i");
    let terminal = terminal.type_in(&format!("$OARLOCK run job -- sh -c '{script}'; echo $? >>codes\n"));
    let pid = &place.wait_lines("pid", 1)[0];
    let terminal = terminal.type_in("\x1a");
    // 128 + SIGTSTP or SIGSTOP: what bash says of a job that was suspended.
    let suspended: i32 = place.wait_lines("codes", 1)[0].parse().unwrap();
    assert!([147, 148].contains(&suspended), "{suspended}");
    wait_for("the command's stop", || is_stopped(pid).then_some(()));
    let terminal = terminal.type_in("fg; echo $? >>codes\n");
    wait_for("the command's continuation", || (!is_stopped(pid)).then_some(()));
    let terminal = terminal.type_in("hello\n");
    assert_eq!(place.wait_lines("codes", 2)[1], "8");
    assert_eq!(place.read("got"), "hello\n");
    terminal.type_in("exit\n").output();
}

#[test]
fn a_job_that_stays_suspended_loses_lock_and_command() {
    let place = Place::new();
    let terminal = Terminal::start(&place, "bash --norc --noprofile -i");
    // No loop that starts processes: a shell that is suspended just then hangs, with or without us.
    let script = "echo $$ >pid; exec sleep 1000";
    let terminal = terminal.type_in(&format!("$OARLOCK run job --lease 2s -- sh -c '{script}'; echo $? >>codes\n"));
    let pids = place.wait_lines("pid", 1);
    let terminal = terminal.type_in("\x1a");
    place.wait_lines("codes", 1);
    crate::common::wait_dead(&pids);
    let terminal = terminal.type_in("fg; echo $? >>codes\n");
    assert_eq!(place.wait_lines("codes", 2)[1], "75");
    terminal.type_in("exit\n").output();
}
