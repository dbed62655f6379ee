//! The guardian: runs the command in its own process group, and ends the group when the lock is not held any more.
//!
//! It exits with the command's code. If it ended the group, its last act is a SIGKILL to the whole of it, itself
//! included: by that `oarlock` knows the one from the other.

use std::ffi::OsString;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{Pid, getppid};
use oarlock::{Clock, Instant, SystemClock};
use tokio::signal::unix::{self, SignalKind};

use super::leash::{Held, Word};
use super::reap::{Change, Groups, change, tell_stopped};
use super::signals::{self, Signals};
use crate::args::GuardArgs;
use crate::exit::{Failure, LOST};
use crate::output::say;

pub(crate) async fn guard(args: &GuardArgs) -> Result<u8, Failure> {
    let parent = getppid();
    let mut leash = Held::open([args.leash, args.begun])?;
    let mut signals = Signals::listen(signals::GUARDIAN)?;
    let mut children = unix::signal(SignalKind::child())?;
    #[cfg(target_os = "linux")]
    {
        nix::sys::prctl::set_child_subreaper(true)?;
        // Not our own: `killall -9 oarlock` shall leave somebody to end the command.
        nix::sys::prctl::set_name(c"guardian")?;
    }

    // The first word on the leash also says that the terminal is ours.
    let mut until = Instant::from_origin(Duration::ZERO);
    while until <= SystemClock.now() {
        // On a slow start that may be over, and the next word be on its way.
        let Word::Until(word) = leash.next().await else { return Ok(LOST) };
        until = word;
    }
    let command = start(&args.command)?;
    leash.begin();
    let mut over = false;
    loop {
        match change(command) {
            Some(Change::Ended(code)) => return Ok(code),
            Some(Change::Stopped) if args.job_control => tell_stopped(parent),
            _ => {}
        }
        tokio::select! {
            biased;
            word = leash.next() => match word {
                Word::Until(word) => (until, over) = (word, false),
                Word::End => break,
                // The kernel ends the pipe before it gives us another parent, so only the pipe tells.
                Word::Gone => {
                    say("oarlock itself was killed: ending the command");
                    break;
                }
            },
            () = SystemClock.sleep_until(until) => {
                if over {
                    break;
                }
                // After a stop of the guardian itself the runtime sees that the time is over before it sees what was
                // said, and who ended, meanwhile: it gets to look once more.
                over = true;
                tokio::task::yield_now().await;
            }
            _ = children.recv() => {}
            signal = signals.next() => match signal {
                // Sent to everyone in a background group of which one touched the terminal, and meant for that one.
                Signal::SIGTTIN | Signal::SIGTTOU => {}
                signal => {
                    let groups = Groups::of(command);
                    groups.signal_other(signal);
                    if matches!(signal, Signal::SIGTERM | Signal::SIGHUP) {
                        // What is stopped could not act on it, and would stay for ever.
                        groups.signal(Signal::SIGCONT);
                    }
                }
            },
        }
    }
    end(Groups::of(command), args.grace, &mut children).await
}

fn start(command: &[OsString]) -> Result<Pid, Failure> {
    let (program, args) = command.split_first().expect("clap requires a command");
    match Command::new(program).args(args).spawn() {
        Ok(child) => Ok(Pid::from_raw(child.id() as i32)),
        Err(error) => Err(Failure::cannot_run(program, &error)),
    }
}

async fn end(mut groups: Groups, grace: Duration, children: &mut unix::Signal) -> ! {
    let kill_at: Instant = SystemClock.now() + grace;
    if !grace.is_zero() {
        groups.signal(Signal::SIGTERM);
        // What is stopped cannot act on it.
        groups.signal(Signal::SIGCONT);
    }
    while groups.anyone_left() {
        tokio::select! {
            () = SystemClock.sleep_until(kill_at) => break,
            _ = children.recv() => {}
        }
    }
    groups.signal(Signal::SIGKILL);
    unreachable!("SIGKILL cannot be survived")
}
