//! Time as the core sees it: one clock that can be injected, and instants of that clock.

use std::fmt;
use std::ops::Add;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::watch;

/// A point in time of a [`Clock`], as the time since that clock's own origin.
///
/// Instants of different clocks must not be compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The instant this long after the clock's origin.
    pub const fn from_origin(since_origin: Duration) -> Self {
        Self(since_origin)
    }

    /// How long after the clock's origin this is.
    pub const fn since_origin(self) -> Duration {
        self.0
    }

    /// How long after `earlier` this is; zero if it is not after it.
    pub const fn saturating_duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// This instant less `duration`, or the clock's origin if that is later.
    pub const fn saturating_sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates: an instant too far away to be represented is the last one there is.
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// The clock by which leases are counted on our side.
///
/// It never goes back. A backend and the core that uses it share one clock, see
/// [`DistributedLock::clock`](crate::DistributedLock::clock).
#[async_trait]
pub trait Clock: fmt::Debug + Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Instant;

    /// Ends when the clock shows `at` or later. Dropping the future costs nothing.
    async fn sleep_until(&self, at: Instant);

    /// What the wall clock shows, as the time since 1970; `None` if there is nothing to compare this clock with. No
    /// decision is made by it: a step against this clock makes the core ask the store about everything that is held,
    /// for it may be a pause that this clock did not count.
    fn wall(&self) -> Option<Duration> {
        None
    }
}

/// The machine's clock. It counts while the machine is suspended, so that a machine wakes up knowing that its leases are
/// over.
///
/// On Linux it is `CLOCK_BOOTTIME`. On macOS it is `CLOCK_MONOTONIC`, which counts a sleep there. On Windows it is the
/// performance counter, by [`std::time::Instant`], which counts standby and hibernation. On other systems it is
/// `CLOCK_MONOTONIC`, which may leave a suspension out.
///
/// It does not count what the machine's kernel does not: a hypervisor that stops a virtual machine without telling it, a
/// snapshot that is restored, a process that is frozen to disk and thawed (CRIU). After one of these a holder believes
/// in its lease until it has asked the store. It does so within about a second, if the wall clock was set meanwhile; only
/// a resource that checks fencing tokens is safe until then.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// How long the machine has run, or on Windows, this process.
#[cfg(unix)]
fn since_start() -> Duration {
    #[cfg(target_os = "linux")]
    let id = rustix::time::ClockId::Boottime;
    #[cfg(not(target_os = "linux"))]
    let id = rustix::time::ClockId::Monotonic;
    let now = rustix::time::clock_gettime(id);
    Duration::new(now.tv_sec.max(0) as u64, now.tv_nsec.max(0) as u32)
}

/// How long the machine has run, or on Windows, this process.
#[cfg(not(unix))]
fn since_start() -> Duration {
    static START: std::sync::LazyLock<std::time::Instant> = std::sync::LazyLock::new(std::time::Instant::now);
    START.elapsed()
}

/// The runtime's timers stand still during a suspension: a sleep asks the clock again after half of what is left, but no
/// more often than the first and no less often than the second.
const SLICES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// How long to sleep before the clock is asked again.
fn slice(left: Duration) -> Duration {
    left.min((left / 2).clamp(SLICES.0, SLICES.1))
}

#[async_trait]
impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant(since_start())
    }

    async fn sleep_until(&self, at: Instant) {
        loop {
            let now = self.now();
            let left = at.saturating_duration_since(now);
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(slice(left)).await;
            if self.now().saturating_duration_since(now) < slice(left) / 2 {
                // The runtime's time is a test's, and runs ahead of ours.
                let short = left.min(Duration::from_millis(20));
                let _ = tokio::task::spawn_blocking(move || std::thread::sleep(short)).await;
            }
        }
    }

    fn wall(&self) -> Option<Duration> {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()
    }
}

/// A clock that stands still until a test moves it. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<watch::Sender<Times>>);

#[derive(Debug, Clone, Copy)]
struct Times {
    now: Instant,
    wall: Duration,
}

impl Default for ManualClock {
    fn default() -> Self {
        // Not at the origin, so that a test can look at times before the start.
        let now = Instant(Duration::from_secs(1_000_000));
        Self(Arc::new(watch::Sender::new(Times { now, wall: Duration::from_secs(1_700_000_000) })))
    }
}

impl ManualClock {
    /// A clock of its own.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock on, the wall clock with it, and wakes whoever slept until a time that is now past.
    pub fn advance(&self, duration: Duration) {
        self.0.send_modify(|times| *times = Times { now: times.now + duration, wall: times.wall + duration });
    }

    /// Moves the wall clock alone, as if this one had not counted a pause.
    pub fn step_wall(&self, duration: Duration) {
        self.0.send_modify(|times| times.wall += duration);
    }
}

#[async_trait]
impl Clock for ManualClock {
    fn now(&self) -> Instant {
        self.0.borrow().now
    }

    async fn sleep_until(&self, at: Instant) {
        // The sender is alive as long as `self` is, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|times| times.now >= at).await;
    }

    fn wall(&self) -> Option<Duration> {
        Some(self.0.borrow().wall)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        let early = Instant::from_origin(Duration::from_secs(1));
        let late = Instant::from_origin(Duration::from_secs(3));
        assert_eq!(late.saturating_duration_since(early), Duration::from_secs(2));
        assert_eq!(early.saturating_duration_since(late), Duration::ZERO);
        assert_eq!(early.saturating_sub(Duration::from_secs(5)).since_origin(), Duration::ZERO);
        assert_eq!((late + Duration::MAX).since_origin(), Duration::MAX);
    }

    #[tokio::test]
    async fn a_manual_clock_wakes_sleepers_when_it_is_moved() {
        let clock = ManualClock::new();
        let at = clock.now() + Duration::from_secs(10);
        let sleeper = tokio::spawn({
            let clock = clock.clone();
            async move { clock.sleep_until(at).await }
        });
        clock.advance(Duration::from_secs(9));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_secs(1));
        sleeper.await.unwrap();
    }

    #[test]
    fn a_sleep_asks_the_clock_seldom_and_often_near_its_end() {
        for (left, expected) in [(1, 1), (2, 1), (8, 4), (20, 10), (3600, 10)] {
            assert_eq!(slice(Duration::from_secs(left)), Duration::from_secs(expected));
        }
        assert_eq!(slice(Duration::from_millis(5)), Duration::from_millis(5));
    }

    #[tokio::test(start_paused = true)]
    async fn it_does_not_spin_while_the_runtimes_time_stands_still() {
        let began = SystemClock.now();
        let polls = std::cell::Cell::new(0);
        let mut sleep = std::pin::pin!(SystemClock.sleep_until(began + Duration::from_millis(200)));
        std::future::poll_fn(|task| {
            polls.set(polls.get() + 1);
            sleep.as_mut().poll(task)
        })
        .await;
        assert!(SystemClock.now() >= began + Duration::from_millis(200));
        assert!(polls.get() < 100, "{} polls", polls.get());
    }

    #[test]
    fn the_system_clock_does_not_go_back() {
        let first = SystemClock.now();
        assert!(SystemClock.now() >= first);
    }
}
