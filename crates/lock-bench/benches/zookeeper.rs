//! `cargo bench -p lock-bench --bench zookeeper`: the bars of ZooKeeper, or those whose name has a word in it that is given
//! after `--`. Ends with an error if one is missed.

use std::process::ExitCode;
use std::time::Duration;

use lock_bench::zookeeper::{self, WORKER};

fn main() -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|first| first == WORKER).is_some() {
        runtime.block_on(zookeeper::work(arguments));
        return ExitCode::SUCCESS;
    }
    let words: Vec<_> = arguments.filter(|argument| !argument.starts_with('-')).collect();
    let wanted = |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let folder = tempfile::tempdir().expect("a temporary folder");
    let second = Duration::from_secs(1);
    let mut figures = Vec::new();
    if wanted("uncontended") {
        figures.push(runtime.block_on(zookeeper::uncontended(7, second)));
    }
    if wanted("processes") {
        figures.extend(zookeeper::eight_processes(folder.path(), 3, second * 3));
    }
    println!("\nRatios, median (lowest–highest round):");
    figures.iter().for_each(|figure| figure.print());
    if figures.iter().all(|figure| figure.is_met()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
