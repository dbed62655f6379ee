//! The developer's commands: `cargo xtask setup`, `cargo xtask test`, and what `trials` does.
#![forbid(unsafe_code)]

mod cross;
mod deny;
mod dist;
mod setup;
mod test;

use std::process::{Command, ExitCode};

const USAGE: &str = "Usage: cargo xtask COMMAND

  setup           installs what building and testing everything needs and the machine lacks
  test [WORD…]    does that, and passes all tests, or those programs with a WORD in their names
  cross           checks that the libraries build for macOS and Windows, and the program for macOS
  deny [WHICH…]   checks licences and sources of the dependencies; `deny advisories` asks GitHub for known faults
  dist            packs the program, its manual pages and completions into target/dist
  torture BACKEND, slots BACKEND, fail-overs BACKEND, permits BACKEND, several BACKEND, observers BACKEND, compare,
  bench, scale, soak STORE, guarantees, models, fuzz, api
                  test and measure stores; `cargo xtask COMMAND --help` says how";

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    // Paths are those of the repository, wherever in it one is.
    if let Err(error) = std::env::set_current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")) {
        eprintln!("xtask: the repository is not where this was built: {error}");
        return ExitCode::FAILURE;
    }
    let done = match arguments[..] {
        ["setup"] => setup::set_up(),
        ["cross"] => cross::check(),
        ["deny", ref which @ ..] if !which.iter().any(|word| word.starts_with('-')) => deny::check(which),
        ["dist"] => dist::pack(),
        ["test", ref words @ ..] if !words.iter().any(|word| word.starts_with('-')) => test::run(words),
        [] | ["setup" | "cross" | "deny" | "dist" | "test" | "help" | "-h" | "--help", ..] => {
            println!("{USAGE}");
            return if matches!(arguments[..], ["help" | "-h" | "--help", ..] | [_, "-h" | "--help"]) {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            };
        }
        _ => trial(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("xtask: {wrong}");
            ExitCode::FAILURE
        }
    }
}

/// What takes the stores' clients to do is another program.
fn trial(arguments: &[&str]) -> Result<(), String> {
    if !arguments.iter().any(|word| ["-h", "--help"].contains(word)) {
        setup::set_up()?;
    }
    let status = cargo(&["run", "--locked", "--quiet", "-p", "trials", "--"]).args(arguments).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{}: {status}", arguments.join(" "))),
        Err(error) => Err(format!("cargo cannot be run: {error}")),
    }
}

/// The cargo that runs this.
fn cargo(arguments: &[&str]) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.args(arguments);
    cargo
}
