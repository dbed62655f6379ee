//! The developer's commands: `cargo xtask setup`, `cargo xtask test`, `cargo xtask torture BACKEND`,
//! `cargo xtask compare`, `cargo xtask bench`, `cargo xtask guarantees`, `cargo xtask fuzz`.
#![forbid(unsafe_code)]

mod bench;
#[cfg(test)]
mod cases;
mod compare;
mod fuzz;
mod guarantees;
mod record;
mod test;
mod torture;

use std::process::ExitCode;

use clap::Parser;

/// The developer's commands.
#[derive(Debug, Parser)]
enum Command {
    /// Installs what building and testing everything needs and the machine lacks.
    Setup,
    /// Passes all tests, and does what they need beforehand.
    Test,
    /// Strikes those who take locks, their networks and the server at random, and checks what they saw.
    Torture(torture::Options),
    /// Compares every store that can be started here, and writes the report.
    Compare(compare::Options),
    /// Makes the page of guarantees, docs/guarantees.md.
    Guarantees(guarantees::Options),
    /// Gives what reads text whatever leads deeper into it.
    Fuzz(fuzz::Options),
    /// Measures everything that has a bar, and writes the page of it.
    Bench(bench::Options),
}

fn main() -> ExitCode {
    // The torture's workers are this program, started again.
    if let Some(code) = conformance_tests::worker_main(&oarlock::registry()) {
        return code;
    }
    let done = match Command::parse() {
        Command::Setup => test::set_up(),
        Command::Test => test::run(),
        Command::Torture(options) => torture::run(&options),
        Command::Compare(options) => compare::run(&options),
        Command::Guarantees(options) => guarantees::run(&options),
        Command::Fuzz(options) => fuzz::run(&options),
        Command::Bench(options) => bench::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("xtask: {wrong}");
            ExitCode::FAILURE
        }
    }
}
