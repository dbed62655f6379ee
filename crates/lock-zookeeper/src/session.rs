//! One session: all claims of one lease share it, for the session's time-out is their lease.
//!
//! A server answers pings and reads for a while after the others gave a session up. So only a committed write proves
//! that it lives: one of its own, the *beacon*, each third of the time-out, counted from when it was sent.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join;
use lock_core::{Error, ErrorKind, Instant, LockName, OwnerId, Result, StoreToken};
use tokio::sync::{Notify, watch};
use zookeeper_client::{Client, CreateMode, Error as ZkError, SessionInfo, SessionState, Stat};

use crate::error;
use crate::factory::Settings;

/// The pause before the servers are tried again.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Session {
    pub(crate) settings: Arc<Settings>,
    client: Mutex<Option<Arc<Client>>>,
    pub(crate) info: SessionInfo,
    /// Its time-out, as the server granted it.
    pub(crate) lasts: Duration,
    /// For how long a proof holds: see [`promised`].
    promise: Duration,
    pub(crate) state: Mutex<State>,
    /// A claim came in, or the session is to be closed.
    pub(crate) wake: Notify,
    pub(crate) life: watch::Sender<Life>,
    /// Nobody is there any more who would care what is left of it.
    pub(crate) abandoned: AtomicBool,
    /// Held by who proves it, so that those who come meanwhile have the same proof.
    proving: tokio::sync::Mutex<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    Alive,
    /// Nothing can be asked over it any more.
    Over,
    /// The servers have ended it as well: of what it made, nothing is left and nothing will come.
    Buried,
}

#[derive(Default)]
pub(crate) struct State {
    /// When the last write was sent that was committed.
    proof: Option<Instant>,
    /// Something was not answered since then.
    doubtful: bool,
    pub(crate) claims: HashMap<OwnerId, Claimed>,
    /// How many wait in a line.
    pub(crate) waiting: usize,
}

/// What became of a claim so far.
#[derive(Clone, Debug)]
pub(crate) struct Claimed {
    pub(crate) lock: LockName,
    /// The path of its node; `None` if it is not known whether there is one.
    pub(crate) node: Option<String>,
    pub(crate) hold: Option<Hold>,
    /// A watch on its node is set, or being set.
    pub(crate) watched: bool,
    /// It is being released.
    pub(crate) ending: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hold {
    pub(crate) token: StoreToken,
    pub(crate) since: Instant,
    /// When its lease is over, unless it is renewed.
    pub(crate) ends: Instant,
    /// Did it stand in line? Then others may stand behind it that saw who was before it.
    pub(crate) waited: bool,
}

/// For how long after a proof was sent a session is sure to live.
///
/// A follower reports who was active to the leader each half tick. Cut off before the report that would tell of the
/// proof, the leader counts from what it knew before: from one ping earlier at worst.
fn promised(lasts: Duration, silence: Duration, tick: Duration) -> Duration {
    lasts.saturating_sub(tick / 2 + silence / 2)
}

/// After how long without a byte a connection is replaced. The client pings in less than half of it.
fn silence(lasts: Duration, timeout: Duration) -> Duration {
    timeout.min(lasts / 4)
}

impl Session {
    /// A new session that is to last so long. `shortest` is the shortest that the servers are known to give: two ticks.
    pub(crate) async fn connect(settings: Arc<Settings>, lasts: Duration, shortest: Option<Duration>) -> Result<Self> {
        let silence = silence(lasts, settings.timeout);
        // The client crate tries each server once; one that is about to start, or slow, is tried again.
        let connecting = async {
            loop {
                let connector = settings.connector()?.with_session_timeout(lasts).with_connection_timeout(silence);
                match settings
                    .open(connector.with_fail_eagerly())
                    .await
                    .map_err(|e| error::of_connecting(&settings.servers, e))
                {
                    Err(error) if error.kind() == ErrorKind::Unavailable => tokio::time::sleep(PAUSE).await,
                    answer => return answer,
                }
            }
        };
        let client = tokio::time::timeout(settings.timeout, connecting).await;
        let client = client.unwrap_or_else(|_| Err(error::unreachable(&settings.servers)))?;
        let lasts = client.session_timeout();
        let silence = if silence > lasts * 3 / 5 { lasts * 2 / 5 } else { silence };
        Ok(Self {
            promise: promised(lasts, silence, shortest.unwrap_or(lasts) / 2),
            info: client.session().clone(),
            client: Mutex::new(Some(Arc::new(client))),
            settings,
            lasts,
            state: Mutex::default(),
            wake: Notify::new(),
            life: watch::Sender::new(Life::Alive),
            abandoned: AtomicBool::new(false),
            proving: tokio::sync::Mutex::default(),
        })
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn now(&self) -> Instant {
        self.settings.clock.now()
    }

    pub(crate) fn life(&self) -> Life {
        *self.life.borrow()
    }

    /// For requests.
    pub(crate) fn client(&self) -> Result<Arc<Client>, ZkError> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.clone().ok_or(ZkError::ClientClosed)
    }

    /// The same, once it is connected: what is asked before that would only wait.
    ///
    /// # Errors
    /// Nothing was asked.
    pub(crate) async fn connected(&self) -> Result<Arc<Client>> {
        let unreachable = || error::unreachable(&self.settings.servers);
        let client = self.client().map_err(|_| closed())?;
        let mut states = client.state_watcher();
        if states.state() == SessionState::Disconnected {
            let connecting = async { while states.changed().await == SessionState::Disconnected {} };
            tokio::time::timeout(self.settings.timeout, connecting).await.map_err(|_| unreachable())?;
        }
        Ok(client)
    }

    /// Awaits an answer, in bounded time.
    pub(crate) async fn answer<T>(&self, asked: impl Future<Output = Result<T, ZkError>>) -> Result<T, ZkError> {
        let bound = self.settings.timeout.min(self.lasts);
        let answer = tokio::time::timeout(bound, asked).await.unwrap_or(Err(ZkError::Timeout));
        if let Err(ZkError::Timeout | ZkError::ConnectionLoss | ZkError::Custom(_)) = answer {
            self.state().doubtful = true;
        }
        answer
    }

    /// Asks what may be asked twice, again where the connection breaks, in bounded time.
    pub(crate) async fn ask<T, F>(&self, request: impl Fn(Arc<Client>) -> F) -> Result<T, ZkError>
    where
        F: Future<Output = Result<T, ZkError>>,
    {
        let asking = async {
            loop {
                match request(self.client()?).await {
                    Err(ZkError::ConnectionLoss | ZkError::Custom(_)) => self.doubt(),
                    answer => return answer,
                }
            }
        };
        self.answer(asking).await
    }

    /// A write that was sent then was committed.
    pub(crate) fn proved(&self, sent: Instant) {
        let mut state = self.state();
        state.proof = state.proof.max(Some(sent));
        state.doubtful = false;
    }

    /// When the last proof was sent.
    pub(crate) fn proof(&self) -> Option<Instant> {
        self.state().proof
    }

    pub(crate) fn doubt(&self) {
        self.state().doubtful = true;
    }

    /// Until when a claim of this lease is granted by a proof.
    pub(crate) fn valid_until(&self, proof: Instant, lease: Duration) -> Instant {
        proof + lease.min(self.promise)
    }

    /// Until when the session is sure to live.
    pub(crate) fn sure_until(&self) -> Instant {
        self.proof().map_or(self.now(), |proof| proof + self.promise)
    }

    /// Proves that the session lives, unless that was just done. Answers when the proof was sent.
    pub(crate) async fn prove(&self) -> Result<Instant, ZkError> {
        let asked = self.now();
        let _alone = self.proving.lock().await;
        {
            let state = self.state();
            let recent = |proof: &Instant| asked.saturating_duration_since(*proof) <= self.lasts / 6;
            if let Some(proof) = state.proof.filter(|_| !state.doubtful).filter(recent) {
                return Ok(proof);
            }
        }
        let sent = self.now();
        self.write_beacon().await?;
        self.proved(sent);
        Ok(sent)
    }

    /// Writes the session's beacon, and answers what the servers then say of it.
    pub(crate) async fn write_beacon(&self) -> Result<Stat, ZkError> {
        let folder = &self.settings.names.beacons();
        let path = &beacon(folder, self.info.id().0);
        let lasts = &self.lasts.as_millis().to_string();
        let ephemeral = &CreateMode::Ephemeral.with_acls(self.settings.acls());
        let write = |client: Arc<Client>| async move {
            loop {
                match client.set_data(path, lasts.as_bytes(), None).await {
                    Err(ZkError::NoNode) => {}
                    written => return written,
                }
                match client.create(path, lasts.as_bytes(), ephemeral).await {
                    // Made by a request of ours whose answer was lost.
                    Err(ZkError::NodeExists) => {}
                    Err(ZkError::NoNode) => self.make_folder(folder).await?,
                    created => return created.map(|(stat, _)| stat),
                }
            }
        };
        self.ask(write).await
    }

    /// Makes a node that the server removes when it has had children and has none any more.
    pub(crate) async fn make_folder(&self, path: &str) -> Result<(), ZkError> {
        let container = &CreateMode::Container.with_acls(self.settings.acls());
        self.ask(|client| async move { client.mkdir(path, container).await }).await
    }

    /// Who stands in the line, as of now or a little earlier; `None` if there is no such folder.
    pub(crate) async fn list(&self, folder: &str) -> Result<Option<Vec<String>>, ZkError> {
        match self.ask(|client| async move { client.list_children(folder).await }).await {
            Err(ZkError::NoNode) => Ok(None),
            listed => listed.map(Some),
        }
    }

    /// The same, as of now: after everything that was done before this is called, also by requests whose answer was lost.
    /// (The session's requests are done in their order, also over another connection.)
    pub(crate) async fn list_now(&self, folder: &str) -> Result<Option<Vec<String>>, ZkError> {
        let listing = |client: Arc<Client>| async move {
            let (synced, listed) = join(client.sync(folder), client.list_children(folder)).await;
            synced.and(listed)
        };
        match self.ask(listing).await {
            Err(ZkError::NoNode) => Ok(None),
            listed => listed.map(Some),
        }
    }

    /// Notes a claim before anything of it is sent. No, if the session is over.
    pub(crate) fn begin(&self, owner: &OwnerId, lock: &LockName) -> bool {
        let claimed = Claimed { lock: lock.clone(), node: None, hold: None, watched: false, ending: false };
        let mut state = self.state();
        // Asked under the same lock under which its end is noted.
        let alive = self.life() == Life::Alive;
        if alive {
            state.claims.insert(owner.clone(), claimed);
            self.wake.notify_one();
        }
        alive
    }

    pub(crate) fn forget(&self, owner: &OwnerId) -> Option<Claimed> {
        self.state().claims.remove(owner)
    }

    pub(crate) fn claimed(&self, owner: &OwnerId) -> Option<Claimed> {
        self.state().claims.get(owner).cloned()
    }

    /// Changes what is known of a claim, if it is still known at all.
    pub(crate) fn update(&self, owner: &OwnerId, change: impl FnOnce(&mut Claimed)) {
        if let Some(claimed) = self.state().claims.get_mut(owner) {
            change(claimed);
        }
    }

    /// Counts as one that waits, until dropped.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        self.state().waiting += 1;
        Waiting(self)
    }

    /// Ends the session: everything it made goes with it.
    pub(crate) fn close(&self) {
        self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.wake.notify_one();
    }

    /// The same, when nobody is left to wait for its end.
    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
        self.close();
    }

    /// Ends when its life has come this far.
    pub(crate) async fn reached(&self, life: Life) {
        // It fails if the sender is gone, which is `self`.
        let _ = self.life.subscribe().wait_for(|now| *now >= life).await;
    }
}

/// The path of a session's beacon.
pub(crate) fn beacon(folder: &str, session: i64) -> String {
    format!("{folder}/{session:016x}")
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "this connection was closed")
}

pub(crate) struct Waiting<'a>(&'a Session);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_is_shorter_than_the_session_by_what_a_leader_may_not_know() {
        let [tick, lasts, timeout] = [2, 30, 5].map(Duration::from_secs);
        assert_eq!(silence(lasts, timeout), timeout);
        assert_eq!(silence(tick * 2, timeout), tick / 2);
        assert_eq!(promised(lasts, timeout, tick), Duration::from_millis(26_500));
        assert_eq!(promised(tick * 2, tick / 2, tick), Duration::from_millis(2500));
    }
}
