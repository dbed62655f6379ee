//! One store of a quorum: its connection, which may come late, and what is known of how it answers.

use std::borrow::Cow;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lock_core::{
    Background, Claim, DistributedLock, Error, ErrorKind, Grant, Holder, ListQuery, LockName, LockStatus, OwnerId,
    Page, Renewal, Result, Unlocked,
};
use tokio::time::Instant;

use crate::rejoin;
use crate::turns::{self, Turns};

/// A client of one store.
pub(crate) type Client = Arc<dyn DistributedLock>;

/// Connects to it.
pub(crate) type Connect = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<Client>> + Send>> + Send + Sync>;

/// How soon a store that could not be reached is tried again, at most.
const AGAIN: Duration = Duration::from_secs(1);

pub(crate) struct Member {
    /// What it is called in messages: its place, from 1.
    number: usize,
    connect: Connect,
    client: OnceLock<Client>,
    tried: Mutex<Tried>,
    late: AtomicBool,
    /// Whom it knows the owners as.
    pub(crate) turns: Turns,
}

/// How the last try to connect went.
#[derive(Default)]
struct Tried {
    last: Option<Instant>,
    task: Background,
    error: Option<Error>,
    /// It can never be a part of this quorum.
    for_good: bool,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Member").field(&self.number).field(&self.client.get()).finish()
    }
}

impl Member {
    pub(crate) fn new(place: usize, connect: Connect) -> Self {
        let (client, tried, late) = (OnceLock::new(), Mutex::default(), AtomicBool::new(false));
        Self { number: place + 1, connect, client, tried, late, turns: Turns::default() }
    }

    /// One that is connected already.
    pub(crate) fn connected(place: usize, client: Client) -> Self {
        let member = Self::new(place, Box::new(|| Box::pin(std::future::pending())));
        member.client.get_or_init(|| client);
        member
    }

    /// Its client, if it is connected.
    pub(crate) fn known(&self) -> Option<&Client> {
        self.client.get()
    }

    /// Its client, or why there is none.
    pub(crate) fn client(&self) -> Result<&Client> {
        self.client.get().ok_or_else(|| {
            let error = self.tried().error.clone();
            error.unwrap_or_else(|| {
                Error::new(ErrorKind::Unavailable, format!("store {} is not connected", self.number))
            })
        })
    }

    /// Is it a file that the first lock makes?
    pub(crate) async fn is_unmade(&self) -> bool {
        let Some(client) = self.known() else { return false };
        client.holder(&rejoin::probe()).await.is_err_and(|error| error.kind() == ErrorKind::Refused)
    }

    /// Starts this, if it is time to connect. It reports by [`tell`](Self::tell).
    pub(crate) fn begin<F: Future<Output = ()> + Send + 'static>(&self, connecting: impl FnOnce() -> F) {
        if self.client.get().is_some() {
            return;
        }
        let mut tried = self.tried();
        let waits = tried.last.is_some_and(|last| last.elapsed() < AGAIN);
        if tried.task.runs() || tried.for_good || waits {
            return;
        }
        tried.last = Some(Instant::now());
        tried.task.start(connecting());
    }

    /// Connects.
    pub(crate) async fn try_connect(&self) -> Result<Client> {
        (self.connect)().await.map_err(|error| self.named(error))
    }

    /// How that went; `for_good`, if an error is no matter of time.
    pub(crate) fn tell(&self, connected: Result<Client>, for_good: bool) {
        let mut tried = self.tried();
        tried.for_good = for_good;
        match connected {
            Ok(client) => drop(self.client.get_or_init(|| client)),
            Err(error) => {
                // Once, and not with each of the tries that follow.
                if tried.error.as_ref().map(Error::kind) == Some(error.kind()) {
                    tracing::debug!(%error, "a store of the quorum is still not connected");
                } else {
                    tracing::warn!(%error, for_good, "a store of the quorum is not connected");
                }
                tried.error = Some(error);
            }
        }
    }

    fn tried(&self) -> MutexGuard<'_, Tried> {
        self.tried.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which store it was.
    pub(crate) fn named(&self, error: Error) -> Error {
        Error::new(error.kind(), format!("store {}: {error}", self.number)).with_source(error)
    }

    /// Does it seldom answer in time?
    pub(crate) fn was_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    pub(crate) fn is_late(&self, late: bool) {
        self.late.store(late, Ordering::Relaxed);
    }

    /// Takes the lock there.
    pub(crate) async fn try_lock(&self, known: &Claim) -> Result<Option<Grant>> {
        self.client()?.try_lock(known).await.map_err(|error| self.named(error))
    }

    /// Waits for the lock there.
    pub(crate) async fn lock(&self, known: &Claim) -> Result<Grant> {
        self.client()?.lock(known).await.map_err(|error| self.named(error))
    }

    /// Prolongs what it granted and what counts.
    pub(crate) async fn renew(&self, claims: &[Claim]) -> Result<Vec<Result<Renewal>>> {
        let client = self.client()?;
        let known: Vec<_> = claims.iter().map(|claim| self.turns.counting(claim)).collect();
        if known.iter().all(|known| matches!(known, Some(Cow::Borrowed(_)))) {
            return Ok(client.renew(claims).await);
        }
        let counts: Vec<_> = known.iter().map(Option::is_some).collect();
        let known: Vec<_> = known.into_iter().flatten().map(Cow::into_owned).collect();
        let mut answers = client.renew(&known).await.into_iter();
        let answers = counts.into_iter().map(|counts| if counts { answers.next() } else { Some(Ok(Renewal::NotHeld)) });
        Ok(answers.flatten().collect())
    }

    /// Gives back what is held there, of all turns, or gives up. The owner asks for nothing any more, but this may be
    /// repeated.
    pub(crate) async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        let known = self.turns.current(claim);
        let unlocked = self.unlock_as_known(&known).await?;
        for open in self.turns.open(claim) {
            self.unlock_as_known(&open).await?;
        }
        Ok(unlocked)
    }

    /// The claim to give back there, by an owner that may ask for the lock again meanwhile.
    pub(crate) fn leave(&self, claim: &Claim) -> Claim {
        let known = self.turns.current(claim).into_owned();
        self.turns.leave(&known);
        known
    }

    /// Gives back a claim with the owner that it knows.
    pub(crate) async fn unlock_as_known(&self, known: &Claim) -> Result<Unlocked> {
        let unlocked = match self.client.get() {
            Some(client) => client.unlock(known).await.map_err(|error| self.named(error))?,
            // By this client, nothing was ever asked of it.
            None => Unlocked::NotHeld,
        };
        self.turns.settle(known);
        Ok(unlocked)
    }

    pub(crate) async fn holder(&self, name: &LockName) -> Result<Option<Holder>> {
        let held = self.client()?.holder(name).await.map_err(|error| self.named(error))?;
        Ok(held.map(as_asked))
    }

    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        self.client()?.inspect(name).await.map(seen).map_err(|error| self.named(error))
    }

    pub(crate) async fn list(&self, query: &ListQuery) -> Result<Page> {
        let mut page = self.client()?.list(query).await.map_err(|error| self.named(error))?;
        page.locks = page.locks.into_iter().map(seen).collect();
        Ok(page)
    }

    pub(crate) async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        Ok(self.client()?.evict(name).await?.map(as_asked))
    }

    pub(crate) async fn evict_owner(&self, name: &LockName, owner: &OwnerId) -> Result<Option<Holder>> {
        let client = self.client()?;
        let held = client.holder(name).await?.map(|holder| holder.owner);
        let known = held.filter(|known| turns::owner(known) == *owner);
        Ok(client.evict_owner(name, known.as_ref().unwrap_or(owner)).await?.map(as_asked))
    }
}

/// With the owner that asked, whomever the store knows.
fn as_asked(mut holder: Holder) -> Holder {
    holder.owner = turns::owner(&holder.owner);
    holder
}

fn seen(mut status: LockStatus) -> LockStatus {
    status.holders = status.holders.into_iter().map(as_asked).collect();
    status.waiters.iter_mut().for_each(|waiter| waiter.owner = turns::owner(&waiter.owner));
    status
}
