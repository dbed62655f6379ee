//! `oarlock`: run a command under a distributed lock, look at locks, break one.

#![forbid(unsafe_code)]

mod args;
mod config;
mod evict;
mod exit;
mod generate;
mod output;
mod run;
mod show;

use std::process::ExitCode;
use std::time::Duration;

use args::{Cli, Command};
use clap::Parser;
use exit::Failure;

/// How long the end of the program may take to give back what it took.
const SHUTDOWN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(answer) => {
            // A help text that nobody reads to its end is no failure.
            let _ = answer.print();
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
    match &cli.command {
        Command::Guard(args) => return run::guard(args).await,
        Command::Completions { shell } => return generate::completions(*shell),
        Command::Man { command } => return generate::man(command.as_deref()),
        _ => {}
    }
    output::trace(cli.settings.verbose);
    let label = match &cli.command {
        Command::Run(args) => args.label(),
        _ => None,
    };
    let locks = config::connect(&cli.settings, label).await?;
    let result = match &cli.command {
        Command::Run(args) => run::run(args, &locks).await,
        Command::Inspect(args) => show::inspect(args, &locks).await,
        Command::List(args) => show::list(args, &locks).await,
        Command::Evict(args) => evict::evict(args, &locks).await,
        Command::Doctor(args) => show::doctor(args, &locks).await,
        Command::Guard(_) | Command::Completions { .. } | Command::Man { .. } => unreachable!("returned above"),
    };
    for name in locks.shutdown(SHUTDOWN).await.unreleased {
        output::say(format!("the store did not confirm the release of {name:?}: it is free when its lease is over"));
    }
    result
}
