//! `oarlock`: run commands under distributed locks, show locks, and end holds.

#![forbid(unsafe_code)]

mod args;
mod compare;
mod config;
mod evict;
mod exit;
mod fence;
mod generate;
mod itself;
mod latch;
mod leader;
mod output;
mod resize;
mod run;
mod show;
mod tokens;
mod top;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use args::{Cli, Command, GUARD, Part, RunArgs, Settings, WORKER};
use clap::Parser;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use exit::Failure;
use oarlock::Locks;
use tokio::time::Instant;

/// How long the end of the program may take to give back what it took.
const SHUTDOWN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let first = env::args_os().nth(1).unwrap_or_default();
    if first == GUARD || first == WORKER {
        return end(async {
            match Part::parse() {
                Part::Guard(args) => run::guard(&args).await,
                Part::Worker => compare::work().await,
            }
        });
    }
    match Cli::try_parse() {
        Ok(cli) => end(dispatch(cli)),
        Err(answer) => ExitCode::from(refused(&answer)),
    }
}

/// Says what is wrong with the command line, or what was asked of it, such as its help.
fn refused(answer: &clap::Error) -> u8 {
    let arguments: Vec<_> = env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect();
    if !answer.use_stderr() {
        // A help text that nobody reads to its end is no failure.
        let _ = answer.print();
        return 0;
    }
    if arguments.iter().any(|argument| argument.contains("://") && argument.contains('@')) {
        // It quotes what is wrong, which may be a URL in the wrong place, with a password.
        output::say("wrong usage, which is not quoted because of a URL with a user in it; see --help");
    } else {
        let _ = answer.print();
    }
    let runs = |argument: &String| argument == "run" || argument == "elect";
    let Some(command) = arguments.iter().find(|argument| runs(argument)) else { return exit::USAGE };
    if !arguments.iter().any(|argument| argument == "--") {
        output::say(format!("put -- before the command, as in: oarlock {command} NAME -- COMMAND"));
    }
    if command == "elect" && is_about(answer, &["--wait", "--try"]) {
        output::say(
            "a candidate waits until it leads, and has no --wait or --try; to lead only if that can be soon, use: oarlock run \
             NAME --wait DURATION --value TEXT -- COMMAND",
        );
    }
    exit::USAGE
}

/// Was it one of these arguments that is not known?
fn is_about(answer: &clap::Error, unknown: &[&str]) -> bool {
    match answer.get(ContextKind::InvalidArg) {
        Some(ContextValue::String(argument)) if answer.kind() == ErrorKind::UnknownArgument => {
            unknown.contains(&argument.as_str())
        }
        _ => false,
    }
}

fn end(work: impl Future<Output = Result<u8, Failure>>) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(work);
            // A look-up of a host's name that was given up would be waited for.
            runtime.shutdown_background();
            result
        }
        Err(error) => Err(Failure::new(exit::OS_ERROR, format!("cannot start: {error}"))),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if let Some(message) = failure.message {
                output::say(message);
            }
            ExitCode::from(failure.code)
        }
    }
}

async fn dispatch(cli: Cli) -> Result<u8, Failure> {
    let settings = &cli.settings;
    match &cli.command {
        Command::Run(args) => {
            let started = Instant::now();
            output::trace(settings.verbose);
            args.check()?;
            let config = config::choose(settings, args.job.label())?;
            let args = RunArgs { wait: args.wait.or(config.longest_wait()), ..args.clone() };
            let connecting = in_time(args.connects_within(), config::connect(settings, config));
            on_locks(connecting, async |locks| run::run(&args, locks, started).await).await
        }
        Command::Elect(args) => {
            output::trace(settings.verbose);
            args.check()?;
            let config = config::choose(settings, args.job.label())?;
            let connecting = async { run::unless_interrupted(config::connect_in_the_end(settings, config)).await? };
            on_locks(connecting, async |locks| run::elect(args, locks).await).await
        }
        Command::Leader(args) => looking(settings, async |locks| leader::leader(args, locks).await).await,
        Command::Inspect(args) => looking(settings, async |locks| show::inspect(args, locks).await).await,
        Command::List(args) => looking(settings, async |locks| show::list(args, locks).await).await,
        Command::Evict(args) => looking(settings, async |locks| evict::evict(args, locks).await).await,
        Command::Resize { name, permits } => {
            looking(settings, async |locks| resize::resize(name, *permits, locks).await).await
        }
        Command::Latch(args) => looking(settings, async |locks| latch::latch(args, locks).await).await,
        Command::Tokens(command) => looking(settings, async |locks| tokens::tokens(command, locks).await).await,
        Command::Fence(command) => fence::fence(command),
        Command::Doctor(args) => looking(settings, async |locks| show::doctor(args, locks).await).await,
        Command::Top(args) => {
            let url = args.store.clone().or_else(|| settings.url.clone());
            let settings = Settings { url, ..settings.clone() };
            looking(&settings, async |locks| top::top(args, locks).await).await
        }
        Command::Compare(args) => {
            output::trace(settings.verbose);
            compare::compare(args, settings).await
        }
        Command::Schema { store } => config::schema(settings, store.as_deref()),
        Command::Completions { shell } => generate::completions(*shell),
        Command::Man { command } => generate::man(command.as_deref()),
    }
}

/// Connects for a command that runs no other.
async fn looking(settings: &Settings, work: impl AsyncFnOnce(&Locks) -> Result<u8, Failure>) -> Result<u8, Failure> {
    output::trace(settings.verbose);
    let config = config::choose(settings, None)?;
    on_locks(config::connect(settings, config), work).await
}

/// Ends connecting when this time is over.
async fn in_time(
    within: Option<Duration>,
    connecting: impl Future<Output = Result<Locks, Failure>>,
) -> Result<Locks, Failure> {
    let Some(within) = within else { return connecting.await };
    match tokio::time::timeout(within, connecting).await {
        Ok(connected) => connected,
        Err(_) => {
            let within = humantime::format_duration(within);
            let message = format!(
                "the store was not reached within {within}; look whether it runs, or if it is a file, who is writing to it; or \
                 allow a longer wait"
            );
            Err(Failure::new(exit::UNAVAILABLE, message))
        }
    }
}

/// Works with what is connected to, and gives back whatever the work left taken.
async fn on_locks(
    connecting: impl Future<Output = Result<Locks, Failure>>,
    work: impl AsyncFnOnce(&Locks) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    let locks = connecting.await?;
    let result = work(&locks).await;
    for name in locks.shutdown(SHUTDOWN).await.unreleased {
        output::say(format!("the store did not confirm the release of {name:?}: it is free when its lease is over"));
    }
    result
}
