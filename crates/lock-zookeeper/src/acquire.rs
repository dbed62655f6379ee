//! The way into a line, and through it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt, try_join3};
use lock_core::{Claim, Clock, Error, ErrorKind, Grant, Mode, Result, StoreToken, Unlocked};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};
use zookeeper_client::{
    Client, CreateMode, CreateOptions, Error as ZkError, EventType, MultiWriteError, MultiWriteResult, Stat,
    WatchedEvent,
};

use crate::ZookeeperLock;
use crate::acquire_permits;
use crate::claims::Hold;
use crate::error::{another_kind, of_preparing, of_request, stray};
use crate::kept::Stands;
use crate::keys::{Ahead, ahead, name_of};
use crate::nodes::{base, content, is_ours, node_prefix, terms};
use crate::permits::{check_folder, slots};
use crate::release::{find, passing, release};
use crate::session::{Life, Session};
use crate::sessions::Sessions;
use crate::tokens::Tokens;

/// How often a waiter behind another program's node looks at its line.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

/// For how long a waiter behind a kept hold believes what it was told: somebody may set the servers' clock.
const MOST: Duration = Duration::from_secs(60);

/// What came of one attempt in one session.
pub(crate) enum Attempt {
    Granted(Grant),
    Busy,
    /// The session is over, and what it made with it.
    SessionOver,
}

/// What the making of our node told.
struct Made {
    sent: lock_core::Instant,
    token: StoreToken,
    node: String,
    /// When, by the servers' clock.
    at: i64,
    /// Who stands in the line, if that is known.
    children: Option<Vec<String>>,
}

/// Our node in the line.
struct Place<'a> {
    session: &'a Session,
    claim: &'a Claim,
    folder: String,
    node: String,
    look: Arc<Notify>,
    /// What happens to our node.
    own: Option<BoxFuture<'static, WatchedEvent>>,
    /// The servers' clock, if it was just told.
    now: Option<i64>,
}

enum Turn {
    Ours,
    /// Whatever happened: the predecessor may have been written to, or have given up its wait behind others, and our own
    /// node may have been deleted. Only the line tells whose turn it is.
    Look,
    /// The predecessor hangs on no session, and is no hold that was kept: it never ends by itself.
    Stray,
}

impl ZookeeperLock {
    pub(crate) async fn acquire(&self, claim: &Claim, wait: bool) -> Result<Option<Grant>> {
        for session in self.sessions.with_claim(&claim.owner) {
            if let Some(grant) = confirmed(&session, claim).await? {
                return Ok(Some(grant));
            }
            release(&session, &claim.owner).await?;
        }
        // How many permits there were when it last stood in line.
        let mut permits = None;
        loop {
            let session = ready(&self.sessions, claim.lease).await?;
            match attempt(&session, claim, wait, &mut permits).await? {
                Attempt::Granted(grant) => return Ok(Some(grant)),
                Attempt::Busy => return Ok(None),
                Attempt::SessionOver => {}
            }
        }
    }
}

/// The grant that this claim has already, if its node is still the first in line.
async fn confirmed(session: &Session, claim: &Claim) -> Result<Option<Grant>> {
    let Some(claimed) = session.claimed(&claim.owner) else { return Ok(None) };
    let (Some(hold), Some(node)) = (claimed.hold, &claimed.node) else { return Ok(None) };
    if session.life() > Life::Alive || session.now() >= hold.ends {
        return Ok(None);
    }
    let Some((folder, own)) = node.rsplit_once('/') else { return Ok(None) };
    let children = session.list_now(folder).await.map_err(of_request)?.unwrap_or_default();
    let names = || claimed.nodes().map(|node| name_of(node));
    let stands = match claim.mode.permits() {
        Some(_) => names().all(|name| children.iter().any(|child| child == name)),
        None => ahead(&children, own).is_some_and(|ahead| ahead.count == 0),
    };
    Ok(stands.then(|| {
        let evidence = session.settings.evidence(claimed.nodes(), hold.token);
        Grant::new(hold.token, hold.ends).with_slots(slots(names())).with_evidence(evidence)
    }))
}

/// A session in which a claim of this lease can enter a line.
///
/// # Errors
/// Nothing was asked about any lock.
async fn ready(sessions: &Arc<Sessions>, lease: Duration) -> Result<Arc<Session>> {
    let late = Instant::now() + sessions.settings.timeout;
    loop {
        let session = sessions.of(lease).await?;
        match prepare(&session, lease).await {
            // A short session ends where the servers are slow, and nothing is lost by that yet. The next is another one
            // as soon as its end is noted.
            Err(_) if session.is_over() && Instant::now() < late => {
                let _ = timeout_at(late, session.reached(Life::Over)).await;
            }
            prepared => return prepared.map(|()| session),
        }
    }
}

/// Does, once or after a pause, what takes several requests: before we are in anybody's way.
async fn prepare(session: &Session, lease: Duration) -> Result<()> {
    session.connected().await?;
    let preparing = async {
        if session.proof().is_none() {
            // From the beacon, others read how long the claims of this session last.
            session.prove().await?;
        }
        session.tokens().await?;
        session.sure(lease).await
    };
    let prepared = timeout(session.settings.timeout, preparing).await;
    prepared.unwrap_or(Err(ZkError::Timeout)).map_err(of_preparing)
}

/// Enters the line, and waits in it if so wanted.
///
/// # Errors
/// As of [`DistributedLock::lock`](lock_core::DistributedLock::lock).
async fn attempt(session: &Session, claim: &Claim, wait: bool, permits: &mut Option<u32>) -> Result<Attempt> {
    let client = session.connected().await?;
    if !session.begin(claim) {
        return Ok(Attempt::SessionOver);
    }
    let _attending = session.attend(&claim.owner);
    let stood = match claim.mode {
        Mode::Permits { .. } => acquire_permits::stand(session, client, claim, wait, permits).await,
        _ => stand(session, client, claim, wait).await,
    };
    match stood {
        Ok(attempt) => Ok(attempt),
        Err(_) if session.is_over() => {
            // A request may hear of it before it is noted.
            let _ = timeout(session.settings.timeout, session.reached(Life::Over)).await;
            Ok(Attempt::SessionOver)
        }
        Err(error) if session.claimed(&claim.owner).is_some_and(|claimed| claimed.node.is_some()) => {
            // There is a node: that has to be undone, whatever this says.
            Err(Error::new(ErrorKind::Unknown, "our node is in the line, and the line cannot be seen")
                .with_source(error))
        }
        Err(error) => {
            if error.is_refused() {
                session.forget(&claim.owner);
            }
            Err(error)
        }
    }
}

async fn stand(session: &Session, client: Arc<Client>, claim: &Claim, wait: bool) -> Result<Attempt> {
    let folder = session.settings.keys.folder(&claim.name);
    let entering = enter(session, &client, claim, &folder);
    let entered = timeout(session.settings.timeout, entering).await;
    let Made { sent, token, node, at, children } = entered.unwrap_or_else(|_| Err(of_request(ZkError::Timeout)))?;
    // Kept over a wait, it would keep the session open.
    drop(client);
    let look = Arc::default();
    session.update(&claim.owner, |claimed| {
        claimed.node = Some(node.clone());
        claimed.look = Arc::clone(&look);
    });
    session.proved(sent);
    let mut place = Place { session, claim, folder, node, look, own: None, now: Some(at) };
    let mut children = match children {
        Some(children) => children,
        None => place.line().await?,
    };
    if let Err(wrong) = check_folder(session, claim, &children).await {
        release(session, &claim.owner).await?;
        return Err(wrong);
    }
    let mut waited = false;
    loop {
        if let Some(other) = children.iter().find(|child| session.settings.peers.are_missed_by(child)) {
            let wrong = another_kind(&format!("{}/{other}", place.folder));
            release(session, &claim.owner).await?;
            return Err(wrong);
        }
        let Some(Ahead { predecessor, first, .. }) = ahead(&children, place.name()) else { return Err(removed()) };
        let (Some(predecessor), Some(first)) = (predecessor, first) else {
            return place.grant(token, waited).await.map(Attempt::Granted);
        };
        // Whoever of ours is right before us sees to it itself.
        let is_ours_to_end = !wait || predecessor == first || !is_ours(predecessor);
        let kept_for = match terms(first).filter(|_| is_ours_to_end) {
            Some(_) => place.ends(first).await?,
            None => Stands::Endless,
        };
        if kept_for == Stands::No {
            children = place.line().await?;
            continue;
        }
        if !wait {
            // What is left, and not known to be gone, is the caller's to undo.
            return release(session, &claim.owner).await.map(|_: Unlocked| Attempt::Busy);
        }
        waited = true;
        match place.turn(predecessor, kept_for).await? {
            Turn::Ours => return place.grant(token, waited).await.map(Attempt::Granted),
            Turn::Look => children = place.line().await?,
            Turn::Stray => {
                let path = format!("{}/{predecessor}", place.folder);
                release(session, &claim.owner).await?;
                return Err(stray(&path));
            }
        }
    }
}

/// Makes the node. Where the connection breaks, it is looked for before another is made.
async fn enter(session: &Session, client: &Client, claim: &Claim, folder: &str) -> Result<Made> {
    let mode = CreateMode::EphemeralSequential.with_acls(session.settings.acls());
    loop {
        let tokens = session.tokens().await.map_err(of_request)?;
        let sent = session.now();
        match session.answer(make(session, client, claim, folder, &mode, tokens)).await {
            // Nothing was made.
            Err(ZkError::BadVersion) => session.settings.tokens.refused(tokens),
            // The server may remove it again before we are in it.
            Err(ZkError::NoNode) => session.make_folder(folder).await.map_err(of_request)?,
            Err(ZkError::ConnectionLoss | ZkError::Custom(_)) => {
                if let Some(made) = made(session, claim, sent, tokens).await? {
                    return Ok(made);
                }
            }
            Err(error) => return Err(of_request(error)),
            Ok((folder, node)) => {
                // The node's number is that of the transaction, as the folder's last write's is.
                let (token, at) = (tokens.base.token(folder.mzxid)?, folder.mtime);
                let children = (folder.num_children == 1).then(|| vec![name_of(&node).to_owned()]);
                return Ok(Made { sent, token, node, at, children });
            }
        }
    }
}

/// Makes the node, and tells its path, and what the same transaction left of the folder. It is [`ZkError::BadVersion`] if
/// tokens are not counted from there any more: then nothing is made.
///
/// What the folder has in it is told by a write to it alone, in the same transaction. A list in the same flight would
/// not be: the client crate's connection delays small packets, so that it leaves when the first answer has come.
async fn make(
    session: &Session,
    client: &Client,
    claim: &Claim,
    folder: &str,
    mode: &CreateOptions<'_>,
    tokens: Tokens,
) -> Result<(Stat, String), ZkError> {
    let mut writer = client.new_multi_writer();
    let checks = tokens.check(&mut writer, &session.settings.keys)?;
    let node = format!("{folder}/{}", node_prefix(&claim.owner, tokens.base, claim.mode, session.settings.peers));
    writer.add_create(&node, content(&claim.owner, claim.value.as_ref()).as_bytes(), mode)?;
    writer.add_set_data(folder, b"", None)?;
    let written = writer.commit().await.map_err(|error| match error {
        MultiWriteError::OperationFailed { index, source: ZkError::NoNode } if index < checks => ZkError::BadVersion,
        error => error.into(),
    })?;
    match &written[checks.min(written.len())..] {
        // Some servers leave the node's own state out.
        [MultiWriteResult::Create { path, .. }, MultiWriteResult::SetData { stat }] => Ok((*stat, path.clone())),
        _ => Err(ZkError::MarshallingError),
    }
}

/// What a request made whose answer was lost: the node if this session made one, and its line.
async fn made(session: &Session, claim: &Claim, sent: lock_core::Instant, tokens: Tokens) -> Result<Option<Made>> {
    let found = find(session, &claim.owner, &claim.name).await.map_err(of_request)?;
    let Some((node, children)) = found else { return Ok(None) };
    let path = &node;
    let stat = session.ask(|client| async move { client.check_stat(path).await }).await.map_err(of_request)?;
    // One of an earlier session goes with it.
    let Some(stat) = stat.filter(|stat| stat.ephemeral_owner == session.info.id().0) else { return Ok(None) };
    // An earlier request may have made it.
    let token = base(name_of(path)).unwrap_or(tokens.base).token(stat.czxid)?;
    Ok(Some(Made { sent, token, node, at: stat.ctime, children: Some(children) }))
}

impl Place<'_> {
    fn name(&self) -> &str {
        name_of(&self.node)
    }

    async fn line(&mut self) -> Result<Vec<String>> {
        self.session.list(&self.folder).await.map_err(of_request)?.ok_or_else(removed)
    }

    /// For how long the kept hold stands that is the first in the line; it goes if its time is over.
    async fn ends(&mut self, first: &str) -> Result<Stands> {
        let now = match self.now.take() {
            Some(now) => now,
            None => self.session.servers_now().await.map_err(of_request)?,
        };
        self.session.end_if_over(&format!("{}/{first}", self.folder), now).await.map_err(of_request)
    }

    /// Waits until the predecessor passes the lock on, or something else happens, or the time of the first in line is
    /// over, if its hold is kept.
    ///
    /// A holder that had waited makes and deletes a node in the transaction that deletes its own (`release.rs`). Who
    /// hears of that knows that its predecessor held until then, and so that it is next, without another look. A server
    /// tells a session of events in their order: so if nothing was heard of our own node by then, it was there.
    async fn turn(&mut self, predecessor: &str, kept_for: Stands) -> Result<Turn> {
        self.now = None;
        let (session, is_foreign) = (self.session, !is_ours(predecessor));
        let clock = &session.settings.clock;
        let look_at = match kept_for {
            Stands::For(left) => Some(clock.now() + left.min(MOST)),
            // Another program right behind the holder does nothing for us when that keeps its hold.
            _ => is_foreign.then(|| clock.now() + LOOK),
        };
        let (own, path) = (&self.node, &format!("{}/{predecessor}", self.folder));
        let (passed, own_is_watched) = (&passing(path), self.own.is_some());
        self.session.update(&self.claim.owner, |claimed| claimed.predecessor = Some(path.clone()));
        let watching = |client: Arc<Client>| async move {
            let own =
                async { if own_is_watched { Ok(None) } else { client.check_and_watch_stat(own).await.map(Some) } };
            try_join3(client.check_and_watch_stat(passed), client.check_and_watch_stat(path), own).await
        };
        let ((_, passed), (predecessor, gone), own) = self.session.ask(watching).await.map_err(of_request)?;
        if let Some((standing, watcher)) = own {
            self.own = standing.map(|_| watcher.changed().boxed());
        }
        let (Some(own), Some(predecessor)) = (self.own.as_mut(), predecessor) else {
            return Ok(Turn::Look);
        };
        if predecessor.ephemeral_owner == 0 && (is_foreign || !matches!(kept_for, Stands::For(_))) {
            return Ok(Turn::Stray);
        }
        let over = async || {
            session.reached(Life::Over).await;
            Err(of_request(ZkError::SessionExpired))
        };
        tokio::select! {
            biased;
            () = session.reached(Life::Over) => over().await,
            event = passed.changed() => match event.event_type {
                EventType::Session => over().await,
                EventType::NodeCreated => match own.now_or_never() {
                    None => Ok(Turn::Ours),
                    // That was said once: whoever listens on needs another watch.
                    Some(_) => {
                        self.own = None;
                        Ok(Turn::Look)
                    }
                },
                _ => Ok(Turn::Look),
            },
            event = gone.changed() => match event.event_type {
                EventType::Session => over().await,
                _ => Ok(Turn::Look),
            },
            event = &mut *own => {
                self.own = None;
                match event.event_type {
                    EventType::Session => over().await,
                    _ => Ok(Turn::Look),
                }
            }
            () = self.look.notified() => Ok(Turn::Look),
            () = reached(&**clock, look_at) => Ok(Turn::Look),
            () = silence(session) => Err(of_request(ZkError::Timeout)),
        }
    }

    /// The lock is ours, as long as the session is sure to live.
    async fn grant(self, token: StoreToken, waited: bool) -> Result<Grant> {
        let Self { session, claim, .. } = self;
        session.sure(claim.lease).await.map_err(of_request)?;
        let valid_until = session.valid_until(claim.lease);
        // Whoever stands behind a reader may have to wait for others, too.
        let waited = waited && claim.mode == Mode::Exclusive;
        let hold = Hold { token, since: session.now(), ends: valid_until, waited };
        let watched = self.own.is_some_and(|own| session.watch_on(&claim.owner, &self.node, own));
        session.update(&claim.owner, |claimed| {
            claimed.hold = Some(hold);
            claimed.predecessor = None;
            claimed.watched = watched;
        });
        Ok(Grant::new(token, valid_until).with_evidence(session.settings.evidence([&self.node], token)))
    }
}

/// Ends at this time, if there is one.
pub(crate) async fn reached(clock: &dyn Clock, at: Option<lock_core::Instant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// Ends when the session is not sure to live any more.
pub(crate) async fn silence(session: &Session) {
    loop {
        let until = session.sure_until();
        session.settings.clock.sleep_until(until).await;
        if session.sure_until() <= until {
            return;
        }
    }
}

pub(crate) fn removed() -> Error {
    Error::new(ErrorKind::Unknown, "somebody deleted our node in the line; take the lock anew")
}
