//! A job that runs once, on one machine of many.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::options::{LockOptions, MAX_DURATION};
use crate::contract::{Error, ErrorKind, KEEP, LockName, OwnerId, Result};
use crate::engine::acquisition::{Acquisition, Verb};
use crate::engine::core::Core;
use crate::engine::{Lease, LockGuard};

/// How long a slot counts as done, unless [`Once::at_least`] says so.
const SLOT: Duration = Duration::from_secs(24 * 3600);

/// So often in a row somebody may be in the way who is gone when we ask who it is.
const TRIES: u32 = 3;

/// A job of which several processes think that it is time for, and which one of them runs. Made by
/// [`Locks::once`](crate::Locks::once).
///
/// A lock alone does not do that: a job of a second runs again on the next host whose clock is two seconds behind. So
/// the lock is tried, not waited for, and it stays taken after the job has ended, without anybody who renews it:
///
/// - with [`slot`](Once::slot), for that time slot, however the clocks differ: what the job is called *and* for what
///   time it runs is one name;
/// - with [`at_least`](Once::at_least), for so long since it began.
///
/// | what happens | what it means |
/// | --- | --- |
/// | the section ends | done: skipped by all others until the time is over |
/// | the section fails ([`try_run`](Once::try_run)), panics or is dropped | the same, or with [`keep_on_failure(false)`](Once::keep_on_failure) it is to be run again, at once |
/// | the process dies | to be run again when its lease is over |
/// | the lock is lost, or [`at_most`](Once::at_most) is over | the section is dropped, and an error says so: to be run again |
/// | the store is away when the section has ended | done, if it comes back within the lease; the background sees to that |
///
/// Nobody runs it again unless somebody asks: that is the scheduler's part.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
/// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
/// use lock_core::OnceRun;
/// let nightly = locks.once("nightly").slot("2026-11-22");
/// assert!(matches!(nightly.run(async |_| "sent").await?, OnceRun::Ran("sent")));
/// let OnceRun::Skipped(skipped) = nightly.run(async |_| "sent").await? else { unreachable!() };
/// assert!(skipped.done);
/// # Ok(()) }
/// ```
#[derive(Clone)]
#[must_use = "it is run by `run`, `try_run` or `begin`"]
pub struct Once {
    core: Arc<Core>,
    name: std::result::Result<LockName, String>,
    slot: Option<String>,
    options: LockOptions,
    at_least: Option<Duration>,
    keep_on_failure: bool,
}

/// What came of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "says whether it ran here"]
pub enum OnceRun<T> {
    /// It ran here, and its section answered this.
    Ran(T),
    /// It did not run here.
    Skipped(Skipped),
}

/// Why a job did not run here.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Skipped {
    /// Who runs it, or ran it; `None` if that ended while we asked, several times in a row.
    pub by: Option<OwnerId>,
    /// Has it been done? Else it is being done.
    pub done: bool,
    /// How long nobody else can run it, by the store's clock, unless a lease is renewed.
    pub remaining: Duration,
}

impl fmt::Display for Skipped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = humantime::format_duration(Duration::from_millis(self.remaining.as_millis() as u64));
        match &self.by {
            Some(by) if self.done => write!(f, "{by} has done it, and nobody does it again for {rest}"),
            Some(by) => write!(f, "{by} is doing it; its lease runs for {rest}"),
            None => f.write_str("others were doing it"),
        }
    }
}

impl Once {
    pub(crate) fn new(core: Arc<Core>, name: Result<LockName>, options: LockOptions) -> Self {
        let options = LockOptions { alone: true, fair: false, ..options };
        let name = name.map_err(|error| error.message().to_owned());
        Self { core, name, slot: None, options, at_least: None, keep_on_failure: true }
    }

    /// For what time it runs, in any form that all who run it share: `2026-11-22`, `2026-11-22T05:00Z`. The lock's name is
    /// the job's, `@` and this, which has no `@` in it. Take the time for which it was planned, not the time at which it happens to start.
    ///
    /// It counts as done for 24 hours, unless [`at_least`](Self::at_least) says otherwise: longer than the clocks
    /// differ and than the latest of all starts late.
    pub fn slot(mut self, slot: impl Into<String>) -> Self {
        self.slot = Some(slot.into());
        self
    }

    /// How long since its beginning nobody else runs it, by a clock that nobody sets.
    pub fn at_least(mut self, time: Duration) -> Self {
        self.at_least = Some(time);
        self
    }

    /// How long it may take: then the section is dropped, and the job is to be run again. Without a choice it is what
    /// `max_hold` is for these locks.
    pub fn at_most(mut self, time: Duration) -> Self {
        self.options.max_hold = Some(time);
        self
    }

    /// Does a section that failed count as done? It does, unless this is `false`.
    pub fn keep_on_failure(mut self, keep: bool) -> Self {
        self.keep_on_failure = keep;
        self
    }

    /// The time after which the job can be run again if its process dies. See [`Mutex::lease`](crate::Mutex::lease).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.choose_lease(lease);
        self
    }

    /// Runs `section` unless another runs it, or has done so. It gets a view of the hold, with the fencing token.
    ///
    /// # Errors
    /// - [`ErrorKind::Invalid`] for a name or a time, also without a slot and a time, and [`ErrorKind::Unsupported`] where
    ///   the store cannot do it. Nothing was done.
    /// - [`ErrorKind::Lost`] if the lock was not held to the section's end: the section was dropped, and another may run
    ///   it.
    /// - Else as [`Mutex::try_lock`](crate::Mutex::try_lock). Nothing was done.
    ///
    /// # Cancel safety
    /// Dropping it drops the section. That counts as a failure.
    ///
    /// # If the reply is lost
    /// When it began: [`ErrorKind::Unknown`], and nothing was run. When it ended: the section's answer; that it is done is
    /// said again in the background, until the store answers or the lease is over.
    pub async fn run<T>(&self, section: impl AsyncFnOnce(Lease) -> T) -> Result<OnceRun<T>> {
        self.attempt(section, |_| false).await
    }

    /// The same with a section that may fail: see [`keep_on_failure`](Self::keep_on_failure).
    ///
    /// # Errors
    /// As [`run`](Self::run). The section's own error is part of the answer.
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn try_run<T, E>(
        &self,
        section: impl AsyncFnOnce(Lease) -> std::result::Result<T, E>,
    ) -> Result<OnceRun<std::result::Result<T, E>>> {
        self.attempt(section, std::result::Result::is_err).await
    }

    async fn attempt<T>(
        &self,
        section: impl AsyncFnOnce(Lease) -> T,
        failed: impl Fn(&T) -> bool,
    ) -> Result<OnceRun<T>> {
        let OnceGuard { mut guard, at_least } = match self.begin().await? {
            Ok(guard) => guard,
            Err(skipped) => return Ok(OnceRun::Skipped(skipped)),
        };
        let output = guard.run(section(guard.lease())).await?;
        if !failed(&output) {
            guard.keep_for(Some(at_least));
        }
        guard.finish().await?;
        Ok(OnceRun::Ran(output))
    }

    /// Begins it unless another runs it, or has done so; for a job that is no section, such as a process of its own. It is
    /// over when [`OnceGuard::done`] or [`OnceGuard::again`] says so.
    ///
    /// # Errors
    /// As [`run`](Self::run), but for the loss.
    ///
    /// # Cancel safety
    /// May be dropped at any point: a job that was begun just then is to be run again, at once.
    ///
    /// # If the reply is lost
    /// That is an [`ErrorKind::Unknown`]; whatever the store did is undone, here or in the background.
    pub async fn begin(&self) -> Result<std::result::Result<OnceGuard, Skipped>> {
        let checked = self.check().map_err(|error| self.core.context(error, "once", self.name.as_ref().ok()));
        let (name, at_least) = checked?;
        for _ in 0..TRIES {
            let acquisition = Acquisition::begin(&self.core, Ok(&name), &self.options, None, Verb::TryLock)?;
            if let Some(mut guard) = acquisition.run().await? {
                guard.keep_for(self.keep_on_failure.then_some(at_least));
                return Ok(Ok(OnceGuard { guard, at_least }));
            }
            let holder = self.core.backend.holder(&name).await;
            let holder = holder.map_err(|error| self.core.context(error, "once", Some(&name)))?;
            if let Some(holder) = holder {
                return Ok(Err(Skipped { by: Some(holder.owner), done: holder.kept, remaining: holder.remaining }));
            }
        }
        Ok(Err(Skipped { by: None, done: false, remaining: Duration::ZERO }))
    }

    fn check(&self) -> Result<(LockName, Duration)> {
        let invalid = |wrong: String| Error::new(ErrorKind::Invalid, wrong);
        if !self.core.capabilities.keeps {
            return Err(self.core.capabilities.cannot(KEEP));
        }
        let name = self.name.as_ref().map_err(|wrong| invalid(wrong.clone()))?;
        let name = match &self.slot {
            None => name.clone(),
            // A variable that was not set, as likely as not: the job would never run again.
            Some(slot) if slot.is_empty() => return Err(invalid("a slot cannot be empty".to_owned())),
            // `a@1` with the slot `2` and `a` with `1@2` would be one lock.
            Some(slot) if slot.contains('@') => {
                return Err(invalid(format!("the slot {slot:?} cannot have an @ in it")));
            }
            Some(slot) => LockName::new(&format!("{name}@{slot}"))?,
        };
        let Some(at_least) = self.at_least.or_else(|| self.slot.as_ref().map(|_| SLOT)) else {
            let wrong =
                "for how long is it done? Say for which `slot` it runs, or `at_least` how long apart two runs are";
            return Err(invalid(wrong.to_owned()));
        };
        if at_least > MAX_DURATION {
            return Err(invalid(format!("at_least is longer than {} days", MAX_DURATION.as_secs() / 86_400)));
        }
        Ok((name, at_least))
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("name", &self.name)
            .field("slot", &self.slot)
            .field("at_least", &self.at_least)
            .field("keep_on_failure", &self.keep_on_failure)
            .field("options", &self.options)
            .finish()
    }
}

/// A job that has begun here: see [`Once::begin`]. Everything one can ask about the hold is on [`Lease`], to which this
/// derefs. Dropped, it has failed: see [`Once::keep_on_failure`].
#[derive(Debug)]
#[must_use = "a job that is dropped has failed"]
pub struct OnceGuard {
    guard: LockGuard,
    at_least: Duration,
}

impl OnceGuard {
    /// A view of the hold that other tasks can have.
    pub fn lease(&self) -> Lease {
        self.guard.lease()
    }

    /// Runs `section` as long as the lock is held, and drops it at the loss.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`]: see [`LockGuard::run`].
    ///
    /// # Cancel safety
    /// Dropping it drops the section; the job goes on.
    pub async fn run<F: Future>(&self, section: F) -> Result<F::Output> {
        self.guard.run(section).await
    }

    /// It is done: all others skip it until its time is over.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`] if the lock was not held until now: another may run it. Else as the store says; it is said again
    /// in the background until the store answers or the lease is over.
    ///
    /// # Cancel safety
    /// Dropped at any point, it is finished in the background.
    ///
    /// # If the reply is lost
    /// That is an error too, and said again in the background.
    pub async fn done(mut self) -> Result<()> {
        self.guard.keep_for(Some(self.at_least));
        self.guard.unlock().await
    }

    /// It failed: done, or to be run again, as [`Once::keep_on_failure`] says. Dropping it is the same, in the background.
    ///
    /// # Errors
    /// As [`done`](Self::done).
    ///
    /// # Cancel safety
    /// Dropped at any point, it is finished in the background.
    pub async fn failed(self) -> Result<()> {
        self.guard.unlock().await
    }

    /// It is to be run again, at once, by whoever comes.
    ///
    /// # Errors
    /// As [`LockGuard::unlock`]: what fails is repeated in the background.
    ///
    /// # Cancel safety
    /// Dropped at any point, it is finished in the background.
    pub async fn again(mut self) -> Result<()> {
        self.guard.keep_for(None);
        self.guard.unlock().await
    }
}

impl Deref for OnceGuard {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.guard
    }
}
