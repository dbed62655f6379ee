//! A gate that opens when all have arrived.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::options::{LockOptions, MAX_DURATION};
use crate::contract::{Error, ErrorKind, Instant, KEEP, ListQuery, LockName, Mode, Result};
use crate::engine::acquisition::{Acquisition, Verb};
use crate::engine::core::{Core, closed, sleep_until};
use crate::engine::outage::Outage;
use crate::engine::timing::OBSERVE;

/// How long an arrival counts, unless [`Latch::keep`] says so.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How soon it is looked again whether all have arrived: at first, and then ever later, up to half a second.
const LOOK: Duration = Duration::from_millis(20);

/// A handle for a latch: a number of parties arrive, and whoever waits goes on when all have. Made by
/// [`Locks::latch`](crate::Locks::latch). Making and cloning it costs no I/O.
///
/// Arrivals are a *set* of names, not a count: a party that arrives again, since a reply was lost or since its process was
/// started anew, counts once. An arrival outlives its process, and counts for 24 hours, or as long as
/// [`keep`](Self::keep) says.
///
/// What is to be done several times has a [generation](Self::generation) for each: a number that all parties share, such
/// as that of the round. The arrivals of one do not count for another.
///
/// In the store, an arrival is a lock that is kept without an owner. Its name is the latch's, `@latch/`, the generation,
/// the number of parties, and the party: `import@latch/0/8/eu-1`. So operators see and remove arrivals as they do locks.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> lock_core::Result<()> {
/// # let locks = lock_core::Locks::new(std::sync::Arc::new(lock_core::memory::MemoryLock::new()));
/// let import = locks.latch("import", 2);
/// assert_eq!(import.arrive("eu-1").await?.arrived, 1);
/// assert!(!import.arrive("eu-1").await?.first); // again, which changes nothing
/// assert!(import.arrive("us-1").await?.is_open());
/// import.wait().await
/// # }
/// ```
#[derive(Clone)]
pub struct Latch {
    core: Arc<Core>,
    name: std::result::Result<LockName, String>,
    parties: u32,
    generation: u64,
    keep: Duration,
    options: LockOptions,
}

/// What a party that has arrived is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Arrival {
    /// Had this party not arrived before?
    pub first: bool,
    /// How many have arrived by now.
    pub arrived: u32,
    /// How many are waited for.
    pub of: u32,
}

impl Arrival {
    /// Have all arrived?
    pub fn is_open(&self) -> bool {
        self.arrived >= self.of
    }
}

impl Latch {
    pub(crate) fn new(core: Arc<Core>, name: Result<LockName>, parties: u32, options: LockOptions) -> Self {
        let name = name.map_err(|error| error.message().to_owned());
        let options =
            LockOptions { alone: true, fair: false, hold_for: None, max_hold: None, mode: Mode::Exclusive, ..options };
        Self { core, name, parties, generation: 0, keep: DAY, options }
    }

    /// Which round this is; 0 without a choice.
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// How long an arrival counts, from when it came, by the store's clock: longer than the latest party may be late, and than
    /// anybody may still want to wait.
    pub fn keep(mut self, keep: Duration) -> Self {
        self.keep = keep;
        self
    }

    /// How long [`Latch::wait`] may take; `None` is without end, whatever the default is.
    pub fn within(mut self, wait: impl Into<Option<Duration>>) -> Self {
        self.options.wait = wait.into();
        self
    }

    /// This party has arrived. Repeated, it changes nothing, and does not make the first arrival count longer.
    ///
    /// # Errors
    /// - [`ErrorKind::Invalid`] for a name and a party that cannot be, for a number of parties below 1 or above
    ///   [`Mode::MOST_PERMITS`], where others wait for another number of parties, and where as many others have arrived already.
    /// - [`ErrorKind::Unsupported`] where the store keeps no locks.
    /// - [`ErrorKind::Timeout`] after [`Latch::within`], if another process arrives for this party and does not get on.
    /// - Else as the store says. After an [`ErrorKind::Unknown`] it may have arrived: repeat it.
    ///
    /// # Cancel safety
    /// Dropped, it may or may not have arrived. It may be repeated.
    ///
    /// # If the reply is lost
    /// That is an [`ErrorKind::Unknown`]. It may be repeated.
    pub async fn arrive(&self, party: &str) -> Result<Arrival> {
        let arrived = self.bring(party).await;
        arrived.map_err(|error| self.failed(error, "arrive"))
    }

    async fn bring(&self, party: &str) -> Result<Arrival> {
        let name = self.check("arrive")?;
        let place = self.place(name, party)?;
        let deadline = self.options.wait.map(|wait| self.core.clock.now() + wait);
        let before = self.look_or_make(name).await?;
        let told = |first, arrived: usize| Arrival { first, arrived: arrived as u32, of: self.parties };
        if before.contains(party) {
            return Ok(told(false, before.len()));
        }
        if before.len() >= self.parties as usize {
            let all = before.into_iter().collect::<Vec<_>>().join(", ");
            let wrong = format!("{party:?} is not one of the {} parties that have arrived: {all}", self.parties);
            return Err(Error::new(ErrorKind::Invalid, wrong));
        }
        let mut pause = LOOK;
        let first = loop {
            let options = LockOptions { wait: None, ..self.options };
            let acquisition = Acquisition::begin(&self.core, Ok(&place), &options, None, Verb::TryLock)?;
            if let Some(mut guard) = acquisition.run().await? {
                // If this is dropped, or the answer does not come, the background goes on with it.
                guard.keep_for(Some(self.keep));
                match guard.unlock().await {
                    Err(error) if error.kind() == ErrorKind::Lost => continue,
                    kept => kept?,
                }
                break true;
            }
            match self.core.backend.holder(&place).await? {
                Some(holder) if holder.kept => break false,
                // Another process says the same at this moment; or one did that died, and its lease runs.
                Some(_) => {}
                None => continue,
            }
            self.pause(&mut pause, deadline).await?;
        };
        Ok(told(first, self.look(name).await?.len()))
    }

    /// Waits until all parties have arrived, or until [`Latch::within`] is over. It looks at the store from time to time, twice a
    /// second at the least. If the store is away it goes on, for as long as the default for an outage says.
    ///
    /// # Errors
    /// [`ErrorKind::Timeout`], saying who has arrived; else as [`Latch::arrive`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    ///
    /// # If the reply is lost
    /// It looks again.
    pub async fn wait(&self) -> Result<()> {
        let opened = async {
            let name = self.check("wait")?;
            let deadline = self.options.wait.map(|wait| self.core.clock.now() + wait);
            let (mut pause, mut outage, mut back) = (LOOK, Outage::default(), true);
            let mut here = BTreeSet::new();
            loop {
                match self.look_or_make(name).await {
                    Ok(arrived) if arrived.len() >= self.parties as usize => return Ok(()),
                    Ok(arrived) => (here, back) = (arrived, true),
                    Err(error) => {
                        let now = self.core.clock.now();
                        if outage.pause(&error, back, now, self.options.outage).is_none() {
                            return Err(outage.told(error, now));
                        }
                        back = false;
                    }
                }
                if let Err(error) = self.pause(&mut pause, deadline).await {
                    return Err(if error.kind() == ErrorKind::Timeout { self.missed(here) } else { error });
                }
            }
        };
        opened.await.map_err(|error| self.failed(error, "wait"))
    }

    /// Who has arrived, in the order of their names.
    ///
    /// # Errors
    /// As [`Latch::arrive`].
    ///
    /// # Cancel safety
    /// Changes nothing.
    pub async fn arrived(&self) -> Result<Vec<String>> {
        let looked = async { Ok(self.look(self.check("arrived")?).await?.into_iter().collect()) };
        looked.await.map_err(|error| self.failed(error, "arrived"))
    }

    fn failed(&self, error: Error, op: &'static str) -> Error {
        self.core.context(error, op, self.name.as_ref().ok())
    }

    fn check(&self, op: &'static str) -> Result<&LockName> {
        self.core.check_open(op)?;
        let invalid = |wrong: &str| Err(Error::new(ErrorKind::Invalid, wrong));
        if !self.core.capabilities.keeps {
            return Err(self.core.capabilities.cannot(KEEP));
        }
        self.options.check(&self.core.capabilities)?;
        match &self.name {
            Err(wrong) => invalid(wrong),
            Ok(_) if self.parties == 0 || self.parties > Mode::MOST_PERMITS => {
                invalid(&format!("a latch is for 1 to {} parties, and not {}", Mode::MOST_PERMITS, self.parties))
            }
            Ok(_) if self.keep.is_zero() || self.keep > MAX_DURATION => {
                invalid("an arrival counts for some time, and for 366 days at most")
            }
            Ok(name) => Ok(name),
        }
    }

    /// What the names of all arrivals of this generation begin with.
    fn before(&self, name: &LockName) -> String {
        format!("{name}@latch/{}/", self.generation)
    }

    /// The lock that is this party's arrival.
    fn place(&self, name: &LockName, party: &str) -> Result<LockName> {
        // The last @ of a name stands before the generation.
        if party.is_empty() || party.contains('@') {
            return Err(Error::new(
                ErrorKind::Invalid,
                format!("{party:?} cannot be a party: a name without an @ is one"),
            ));
        }
        LockName::new(&format!("{}{}/{party}", self.before(name), self.parties))
    }

    /// The same of a store that may have to be made first, as an SQLite file by the first lock. If that is not what it has
    /// refused, the lock is refused too.
    async fn look_or_make(&self, name: &LockName) -> Result<BTreeSet<String>> {
        match self.look(name).await {
            Err(error) if error.kind() == ErrorKind::Refused => {}
            looked => return looked,
        }
        let (first, options) = (LockName::new(&format!("{name}@latch"))?, LockOptions { wait: None, ..self.options });
        let acquisition = Acquisition::begin(&self.core, Ok(&first), &options, None, Verb::TryLock)?;
        if let Some(guard) = acquisition.run().await? {
            guard.finish().await?;
        }
        self.look(name).await
    }

    /// Who has arrived.
    async fn look(&self, name: &LockName) -> Result<BTreeSet<String>> {
        let before = self.before(name);
        let mut query = ListQuery::new(before.clone());
        let mut arrived = BTreeSet::new();
        loop {
            let page = self.core.backend.list(&query).await?;
            for lock in &page.locks {
                let rest = lock.name.as_str().strip_prefix(&before).unwrap_or_default();
                let Some((of, party)) = rest.split_once('/').filter(|(_, party)| !party.contains('@')) else {
                    continue;
                };
                if !lock.holder().is_some_and(|holder| holder.kept) {
                    continue;
                }
                if of != self.parties.to_string() {
                    let wrong = format!(
                        "{party:?} has arrived at a latch of {of} parties, and this is one of {}: say the same number \
                         everywhere, or take another generation",
                        self.parties
                    );
                    return Err(Error::new(ErrorKind::Invalid, wrong));
                }
                arrived.insert(party.to_owned());
            }
            let Some(next) = page.next else { return Ok(arrived) };
            query = query.after(next);
        }
    }

    fn missed(&self, here: BTreeSet<String>) -> Error {
        let who: Vec<_> = here.into_iter().collect();
        let waited = humantime::format_duration(self.options.wait.unwrap_or_default());
        let (count, of) = (who.len(), self.parties);
        let told = format!("{count} of {of} have arrived within {waited}: {}", who.join(", "));
        Error::new(ErrorKind::Timeout, told.trim_end_matches(": ").to_owned())
    }

    /// Before the next look, which comes ever later.
    async fn pause(&self, pause: &mut Duration, deadline: Option<Instant>) -> Result<()> {
        let next = self.core.clock.now() + *pause;
        *pause = (*pause * 3 / 2).min(OBSERVE);
        tokio::select! {
            biased;
            () = self.core.closed.cancelled() => Err(closed()),
            () = sleep_until(&*self.core.clock, deadline) => Err(Error::new(ErrorKind::Timeout, "not in time")),
            () = self.core.clock.sleep_until(next) => Ok(()),
        }
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Latch")
            .field("name", &self.name)
            .field("parties", &self.parties)
            .field("generation", &self.generation)
            .field("keep", &self.keep)
            .field("options", &self.options)
            .finish()
    }
}
