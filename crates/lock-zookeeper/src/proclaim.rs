//! A holder shows another value, and observers hear of changes.
//!
//! A value stands in the node of its claim from the beginning (`nodes.rs`). It is shown for the first node in the line
//! alone, so that of a waiter is not seen. The node's path is nobody else's: it has its owner and its number in it. So a
//! write to it changes the owner's own value or fails, since the node goes with the hold.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, StreamExt, unfold};
use lock_core::{Claim, ErrorKind, LockName, LockValue, Proclaimed, Result};
use zookeeper_client::{Client, Error as ZkError, EventType, OneshotWatcher};

use crate::ZookeeperLock;
use crate::error::{self, of_request};
use crate::kept::left;
use crate::keys::{in_line, name_of};
use crate::nodes::{content, terms};
use crate::session::{Life, Session};

/// The pause before the servers are asked again that did not answer.
const PAUSE: Duration = Duration::from_secs(1);

impl ZookeeperLock {
    pub(crate) async fn show(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        for session in self.sessions.with_claim(&claim.owner) {
            let Some(node) = held(&session, claim) else { continue };
            let (path, text) = (&node, &content(&claim.owner, Some(value)));
            let write = |client: Arc<Client>| async move { client.set_data(path, text.as_bytes(), None).await };
            match session.ask(write).await {
                Ok(_) => return Ok(Proclaimed::Shown),
                Err(ZkError::NoNode) => {}
                Err(_) if session.is_over() => {
                    // Its nodes go with the session.
                    let buried = session.reached(Life::Buried);
                    tokio::time::timeout(session.settings.timeout, buried).await.map_err(|_| error::not_buried())?;
                }
                Err(error) => return Err(of_request(error)),
            }
        }
        Ok(Proclaimed::NotHeld)
    }

    pub(crate) fn tell(&self, name: &LockName) -> BoxStream<'static, ()> {
        let observer = Observing { lock: self.clone(), folder: self.settings.keys.folder(name), watch: None };
        unfold(observer, async |mut observer| observer.next().await.then_some(((), observer))).boxed()
    }
}

/// The node of what this claim holds.
fn held(session: &Session, claim: &Claim) -> Option<String> {
    let claimed = session.claimed(&claim.owner).filter(|claimed| !claimed.ending)?;
    claimed.hold.filter(|hold| session.now() < hold.ends).and(claimed.node)
}

/// Hears of changes of a lock's holder.
struct Observing {
    lock: ZookeeperLock,
    folder: String,
    watch: Option<Watching>,
}

/// A watch, and how long what it watches can last.
struct Watching {
    watcher: OneshotWatcher,
    lasts: Option<Duration>,
}

impl Observing {
    /// Ends when there is something to look for, with a watch for what comes after that. No, if the client was closed.
    async fn next(&mut self) -> bool {
        if let Some(Watching { watcher, lasts }) = self.watch.take() {
            let over = async {
                match lasts {
                    Some(lasts) => tokio::time::sleep(lasts).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = watcher.changed() => if event.event_type == EventType::Session {
                    // The session is over: so are the requests of others for a moment.
                    tokio::time::sleep(PAUSE).await;
                },
                () = over => {}
            }
        }
        loop {
            match self.watch().await {
                Ok(watch) => {
                    self.watch = Some(watch);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Closed => return false,
                Err(error) => {
                    tracing::debug!(%error, "changes of a lock cannot be watched yet");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Watches the holder's node alone, or for the first that comes: those that wait come and go.
    async fn watch(&self) -> Result<Watching> {
        let session = self.lock.sessions.any().await?;
        let folder = &self.folder;
        loop {
            let children = session.list(folder).await.map_err(of_request)?;
            let is_there = children.is_some();
            let path = match in_line(children.unwrap_or_default()).into_iter().next() {
                Some(first) => &format!("{folder}/{first}"),
                None if is_there => match self.watch_empty(&session).await.map_err(of_request)? {
                    Some(watcher) => return Ok(Watching { watcher, lasts: None }),
                    None => continue,
                },
                None => folder,
            };
            let watch = |client: Arc<Client>| async move { client.check_and_watch_stat(path).await };
            let (stat, watcher) = session.ask(watch).await.map_err(of_request)?;
            if stat.is_some() != (path == folder) {
                let terms = terms(name_of(path));
                // Nobody may be there who ends what was kept.
                let lasts = match (terms, stat) {
                    (Some(terms), Some(stat)) => {
                        let now = session.servers_now().await.map_err(of_request)?;
                        Some(left(terms, stat.ctime, now)).filter(|left| !left.is_zero())
                    }
                    _ => None,
                };
                return Ok(Watching { watcher, lasts });
            }
        }
    }

    /// A watch on a folder in which nobody stands; `None` if that is not so any more.
    async fn watch_empty(&self, session: &Session) -> Result<Option<OneshotWatcher>, ZkError> {
        let folder = &self.folder;
        let watch = |client: Arc<Client>| async move { client.list_and_watch_children(folder).await };
        match session.ask(watch).await {
            Ok((children, watcher)) => Ok(Some(watcher).filter(|_| in_line(children).is_empty())),
            Err(ZkError::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
