//! Taking the lock: at once, in time, or interrupted.

use std::convert::Infallible;
use std::io::{self, IsTerminal};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressFinish};
use oarlock::{AllGuard, LockName, Locks};
use tokio::time::Instant;

use super::signals::{self, Signals};
use crate::args::RunArgs;
use crate::exit::{CONFLICT, Failure};
use crate::output::{clean, say};
use crate::show::{state, states};
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
) -> Result<AllGuard, Failure> {
    let names = args.names();
    // What is wrong later than this is no name, but a lease or a wait.
    for name in &names {
        LockName::new(name)?;
    }
    let wait = wait_left(args, started);
    let attempt = attempt(args, locks, wait);
    let result = uninterrupted(&names, locks, signals, attempt).await?;
    match result {
        Ok(Some(guard)) => Ok(guard),
        Ok(None) => Err(Failure::new(args.conflict(), busy(&names, locks).await)),
        Err(error) => Err(failed(args, &error)),
    }
}

/// With the code that was chosen for what does not come in time.
pub(super) fn failed(args: &RunArgs, error: &oarlock::Error) -> Failure {
    let failure = Failure::config(error);
    if failure.code == CONFLICT { Failure { code: args.conflict(), ..failure } } else { failure }
}

/// What is left of the wait, after connecting.
pub(super) fn wait_left(args: &RunArgs, started: Instant) -> Option<Duration> {
    let spent = started.elapsed();
    args.wait.map(|wait| if spent > PATIENCE { wait.saturating_sub(spent) } else { wait })
}

async fn attempt(args: &RunArgs, locks: &Locks, wait: Option<Duration>) -> oarlock::Result<Option<AllGuard>> {
    if args.has_others() {
        let first = args.job.name.as_str();
        let alone = args.mode.taken().is_none() && !args.mode.shared;
        let mut all = locks.all(args.also.iter().map(String::as_str).chain(alone.then_some(first)));
        for name in args.also_shared.iter().map(String::as_str).chain(args.mode.shared.then_some(first)) {
            all = all.and_read(name);
        }
        if let Some((take, of)) = args.mode.taken() {
            all = all.and_permits(first, take, of);
        }
        if let Some(lease) = args.job.lease {
            all = all.lease(lease);
        }
        if wait.is_some() {
            all = all.wait(wait);
        }
        return if args.try_lock { all.try_lock().await } else { all.lock().await.map(Some) };
    }
    if args.mode.shared {
        let mut rw_lock = locks.rw_lock(args.job.name.as_str())?;
        if let Some(lease) = args.job.lease {
            rw_lock = rw_lock.lease(lease);
        }
        if wait.is_some() {
            rw_lock = rw_lock.wait(wait);
        }
        let guard = if args.try_lock { rw_lock.try_read().await? } else { Some(rw_lock.read().await?) };
        return Ok(guard.map(AllGuard::from));
    }
    if let Some((take, of)) = args.mode.taken() {
        let mut semaphore = locks.semaphore(args.job.name.as_str(), of)?;
        if let Some(lease) = args.job.lease {
            semaphore = semaphore.lease(lease);
        }
        if wait.is_some() {
            semaphore = semaphore.wait(wait);
        }
        let guard = match args.try_lock {
            true => semaphore.try_acquire_many(take).await?,
            false => Some(semaphore.acquire_many(take).await?),
        };
        return Ok(guard.map(AllGuard::from));
    }
    let mut mutex = locks.mutex(args.job.name.as_str());
    if let Some(lease) = args.job.lease {
        mutex = mutex.lease(lease);
    }
    if wait.is_some() {
        mutex = mutex.wait(wait);
    }
    if let Some(value) = &args.value {
        mutex = mutex.value(value.clone());
    }
    let guard = if args.try_lock { mutex.try_lock().await? } else { Some(mutex.lock().await?) };
    Ok(guard.map(AllGuard::from))
}

/// Waits for what may be long, and tells on a terminal who is in the way.
///
/// # Errors
/// With the code for the signal that interrupted it; then it was dropped.
pub(super) async fn uninterrupted<T>(
    names: &[&str],
    locks: &Locks,
    signals: &mut Signals,
    attempt: impl Future<Output = T>,
) -> Result<T, Failure> {
    interruptible(signals, attempt, narrate(names, locks)).await
}

/// Waits for this before there is anything to tell.
///
/// # Errors
/// With the code for the signal that interrupted it; then it was dropped.
pub(crate) async fn unless_interrupted<T>(attempt: impl Future<Output = T>) -> Result<T, Failure> {
    let mut signals = Signals::listen(signals::SUPERVISOR)?;
    interruptible(&mut signals, attempt, std::future::pending()).await
}

/// Waits for what may be long, and meanwhile tells something.
///
/// # Errors
/// With the code for the signal that interrupted it; then it was dropped.
pub(super) async fn interruptible<T>(
    signals: &mut Signals,
    attempt: impl Future<Output = T>,
    telling: impl Future<Output = Infallible>,
) -> Result<T, Failure> {
    tokio::select! {
        result = attempt => Ok(result),
        signal = interruption(signals) => Err(Failure::signal(signal)),
        never = telling => match never {},
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

/// Who holds the lock, or one of them, in a sentence.
async fn busy(names: &[&str], locks: &Locks) -> String {
    for name in names {
        if let Ok(status) = locks.inspect(name).await
            && status.holder().is_some()
        {
            return format!("{name:?} is {}", states(&status));
        }
    }
    let names: Vec<_> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("{} was not free", names.join(" or "))
}

/// Says once who leads, where [`narrate`] draws nothing. That may be when an earlier attempt did so.
pub(super) async fn narrate_once(name: &str, locks: &Locks, is_said: &mut bool) -> Infallible {
    if io::stderr().is_terminal() || *is_said {
        return narrate(&[name], locks).await;
    }
    tokio::time::sleep(PATIENCE).await;
    loop {
        // Not the whole line, however long it is.
        if let Ok(Some(holder)) = locks.election(name).leader().await {
            let leads = if holder.kept { state(&holder) } else { format!("led by {}", holder.owner) };
            say(format!("waiting; {name:?} is {leads}"));
            *is_said = true;
            return std::future::pending().await;
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// On a terminal, shows who holds the lock and for how long, until it is dropped.
async fn narrate(names: &[&str], locks: &Locks) -> Infallible {
    if !io::stderr().is_terminal() {
        return std::future::pending().await;
    }
    tokio::time::sleep(PATIENCE).await;
    let spinner = ProgressBar::new_spinner().with_finish(ProgressFinish::AndClear);
    spinner.enable_steady_tick(TURN_EVERY);
    loop {
        spinner.set_message(format!("waiting: {}", clean(&busy(names, locks).await)));
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
