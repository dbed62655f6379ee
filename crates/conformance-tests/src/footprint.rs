//! How much a process takes up, as the system says.

use std::fmt;
use std::fs;
use std::io;
use std::time::Duration;

use nix::unistd::Pid;
use tokio::time::{Instant, sleep_until};

/// What a process takes up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// In memory, in bytes, what it shares with others not counted.
    pub bytes: u64,
    /// Open files and connections.
    pub files: usize,
    /// Threads.
    pub threads: usize,
}

impl Footprint {
    /// Of this process, now.
    ///
    /// # Errors
    /// If it is gone, or the system does not tell: it has to be Linux.
    pub(crate) fn of(pid: Pid) -> io::Result<Self> {
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
        let private = rollup.lines().filter(|line| line.starts_with("Private_"));
        let kilobytes: u64 = private.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum();
        let count = |what: &str| Ok::<_, io::Error>(fs::read_dir(format!("/proc/{pid}/{what}"))?.count());
        Ok(Self { bytes: kilobytes * 1024, files: count("fd")?, threads: count("task")? })
    }

    /// The least of each.
    fn least(self, other: Self) -> Self {
        let Self { bytes, files, threads } = other;
        Self { bytes: self.bytes.min(bytes), files: self.files.min(files), threads: self.threads.min(threads) }
    }
}

/// The least that each of these took up until then, looked at each second: what it needs for a fault does not count.
///
/// # Errors
/// If one is gone.
pub(crate) async fn least(processes: &[(String, Pid)], until: Instant) -> io::Result<Vec<Footprint>> {
    let now = || processes.iter().map(|(_, pid)| Footprint::of(*pid)).collect::<io::Result<Vec<_>>>();
    let mut least = now()?;
    while Instant::now() < until {
        sleep_until(until.min(Instant::now() + Duration::from_secs(1))).await;
        least = least.into_iter().zip(now()?).map(|(least, now)| least.least(now)).collect();
    }
    Ok(least)
}

impl fmt::Display for Footprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { bytes, files, threads } = self;
        write!(f, "{:.1} MB, {files} files, {threads} threads", *bytes as f64 / 1e6)
    }
}
