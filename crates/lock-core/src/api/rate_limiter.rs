//! So many permits in a time, for all processes together.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::contract::options::{LockOptions, MAX_DURATION};
use crate::contract::{Error, ErrorKind, Instant, LIMIT, LockName, Reservation, Reserved, Result};
use crate::engine::core::{Core, closed, sleep_until};

/// A block is what the rate gives in this time, unless [`RateLimiter::block`] says otherwise.
const BLOCK: Duration = Duration::from_millis(20);

/// A handle for a rate that all who use the name keep together. Made by [`Locks::rate_limiter`](crate::Locks::rate_limiter).
/// Making and cloning it costs no I/O. Clones share what they fetch: they are one client.
///
/// Nothing is held, and nothing is given back. Permits that nobody takes are not saved up: after a pause the next come at
/// the rate, and not all at once. So there is no burst at the end of one minute and the begin of the next.
///
/// A client fetches permits in blocks, in one request each, and gives them to its tasks in the order in which they come.
/// Over any window of time no more are taken than the rate gives in that time, and one [block](Self::block) more for
/// each client. Time is the store's; only what a client that waits is told to wait goes by its own clock. Clients take turns
/// in the order in which they ask the store. Another client's block keeps them waiting for half a block's time at most.
///
/// All who use a name have to say the same rate. The store keeps no rate, so another one is not refused.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
/// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
/// use std::time::Duration;
/// let mails = locks.rate_limiter("mails", 100, Duration::from_secs(60))?;
/// mails.acquire(1).await?;
/// assert!(!mails.try_acquire(1).await?); // the next one comes after 600 ms
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct RateLimiter {
    line: Arc<Line>,
    wait: Option<Duration>,
}

/// What the clones of one handle share.
struct Line {
    core: Arc<Core>,
    name: LockName,
    rate: Rate,
    /// How many permits are fetched at a time: half a block. For a client may have so many left, and the store gives so many
    /// at once.
    fetched: u32,
    pool: Mutex<Pool>,
    /// Whoever has it asks the store, or waits for what was asked for.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Pool {
    left: u32,
    /// So many are there from then on.
    coming: Option<(u32, Instant)>,
    /// How many tasks wait.
    waiting: usize,
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    permits: u32,
    per: Duration,
}

/// What came of a wish.
enum Taken {
    Yes,
    /// It would have taken longer than the wait; so long, if that is known.
    Late(Option<Duration>),
}

/// What to do for more permits.
enum Next {
    Wait(u32, Instant),
    Ask(u32),
}

impl Rate {
    /// How long so many permits take: rather too long by less than a microsecond.
    fn time_for(self, permits: u32) -> Duration {
        let micros = (u128::from(permits) * self.per.as_micros()).div_ceil(u128::from(self.permits));
        Duration::from_micros(micros.min(u128::from(u64::MAX)) as u64)
    }

    /// How many permits come in this time.
    fn within(self, time: Duration) -> u32 {
        let permits = u128::from(self.permits) * time.as_micros() / self.per.as_micros().max(1);
        permits.min(u128::from(u32::MAX)) as u32
    }

    fn check(self) -> Result<()> {
        let wrong = match self {
            Self { permits: 0, .. } => "a rate of no permits lets nobody through: say at least one",
            Self { per, .. } if per.as_micros() == 0 => "a rate is so many permits in some time: say at least 1 us",
            Self { per, .. } if per > MAX_DURATION => "the time of a rate is longer than 366 days",
            _ => return Ok(()),
        };
        Err(Error::new(ErrorKind::Invalid, wrong))
    }
}

impl RateLimiter {
    /// # Errors
    /// [`Unsupported`](crate::ErrorKind::Unsupported) where the store cannot do it, [`Invalid`](crate::ErrorKind::Invalid) for the rate.
    pub(crate) fn new(
        core: Arc<Core>,
        name: LockName,
        permits: u32,
        per: Duration,
        options: LockOptions,
    ) -> Result<Self> {
        let rate = Rate { permits, per };
        let checked = match core.capabilities.limits_rates {
            true => rate.check(),
            false => Err(core.capabilities.cannot(LIMIT)),
        };
        checked.map_err(|error| core.context(error, "rate_limiter", Some(&name)))?;
        let line = Line::new(core, name, rate, rate.within(BLOCK));
        Ok(Self { line: Arc::new(line), wait: options.wait })
    }

    /// How long an acquisition may take in all. If the permits come later than that, it is told so at once, and takes none.
    /// With `None` it waits without end.
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.wait = wait.into();
        self
    }

    /// By how many permits a client may be above the rate, at least one: the larger, the fewer requests. Without a choice it
    /// is what the rate gives in 20 ms. Half of them are fetched at a time. This handle is then a client of its own.
    pub fn block(mut self, permits: u32) -> Self {
        let Line { core, name, rate, .. } = &*self.line;
        self.line = Arc::new(Line::new(Arc::clone(core), name.clone(), *rate, permits));
        self
    }

    /// Waits until so many permits are there, or until [`RateLimiter::wait`] is over. Those who want many wait longer, and
    /// those of this process who come later wait behind them.
    ///
    /// # Errors
    /// - [`ErrorKind::Timeout`] if they come later than the wait is over; then none were taken.
    /// - [`ErrorKind::Invalid`] for none.
    /// - Else as the store says. A store that is away is an error at once, and lets nobody through.
    ///
    /// # Cancel safety
    /// May be dropped at any point. A request that was on its way may have taken a block from all: less is used then than the rate
    /// allows. What was waited for goes to the next task.
    ///
    /// # If the reply is lost
    /// That is an [`ErrorKind::Unknown`]. The permits may have been taken, and nobody has them.
    pub async fn acquire(&self, permits: u32) -> Result<()> {
        match self.line.take(permits, self.wait, "acquire").await? {
            Taken::Yes => Ok(()),
            Taken::Late(late) => {
                let words = |time: Duration| {
                    humantime::format_duration(Duration::from_millis(time.as_micros().div_ceil(1000) as u64))
                };
                let waited = words(self.wait.unwrap_or_default());
                let told = match late {
                    Some(late) => format!("not within {waited}: the permits come in {}", words(late)),
                    None => format!("not within {waited}: other tasks of this process wait before"),
                };
                Err(self.line.failed(Error::new(ErrorKind::Timeout, told), "acquire"))
            }
        }
    }

    /// Takes so many permits now, or none: `false` means that they are not there yet, or that others of the process wait.
    ///
    /// # Errors
    /// As [`RateLimiter::acquire`], but for the timeout.
    ///
    /// # Cancel safety
    /// As [`RateLimiter::acquire`].
    ///
    /// # If the reply is lost
    /// As [`RateLimiter::acquire`].
    pub async fn try_acquire(&self, permits: u32) -> Result<bool> {
        Ok(matches!(self.line.take(permits, Some(Duration::ZERO), "try_acquire").await?, Taken::Yes))
    }
}

impl Line {
    fn new(core: Arc<Core>, name: LockName, rate: Rate, block: u32) -> Self {
        let fetched = (block / 2).max(1);
        Self { core, name, rate, fetched, pool: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn failed(&self, error: Error, op: &'static str) -> Error {
        self.core.context(error, op, Some(&self.name))
    }

    async fn take(&self, permits: u32, wait: Option<Duration>, op: &'static str) -> Result<Taken> {
        self.core.check_open(op)?;
        if permits == 0 {
            return Err(self.failed(Error::new(ErrorKind::Invalid, "no permits were asked for: ask for one"), op));
        }
        {
            let mut pool = self.pool();
            if pool.waiting == 0 && pool.left >= permits {
                pool.left -= permits;
                return Ok(Taken::Yes);
            }
            pool.waiting += 1;
        }
        let _waits = Waits(self);
        let clock = &self.core.clock;
        let deadline = wait.map(|wait| clock.now() + wait.min(MAX_DURATION));
        let _turn = tokio::select! {
            biased;
            turn = self.turn.lock() => turn,
            () = self.core.closed.cancelled() => return Err(self.failed(closed(), op)),
            () = sleep_until(&**clock, deadline) => return Ok(Taken::Late(None)),
        };
        let mut ours = false;
        loop {
            let next = {
                let mut pool = self.pool();
                if pool.left >= permits {
                    pool.left -= permits;
                    return Ok(Taken::Yes);
                }
                pool.coming.map_or(Next::Ask(permits - pool.left), |(many, at)| Next::Wait(many, at))
            };
            let now = clock.now();
            match next {
                Next::Wait(_, at) if !ours && deadline.is_some_and(|deadline| deadline < at) => {
                    return Ok(Taken::Late(Some(at.saturating_duration_since(now))));
                }
                Next::Wait(many, at) => {
                    tokio::select! {
                        biased;
                        () = self.core.closed.cancelled() => return Err(self.failed(closed(), op)),
                        () = clock.sleep_until(at), if at > now => {}
                        () = std::future::ready(()), if at <= now => {}
                    }
                    let mut pool = self.pool();
                    pool.coming = None;
                    // Of what another asked for and did not wait for, no more is kept than a client may have.
                    pool.left += if ours { many } else { many.min(self.fetched) };
                }
                Next::Ask(missing) => {
                    let many = missing.max(self.fetched);
                    let length = self.rate.time_for(many);
                    let ahead = length.saturating_sub(self.rate.time_for(self.fetched));
                    let within = deadline.map_or(MAX_DURATION, |deadline| deadline.saturating_duration_since(now));
                    let wanted = Reservation::new(length, ahead, within);
                    let reserved = tokio::select! {
                        biased;
                        reserved = self.core.backend.reserve(&self.name, &wanted) => reserved,
                        () = self.core.closed.cancelled() => Err(closed()),
                    };
                    match reserved.map_err(|error| self.failed(error, op))? {
                        Reserved::TooLate(late) => return Ok(Taken::Late(Some(late))),
                        Reserved::In(time) => {
                            ours = true;
                            self.pool().coming = Some((many, clock.now() + time));
                        }
                    }
                }
            }
        }
    }
}

/// A task that waits, as long as this is there.
struct Waits<'a>(&'a Line);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.pool().waiting -= 1;
    }
}

impl fmt::Debug for RateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line { name, rate, fetched, .. } = &*self.line;
        let mut shown = f.debug_struct("RateLimiter");
        shown.field("name", name).field("rate", rate).field("fetched", fetched).field("wait", &self.wait).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permits_take_their_time() {
        let rate = |permits, per| Rate { permits, per };
        let minute = rate(100, Duration::from_secs(60));
        assert_eq!(minute.time_for(1), Duration::from_millis(600));
        assert_eq!(minute.within(BLOCK), 0);
        let thirds = rate(3, Duration::from_micros(10));
        assert_eq!([1, 2, 3].map(|permits| thirds.time_for(permits).as_micros()), [4, 7, 10]);
        let fast = rate(50_000, Duration::from_secs(1));
        assert_eq!((fast.within(BLOCK), fast.time_for(500)), (1000, Duration::from_millis(10)));
        for wrong in [rate(0, BLOCK), rate(1, Duration::ZERO), rate(1, MAX_DURATION * 2)] {
            assert_eq!(wrong.check().unwrap_err().kind(), ErrorKind::Invalid);
        }
    }
}
