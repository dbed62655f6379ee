//! Taking the lock: at once, in time, or interrupted.

use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish};
use oarlock::{LockGuard, LockName, Locks};
use tokio::time::Instant;

use super::signals::Signals;
use crate::args::RunArgs;
use crate::exit::{CONFLICT, Failure, SIGNAL};
use crate::output::clean;
use crate::show::rounded;
use nix::sys::signal::Signal;

/// A wait shorter than this draws nothing, and connecting in less is not counted.
const PATIENCE: Duration = Duration::from_millis(300);
const LOOK_EVERY: Duration = Duration::from_secs(1);
const TURN_EVERY: Duration = Duration::from_millis(100);

/// # Errors
/// With the code for a conflict, or for the signal that interrupted. Nothing is held then, and the queue was left or is
/// being left: the shutdown of `locks` sees to its end.
pub(super) async fn acquire(
    args: &RunArgs,
    locks: &Locks,
    signals: &mut Signals,
    started: Instant,
) -> Result<LockGuard, Failure> {
    // What is wrong later than this is no name, but a lease or a wait.
    LockName::new(&args.name)?;
    let mut mutex = locks.mutex(&args.name);
    if let Some(lease) = args.lease {
        mutex = mutex.lease(lease);
    }
    if let Some(wait) = args.wait {
        let spent = started.elapsed();
        mutex = mutex.wait(if spent > PATIENCE { wait.saturating_sub(spent) } else { wait });
    }
    let attempt = async { if args.try_lock { mutex.try_lock().await } else { mutex.lock().await.map(Some) } };
    let result = tokio::select! {
        result = attempt => result,
        signal = interruption(signals) => return Err(Failure::silent(SIGNAL + signal as u8)),
        never = narrate(&args.name, locks) => match never {},
    };
    match result {
        Ok(Some(guard)) => Ok(guard),
        Ok(None) => Err(Failure::new(args.conflict_exit_code, busy(&args.name, locks).await)),
        Err(error) => {
            let failure = Failure::config(&error);
            Err(if failure.code == CONFLICT { Failure { code: args.conflict_exit_code, ..failure } } else { failure })
        }
    }
}

async fn interruption(signals: &mut Signals) -> Signal {
    loop {
        match signals.next().await {
            // With nothing running yet there is nothing to suspend but ourselves.
            Signal::SIGTSTP => drop(nix::sys::signal::raise(Signal::SIGSTOP)),
            Signal::SIGCONT => {}
            signal => return signal,
        }
    }
}

/// Who holds the lock, in a sentence.
async fn busy(name: &str, locks: &Locks) -> String {
    match locks.inspect(name).await.ok().and_then(|status| status.into_holder()) {
        Some(holder) => format!("{name:?} is held by {} for {}", holder.owner, rounded(holder.held_for)),
        None => format!("{name:?} was not free"),
    }
}

/// On a terminal, shows who holds the lock and for how long, until it is dropped.
async fn narrate(name: &str, locks: &Locks) -> std::convert::Infallible {
    if !io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    tokio::time::sleep(PATIENCE).await;
    let spinner = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    spinner.enable_steady_tick(TURN_EVERY);
    loop {
        spinner.set_message(format!("waiting: {}", clean(&busy(name, locks).await)));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
