//! `run`: the command runs only while the lock is held.
//!
//! Three processes take part. `oarlock` takes the lock, renews it, and starts itself once more as the *guardian*, which
//! leads a process group of its own and runs the command in it. A pipe, the *leash*, tells the guardian until when the
//! lock is held. When that time is over, or the pipe ends because `oarlock` was killed, the guardian ends the group: so
//! the command does not outlive its lock even if `oarlock` is stopped or killed.

mod acquire;
mod guardian;
mod leash;
mod reap;
mod signals;
mod supervise;
mod terminal;

use oarlock::{ErrorKind, Locks};
use tokio::time::Instant;

use crate::args::RunArgs;
use crate::exit::{Failure, LOST};
use crate::output::say;
use acquire::acquire;
pub(crate) use guardian::guard;
pub(crate) use signals::Signals;
use supervise::{Outcome, supervise};

/// The wait is counted from `started`.
///
/// # Cancel safety
/// Never dropped: signals are handled inside.
pub(crate) async fn run(args: &RunArgs, locks: &Locks, started: Instant) -> Result<u8, Failure> {
    let mut signals = Signals::listen(signals::SUPERVISOR)?;
    let guard = acquire(args, locks, &mut signals, started).await?;
    let outcome = supervise(args, &guard.lease(), &mut signals).await;
    // Awaited also when the command could not be started, so that nothing of the lock is left.
    let unlocked = guard.unlock().await;
    let code = match outcome? {
        Outcome::Ended(code) => code,
        Outcome::Lost => {
            return Err(Failure::new(LOST, format!("{:?} was lost, and the command was ended", args.name)));
        }
    };
    match unlocked {
        Ok(()) => Ok(code),
        Err(error) if error.kind() == ErrorKind::Lost => {
            let message =
                format!("{:?} was not held any more when the command ended (with exit code {code})", args.name);
            Err(Failure::new(LOST, message))
        }
        Err(error) => {
            say(Failure::from(error).message.unwrap_or_default());
            Ok(code)
        }
    }
}
