//! The store's clock. All processes that share the file run on one host, so it is the host's.

use std::time::{SystemTime, UNIX_EPOCH};

/// No token made of the wall clock is above this, so that a clock that was once set to the far future does not use up
/// the numbers for ever.
const LATEST_WALL_US: i64 = 1 << 54;

/// The time that a statement is sent with, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    /// Since the host started; it counts while the host sleeps, and setting the wall clock does not move it.
    pub(super) host_us: i64,
    /// Since 1970, as the wall clock has it. Only rows of another boot, and tokens, look at it.
    pub(super) wall_us: i64,
}

/// Reads the host's time.
///
/// It is read just before a statement is sent, not by SQLite while it runs. A reading that has become stale meanwhile
/// is older than the truth: it makes us see another's lease as still running, and our own end early. Both are safe.
#[derive(Debug)]
pub(super) struct HostClock {
    boot: i64,
    /// By how much our time namespace is ahead of the host.
    ahead_us: i64,
    #[cfg(test)]
    wall_ahead_us: i64,
}

impl HostClock {
    /// The clock of the host that this process runs on.
    pub(super) fn new() -> Self {
        // Without the boot's id (not on Linux, or hidden) the readings of two boots cannot be told apart: wall time
        // then.
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let offsets = std::fs::read_to_string("/proc/self/timens_offsets").unwrap_or_default();
        Self {
            boot: boot_number(&boot),
            ahead_us: boottime_offset_us(&offsets),
            #[cfg(test)]
            wall_ahead_us: 0,
        }
    }

    /// The boot that [`Moment::host_us`] counts from; zero where there is only wall time.
    pub(super) fn boot(&self) -> i64 {
        self.boot
    }

    /// The time now.
    pub(super) fn now(&self) -> Moment {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let wall_us = i64::try_from(wall.as_micros()).unwrap_or(i64::MAX).min(LATEST_WALL_US);
        #[cfg(test)]
        let wall_us = wall_us + self.wall_ahead_us;
        let host_us = if self.boot == 0 { wall_us } else { boottime_us() - self.ahead_us };
        Moment { host_us, wall_us }
    }
}

#[cfg(target_os = "linux")]
fn boottime_us() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1_000_000 + now.tv_nsec / 1000
}

#[cfg(not(target_os = "linux"))]
fn boottime_us() -> i64 {
    unreachable!("only Linux has a boot id")
}

/// Half of a boot's random id, so that rows stay short.
fn boot_number(id: &str) -> i64 {
    let digits: String = id.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0).cast_signed()
}

/// The offset of the time namespace, from the text of `/proc/self/timens_offsets`: `boottime 86400 0`.
fn boottime_offset_us(offsets: &str) -> i64 {
    let parse = |line: &str| {
        let mut words = line.split_whitespace();
        let found = words.next()? == "boottime" || line.starts_with("7 ");
        let (seconds, nanos): (i64, i64) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        found.then_some(seconds.saturating_mul(1_000_000) + nanos / 1000)
    };
    offsets.lines().find_map(parse).unwrap_or(0)
}

#[cfg(test)]
impl HostClock {
    /// A clock that differs from the host's.
    pub(super) fn shifted(boot: i64, ahead_us: i64, wall_ahead_us: i64) -> Self {
        Self { boot, ahead_us: -ahead_us, wall_ahead_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_namespace_s_offset_is_taken_off() {
        assert_eq!(
            boottime_offset_us("monotonic           5         0\nboottime         -20 500000000\n"),
            -19_500_000
        );
        assert_eq!(boottime_offset_us("monotonic 1 0\n"), 0);
        assert_eq!(boottime_offset_us("boottime x\n"), 0);
    }

    #[test]
    fn boots_are_told_apart() {
        assert_eq!(boot_number("00000000-0000-4001-8000-00000000000a\n"), 0x4001);
        assert_eq!(boot_number("ffffffff-ffff-fffe-8000-00000000000a\n"), -2);
        assert_eq!(boot_number(""), 0);
    }

    #[test]
    fn a_step_of_the_wall_clock_does_not_move_the_host_s_time() {
        let (plain, stepped) = (HostClock::shifted(1, 0, 0), HostClock::shifted(1, 0, -3_600_000_000));
        let (before, after) = (plain.now(), stepped.now());
        assert!(after.host_us >= before.host_us);
        assert!(after.wall_us < before.wall_us);
        assert!(
            HostClock::shifted(0, 0, 7_000_000).now().host_us > before.wall_us,
            "without a boot id it is wall time"
        );
    }
}
