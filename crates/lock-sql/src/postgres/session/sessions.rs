//! The sessions of a client: those that nobody uses, and those in which its claims are held or may be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use lock_core::{Error, OwnerId, Result, StoreToken};

use super::connection::{Identity, Session};
use crate::server::Lives;

/// For so long a claim is kept that nobody undoes: whoever does tries again each few seconds, and may give up.
const KEPT: Duration = Duration::from_secs(3600);

/// So few claims are not looked through for such.
const FEW: usize = 64;

/// At most so many sessions are kept that nobody uses. The server ends them after a lease.
const MOST: usize = 64;

/// The sessions that nobody uses, the one that was used last at the end. None: they are closed.
pub(super) struct Sessions {
    idle: Mutex<Option<Vec<Session>>>,
    /// The runtimes on which they are opened.
    pub(super) lives: Lives,
}

impl Default for Sessions {
    fn default() -> Self {
        Self { idle: Mutex::new(Some(Vec::new())), lives: Lives::default() }
    }
}

impl Sessions {
    fn idle(&self) -> MutexGuard<'_, Option<Vec<Session>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of this runtime's, if there is any.
    pub(super) async fn lend(&self) -> Result<Option<Session>> {
        while let Some(mut session) = self.take()? {
            if session.still_works().await {
                return Ok(Some(session));
            }
        }
        Ok(None)
    }

    fn take(&self) -> Result<Option<Session>> {
        let mut idle = self.idle();
        let idle = idle.as_mut().ok_or_else(Error::closed)?;
        idle.retain(|session| !session.is_old());
        Ok(idle.iter().rposition(|session| session.is_of_here()).map(|at| idle.remove(at)))
    }

    /// Nothing is held or asked for over this one.
    pub(super) fn give_back(&self, mut session: Session) {
        session.rests();
        let mut idle = self.idle();
        if let Some(idle) = idle.as_mut().filter(|idle| idle.len() < MOST && session.is_clean()) {
            idle.push(session);
        }
    }

    /// Closes those that nobody uses: one of them was found broken.
    pub(super) fn forget_idle(&self) {
        let broken = self.idle().as_mut().map(std::mem::take);
        drop(broken);
    }

    pub(super) async fn close(&self) {
        let idle = self.idle().take();
        futures_util::future::join_all(idle.into_iter().flatten().map(Session::close)).await;
    }
}

/// A claim that was asked for. As long as it is here, whoever releases it has to do something about it.
#[derive(Debug)]
pub(super) struct Place {
    /// The session that asked.
    pub(super) identity: Identity,
    /// Its token and the number of its lock, once it was granted.
    pub(super) granted: OnceLock<(StoreToken, i64)>,
    /// The session, from the grant on for as long as it works.
    pub(super) session: tokio::sync::Mutex<Option<Session>>,
    since: Instant,
}

/// The claims of a client, by their owners.
#[derive(Debug, Default)]
pub(super) struct Claims(Mutex<Places>);

#[derive(Debug, Default)]
struct Places {
    all: HashMap<OwnerId, Arc<Place>>,
    /// How many there were after old ones were last looked for.
    kept: usize,
}

impl Claims {
    fn places(&self) -> MutexGuard<'_, Places> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before the first byte leaves.
    pub(super) fn arm(&self, owner: &OwnerId, identity: Identity) -> Arc<Place> {
        let (session, since) = (tokio::sync::Mutex::default(), Instant::now());
        let place = Arc::new(Place { identity, granted: OnceLock::new(), session, since });
        let mut places = self.places();
        if places.all.len() >= (places.kept * 2).max(FEW) {
            let used = |place: &Place| place.session.try_lock().map_or(true, |session| session.is_some());
            places.all.retain(|_, place| place.since.elapsed() < KEPT || used(place));
            places.kept = places.all.len();
        }
        places.all.insert(owner.clone(), Arc::clone(&place));
        place
    }

    pub(super) fn get(&self, owner: &OwnerId) -> Option<Arc<Place>> {
        self.places().all.get(owner).cloned()
    }

    /// Nothing is left of it.
    pub(super) fn settle(&self, owner: &OwnerId) {
        let settled = self.places().all.remove(owner);
        drop(settled);
    }
}
