//! `run` and `elect`: a command runs only while a lock is held.
//!
//! Three processes take part. `oarlock` takes the lock, renews it, and starts itself once more as the *guardian*, which
//! leads a process group of its own and runs the command in it. A pipe, the *leash*, tells the guardian until when the
//! lock is held. When that time is over, or the pipe ends because `oarlock` was killed, the guardian ends the group: so
//! the command does not outlive its lock even if `oarlock` is stopped or killed.

mod acquire;
mod elect;
mod guardian;
mod leash;
mod once;
mod rate;
mod reap;
mod signals;
mod supervise;
mod terminal;

use oarlock::{ErrorKind, Locks};
use tokio::time::Instant;

use crate::args::RunArgs;
use crate::exit::{Failure, LOST, told};
use crate::output::say;
use acquire::acquire;
pub(crate) use acquire::unless_interrupted;
pub(crate) use elect::elect;
pub(crate) use guardian::guard;
use once::once;
pub(crate) use signals::{INTERRUPTIONS, Signals};
use supervise::{Outcome, Stop, supervise};

/// The wait is counted from `started`.
///
/// # Cancel safety
/// Never dropped: signals are handled inside.
pub(crate) async fn run(args: &RunArgs, locks: &Locks, started: Instant) -> Result<u8, Failure> {
    let mut signals = Signals::listen(signals::SUPERVISOR)?;
    if args.once.once {
        return once(args, locks, &mut signals).await;
    }
    if let Some(rate) = args.rate {
        match rate::begin(args, rate, locks, &mut signals, started).await? {}
    }
    let guard = acquire(args, locks, &mut signals, started).await?;
    let outcome = supervise(&args.job, &guard, &mut signals, Stop::IsTheCommands).await;
    let lost = guard.leases().iter().find(|lease| !lease.is_held()).map(|lease| format!("{:?}", lease.name().as_str()));
    // Awaited also when the command could not be started, so that nothing of the lock is left.
    let unlocked = guard.unlock().await;
    let name = &args.job.name;
    let what = match lost {
        Some(lost) => lost,
        None if args.has_others() => format!("{name:?}, or one of the others,"),
        None => format!("{name:?}"),
    };
    code(&what, &outcome?, unlocked)
}

/// The exit code, by how the command ended and by what came of the lock then.
fn code(what: &str, outcome: &Outcome, released: oarlock::Result<()>) -> Result<u8, Failure> {
    let code = match *outcome {
        Outcome::Ended { code, .. } | Outcome::NotBegun { code } | Outcome::Killed { code } => code,
        Outcome::Stopped(signal) => return Err(Failure::signal(signal)),
        Outcome::Lost { .. } => {
            return Err(Failure::new(LOST, format!("{what} was lost, and the command was ended")));
        }
    };
    match released {
        Ok(()) => Ok(code),
        Err(error) if error.kind() == ErrorKind::Lost => {
            let message = format!("{what} was lost before the command ended by itself, with the exit code {code}");
            Err(Failure::new(LOST, message))
        }
        Err(error) => {
            let why = told(&error);
            say(format!("{what} may stay held until its lease is over, since its release is not confirmed: {why}"));
            Ok(code)
        }
    }
}
