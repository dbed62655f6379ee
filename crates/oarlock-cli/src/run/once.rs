//! `run --once`: one of many runs the command, and the others skip it.

use std::time::Duration;

use oarlock::{Clock, ErrorKind, Holder, LockName, Locks, Once, Skipped, SystemClock};

use super::acquire::uninterrupted;
use super::signals::Signals;
use super::supervise::{Outcome, Stop, supervise};
use crate::args::{OnceArgs, RunArgs};
use crate::exit::{CONFIG, Failure, LOST, UNAVAILABLE};
use crate::output::say;
use crate::show::rounded;

pub(super) async fn once(args: &RunArgs, locks: &Locks, signals: &mut Signals) -> Result<u8, Failure> {
    let OnceArgs { slot, again_on_failure, skipped, at_most, .. } = &args.once;
    let name = match slot {
        Some(slot) => format!("{}@{slot}", args.job.name),
        None => args.job.name.clone(),
    };
    // What is wrong later than this is no name, but a time.
    LockName::new(&args.job.name)?;
    LockName::new(&name)?;
    let once = chosen(args, locks)?;
    // Before its time begins.
    let start = SystemClock.now();
    let begun = uninterrupted(&[&name], locks, signals, once.begin()).await?;
    let guard = match begun.map_err(|error| Failure::config(&error))? {
        Ok(guard) => guard,
        Err(by) => {
            say(told(&name, &by));
            return Ok(*skipped);
        }
    };
    // Not as a section of the library, which would give the lock back at the loss: that is done when the command has ended.
    let outcome = supervise(&args.job, &guard.lease().into(), signals, Stop::IsTheCommands).await;
    let (done, left) = (is_done(&outcome, *again_on_failure), guard.remaining());
    let mut ended = if done { guard.done().await } else { guard.again().await };
    if done && ended.as_ref().is_err_and(|error| error.kind() != ErrorKind::Lost) {
        ended = Ok(noted(&name, locks, left).await?);
    }
    let outcome = outcome?;
    if let (Outcome::Lost { at }, Some(at_most)) = (&outcome, *at_most)
        && *at >= start + at_most
    {
        let at_most = humantime::format_duration(at_most);
        let message = format!("{name:?} took longer than --at-most {at_most}");
        return Err(Failure::new(LOST, format!("{message}: the command was ended, and is to be run again")));
    }
    super::code(&format!("{name:?}"), &outcome, ended)
}

/// The store did not confirm that the job is done. As long as the lease runs, it may come back and be told yet.
async fn noted(name: &str, locks: &Locks, left: Duration) -> Result<(), Failure> {
    say(format!("{name:?} is done, and the store has not confirmed that: trying on for {}", rounded(left)));
    if locks.shutdown(left).await.unreleased.is_empty() {
        return Ok(());
    }
    let message = format!(
        "{name:?} is done, and the store did not confirm that before the lease was over: it may count as done, or be run \
         again"
    );
    Err(Failure::new(UNAVAILABLE, message))
}

fn chosen(args: &RunArgs, locks: &Locks) -> Result<Once, Failure> {
    let OnceArgs { slot, at_least, at_most, again_on_failure, .. } = &args.once;
    let mut once = locks.once(args.job.name.as_str()).keep_on_failure(!again_on_failure);
    if let Some(slot) = slot {
        once = once.slot(slot);
    }
    if let Some(time) = *at_least {
        once = once.at_least(time);
    }
    if let Some(time) = *at_most {
        let (store, least) = (locks.capabilities().backend, locks.capabilities().min_lease);
        if time < least {
            // The library calls it by the name of the setting.
            let (time, least) = (humantime::format_duration(time), humantime::format_duration(least));
            return Err(Failure::new(
                CONFIG,
                format!("--at-most is {time}, shorter than {least}, the shortest of {store}"),
            ));
        }
        once = once.at_most(time);
    }
    if let Some(lease) = args.job.lease {
        once = once.lease(lease);
    }
    Ok(once)
}

/// Does it count as done? What was lost, was killed with its guardian, or has not begun, does not.
fn is_done(outcome: &Result<Outcome, Failure>, again_on_failure: bool) -> bool {
    match outcome {
        Ok(Outcome::Ended { code, asked_to }) => !again_on_failure || (*code == 0 && !asked_to),
        _ => false,
    }
}

/// By whom, and for how long.
fn told(name: &str, skipped: &Skipped) -> String {
    let Some(by) = &skipped.by else { return format!("{name:?} is skipped: others were running it") };
    let rest = skipped.remaining;
    match (skipped.done, rest == Holder::ENDLESS) {
        (true, _) => format!("{name:?} is skipped: done by {by} for another {}", rounded(rest)),
        (false, false) => format!("{name:?} is skipped: {by} runs it, with a lease of another {}", rounded(rest)),
        (false, true) => format!("{name:?} is skipped: {by} runs it, with a hold that has no end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_asked_to_end_has_failed() {
        for (outcome, done, done_or_again) in [
            (Ok(Outcome::Ended { code: 0, asked_to: false }), true, true),
            (Ok(Outcome::Ended { code: 3, asked_to: false }), true, false),
            (Ok(Outcome::Ended { code: 0, asked_to: true }), true, false),
            (Ok(Outcome::Ended { code: 143, asked_to: true }), true, false),
            (Ok(Outcome::NotBegun { code: 127 }), false, false),
            (Ok(Outcome::Killed { code: 137 }), false, false),
            (Ok(Outcome::Lost { at: SystemClock.now() }), false, false),
            (Err(Failure::silent(71)), false, false),
        ] {
            assert_eq!((is_done(&outcome, false), is_done(&outcome, true)), (done, done_or_again), "{outcome:?}");
        }
    }
}
