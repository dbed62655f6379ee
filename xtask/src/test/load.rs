//! How busy the machine is, by what it says of its cores.

use std::fs;
use std::time::{Duration, Instant};

/// How long the cores are watched after something started.
const WATCHED: Duration = Duration::from_millis(1000);

/// So much of the cores' time has nothing to do where there is room for one more.
const IDLE: f64 = 0.25;

pub(crate) struct Load {
    since: Instant,
    /// What the cores had spent idle and in all by then, in the system's units.
    idle: u64,
    all: u64,
}

impl Load {
    pub(crate) fn new() -> Self {
        let (idle, all) = spent();
        Self { since: Instant::now(), idle, all }
    }

    /// Were the cores idle enough lately? Whoever is told so starts something, and is told no more for a while.
    pub(crate) fn leaves_room(&mut self) -> bool {
        if self.since.elapsed() < WATCHED {
            return false;
        }
        let before = std::mem::replace(self, Self::new());
        let all = self.all.saturating_sub(before.all).max(1);
        let idle = self.idle.saturating_sub(before.idle);
        idle as f64 / all as f64 >= IDLE
    }
}

/// Without such a file, the cores are never idle, and few things run at once.
fn spent() -> (u64, u64) {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = text.lines().next().unwrap_or_default();
    let times: Vec<u64> = line.split_whitespace().skip(1).filter_map(|time| time.parse().ok()).collect();
    // Idle, and waiting for a disk.
    (times.iter().skip(3).take(2).sum(), times.iter().take(8).sum())
}
