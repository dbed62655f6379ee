//! Runs the cases as tests of their own: names, declarations, one runtime and one deadline for each.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{PoisonError, mpsc};
use std::time::Duration;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use nix::sys::signal::{Signal, kill};

use crate::cases::{CASES, Case, Need};
use crate::ctx::{Ctx, Processes};
use crate::harness::Harness;
use crate::worker::worker_main;

/// How long a case may take: several times what the longest needs.
const LIMIT: Duration = Duration::from_secs(300);

/// Cases mostly wait, so many can do it at once; `RUST_TEST_THREADS` says otherwise, as for all tests.
fn at_once() -> usize {
    std::env::var("RUST_TEST_THREADS").ok().and_then(|number| number.parse().ok()).unwrap_or(8)
}

/// Makes a test target of one line of it: the `main` of a target with `harness = false` that runs the suite on a
/// [`Harness`](crate::Harness), given as a constant expression.
#[macro_export]
macro_rules! suite {
    ($harness:expr) => {
        fn main() -> ::std::process::ExitCode {
            static HARNESS: &dyn $crate::Harness = &$harness;
            $crate::run(HARNESS)
        }
    };
}

/// Runs the suite with the arguments of the command line, as [`suite!`](crate::suite) does. In a worker process it does
/// the worker's job instead.
pub fn run(harness: &'static dyn Harness) -> ExitCode {
    if let Some(code) = worker_main(&harness.registry()) {
        return code;
    }
    let mut arguments = Arguments::from_args();
    arguments.test_threads.get_or_insert_with(at_once);
    let mut trials: Vec<_> = CASES.iter().map(|case| trial(harness, case)).collect();
    trials.push(Trial::test(format!("{}::declarations", harness.name()), move || declarations(harness.declared())));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// The names of all cases.
pub fn cases() -> impl Iterator<Item = &'static str> {
    CASES.iter().map(|case| case.name)
}

/// Runs one case, for those who want to see that it fails where it has to.
///
/// # Errors
/// Why it failed; also if there is no case of this name.
pub fn run_one(harness: &'static dyn Harness, case: &str) -> Result<(), String> {
    let case = CASES.iter().find(|known| known.name == case).ok_or_else(|| format!("no case is called {case:?}"))?;
    match run_case(harness, case) {
        Ok(Completion::Completed) => Ok(()),
        Ok(_) => Err(case.needs.map(Need::why_not).unwrap_or_default().to_owned()),
        Err(failed) => Err(failed.message().unwrap_or_default().to_owned()),
    }
}

fn trial(harness: &'static dyn Harness, case: &'static Case) -> Trial {
    if let Some((_, reason)) = harness.declared().iter().find(|(declared, _)| *declared == case.name) {
        return ignored(harness, case.name, reason);
    }
    Trial::ignorable_test(format!("{}::{}", harness.name(), case.name), move || run_case(harness, case))
}

/// Listed with the reason. (nextest prints no reasons, and counts what it was not told to ignore as passed.)
fn ignored(harness: &'static dyn Harness, case: &str, reason: &'static str) -> Trial {
    let nextest = std::env::var_os("NEXTEST").is_some();
    Trial::ignorable_test(format!("{}::{case}", harness.name()), move || Ok(Completion::ignored_with(reason)))
        .with_ignored_flag(nextest)
}

/// A declaration names a case, once, and has a reason.
fn declarations(declared: &[(&str, &str)]) -> Result<(), Failed> {
    for (at, (name, reason)) in declared.iter().enumerate() {
        if !CASES.iter().any(|case| case.name == *name) {
            return Err(format!("{name:?} is declared, and is no case").into());
        }
        if reason.is_empty() || declared[..at].iter().any(|(before, _)| before == name) {
            return Err(format!("{name:?} is declared twice or without a reason").into());
        }
    }
    Ok(())
}

fn run_case(harness: &'static dyn Harness, case: &'static Case) -> Result<Completion, Failed> {
    let processes = Processes::default();
    let (done, outcome) = mpsc::channel();
    // On a thread of its own, so that a case that blocks its runtime is noticed too.
    std::thread::spawn({
        let processes = processes.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let result = runtime.map(|runtime| {
                let case = async {
                    let ctx = Ctx::new(harness, case.alone, processes).await;
                    if let Some(need) = case.needs
                        && !need.is_met(&ctx.backend().await.capabilities())
                    {
                        return Completion::ignored_with(need.why_not());
                    }
                    (case.run)(ctx).await;
                    Completion::Completed
                };
                let result = catch_unwind(AssertUnwindSafe(|| runtime.block_on(case)));
                runtime.shutdown_background();
                result
            });
            // Nobody listens to a case that took too long.
            let _ = done.send(result);
        }
    });
    match outcome.recv_timeout(LIMIT) {
        Ok(Ok(Ok(completion))) => Ok(completion),
        Ok(Ok(Err(panic))) => Err(message(&*panic).into()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            for pid in processes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                // It may have ended by itself.
                let _ = kill(*pid, Signal::SIGKILL);
            }
            Err(format!("did not end within {LIMIT:?}").into())
        }
    }
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("panicked").to_owned()
}
