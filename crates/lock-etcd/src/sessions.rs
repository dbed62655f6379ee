//! The leases of a client, one for each length.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{self, BoxFuture, join_all};
use lock_core::{Error, ErrorKind, Result};
use tokio::sync::Notify;
use tokio::task::{AbortHandle, JoinHandle};

use crate::Shared;
use crate::connection::{Again, Connection};
use crate::error::not_done;
use crate::session::Session;

/// The longest lease that is asked for: ten years, in seconds.
const ENDLESS: u64 = 10 * 365 * 86_400;

/// A claim begins with a lease that was renewed less than this part of it ago, so that it has most of it before it.
const FRESH: u32 = 10;

#[derive(Default)]
pub(crate) struct Sessions {
    /// By the seconds that were asked for.
    slots: Mutex<HashMap<i64, Slot>>,
    /// There is a session that was not there before.
    pub(crate) opened: Notify,
}

#[derive(Default)]
struct Slot {
    session: Option<Arc<Session>>,
    opening: Option<(AbortHandle, Opening)>,
}

/// A task that makes or renews a session. All who need one wait for the same: it goes on when they are gone, and none
/// of them waits for the failures of others one after the other.
type Opening = future::Shared<BoxFuture<'static, Result<Arc<Session>>>>;

impl Sessions {
    fn slots(&self) -> MutexGuard<'_, HashMap<i64, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        self.slots().values().filter_map(|slot| slot.session.clone()).collect()
    }

    /// Lets go of a session that is over.
    pub(crate) fn forget(&self, session: &Session) {
        for slot in self.slots().values_mut() {
            slot.session.take_if(|open| open.lease == session.lease);
        }
    }

    fn get(&self, seconds: i64) -> Option<Arc<Session>> {
        self.slots().get(&seconds)?.session.clone()
    }

    /// What opens a session now; begun by this if nothing does.
    fn opening(&self, seconds: i64, begin: impl FnOnce() -> JoinHandle<Result<Arc<Session>>>) -> Opening {
        let mut slots = self.slots();
        let slot = slots.entry(seconds).or_default();
        // It is finished too if its runtime is gone.
        if let Some((_, opening)) = slot.opening.as_ref().filter(|(task, _)| !task.is_finished()) {
            return opening.clone();
        }
        let task = begin();
        let handle = task.abort_handle();
        let opening = task.map(|opened| opened.unwrap_or_else(|_| Err(Error::closed())));
        slot.opening.insert((handle, opening.boxed().shared())).1.clone()
    }

    /// Ends all leases, as well as that can be done soon.
    pub(crate) async fn close(&self, connection: &Connection) {
        let revocations = self.all().into_iter().map(|session| async move {
            let revoking = connection.ask(Again::Yes, |link| {
                let (mut lease, id) = (link.lease.clone(), session.lease);
                async move { lease.revoke(id).await }
            });
            // Otherwise it ends when its time is over.
            let _ = revoking.await;
        });
        join_all(revocations).await;
    }
}

impl Shared {
    /// The session for claims with this lease, renewed not long ago.
    pub(crate) async fn session(self: &Arc<Self>, lease: Duration) -> Result<Arc<Session>> {
        let seconds = whole_seconds(lease);
        if let Some(session) = self.fresh_session(seconds) {
            return Ok(session);
        }
        let open = || {
            self.sessions.opening(seconds, || {
                let shared = Arc::clone(self);
                tokio::spawn(async move { shared.open_session(seconds).await })
            })
        };
        match open().await {
            // The runtime may be gone on which another began it.
            Err(error) if error.kind() == ErrorKind::Closed => open().await,
            opened => opened,
        }
    }

    fn fresh_session(&self, seconds: i64) -> Option<Arc<Session>> {
        let (now, session) = (self.connection.clock.now(), self.sessions.get(seconds)?);
        session.touch(now);
        session.is_fresh(FRESH, now).then_some(session)
    }

    async fn open_session(&self, seconds: i64) -> Result<Arc<Session>> {
        // It may have been finished just before.
        if let Some(session) = self.fresh_session(seconds) {
            return Ok(session);
        }
        if let Some(session) = self.sessions.get(seconds)
            && self.renew_session(&session, &[]).await.map_err(not_done)?.is_some()
        {
            return Ok(session);
        }
        let session = Arc::new(Session::open(&self.connection, &self.keys, &self.tokens, seconds).await?);
        self.sessions.slots().entry(seconds).or_default().session = Some(Arc::clone(&session));
        self.sessions.opened.notify_one();
        Ok(session)
    }

    /// Prolongs a lease. What hangs on one that is over is lost.
    pub(crate) async fn renew_session(
        &self,
        session: &Arc<Session>,
        keys: &[String],
    ) -> Result<Option<Vec<Option<i64>>>> {
        if session.is_lost() {
            return Ok(None);
        }
        let revisions = session.renew(&self.connection, keys).await?;
        if revisions.is_none() {
            self.ledger.lost(session);
        }
        Ok(revisions)
    }
}

/// A lease as etcd is told it: never less than we promise.
pub(crate) fn whole_seconds(lease: Duration) -> i64 {
    let seconds = lease.as_secs().saturating_add(u64::from(lease.subsec_nanos() > 0));
    seconds.clamp(1, ENDLESS) as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leases_are_asked_for_in_whole_seconds() {
        let cases = [(Duration::ZERO, 1), (Duration::from_millis(2001), 3), (Duration::from_secs(30), 30)];
        for (lease, seconds) in cases {
            assert_eq!(whole_seconds(lease), seconds);
        }
        assert_eq!(whole_seconds(Duration::MAX), ENDLESS as i64);
    }
}
