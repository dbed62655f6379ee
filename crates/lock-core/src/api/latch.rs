//! A gate that opens when all have arrived.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::contract::options::{LockOptions, MAX_DURATION};
use crate::contract::{Error, ErrorKind, Instant, KEEP, ListQuery, LockName, Mode, Result};
use crate::engine::LockGuard;
use crate::engine::acquisition::{Acquisition, Verb};
use crate::engine::core::{Core, closed, sleep_until};
use crate::engine::outage::Outage;
use crate::engine::timing::OBSERVE;

/// How long an arrival counts, unless [`Latch::keep`] says so.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// How soon it is looked again whether all have arrived: at first, and then ever later, up to half a second.
const LOOK: Duration = Duration::from_millis(20);

/// Whoever arrives waits so long for its turn at least, which others have for a moment.
const TURN: Duration = Duration::from_secs(1);

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
/// Whoever arrives holds `import@latch` for a moment, so that parties that arrive together are counted one by one.
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

/// Who is at a latch.
#[derive(Debug, Default)]
struct Here {
    /// The parties.
    arrived: BTreeSet<String>,
    /// The locks of arrivals that are held and not kept: of whoever has its turn, or was left in the middle of it.
    arriving: BTreeSet<String>,
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

    /// How long [`Latch::wait`] may take, and [`Latch::arrive`] where others are in its way, a second at the least; `None` is
    /// without end, whatever the default is.
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
    /// - [`ErrorKind::Timeout`] after [`Latch::within`], if another process arrives and does not get on: one that died in the
    ///   middle of it is in the way until its lease is over.
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

    /// Those who arrive at the same moment do it one after the other, so that each sees how many are there.
    async fn bring(&self, party: &str) -> Result<Arrival> {
        let name = self.check("arrive")?;
        let (gate, place) = (gate(name)?, self.place(name, party)?);
        match self.look(name).await {
            Ok(here) => {
                if let Some(known) = self.known(&here, party)? {
                    return Ok(known);
                }
            }
            // It may have to be made first, as an SQLite file by the first lock.
            Err(error) if error.kind() == ErrorKind::Refused => {}
            Err(error) => return Err(error),
        }
        let deadline = self.options.wait.map(|wait| self.core.clock.now() + wait);
        let mut pause = LOOK;
        loop {
            let wait = deadline.map(|deadline| deadline.saturating_duration_since(self.core.clock.now()).max(TURN));
            let options = LockOptions { wait, ..self.options };
            let turn = Acquisition::begin(&self.core, Ok(&gate), &options, None, Verb::Lock)?.lock().await?;
            let arrived = self.bring_in_turn(name, party, &place, &turn).await;
            // If that fails, the background goes on with it.
            let given_back = turn.finish().await;
            tracing::trace!(?given_back, "the turn to arrive");
            if let Some(arrived) = arrived? {
                return Ok(arrived);
            }
            self.pause(&mut pause, deadline).await?;
        }
    }

    /// `None`: somebody was left in the middle of an arrival that may still count, or the turn was lost.
    async fn bring_in_turn(
        &self,
        name: &LockName,
        party: &str,
        place: &LockName,
        turn: &LockGuard,
    ) -> Result<Option<Arrival>> {
        let here = self.look(name).await?;
        if let Some(known) = self.known(&here, party)? {
            return Ok(Some(known));
        }
        let others = here.arriving.iter().filter(|other| *other != place.as_str()).count();
        if here.arrived.len() + others >= self.parties as usize {
            return Ok(None);
        }
        let options = LockOptions { wait: None, ..self.options };
        let acquisition = Acquisition::begin(&self.core, Ok(place), &options, None, Verb::TryLock)?;
        let Some(mut guard) = acquisition.run().await? else { return Ok(None) };
        if !turn.is_held() {
            guard.finish().await?;
            return Ok(None);
        }
        // If this is dropped, or the answer does not come, the background goes on with it.
        guard.keep_for(Some(self.keep));
        match guard.unlock().await {
            Err(error) if error.kind() == ErrorKind::Lost => Ok(None),
            kept => kept.map(|()| Some(self.told(true, here.arrived.len() + 1))),
        }
    }

    /// What a party is told that has arrived before; `None`, if it may arrive.
    fn known(&self, here: &Here, party: &str) -> Result<Option<Arrival>> {
        if here.arrived.contains(party) {
            return Ok(Some(self.told(false, here.arrived.len())));
        }
        if here.arrived.len() < self.parties as usize {
            return Ok(None);
        }
        let all = here.arrived.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let wrong = format!("{party:?} is not one of the {} parties that have arrived: {all}", self.parties);
        Err(Error::new(ErrorKind::Invalid, wrong))
    }

    fn told(&self, first: bool, arrived: usize) -> Arrival {
        Arrival { first, arrived: arrived as u32, of: self.parties }
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
                    Ok(now) if now.arrived.len() >= self.parties as usize => return Ok(()),
                    Ok(now) => (here, back) = (now.arrived, true),
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
        let looked = async { Ok(self.look(self.check("arrived")?).await?.arrived.into_iter().collect()) };
        looked.await.map_err(|error| self.failed(error, "look at"))
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
                format!("{party:?} cannot be a party: that is a name without an @, and not the empty one"),
            ));
        }
        LockName::new(&format!("{}{}/{party}", self.before(name), self.parties))
    }

    /// Who is there, also at a store that has to be made first, as an SQLite file by the first lock. If that is not what it
    /// has refused, the lock is refused too.
    async fn look_or_make(&self, name: &LockName) -> Result<Here> {
        match self.look(name).await {
            Err(error) if error.kind() == ErrorKind::Refused => {}
            looked => return looked,
        }
        let (gate, options) = (gate(name)?, LockOptions { wait: None, ..self.options });
        let acquisition = Acquisition::begin(&self.core, Ok(&gate), &options, None, Verb::TryLock)?;
        if let Some(guard) = acquisition.run().await? {
            guard.finish().await?;
        }
        self.look(name).await
    }

    /// Who is there.
    async fn look(&self, name: &LockName) -> Result<Here> {
        let before = self.before(name);
        let mut query = ListQuery::new(before.clone());
        let mut here = Here::default();
        loop {
            let page = self.core.backend.list(&query).await?;
            for lock in &page.locks {
                let rest = lock.name.as_str().strip_prefix(&before).unwrap_or_default();
                let Some((of, party)) = rest.split_once('/').filter(|(_, party)| !party.contains('@')) else {
                    continue;
                };
                match lock.holder() {
                    Some(holder) if holder.kept => {}
                    Some(_) => {
                        here.arriving.insert(lock.name.as_str().to_owned());
                        continue;
                    }
                    None => continue,
                }
                if of != self.parties.to_string() {
                    let wrong = format!(
                        "{party:?} has arrived at a latch of {of} parties, and this is one of {}: say the same number \
                         everywhere, or take another generation",
                        self.parties
                    );
                    return Err(Error::new(ErrorKind::Invalid, wrong));
                }
                here.arrived.insert(party.to_owned());
            }
            let Some(next) = page.next else { return Ok(here) };
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

/// The lock of whoever arrives at this latch now.
fn gate(name: &LockName) -> Result<LockName> {
    LockName::new(&format!("{name}@latch"))
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
