//! One session: all claims of about one lease share it, for the session's time-out is their lease, or a little more.
//!
//! A server answers pings and reads for a while after the others gave a session up. So only committed writes prove that
//! it lives; and a follower tells the leader of them only at its next report, within half a tick. So a write counts,
//! from when it was sent, once another was committed that was sent half a tick after its answer. The session's *beacon*
//! is written each sixth of the time-out.
//!
//! This takes it that the leader's ping, its way and the report fit into half a tick. The model of it
//! (`crates/models/src/zookeeper.rs`) shows what can happen otherwise: the ping is late, the second write overtakes the
//! report, and the follower is cut off before it sends that. Then the session may end while its client is sure of it.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, join};
use lock_core::{Error, ErrorKind, Instant, OwnerId, Result};
use tokio::sync::{Notify, mpsc, watch};
use zookeeper_client::{Client, CreateMode, Error as ZkError, SessionInfo, SessionState, Stat, WatchedEvent};

use crate::claims::Claimed;
use crate::error;
use crate::options::Settings;

/// The pause before the servers are tried again.
const PAUSE: Duration = Duration::from_millis(100);

pub(crate) struct Session {
    pub(crate) settings: Arc<Settings>,
    client: Mutex<Option<Arc<Client>>>,
    pub(crate) info: SessionInfo,
    /// Its time-out, as the server granted it.
    pub(crate) lasts: Duration,
    /// Half a tick: after so long the leader has heard of what a follower answered.
    report: Duration,
    pub(crate) state: Mutex<State>,
    /// A claim came in, or the session is to be closed.
    pub(crate) wake: Notify,
    pub(crate) life: watch::Sender<Life>,
    /// Nobody is there any more who would care what is left of it.
    pub(crate) abandoned: AtomicBool,
    /// Held by who proves it, so that those who come meanwhile have the same proof.
    proving: tokio::sync::Mutex<()>,
    /// It is to end as soon as there is no claim in it.
    pub(crate) retired: AtomicBool,
    /// To the task beside the session: watches on nodes that are held now.
    watches: mpsc::UnboundedSender<Watch>,
    pub(crate) watches_to_keep: Mutex<Option<mpsc::UnboundedReceiver<Watch>>>,
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
    /// When writes were sent and answered of which the leader may not have heard.
    recent: VecDeque<(Instant, Instant)>,
    /// The session lasts from here on: the leader has heard of this.
    base: Option<Instant>,
    /// Something was not answered since then.
    doubtful: bool,
    pub(crate) claims: HashMap<OwnerId, Claimed>,
    /// Does the task beside the session sleep until it is woken?
    pub(crate) idle: bool,
}

/// A watch on the node of a claim.
pub(crate) struct Watch {
    pub(crate) owner: OwnerId,
    pub(crate) node: String,
    pub(crate) event: BoxFuture<'static, WatchedEvent>,
}

/// After how long without a byte a connection is replaced. The client pings in half of it at the latest.
fn silence(lasts: Duration, timeout: Duration) -> Duration {
    timeout.min(lasts * 2 / 5)
}

impl Session {
    /// A new session that is to last so long. `shortest` is the shortest that the servers are known to give: two ticks.
    pub(crate) async fn connect(settings: Arc<Settings>, lasts: Duration, shortest: Option<Duration>) -> Result<Self> {
        let silence = silence(lasts, settings.timeout);
        let mut begun = settings.clock.now();
        // The client crate tries each server once; one that is about to start, or slow, is tried again.
        let connecting = async {
            loop {
                begun = settings.clock.now();
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
        // The leader itself makes a session.
        let state = State { base: Some(begun), ..State::default() };
        let (watches, watches_to_keep) = mpsc::unbounded_channel();
        Ok(Self {
            report: shortest.unwrap_or(lasts) / 4,
            info: client.session().clone(),
            client: Mutex::new(Some(Arc::new(client))),
            settings,
            lasts,
            state: Mutex::new(state),
            wake: Notify::new(),
            life: watch::Sender::new(Life::Alive),
            abandoned: AtomicBool::new(false),
            proving: tokio::sync::Mutex::default(),
            retired: AtomicBool::new(false),
            watches,
            watches_to_keep: Mutex::new(Some(watches_to_keep)),
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

    /// Can nothing be asked over it any more, whether or not that was noted yet?
    pub(crate) fn is_over(&self) -> bool {
        let ended = |client: Arc<Client>| is_over(client.state());
        self.life() > Life::Alive || self.client().map_or(true, ended)
    }

    /// For requests.
    pub(crate) fn client(&self) -> Result<Arc<Client>, ZkError> {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        client.clone().ok_or(ZkError::ClientClosed)
    }

    /// The same, once it is connected: what is asked before that would only wait, or fail at once.
    ///
    /// # Errors
    /// Nothing was asked.
    pub(crate) async fn connected(&self) -> Result<Arc<Client>> {
        let unreachable = || error::unreachable(&self.settings.servers);
        let connecting = tokio::time::timeout(self.settings.timeout, self.connection()).await;
        connecting.map_err(|_| unreachable())?.map_err(|_| closed())
    }

    async fn connection(&self) -> Result<Arc<Client>, ZkError> {
        let client = self.client()?;
        if client.state() == SessionState::Disconnected {
            let mut states = client.state_watcher();
            while states.peek_state() == SessionState::Disconnected {
                states.changed().await;
            }
        }
        Ok(client)
    }

    /// Awaits an answer, in bounded time.
    pub(crate) async fn answer<T>(&self, asked: impl Future<Output = Result<T, ZkError>>) -> Result<T, ZkError> {
        // Not by the session's length, if that is less: slow servers may keep it alive, and its end is an answer too.
        let answer = tokio::time::timeout(self.settings.timeout, asked).await.unwrap_or(Err(ZkError::Timeout));
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
                match request(self.connection().await?).await {
                    Err(ZkError::ConnectionLoss | ZkError::Custom(_)) => self.doubt(),
                    answer => return answer,
                }
            }
        };
        self.answer(asking).await
    }

    /// A write that was sent then was committed.
    pub(crate) fn proved(&self, sent: Instant) {
        let now = self.now();
        let mut state = self.state();
        state.proof = state.proof.max(Some(sent));
        state.doubtful = false;
        while let Some(&(before, answered)) = state.recent.front()
            && answered + self.report <= sent
        {
            state.base = state.base.max(Some(before));
            state.recent.pop_front();
        }
        // A few are enough, however much is written.
        if state.recent.back().is_none_or(|(before, _)| *before + self.report / 4 <= sent) {
            state.recent.push_back((sent, now));
        }
    }

    /// When the last proof was sent.
    pub(crate) fn proof(&self) -> Option<Instant> {
        self.state().proof
    }

    pub(crate) fn doubt(&self) {
        self.state().doubtful = true;
    }

    /// Until when a claim of this lease is granted, by what was proved so far.
    pub(crate) fn valid_until(&self, lease: Duration) -> Instant {
        self.state().base.map_or(self.now(), |base| base + lease.min(self.lasts))
    }

    /// Until when the session is sure to live.
    pub(crate) fn sure_until(&self) -> Instant {
        self.valid_until(self.lasts)
    }

    /// Sees to it that a grant of this lease is worth something, in bounded time: after a pause, that takes two writes,
    /// and more where the servers are slow.
    pub(crate) async fn sure(&self, lease: Duration) -> Result<(), ZkError> {
        let lease = lease.min(self.lasts);
        let writing = async {
            while self.now() + lease / 4 >= self.valid_until(lease) {
                let sent = self.now();
                self.write_beacon().await?;
                self.proved(sent);
                self.settings.clock.sleep_until(self.now() + self.report).await;
            }
            Ok(())
        };
        tokio::time::timeout(self.settings.timeout, writing).await.unwrap_or(Err(ZkError::Timeout))
    }

    /// Proves that the session lives, unless that was just done.
    pub(crate) async fn prove(&self) -> Result<(), ZkError> {
        let asked = self.now();
        let _alone = self.proving.lock().await;
        {
            let state = self.state();
            let recent = |proof: &Instant| asked.saturating_duration_since(*proof) <= self.lasts / 6;
            if state.proof.filter(|_| !state.doubtful).is_some_and(|proof| recent(&proof)) {
                return Ok(());
            }
        }
        let sent = self.now();
        self.write_beacon().await?;
        self.proved(sent);
        Ok(())
    }

    /// Is it being proved?
    pub(crate) fn is_proving(&self) -> bool {
        self.proving.try_lock().is_err()
    }

    /// Writes the session's beacon, and answers what the servers then say of it.
    pub(crate) async fn write_beacon(&self) -> Result<Stat, ZkError> {
        let folder = &self.settings.keys.beacons();
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

    /// From now on this session reads what was done before: the server that it asks may be behind the others.
    pub(crate) async fn catch_up(&self) -> Result<(), ZkError> {
        let root = self.settings.keys.root();
        self.ask(|client| async move { client.sync(root).await }).await
    }

    /// Who stands in the line, as of now or a little earlier; `None` if there is no such folder.
    pub(crate) async fn list(&self, folder: &str) -> Result<Option<Vec<String>>, ZkError> {
        match self.ask(|client| async move { client.list_children(folder).await }).await {
            Err(ZkError::NoNode) => Ok(None),
            listed => listed.map(Some),
        }
    }

    /// The same, as of now: after everything that was done before this is called, also by requests whose answer was
    /// lost. (The session's requests are done in their order, also over another connection.)
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

    /// Has a watch on the node of a hold kept. No, if nobody is there to keep it.
    pub(crate) fn watch_on(&self, owner: &OwnerId, node: &str, event: BoxFuture<'static, WatchedEvent>) -> bool {
        self.watches.send(Watch { owner: owner.clone(), node: node.to_owned(), event }).is_ok()
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

pub(crate) fn is_over(state: SessionState) -> bool {
    matches!(state, SessionState::Expired | SessionState::AuthFailed | SessionState::Closed)
}

pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "this connection was closed")
}
