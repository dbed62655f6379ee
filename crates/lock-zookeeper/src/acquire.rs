//! The way into a line, and through it.

use std::sync::Arc;

use futures_util::future::join;
use lock_core::{Claim, Error, ErrorKind, Grant, Result, StoreToken, Unlocked};
use zookeeper_client::{Client, CreateMode, Error as ZkError, EventType, OneshotWatcher, Stat};

use crate::error::of_request;
use crate::names::{Ahead, ahead, name_of};
use crate::release::{find, node_prefix, release};
use crate::session::{Hold, Life, Session};

/// What came of one attempt in one session.
pub(crate) enum Attempt {
    Granted(Grant),
    Busy,
    /// The session is over, and what it made with it.
    SessionOver,
}

/// Our node in the line.
struct Place<'a> {
    session: &'a Session,
    folder: String,
    node: String,
}

/// Enters the line, and waits in it if so wanted.
///
/// # Errors
/// As of [`DistributedLock::lock`](lock_core::DistributedLock::lock).
pub(crate) async fn attempt(session: &Session, claim: &Claim, wait: bool) -> Result<Attempt> {
    let client = session.connected().await?;
    if session.proof().is_none() {
        // From the beacon, others read how long the claims of this session last.
        session.prove().await.map_err(of_request)?;
    }
    // Before we are in anybody's way.
    session.sure().await.map_err(of_request)?;
    if !session.begin(&claim.owner, &claim.name) {
        return Ok(Attempt::SessionOver);
    }
    match stand(session, client, claim, wait).await {
        Ok(attempt) => Ok(attempt),
        Err(_) if session.life() > Life::Alive => Ok(Attempt::SessionOver),
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
    let folder = session.settings.names.folder(&claim.name);
    let prefix = format!("{folder}/{}", node_prefix(&claim.owner));
    let entering = enter(session, &client, claim, &folder, &prefix);
    let entered = tokio::time::timeout(session.settings.timeout, entering).await;
    let (sent, stat, node, mut children) = entered.unwrap_or_else(|_| Err(of_request(ZkError::Timeout)))?;
    // Kept over a wait, it would keep the session open.
    drop(client);
    let token = StoreToken::new(stat.czxid as u64)?;
    session.update(&claim.owner, |claimed| claimed.node = Some(node.clone()));
    session.proved(sent);
    let place = Place { session, folder, node };
    let mut waited = false;
    loop {
        let Some(Ahead { count, predecessor }) = ahead(&children, place.name()) else { return Err(removed()) };
        let Some(predecessor) = predecessor else {
            return grant(session, claim, token, waited).await.map(Attempt::Granted);
        };
        if !wait {
            // What is left, and not known to be gone, is the caller's to undo.
            return release(session, &claim.owner).await.map(|_: Unlocked| Attempt::Busy);
        }
        waited = true;
        match place.turn(predecessor, count == 1).await? {
            Turn::Ours => return grant(session, claim, token, true).await.map(Attempt::Granted),
            Turn::Look => children = place.line().await?,
        }
    }
}

/// Makes the node and lists the line in one flight; what is listed is as of the node's making, or later. Where the
/// connection breaks, it is looked for before another is made.
async fn enter(
    session: &Session,
    client: &Client,
    claim: &Claim,
    folder: &str,
    prefix: &str,
) -> Result<(lock_core::Instant, Stat, String, Vec<String>)> {
    let mode = CreateMode::EphemeralSequential.with_acls(session.settings.acls());
    loop {
        let sent = session.now();
        let created = client.create(prefix, claim.owner.as_str().as_bytes(), &mode);
        let listed = client.list_children(folder);
        match session.answer(async { Ok(join(created, listed).await) }).await.map_err(of_request)? {
            // The server may remove it again before we are in it.
            (Err(ZkError::NoNode), _) => session.make_folder(folder).await.map_err(of_request)?,
            (Err(ZkError::ConnectionLoss | ZkError::Custom(_)), _) => {
                session.doubt();
                if let Some((stat, node, children)) = made(session, claim).await.map_err(of_request)? {
                    return Ok((sent, stat, node, children));
                }
            }
            (Err(error), _) => return Err(of_request(error)),
            (Ok((stat, number)), listed) => {
                let children = listed.map_err(|error| Error::new(ErrorKind::Unknown, of_request(error).to_string()))?;
                return Ok((sent, stat, format!("{prefix}{number}"), children));
            }
        }
    }
}

/// What a request made whose answer was lost: the node if this session made one, and its line.
async fn made(session: &Session, claim: &Claim) -> Result<Option<(Stat, String, Vec<String>)>, ZkError> {
    let Some((node, children)) = find(session, &claim.owner, &claim.name).await? else { return Ok(None) };
    let path = &node;
    let stat = session.ask(|client| async move { client.check_stat(path).await }).await?;
    // One of an earlier session goes with it.
    let own = stat.filter(|stat| stat.ephemeral_owner == session.info.id().0);
    Ok(own.map(|stat| (stat, node, children)))
}

enum Turn {
    Ours,
    /// Whoever was before us is gone, and others may be before us.
    Look,
}

impl Place<'_> {
    fn name(&self) -> &str {
        name_of(&self.node)
    }

    async fn line(&self) -> Result<Vec<String>> {
        self.session.list(&self.folder).await.map_err(of_request)?.ok_or_else(removed)
    }

    /// Waits until the predecessor is gone.
    async fn turn(&self, predecessor: &str, is_first: bool) -> Result<Turn> {
        let path = &format!("{}/{predecessor}", self.folder);
        let watching = |client: Arc<Client>| async move { client.check_and_watch_stat(path).await };
        let (stat, watcher) = self.session.ask(watching).await.map_err(of_request)?;
        let event = match stat {
            Some(_) => self.event(watcher).await?,
            None => EventType::NodeDeleted,
        };
        Ok(match event {
            // Its holder released it: nobody else writes to it.
            EventType::NodeDataChanged => Turn::Ours,
            EventType::NodeDeleted if is_first => Turn::Ours,
            _ => Turn::Look,
        })
    }

    /// Waits for what happens to a node, as long as the servers confirm that the session lives.
    async fn event(&self, watcher: OneshotWatcher) -> Result<EventType> {
        let over = || of_request(ZkError::SessionExpired);
        tokio::select! {
            event = watcher.changed() => match event.event_type {
                EventType::Session => {
                    self.session.reached(Life::Over).await;
                    Err(over())
                }
                event => Ok(event),
            },
            () = self.session.reached(Life::Over) => Err(over()),
            () = self.silence() => Err(of_request(ZkError::Timeout)),
        }
    }

    /// Ends when the session is not sure to live any more.
    async fn silence(&self) {
        loop {
            let until = self.session.sure_until();
            self.session.settings.clock.sleep_until(until).await;
            if self.session.sure_until() <= until {
                return;
            }
        }
    }
}

/// The lock is ours, as long as the session is sure to live.
async fn grant(session: &Session, claim: &Claim, token: StoreToken, waited: bool) -> Result<Grant> {
    session.sure().await.map_err(of_request)?;
    let valid_until = session.valid_until(claim.lease);
    let hold = Hold { token, since: session.now(), ends: valid_until, waited };
    session.update(&claim.owner, |claimed| claimed.hold = Some(hold));
    Ok(Grant { token, valid_until })
}

fn removed() -> Error {
    Error::new(ErrorKind::Unknown, "somebody deleted our node in the line; take the lock anew")
}
