//! `cargo xtask bench`: all benchmarks, and the page of what they found.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

use clap::Args;

use crate::cargo;

/// What to measure.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Measures only what has one of these words in its name, such as `redis` or `uncontended`, again; the rest of the
    /// page stays.
    words: Vec<String>,
    /// The page.
    #[arg(long, default_value = "docs/performance.md")]
    page: PathBuf,
    /// The figures that it is written from.
    #[arg(long, default_value = "docs/figures/performance.json")]
    record: PathBuf,
}

pub(crate) fn run(options: &Options) -> Result<(), String> {
    if options.words.is_empty() {
        match fs::remove_file(&options.record) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(format!("{}: {error}", options.record.display()));
            }
            _ => {}
        }
    }
    // Cargo runs a benchmark in the folder of its crate.
    let [record, page] = [&options.record, &options.page].map(std::path::absolute);
    let [record, page] = [record, page].map(|path| path.map(|path| path.display().to_string()));
    let (record, page) = (record.map_err(|error| error.to_string())?, page.map_err(|error| error.to_string())?);
    let bench = ["bench", "--locked", "-p", "lock-bench", "--bench", "locks", "--"];
    let arguments = options.words.iter().map(String::as_str).chain(["--record", &record, "--page", &page]);
    cargo(&bench.into_iter().chain(arguments).collect::<Vec<_>>())
}
