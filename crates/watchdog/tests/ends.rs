//! Whatever a process started and wrote goes when it ends, in whatever way it does.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio, exit};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use watchdog::Disk;

/// Not a claim about speed: after so long, what is waited for does not come.
const FOREVER: Duration = Duration::from_secs(60);

/// How the watched process ends.
const ENDS: [&str; 7] = ["return", "exit", "abort", "panic", "SIGINT", "SIGTERM", "SIGKILL"];

fn main() {
    match std::env::args().nth(1).as_deref().and_then(|argument| argument.strip_prefix("watched-")) {
        Some(end) => watched(end),
        None => ENDS.into_iter().for_each(nothing_is_left),
    }
}

/// Starts what ends by itself only, in good order or not at all, and says where it is.
fn watched(end: &str) {
    let folders = [Disk::Memory, Disk::Real].map(watchdog::folder);
    for folder in &folders {
        std::fs::write(folder.path().join("file"), "").unwrap();
        println!("{}", folder.path().display());
    }
    let sleeps = ["exec sleep 1000", "trap '' INT TERM; while :; do sleep 1000; done", "kill -STOP $$"].map(|script| {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).process_group(watchdog::group()).stdout(Stdio::null()).stderr(Stdio::null());
        shell.spawn().unwrap()
    });
    sleeps.iter().for_each(|sleep| println!("{}", sleep.id()));
    match end {
        "return" => return,
        "exit" => exit(0),
        "abort" => std::process::abort(),
        "panic" => panic!("to order"),
        _ => {}
    }
    std::thread::sleep(FOREVER);
}

fn nothing_is_left(end: &str) {
    let mut watched = Command::new(std::env::current_exe().unwrap());
    watched.arg(format!("watched-{end}")).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut watched = watched.spawn().unwrap();
    let said = BufReader::new(watched.stdout.take().unwrap()).lines();
    let said: Vec<_> = said.take(5).map(Result::unwrap).collect();
    assert_eq!(said.len(), 5, "{said:?}");
    if let Ok(signal) = end.parse::<Signal>() {
        assert!(said.iter().all(|one| is_there(one)), "{said:?}");
        kill(pid(&watched), signal).unwrap();
    }
    watched.wait().unwrap();
    let start = Instant::now();
    while let Some(left) = said.iter().find(|one| is_there(one)) {
        assert!(start.elapsed() < FOREVER, "{end}: {left} is left of {said:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
    let root = Path::new(&said[0]).parent().unwrap();
    while root.exists() {
        assert!(start.elapsed() < FOREVER, "{end}: {} is left", root.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    println!("nothing is left after {end}");
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().unwrap())
}

/// Is there such a folder, or a process of this number that runs?
fn is_there(what: &str) -> bool {
    match what.parse::<u32>() {
        Err(_) => Path::new(what).exists(),
        Ok(id) => {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
        }
    }
}
