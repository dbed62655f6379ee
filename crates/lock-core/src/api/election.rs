//! One of many leads, and shows where it is.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::options::LockOptions;
use crate::contract::{Error, ErrorKind, Holder, LockName, LockValue, Result, SHOW};
use crate::engine::acquisition::{Acquisition, Verb};
use crate::engine::core::Core;
use crate::engine::timing::Pauses;
use crate::engine::{Lease, LockGuard, Observer};

/// An election: the candidates stand in the line of one lock, and who holds it leads and shows a value, its address for
/// example. Made by [`Locks::election`](crate::Locks::election). It is the same lock as
/// [`Locks::mutex`](crate::Locks::mutex) of that name. A `max_hold` of these locks does not bound it: who leads, leads for as
/// long as it can.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
/// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
/// use lock_core::Observed;
/// let election = locks.election("scheduler");
/// let leadership = election.campaign("http://10.0.0.7:8080").await?;
/// let Observed::Held(leader) = election.observe()?.next().await? else { unreachable!() };
/// assert_eq!(leader.value.unwrap().as_str(), "http://10.0.0.7:8080");
/// leadership.resign().await?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Election {
    core: Arc<Core>,
    name: std::result::Result<LockName, String>,
    options: LockOptions,
}

impl Election {
    pub(crate) fn new(core: Arc<Core>, name: Result<LockName>, options: LockOptions) -> Self {
        // Each candidate shows a value of its own, so that none has what another was granted.
        let options = LockOptions { alone: true, hold_for: None, max_hold: None, ..options };
        Self { core, name: name.map_err(|error| error.message().to_owned()), options }
    }

    /// The time after which another can be elected if a leader is not heard of. See [`Mutex::lease`](crate::Mutex::lease).
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.choose_lease(lease);
        self
    }

    /// How long [`campaign`](Self::campaign) may take; [`run`](Self::run) takes as long as it takes.
    pub fn wait(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.options.wait = wait.into();
        self
    }

    /// How long the store may be away from a candidate before [`campaign`](Self::campaign) says so.
    pub fn outage(mut self, outage: Duration) -> Self {
        self.options.outage = outage;
        self
    }

    /// Waits until elected, or until [`Election::wait`] is over. The value is seen from then on by all who
    /// [observe](Self::observe), and not before.
    ///
    /// # Errors
    /// As [`Mutex::lock`](crate::Mutex::lock); [`ErrorKind::Invalid`] also for the value, and [`ErrorKind::Unsupported`] where the store
    /// shows none. After any error this is no candidate any more.
    ///
    /// # Cancel safety
    /// May be dropped at any point: the candidate leaves the line, and resigns if it was elected just then, in the
    /// background.
    ///
    /// # If the reply is lost
    /// As with [`Mutex::lock`](crate::Mutex::lock).
    pub async fn campaign<V>(&self, value: V) -> Result<Leadership>
    where
        V: TryInto<LockValue>,
        V::Error: Into<Error>,
    {
        let value = self.value(value)?;
        self.stand(&value, &self.options).await
    }

    /// Campaigns, and runs `section` while it leads. At a loss the section is dropped, before another can be elected, and it
    /// campaigns again; so it does whatever fails, until it is dropped, `section` ends, or there is no use in it. What the
    /// section answered when it ended by itself, as the leader, is the answer, after the resignation.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] and [`ErrorKind::Unsupported`] for the name, the value or an option, [`ErrorKind::Closed`] after a shutdown.
    /// All other errors are written to the log, and it goes on.
    ///
    /// # Cancel safety
    /// Dropping it drops the section, and resigns in the background.
    pub async fn run<T, V>(&self, value: V, mut section: impl AsyncFnMut(&Leadership) -> T) -> Result<T>
    where
        V: TryInto<LockValue>,
        V::Error: Into<Error>,
    {
        let value = self.value(value)?;
        let options = LockOptions { wait: None, ..self.options };
        let mut pauses = Pauses::default();
        loop {
            let led = async {
                let leadership = self.stand(&value, &options).await?;
                pauses = Pauses::default();
                let output = leadership.guard.run(section(&leadership)).await?;
                leadership.guard.finish().await?;
                Ok::<_, Error>(output)
            };
            let error = match led.await {
                Ok(output) => return Ok(output),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Closed => return Err(error),
                ErrorKind::Lost => tracing::warn!(?error, "leads no more; campaigns again"),
                _ => {
                    tracing::warn!(?error, "the campaign failed, and goes on");
                    self.core.clock.sleep_until(self.core.clock.now() + pauses.next()).await;
                }
            }
        }
    }

    /// Sees who leads, from now on.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what cannot be a name, [`ErrorKind::Closed`] after a shutdown.
    pub fn observe(&self) -> Result<Observer> {
        self.core.check_open("observe")?;
        Ok(Observer::new(Arc::clone(&self.core), self.name("observe")?.clone()))
    }

    /// Who leads at this moment.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what cannot be a name; else as the store says.
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn leader(&self) -> Result<Option<Holder>> {
        self.core.check_open("leader")?;
        let name = self.name("leader")?;
        let answer = self.core.backend.holder(name).await;
        answer.map_err(|error| self.core.context(error, "leader", Some(name)))
    }

    async fn stand(&self, value: &LockValue, options: &LockOptions) -> Result<Leadership> {
        let acquisition = Acquisition::begin(&self.core, self.name.as_ref(), options, None, Verb::Lock)?;
        Ok(Leadership { guard: acquisition.showing(value).lock().await? })
    }

    fn name(&self, op: &'static str) -> Result<&LockName> {
        let name = self.name.as_ref();
        name.map_err(|wrong| self.core.context(Error::new(ErrorKind::Invalid, wrong), op, None))
    }

    fn value<V>(&self, value: V) -> Result<LockValue>
    where
        V: TryInto<LockValue>,
        V::Error: Into<Error>,
    {
        let capabilities = &self.core.capabilities;
        let value = match value.try_into() {
            Ok(value) if capabilities.values => return Ok(value),
            Ok(_) => capabilities.cannot(SHOW),
            Err(error) => error.into(),
        };
        Err(self.core.context(value, "campaign", self.name.as_ref().ok()))
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Election").field("name", &self.name).field("options", &self.options).finish()
    }
}

/// That one leads. Everything one can ask about it is on [`Lease`], to which this derefs. Dropping it resigns in the
/// background.
#[derive(Debug)]
#[must_use = "whoever drops it leads no more"]
pub struct Leadership {
    guard: LockGuard,
}

impl Leadership {
    /// A view of the hold that other tasks can have.
    pub fn lease(&self) -> Lease {
        self.guard.lease()
    }

    /// Shows another value to all who observe.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] for what cannot be a value; [`ErrorKind::Lost`] if it leads no more, and then nothing was changed;
    /// else as the store says: after [`ErrorKind::Unknown`] it may have been done, and may be repeated.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have been done.
    pub async fn proclaim<V>(&self, value: V) -> Result<()>
    where
        V: TryInto<LockValue>,
        V::Error: Into<Error>,
    {
        self.guard.proclaim(value.try_into().map_err(Into::into)).await
    }

    /// Runs `section` as long as it leads, and drops it at the loss.
    ///
    /// # Errors
    /// [`ErrorKind::Lost`]: see [`LockGuard::run`].
    ///
    /// # Cancel safety
    /// Dropping it drops the section; it leads on.
    pub async fn run<F: Future>(&self, section: F) -> Result<F::Output> {
        self.guard.run(section).await
    }

    /// Lets the next candidate lead.
    ///
    /// # Errors
    /// As [`LockGuard::unlock`]: what fails is repeated in the background.
    ///
    /// # Cancel safety
    /// Dropped at any point, it is finished in the background.
    pub async fn resign(self) -> Result<()> {
        self.guard.unlock().await
    }
}

impl Deref for Leadership {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.guard
    }
}
