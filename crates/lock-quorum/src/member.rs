//! One store of a quorum: its connection, which may come late, and what is known of how it answers.

use std::collections::HashSet;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use lock_core::{Background, Claim, DistributedLock, Error, ErrorKind, Grant, OwnerId, Result, Unlocked};
use tokio::time::Instant;

use crate::rejoin;

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
    /// Of whom a release was sent that was not answered yet, and may still be done.
    leaving: Mutex<HashSet<OwnerId>>,
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
        Self { number: place + 1, connect, client, tried, late, leaving: Mutex::default() }
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

    /// Takes the lock there, unless a release of the same owner may still come after that.
    pub(crate) async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.check_settled(claim)?;
        self.client()?.try_lock(claim).await.map_err(|error| self.named(error))
    }

    /// Waits for the lock there.
    pub(crate) async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.check_settled(claim)?;
        self.client()?.lock(claim).await.map_err(|error| self.named(error))
    }

    pub(crate) async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
        match self.client.get() {
            Some(client) => client.unlock(claim).await.map_err(|error| self.named(error)),
            // By this client, nothing was ever asked of it.
            None => Ok(Unlocked::NotHeld),
        }
    }

    fn check_settled(&self, claim: &Claim) -> Result<()> {
        if !self.leaving().contains(&claim.owner) {
            return Ok(());
        }
        let wrong = format!("store {} has not answered an earlier release yet", self.number);
        Err(Error::new(ErrorKind::Unavailable, wrong))
    }

    /// From now on until that is dropped, the owner's release is on its way.
    pub(crate) fn leave(&self, owner: &OwnerId) {
        self.leaving().insert(owner.clone());
    }

    pub(crate) fn left(&self, owner: &OwnerId) {
        self.leaving().remove(owner);
    }

    fn leaving(&self) -> MutexGuard<'_, HashSet<OwnerId>> {
        self.leaving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
