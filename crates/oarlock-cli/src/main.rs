//! `oarlock`: run a command under a distributed lock, look at locks, break one.

#![forbid(unsafe_code)]

mod args;
mod compare;
mod config;
mod evict;
mod exit;
mod generate;
mod itself;
mod output;
mod run;
mod show;
mod top;

use std::env;
use std::process::ExitCode;
use std::time::Duration;

use args::{Cli, Command, Settings};
use clap::Parser;
use exit::Failure;
use oarlock::Locks;

/// How long the end of the program may take to give back what it took.
const SHUTDOWN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            if answer.use_stderr() && env::args().any(|argument| argument.contains("://") && argument.contains('@')) {
                // It quotes what is wrong, which may be a URL in the wrong place, with a password.
                output::say("wrong usage, which is not quoted because of a URL with a user in it; see --help");
            } else {
                // A help text that nobody reads to its end is no failure.
                let _ = answer.print();
            }
            return ExitCode::from(if answer.use_stderr() { exit::USAGE } else { 0 });
        }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(dispatch(cli)),
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
        Command::Run(args) => on_locks(settings, args.label(), async |locks| run::run(args, locks).await).await,
        Command::Inspect(args) => on_locks(settings, None, async |locks| show::inspect(args, locks).await).await,
        Command::List(args) => on_locks(settings, None, async |locks| show::list(args, locks).await).await,
        Command::Evict(args) => on_locks(settings, None, async |locks| evict::evict(args, locks).await).await,
        Command::Doctor(args) => on_locks(settings, None, async |locks| show::doctor(args, locks).await).await,
        Command::Top(args) => {
            let url = args.store.clone().or_else(|| settings.url.clone());
            let settings = Settings { url, ..settings.clone() };
            on_locks(&settings, None, async |locks| top::top(args, locks).await).await
        }
        Command::Compare(args) => {
            output::trace(settings.verbose);
            compare::compare(args, settings).await
        }
        Command::Guard(args) => run::guard(args).await,
        Command::Schema { store } => config::schema(settings, store.as_deref()),
        Command::Worker => compare::work().await,
        Command::Completions { shell } => generate::completions(*shell),
        Command::Man { command } => generate::man(command.as_deref()),
    }
}

/// Connects, works, and gives back whatever the work left taken.
async fn on_locks(
    settings: &Settings,
    label: Option<String>,
    work: impl AsyncFnOnce(&Locks) -> Result<u8, Failure>,
) -> Result<u8, Failure> {
    output::trace(settings.verbose);
    let locks = config::connect(settings, label).await?;
    let result = work(&locks).await;
    for name in locks.shutdown(SHUTDOWN).await.unreleased {
        output::say(format!("the store did not confirm the release of {name:?}: it is free when its lease is over"));
    }
    result
}
