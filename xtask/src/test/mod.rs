//! All tests, with their own set-up: everything is built once, and then the programs run side by side.

mod build;
mod job;
mod load;
mod report;

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use job::{Job, Running};
use load::Load;
use report::Report;

use crate::setup;

/// So many run at once however busy the machine is: one that waits for a lease's end must not hold up all. More would
/// have servers and clients wait for the cores.
const AT_LEAST: usize = 3;

/// Each may have a dozen cases under way, and servers in memory.
const AT_MOST: usize = 12;

/// Many times what the longest takes. What has not ended by then does not end.
const LIMIT: Duration = Duration::from_secs(900);

/// Passes all tests whose program has one of these words in its name; all without words.
pub(crate) fn run(words: &[&str]) -> Result<(), String> {
    let start = Instant::now();
    setup::set_up()?;
    let mut jobs = build::jobs()?;
    if !words.is_empty() {
        jobs.retain(|job| words.iter().any(|word| job.name.contains(word)));
    }
    if jobs.is_empty() {
        return Err(format!("no test program has {} in its name", words.join(" or ")));
    }
    let times = report::times();
    // What takes longest comes first, so that nothing long remains at the end; of what is new nobody knows.
    jobs.sort_by_key(|job| std::cmp::Reverse(times.get(&job.name).copied().unwrap_or(Duration::MAX)));
    let mut report = Report::new(start, jobs.len());
    side_by_side(jobs.into(), &mut report)?;
    report.end()
}

/// Where cargo puts what it makes, and we what is worth keeping.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from)
}

/// They mostly wait, so as many run as leave the cores something to do.
fn side_by_side(mut waiting: VecDeque<Job>, report: &mut Report) -> Result<(), String> {
    let mut running: Vec<Running> = Vec::new();
    let mut load = Load::new();
    while !waiting.is_empty() || !running.is_empty() {
        let room = running.len() < AT_LEAST || running.len() < AT_MOST && load.leaves_room();
        if room && let Some(job) = waiting.pop_front() {
            running.push(job.start()?);
        }
        for at in (0..running.len()).rev() {
            if let Some(ended) = running[at].look(LIMIT)? {
                running.swap_remove(at);
                report.ended(ended, running.iter().map(|one| one.name()), waiting.len());
            }
        }
        report.show(running.iter().map(|one| one.name()), waiting.len());
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
