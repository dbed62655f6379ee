//! While the command runs: signals pass, the guardian hears of renewals, and a loss ends the command.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg, raise};
use nix::unistd::Pid;
use oarlock::{Clock, Instant, Lease, Leases, Mode, SystemClock};
use tokio::process::Child;

use super::leash::{Inherited, Leash};
use super::signals::Signals;
use super::terminal;
use crate::args::{GUARD, Job};
use crate::exit::{Failure, OS_ERROR, SIGNAL};
use crate::itself;
use crate::output::say;

/// What an `oarlock run` around this one has set about its lock.
pub(super) const OF_A_LOCK: [&str; 5] =
    ["OARLOCK_TOKEN", "OARLOCK_TOKENS", "OARLOCK_SHARED", "OARLOCK_SLOT", "OARLOCK_SLOTS"];

/// How long after the grace we end the group ourselves, in case the guardian is stopped.
const BACKSTOP: Duration = Duration::from_secs(1);

/// How it went.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The command ended with this code.
    Ended {
        code: u8,
        /// A signal that asks for that was passed on to it before.
        asked_to: bool,
    },
    /// It could not be started.
    NotBegun {
        /// As a shell would say it.
        code: u8,
    },
    /// It did not come to its end: somebody killed its guardian, and it died with that.
    Killed {
        /// As a shell would say it.
        code: u8,
    },
    /// It was ended, since this signal asked us to end.
    Stopped(Signal),
    /// It was ended, since the lock was lost.
    Lost {
        /// When that was noticed.
        at: Instant,
    },
}

/// Whose business it is that the command stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// A signal that asks for the end is passed on, and at a loss the command has its grace, come what may.
    IsTheCommands,
    /// A signal that asks for the end ends it, and it has ended before the lock can be another's.
    IsOurs,
}

impl Stop {
    /// The time between SIGTERM and SIGKILL, and how much of it is taken from the time that the lock is held.
    fn grace(self, job: &Job, leases: &Leases) -> (Duration, Duration) {
        match self {
            Self::IsTheCommands => (job.grace, Duration::ZERO),
            Self::IsOurs => {
                let grace = job.grace_within(leases.remaining());
                (grace, grace)
            }
        }
    }
}

/// Why the command is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Lost { at: Instant },
    Asked(Signal),
}

/// Runs the command to its end.
pub(super) async fn supervise(
    job: &Job,
    leases: &Leases,
    signals: &mut Signals,
    stop: Stop,
) -> Result<Outcome, Failure> {
    let (mut leash, inherited) = Leash::new()?;
    let job_control = terminal::is_ours();
    let (grace, early) = stop.grace(job, leases);
    let mut guardian = start(job, leases, &inherited, grace, job_control)?;
    drop(inherited);
    let group = Pid::from_raw(guardian.id().expect("it was not waited for yet") as i32);
    if job_control {
        terminal::lend(group);
    }

    let mut asked_to = false;
    let mut ending = None;
    let mut kill_at = None;
    let status = loop {
        // Listened for before it is asked until when the lock is held, so that no renewal falls in between. That of a store that
        // stalls may come just before the end.
        let renewed = leases.changed();
        if ending.is_none() {
            leash.hold_until(held_until(leases, early));
        }
        let why = tokio::select! {
            status = guardian.wait() => break status?,
            signal = signals.next() => {
                let asks = matches!(signal, Signal::SIGTERM | Signal::SIGINT);
                asked_to |= asks;
                if !(asks && stop == Stop::IsOurs) {
                    pass_on(signal, group, job_control);
                    continue;
                }
                Why::Asked(signal)
            }
            () = lost(leases, early), if ending.is_none() => {
                let at = SystemClock.now();
                say(format!("{}; ending the command", loss(job, leases)));
                Why::Lost { at }
            }
            () = renewed => continue,
            () = at(kill_at) => {
                let _ = killpg(group, Signal::SIGKILL);
                kill_at = None;
                continue;
            }
        };
        if ending.is_none() {
            ending = Some(why);
            leash.end();
            kill_at = Some(SystemClock.now() + grace + BACKSTOP);
        }
    };
    if job_control {
        terminal::take_back();
    }
    let Some(code) = status.code() else {
        // The guardian was killed, by itself after it ended the group or by another: nobody else is left to end that.
        let _ = killpg(group, Signal::SIGKILL);
        // It may have known of a loss before us.
        let is_lost = leash.is_over() || !leases.is_held();
        return Ok(match ending {
            Some(Why::Asked(signal)) => Outcome::Stopped(signal),
            Some(Why::Lost { at }) => Outcome::Lost { at },
            _ if is_lost => Outcome::Lost { at: SystemClock.now() },
            _ => {
                let code = SIGNAL + status.signal().unwrap_or(Signal::SIGKILL as i32) as u8;
                if leash.had_begun() {
                    say("the command's guardian was killed, and the command ended with it");
                    Outcome::Killed { code }
                } else {
                    say("a signal came before the command was started, so it was not started");
                    Outcome::NotBegun { code }
                }
            }
        });
    };
    let code = code as u8;
    if leash.had_begun() {
        return Ok(Outcome::Ended { code, asked_to });
    }
    Ok(match ending {
        // The guardian was told to end the command before it started it: its code is none of the command's.
        Some(Why::Asked(signal)) => Outcome::Stopped(signal),
        Some(Why::Lost { at }) => Outcome::Lost { at },
        None => Outcome::NotBegun { code },
    })
}

fn start(
    job: &Job,
    leases: &Leases,
    inherited: &Inherited,
    grace: Duration,
    job_control: bool,
) -> Result<Child, Failure> {
    let mut command = itself::again(GUARD)?;
    command.args(inherited.numbers().map(|number| number.to_string())).arg(format!("{}ms", grace.as_millis()));
    if job_control {
        command.arg("--job-control");
    }
    command.arg("--").args(&job.command);
    // A job that runs once has the lock of its slot.
    let lease = leases.get(&job.name).or(leases.iter().next()).expect("there is at least one");
    for variable in OF_A_LOCK {
        command.env_remove(variable);
    }
    command.env("OARLOCK_NAME", lease.name().as_str()).env("OARLOCK_TOKEN", lease.fencing_token().to_string());
    if lease.mode() == Mode::Shared {
        command.env("OARLOCK_SHARED", "1");
    }
    if let Some(slot) = lease.slot() {
        let slots: Vec<_> = lease.slots().iter().map(u32::to_string).collect();
        command.env("OARLOCK_SLOT", slot.to_string()).env("OARLOCK_SLOTS", slots.join(","));
    }
    let token = |lease| (Lease::name(lease).as_str(), lease.fencing_token().to_string());
    let tokens: BTreeMap<_, _> = leases.iter().map(token).collect();
    if tokens.len() > 1 {
        command.env("OARLOCK_TOKENS", serde_json::to_string(&tokens).expect("it is all text"));
    }
    command.spawn().map_err(|error| Failure::new(OS_ERROR, format!("cannot start the command's guardian: {error}")))
}

/// Until when the command may run. The clock is read first: a pause between the two readings then makes the answer too
/// early, never too late.
fn held_until(leases: &Leases, early: Duration) -> Instant {
    let now = SystemClock.now();
    now + leases.remaining().saturating_sub(early)
}

/// Ends so much before the lock is lost.
async fn lost(leases: &Leases, early: Duration) {
    while leases.remaining() > early {
        let until = held_until(leases, early);
        tokio::select! {
            () = leases.lost() => {}
            () = SystemClock.sleep_until(until) => {}
        }
    }
}

/// Why the lock is not held any more. Not every reason is a loss: it may have been held for as long as was asked for.
fn loss(job: &Job, leases: &Leases) -> String {
    let soon = || format!("{:?}: it is about to be lost", job.name);
    let why = leases.check().map_or_else(|error| error.to_string(), |()| soon());
    why.trim_start_matches("lost: ").to_owned()
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => SystemClock.sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn pass_on(signal: Signal, group: Pid, job_control: bool) {
    match signal {
        Signal::SIGTSTP => {
            // On its own terminal the command was stopped already, and the guardian told us.
            if job_control {
                terminal::take_back();
            } else {
                let _ = killpg(group, signal);
            }
            // Suspended, we do not renew: after the lease the guardian ends the command.
            let _ = raise(Signal::SIGSTOP);
        }
        Signal::SIGCONT if job_control && terminal::is_ours() => {
            terminal::lend(group);
            let _ = killpg(group, signal);
        }
        signal => {
            let _ = killpg(group, signal);
        }
    }
}
