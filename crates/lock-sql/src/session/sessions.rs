//! The sessions of a client: those that nobody uses, and those in which its claims are held or may be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use lock_core::{Error, OwnerId, Result, StoreToken};

use super::Session;
use crate::server::{Dialect, Lives};

/// For so long a claim is kept that nobody undoes: whoever does tries again each few seconds, and may give up.
const KEPT: Duration = Duration::from_secs(3600);

/// So few claims are not looked through for such.
const FEW: usize = 64;

/// At most so many sessions are kept that nobody uses. The server ends them after a lease.
const MOST: usize = 64;

/// The sessions that nobody uses, the one that was used last at the end. None: they are closed.
pub(crate) struct Sessions<D: Dialect, I> {
    idle: Mutex<Option<Vec<Session<D, I>>>>,
    /// The runtimes on which they are opened.
    pub(crate) lives: Lives,
}

impl<D: Dialect, I> Default for Sessions<D, I> {
    fn default() -> Self {
        Self { idle: Mutex::new(Some(Vec::new())), lives: Lives::default() }
    }
}

impl<D: Dialect, I> Sessions<D, I> {
    fn idle(&self) -> MutexGuard<'_, Option<Vec<Session<D, I>>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of this runtime's, if there is any.
    pub(crate) async fn lend(&self) -> Result<Option<Session<D, I>>> {
        while let Some(mut session) = self.take()? {
            if session.still_works().await {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }

    fn take(&self) -> Result<Option<Session<D, I>>> {
        let mut idle = self.idle();
        let idle = idle.as_mut().ok_or_else(Error::closed)?;
        idle.retain(|session| !session.is_old());
        Ok(idle.iter().rposition(|session| session.is_of_here()).map(|at| idle.remove(at)))
    }

    /// Nothing is held or asked for over this one.
    pub(crate) fn give_back(&self, mut session: Session<D, I>) {
        session.rests();
        let mut idle = self.idle();
        if let Some(idle) = idle.as_mut().filter(|idle| idle.len() < MOST && session.is_clean()) {
            idle.push(session);
        }
    }

    /// Closes those that nobody uses: one of them was found broken.
    pub(crate) fn forget_idle(&self) {
        let broken = self.idle().as_mut().map(std::mem::take);
        drop(broken);
    }

    pub(crate) async fn close(&self) {
        let idle = self.idle().take();
        futures_util::future::join_all(idle.into_iter().flatten().map(Session::close)).await;
    }
}

/// A claim that was asked for. As long as it is here, whoever releases it has to do something about it.
pub(crate) struct Place<D: Dialect, I, K> {
    /// The session that asked.
    pub(crate) identity: I,
    /// Its token and what the server calls its lock, once it was granted.
    pub(crate) granted: OnceLock<(StoreToken, K)>,
    /// The session, from the grant on for as long as it works.
    pub(crate) session: tokio::sync::Mutex<Option<Session<D, I>>>,
    /// For how long it is held at least, by the client's clock, as far as that is known.
    until: Mutex<Option<lock_core::Instant>>,
    since: Instant,
}

impl<D: Dialect, I, K> Place<D, I, K> {
    fn until(&self) -> MutexGuard<'_, Option<lock_core::Instant>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was granted, or renewed.
    pub(crate) fn lasts(&self, until: lock_core::Instant) {
        *self.until() = Some(until);
    }

    /// As far as this client knows.
    pub(crate) fn is_over(&self, now: lock_core::Instant) -> bool {
        self.until().is_none_or(|until| until < now)
    }
}

/// The claims of a client, by their owners.
pub(crate) struct Claims<D: Dialect, I, K>(Mutex<Places<D, I, K>>);

struct Places<D: Dialect, I, K> {
    all: HashMap<OwnerId, Arc<Place<D, I, K>>>,
    /// How many there were after old ones were last looked for.
    kept: usize,
}

impl<D: Dialect, I, K> Default for Claims<D, I, K> {
    fn default() -> Self {
        Self(Mutex::new(Places { all: HashMap::new(), kept: 0 }))
    }
}

impl<D: Dialect, I, K> Claims<D, I, K> {
    fn places(&self) -> MutexGuard<'_, Places<D, I, K>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the first byte leaves.
    pub(crate) fn arm(&self, owner: &OwnerId, identity: I) -> Arc<Place<D, I, K>> {
        let (session, until, since) = (tokio::sync::Mutex::default(), Mutex::default(), Instant::now());
        let place = Arc::new(Place { identity, granted: OnceLock::new(), session, until, since });
        let mut places = self.places();
        if places.all.len() >= (places.kept * 2).max(FEW) {
            let used = |place: &Place<D, I, K>| place.session.try_lock().map_or(true, |session| session.is_some());
            places.all.retain(|_, place| place.since.elapsed() < KEPT || used(place));
            places.kept = places.all.len();
        }
        places.all.insert(owner.clone(), Arc::clone(&place));
        place
    }

    pub(crate) fn get(&self, owner: &OwnerId) -> Option<Arc<Place<D, I, K>>> {
        self.places().all.get(owner).cloned()
    }

    /// Nothing is left of it.
    pub(crate) fn settle(&self, owner: &OwnerId) {
        let settled = self.places().all.remove(owner);
        drop(settled);
    }
}
