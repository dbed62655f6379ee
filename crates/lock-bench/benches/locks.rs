//! `cargo bench -p lock-bench`: every bar of the embedded backends in one run. Ends with an error if one is missed.

use std::process::ExitCode;
use std::time::Duration;

use lock_bench::{contended, memory, sqlite};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(contended::WORKER) {
        runtime.block_on(contended::work(arguments));
        return ExitCode::SUCCESS;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let second = Duration::from_secs(1);
    let figures = [
        runtime.block_on(memory::uncontended(7, second / 2)),
        runtime.block_on(sqlite::uncontended(folder.path(), 7, second)),
        contended::eight_processes(folder.path(), 5, second * 4),
        runtime.block_on(memory::kept(10_000, 3)),
    ];
    println!("\nRatios, median (lowest–highest round):");
    figures.iter().for_each(|figure| figure.print());
    if figures.iter().all(|figure| figure.is_met()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
