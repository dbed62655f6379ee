//! One of many leads, and shows where it is.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use lock_core::{Error, ErrorKind, Holder, Lease, LockValue, Observed, Result};

use super::Inner;

/// Between two campaigns, of which the first failed.
const PAUSE: Duration = Duration::from_secs(1);

/// An election; see [`Election`](crate::Election).
///
/// ```
/// # fn main() -> oarlock::Result<()> {
/// use oarlock::Observed;
/// let election = oarlock::blocking::connect("memory:leaders")?.election("scheduler");
/// let leadership = election.campaign("http://10.0.0.7:8080")?;
/// let Observed::Held(leader) = election.observe()?.next()? else { unreachable!() };
/// assert_eq!(leader.value.unwrap().as_str(), "http://10.0.0.7:8080");
/// leadership.resign()?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Election {
    election: crate::Election,
    inner: Arc<Inner>,
}

impl Election {
    pub(super) fn new(election: crate::Election, inner: &Arc<Inner>) -> Self {
        Self { election, inner: Arc::clone(inner) }
    }

    options! {
        Election, election,
        lease: Duration, wait: impl Into<Option<Duration>>, outage: Duration
    }

    /// Waits until elected, or until [`Election::wait`] is over.
    ///
    /// # Errors
    /// As [`Election::campaign`](crate::Election::campaign); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn campaign<V>(&self, value: V) -> Result<Leadership>
    where
        V: TryInto<LockValue>,
        V::Error: Into<Error>,
    {
        let leadership = self.inner.block_on(self.election.campaign(value))?;
        Ok(Leadership { leadership, inner: Arc::clone(&self.inner) })
    }

    /// Campaigns, and runs `section` when it leads; again and again until a section ends while it still leads. Nothing can
    /// end a section that blocks: it checks its [lease](Lease::check) between its steps, and returns at the loss. What it
    /// answers then is dropped, and it campaigns again; so it does whatever fails.
    ///
    /// # Errors
    /// As [`Election::run`](crate::Election::run); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn run<T, V>(&self, value: V, mut section: impl FnMut(&Leadership) -> T) -> Result<T>
    where
        V: TryInto<LockValue>,
        V::Error: Into<Error>,
    {
        let value = value.try_into().map_err(Into::into)?;
        let election = self.clone().wait(None);
        loop {
            let error = match election.lead(&value, &mut section) {
                Ok(output) => return Ok(output),
                Err(error) => error,
            };
            match error.kind() {
                ErrorKind::Invalid | ErrorKind::Unsupported | ErrorKind::Closed => return Err(error),
                ErrorKind::Lost => {}
                _ => thread::sleep(PAUSE),
            }
        }
    }

    fn lead<T>(&self, value: &LockValue, section: impl FnOnce(&Leadership) -> T) -> Result<T> {
        let leadership = self.campaign(value.clone())?;
        let output = section(&leadership);
        match leadership.resign() {
            Err(error) if error.kind() == ErrorKind::Lost => Err(error),
            // It is repeated in the background.
            _ => Ok(output),
        }
    }

    /// Sees who leads, from now on.
    ///
    /// # Errors
    /// As [`Election::observe`](crate::Election::observe); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn observe(&self) -> Result<Observer> {
        Observer::new(&self.inner, || self.election.observe())
    }

    /// Who leads at this moment.
    ///
    /// # Errors
    /// As [`Election::leader`](crate::Election::leader); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn leader(&self) -> Result<Option<Holder>> {
        self.inner.block_on(self.election.leader())
    }
}

impl fmt::Debug for Election {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Election").field(&self.election).finish()
    }
}

/// That one leads; see [`Leadership`](crate::Leadership). Everything one can ask about it is on [`Lease`], to which this
/// derefs. Dropping it resigns in the background.
#[must_use = "whoever drops it leads no more"]
pub struct Leadership {
    leadership: crate::Leadership,
    inner: Arc<Inner>,
}

impl Leadership {
    /// A view of the hold that other threads can have.
    pub fn lease(&self) -> Lease {
        self.leadership.lease()
    }

    /// Shows another value to all who observe.
    ///
    /// # Errors
    /// As [`Leadership::proclaim`](crate::Leadership::proclaim); [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn proclaim<V>(&self, value: V) -> Result<()>
    where
        V: TryInto<LockValue>,
        V::Error: Into<Error>,
    {
        self.inner.block_on(self.leadership.proclaim(value))
    }

    /// Lets the next candidate lead.
    ///
    /// # Errors
    /// As [`Leadership::resign`](crate::Leadership::resign). [`ErrorKind::Invalid`] inside a tokio runtime: it then resigns
    /// in the background.
    pub fn resign(self) -> Result<()> {
        self.inner.block_on(self.leadership.resign())
    }

    /// Waits so long for the loss of the leadership. Is it lost?
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] inside a tokio runtime.
    pub fn lost_within(&self, time: Duration) -> Result<bool> {
        self.inner.lost_within(&self.leadership, time)
    }
}

impl Deref for Leadership {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.leadership
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Leadership").field(&self.leadership).finish()
    }
}

/// Sees who holds a lock; see [`Observer`](crate::Observer).
pub struct Observer {
    observer: crate::Observer,
    inner: Arc<Inner>,
}

impl Observer {
    pub(super) fn new(inner: &Arc<Inner>, observe: impl FnOnce() -> Result<crate::Observer>) -> Result<Self> {
        // A store that tells changes may need the runtime for that.
        let observer = inner.block_on(async { observe() })?;
        Ok(Self { observer, inner: Arc::clone(inner) })
    }

    /// Waits for the next state that differs from the one before; at first, the present one.
    ///
    /// # Errors
    /// As [`Observer::next`](crate::Observer::next); [`ErrorKind::Invalid`] inside a tokio runtime.
    #[expect(clippy::should_implement_trait, reason = "the name of the asynchronous one, and it does not end")]
    pub fn next(&mut self) -> Result<Observed> {
        self.inner.block_on(self.observer.next())
    }

    /// The same, for so long at most: `None` if nothing has changed. Nothing is left out for that.
    ///
    /// # Errors
    /// As [`Observer::next`].
    pub fn next_within(&mut self, time: Duration) -> Result<Option<Observed>> {
        let next = self.observer.next();
        self.inner.block_on(async { tokio::time::timeout(time, next).await.ok().transpose() })
    }
}

impl fmt::Debug for Observer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Observer").field(&self.observer).finish()
    }
}
