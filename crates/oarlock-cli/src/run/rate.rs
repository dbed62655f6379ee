//! `run --rate`: the command begins when its turn comes, and no lock is held while it runs.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use oarlock::{ErrorKind, Locks};
use tokio::time::Instant;

use super::acquire::{interruptible, wait_left};
use super::signals::Signals;
use crate::args::RunArgs;
use crate::exit::{CONFLICT, Failure};

/// How long closing the store may take before the command begins.
const CLOSING: Duration = Duration::from_secs(2);

/// Becomes the command, with the exit code and the signals that are its own.
///
/// # Cancel safety
/// Never dropped: signals are handled inside.
pub(super) async fn begin(
    args: &RunArgs,
    (permits, per): (u32, Duration),
    locks: &Locks,
    signals: &mut Signals,
    started: Instant,
) -> Result<Infallible, Failure> {
    let name = args.job.name.as_str();
    let limiter = locks.rate_limiter(name, permits, per).map_err(|error| Failure::config(&error))?;
    let turn = async {
        if args.try_lock {
            return limiter.try_acquire(1).await;
        }
        let limiter = limiter.clone();
        let limiter = if args.wait.is_some() { limiter.wait(wait_left(args, started)) } else { limiter };
        limiter.acquire(1).await.map(|()| true)
    };
    match interruptible(signals, turn, std::future::pending()).await? {
        Ok(true) => {}
        Ok(false) => return Err(Failure::new(args.conflict(), format!("{name:?} lets nobody begin at the moment"))),
        Err(error) => {
            let failure = if error.kind() == ErrorKind::Invalid { Failure::config(&error) } else { error.into() };
            return Err(if failure.code == CONFLICT { Failure { code: args.conflict(), ..failure } } else { failure });
        }
    }
    let _ = locks.shutdown(CLOSING).await;
    let (program, arguments) = args.job.command.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command.args(arguments).env("OARLOCK_NAME", name);
    // What an `oarlock run` around this one has set is about a lock.
    for variable in ["OARLOCK_TOKEN", "OARLOCK_TOKENS", "OARLOCK_SHARED", "OARLOCK_SLOT", "OARLOCK_SLOTS"] {
        command.env_remove(variable);
    }
    Err(Failure::cannot_run(program, &command.exec()))
}
