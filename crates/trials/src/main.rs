//! What stores are put to the proof with, as the developer's commands `cargo xtask torture BACKEND`, `slots`,
//! `fail-overs`, `permits`, `several`, `observers`, `compare`, `bench`, `scale`, `soak`, `guarantees`, `models`,
//! `fuzz` and `api`.
#![forbid(unsafe_code)]

mod api;
mod bench;
#[cfg(test)]
mod cases;
mod compare;
mod family;
mod foreign;
mod fuzz;
mod guarantees;
mod observers;
mod permits;
mod places;
mod quorum;
mod record;
mod scale;
mod soak;
mod torture;

use std::process::{Command, ExitCode};

use clap::Parser;

/// The commands of `cargo xtask` that measure and prove.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask")]
enum Trial {
    /// Injects random faults into clients, networks and servers while locks are taken, and checks what all of them saw.
    Torture(torture::Options),
    /// Has many processes want to run a job for each slot, some of which are killed or stopped: one run for each.
    Slots(family::Options),
    /// Kills, stops and cuts off one leader after the other: one leads at a time, and all see each.
    FailOvers(family::Options),
    /// Has many want the permits of a semaphore, and kills some of them: as many hold as may, and no more.
    Permits(permits::Options),
    /// Has processes take 3 of 5 locks at once, in random orders, and single locks in order beside.
    Several(family::Options),
    /// Counts what a thousand observers ask while nothing happens.
    Observers(observers::Options),
    /// Compares every store that can be started here, and writes the report.
    Compare(compare::Options),
    /// Makes the page of guarantees, docs/guarantees.md.
    Guarantees(guarantees::Options),
    /// Explores the models of the protocols, and makes the page of them, docs/models.md.
    Models,
    /// Feeds what reads text with whatever leads deeper into it.
    Fuzz(fuzz::Options),
    /// Compares the public interface with its listing.
    Api(api::Options),
    /// Measures everything that has a bar, and writes the page of it.
    Bench(bench::Options),
    /// Measures what grows with the number of clients, waiters, names and kept locks.
    Scale(scale::Options),
    /// Tortures stores for an hour, half of the workers of other libraries, and counts what is left of it.
    Soak(soak::Options),
}

fn main() -> ExitCode {
    // The torture's workers are this program, started again.
    if let Some(code) = conformance_tests::worker_main_with(&oarlock::registry(), places::open) {
        return code;
    }
    let done = match Trial::parse() {
        Trial::Torture(options) => torture::run(&options),
        Trial::Slots(options) => family::run(family::Proof::Slots, &options),
        Trial::FailOvers(options) => family::run(family::Proof::FailOvers, &options),
        Trial::Permits(options) => permits::run(&options),
        Trial::Several(options) => family::run(family::Proof::Several, &options),
        Trial::Observers(options) => observers::run(&options),
        Trial::Compare(options) => compare::run(&options),
        Trial::Guarantees(options) => guarantees::run(&options),
        Trial::Models => models(),
        Trial::Fuzz(options) => fuzz::run(&options),
        Trial::Api(options) => api::run(&options),
        Trial::Bench(options) => bench::run(&options),
        Trial::Scale(options) => scale::run(&options),
        Trial::Soak(options) => soak::run(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("xtask: {wrong}");
            ExitCode::FAILURE
        }
    }
}

fn models() -> Result<(), String> {
    let (file, page) = (record::root().join("docs/models.md"), models::page()?);
    print!("{page}");
    std::fs::write(&file, page).map_err(|error| format!("{}: {error}", file.display()))
}

fn cargo(arguments: &[&str]) -> Result<(), String> {
    println!("== cargo {}", arguments.join(" "));
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    match Command::new(cargo).args(arguments).status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {}: {status}", arguments.join(" "))),
        Err(error) => Err(format!("cargo cannot be run: {error}")),
    }
}
