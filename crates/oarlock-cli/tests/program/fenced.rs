//! The counter again, while its holders are stopped for longer than their lease and killed, some with their guardian:
//! the lock alone cannot save it then, the fencing token does.

use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{Place, code};
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

const WORKERS: usize = 4;
/// How many increments each worker makes; the environment variable `FENCED_INCREMENTS` asks for another number.
const INCREMENTS: usize = 6;
const LEASE: Duration = Duration::from_millis(600);

/// The process that a worker runs just now. It is locked while the process is signalled, so that it is not reaped
/// meanwhile and its number given to another.
type Current = Mutex<Option<Pid>>;

#[test]
fn stops_and_kills_lose_no_accepted_update() {
    let increments = std::env::var("FENCED_INCREMENTS").map_or(INCREMENTS, |number| number.parse().unwrap());
    let place = Place::new();
    std::fs::write(place.path("history"), "w 0 0\n").unwrap();
    let current: Vec<Current> = (0..WORKERS).map(|_| Mutex::new(None)).collect();
    let shown = AtomicBool::new(false);
    let (acknowledged, working) = (AtomicUsize::new(0), AtomicUsize::new(WORKERS));
    let faults = std::thread::scope(|scope| {
        for current in &current {
            scope.spawn(|| {
                let mut done = 0;
                // On until everything was shown, though not for ever.
                while done < increments || (done < 20 * increments && !shown.load(Ordering::Relaxed)) {
                    if increment(&place, current) == 0 {
                        done += 1;
                    }
                }
                acknowledged.fetch_add(done, Ordering::Relaxed);
                working.fetch_sub(1, Ordering::Relaxed);
            });
        }
        torment(&place, &current, &working, |faults| {
            let all = faults.iter().all(|&count| count > 0) && !place.read("refused").is_empty();
            shown.store(all, Ordering::Relaxed);
        })
    });
    println!("stopped {} times, left a command alone {} times, killed {} times", faults[0], faults[1], faults[2]);
    println!("{} late writers were refused", place.lines("refused").len());
    assert!(faults.iter().all(|&count| count > 0), "not every fault came to pass");
    assert!(!place.read("refused").is_empty(), "no late writer was refused: nothing was shown");

    let mut last = (0, 0);
    for line in place.lines("history") {
        let [kind, token, value]: [&str; 3] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let (token, value): (u64, usize) = (token.parse().unwrap(), value.parse().unwrap());
        assert!(token >= last.0, "accepted out of order: {line:?} after token {}", last.0);
        let expected = if kind == "w" && token > 0 { last.1 + 1 } else { last.1 };
        assert_eq!(value, expected, "a lost update at {line:?}");
        last = (token, value);
    }
    assert!(last.1 >= acknowledged.into_inner(), "an acknowledged update is gone");
}

fn increment(place: &Place, current: &Current) -> i32 {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/fenced_counter.sh");
    let lease = format!("{}ms", LEASE.as_millis());
    let mut command = place.oarlock(&["run", "counter", "--lease", &lease, "--", "sh", script, "history"]);
    let mut child = command.stderr(Stdio::null()).process_group(0).spawn().unwrap();
    let pid = Pid::from_raw(child.id() as i32);
    *current.lock().unwrap() = Some(pid);
    waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT).unwrap();
    *current.lock().unwrap() = None;
    code(child.wait().unwrap())
}

/// Until all work is done, and in turn: stops `oarlock` for longer than its lease, kills it, or kills it with the
/// guardian and stops the command that is left alone. Reports, and answers in the end, how often.
fn torment(place: &Place, current: &[Current], working: &AtomicUsize, report: impl Fn([u32; 3])) -> [u32; 3] {
    let mut faults = [0; 3];
    let mut random = 0x9e37_79b9_u32;
    for turn in 0.. {
        if working.load(Ordering::Relaxed) == 0 {
            break;
        }
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        std::thread::sleep(Duration::from_millis(u64::from((random >> 16) % 100)));
        let victim = &current[turn % WORKERS];
        let kind = faults.iter().sum::<u32>() as usize % faults.len();
        let now = victim.lock().unwrap();
        let Some(pid) = *now else { continue };
        // Without a command there is nothing that could be late, nor before it has read and after it has written.
        let Some(guardian) = guardian(pid) else { continue };
        let reads = place.lines("history").last().is_some_and(|last| last.starts_with('r'));
        if kind == 1 && !reads {
            continue;
        }
        faults[kind] += 1;
        match kind {
            0 => {
                let _ = kill(pid, Signal::SIGSTOP);
                drop(now);
                std::thread::sleep(LEASE * 3 / 2);
                // Only a continued process can be reaped: it is still this one.
                let _ = kill(pid, Signal::SIGCONT);
            }
            1 => {
                // In this order, so that neither of the two sees the other die, and the kernel, which ends groups that
                // are orphaned while they are stopped, finds this one running.
                let _ = kill(pid, Signal::SIGSTOP);
                let _ = kill(guardian, Signal::SIGKILL);
                let _ = kill(pid, Signal::SIGKILL);
                let _ = waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT);
                let _ = killpg(guardian, Signal::SIGSTOP);
                drop(now);
                std::thread::sleep(LEASE * 3 / 2);
                let _ = killpg(guardian, Signal::SIGCONT);
            }
            _ => drop(kill(pid, Signal::SIGKILL)),
        }
        report(faults);
    }
    faults
}

fn guardian(oarlock: Pid) -> Option<Pid> {
    let children = std::fs::read_to_string(format!("/proc/{oarlock}/task/{oarlock}/children")).ok()?;
    children.split_whitespace().next()?.parse().ok().map(Pid::from_raw)
}
