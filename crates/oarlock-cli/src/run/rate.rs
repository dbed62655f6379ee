//! `run --rate`: the command begins when its turn comes, and no lock is held while it runs.

use std::convert::Infallible;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use oarlock::Locks;
use tokio::time::Instant;

use super::acquire::{failed, interruptible, wait_left};
use super::signals::Signals;
use super::supervise::OF_A_LOCK;
use crate::args::RunArgs;
use crate::exit::Failure;

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
    let mut limiter = locks.rate_limiter(name, permits, per).map_err(|error| Failure::config(&error))?;
    if let Some(wait) = wait_left(args, started) {
        limiter = limiter.wait(wait);
    }
    let turn =
        async { if args.try_lock { limiter.try_acquire(1).await } else { limiter.acquire(1).await.map(|()| true) } };
    match interruptible(signals, turn, std::future::pending()).await? {
        Ok(true) => {}
        Ok(false) => return Err(Failure::new(args.conflict(), format!("{name:?} lets nobody begin at the moment"))),
        Err(error) => return Err(failed(args, &error)),
    }
    let _ = locks.shutdown(crate::SHUTDOWN).await;
    let (program, arguments) = args.job.command.split_first().expect("clap requires a command");
    let mut command = Command::new(program);
    command.args(arguments).env("OARLOCK_NAME", name);
    for variable in OF_A_LOCK {
        command.env_remove(variable);
    }
    Err(Failure::cannot_run(program, &command.exec()))
}
