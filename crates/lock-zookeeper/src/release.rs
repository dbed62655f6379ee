//! The way out of a line: a node is deleted by its path, or searched for where it is in doubt.

use lock_core::{Claim, LockName, OwnerId, Result, Unlocked};
use zookeeper_client::{Client, CreateMode, Error as ZkError};

use crate::ZookeeperLock;
use crate::claims::Claimed;
use crate::error::{self, of_request};
use crate::keys::{ahead, in_line, name_of};
use crate::nodes::owner_prefix;
use crate::permits;
use crate::session::{Life, Session};

impl ZookeeperLock {
    pub(crate) async fn release(&self, claim: &Claim) -> Result<Unlocked> {
        let sessions = self.sessions.with_claim(&claim.owner);
        if sessions.is_empty() {
            return self.release_unknown(claim).await;
        }
        let mut unlocked = Unlocked::NotHeld;
        for session in sessions {
            if release(&session, &claim.owner).await? == Unlocked::Released {
                unlocked = Unlocked::Released;
            }
        }
        Ok(unlocked)
    }

    /// A release of what this client knows nothing of.
    async fn release_unknown(&self, claim: &Claim) -> Result<Unlocked> {
        let session = self.sessions.any().await?;
        if claim.mode.permits().is_some() {
            let nodes = permits::find(&session, &claim.owner, &claim.name).await.map_err(of_request)?;
            delete_all(&session, &nodes).await.map_err(of_request)?;
            return Ok(Unlocked::NotHeld);
        }
        let folder = self.settings.keys.folder(&claim.name);
        let children = session.list_now(&folder).await.map_err(of_request)?.unwrap_or_default();
        let prefix = owner_prefix(&claim.owner);
        for own in children.iter().filter(|child| child.starts_with(&prefix)) {
            let path = &format!("{folder}/{own}");
            match session.ask(|client| async move { client.delete(path, None).await }).await {
                Ok(()) | Err(ZkError::NoNode) => {}
                Err(error) => return Err(of_request(error)),
            }
        }
        Ok(Unlocked::NotHeld)
    }
}

/// What came of deleting a node.
enum Deleted {
    /// It was there until now.
    Now,
    NotThere,
    /// It is gone, by an earlier request of ours without an answer or by somebody else.
    Somehow,
}

/// Sees to it that nothing of a claim is left of this session.
///
/// # Errors
/// After any, something may be left, or it is not known whether the lock was held to the end; it may be repeated.
pub(crate) async fn release(session: &Session, owner: &OwnerId) -> Result<Unlocked> {
    let Some(claimed) = session.claimed(owner) else { return Ok(Unlocked::NotHeld) };
    let _attending = session.attend(owner);
    session.update(owner, |claimed| claimed.ending = true);
    // What became of the node then says nothing new.
    let late = claimed.hold.is_some_and(|hold| session.now() >= hold.ends);
    let mut sent = false;
    let deleting = delete(session, owner, &claimed, &mut sent);
    let deleted = match tokio::time::timeout(session.settings.timeout, deleting).await {
        Ok(Err(_)) if session.is_over() => {
            // Its nodes go with the session.
            let buried = session.reached(Life::Buried);
            tokio::time::timeout(session.settings.timeout, buried).await.map_err(|_| error::not_buried())?;
            if sent && claimed.hold.is_some() { Deleted::Somehow } else { Deleted::NotThere }
        }
        Ok(deleted) => deleted?,
        Err(_) => {
            session.doubt();
            return Err(error::of_request(ZkError::Timeout));
        }
    };
    session.forget(owner);
    match deleted {
        Deleted::Now => Ok(Unlocked::Released),
        Deleted::NotThere => Ok(Unlocked::NotHeld),
        Deleted::Somehow if late => Ok(Unlocked::NotHeld),
        Deleted::Somehow => Err(error::of_request(ZkError::ConnectionLoss)),
    }
}

/// Deletes a claim's node, again and again where the connection breaks. `sent` tells whether that was asked at all.
async fn delete(session: &Session, owner: &OwnerId, claimed: &Claimed, sent: &mut bool) -> Result<Deleted> {
    loop {
        // What is asked before it is connected may never leave.
        let client = session.connected().await?;
        if session.is_over() {
            return Err(error::of_request(ZkError::SessionExpired));
        }
        let (nodes, held) = nodes_of(session, owner, claimed).await?;
        let Some(node) = nodes.first() else { return Ok(Deleted::NotThere) };
        let (at, repeated) = (session.now(), std::mem::replace(sent, true));
        let deleted = match claimed.hold {
            _ if claimed.mode.permits().is_some() => give_back(session, &client, &nodes).await,
            Some(hold) if hold.waited => was_there(pass_on(session, &client, node).await),
            _ => was_there(client.delete(node, None).await),
        };
        match deleted {
            Ok(was_there) => {
                session.proved(at);
                return Ok(match held {
                    true if was_there => Deleted::Now,
                    true if repeated => Deleted::Somehow,
                    _ => Deleted::NotThere,
                });
            }
            Err(ZkError::ConnectionLoss | ZkError::Custom(_)) => session.doubt(),
            Err(error) => return Err(error::of_request(error)),
        }
    }
}

/// The nodes of a claim, as far as they are known or found, and whether it holds by them.
async fn nodes_of(session: &Session, owner: &OwnerId, claimed: &Claimed) -> Result<(Vec<String>, bool)> {
    let known = claimed.nodes().cloned().collect();
    let nodes = match (&claimed.node, claimed.mode.permits()) {
        // Whether it took its permits is not known.
        (Some(_), Some(_)) if claimed.hold.is_some() || !claimed.taking => known,
        (_, Some(_)) => permits::find(session, owner, &claimed.lock).await.map_err(error::of_request)?,
        (Some(_), None) => known,
        (None, None) => {
            let found = find(session, owner, &claimed.lock).await.map_err(error::of_request)?;
            return Ok(found.map_or((Vec::new(), false), |(node, children)| {
                let first = ahead(&children, name_of(&node)).is_some_and(|ahead| ahead.count == 0);
                (vec![node], first)
            }));
        }
    };
    Ok((nodes, claimed.hold.is_some()))
}

/// No, if it was gone already.
fn was_there(deleted: Result<(), ZkError>) -> Result<bool, ZkError> {
    match deleted {
        Err(ZkError::NoNode) => Ok(false),
        deleted => deleted.map(|()| true),
    }
}

/// Deletes all nodes of a claim for permits at once. No, if one of them was gone already.
async fn give_back(session: &Session, client: &Client, nodes: &[String]) -> Result<bool, ZkError> {
    let mut writer = client.new_multi_writer();
    nodes.iter().try_for_each(|node| writer.add_delete(node, None))?;
    match writer.commit().await.map_err(ZkError::from) {
        Err(ZkError::NoNode) => delete_all(session, nodes).await.map(|()| false),
        deleted => deleted.map(|_| true),
    }
}

/// Deletes those that are there, one after the other.
async fn delete_all(session: &Session, nodes: &[String]) -> Result<(), ZkError> {
    for path in nodes {
        was_there(session.ask(|client| async move { client.delete(path, None).await }).await)?;
    }
    Ok(())
}

/// The path of the node that is made and deleted when the holder whose node this is passes the lock on. Nobody else
/// makes it, and nobody takes it for one in the line.
pub(crate) fn passing(node: &str) -> String {
    format!("{node}-passing")
}

/// Deletes the holder's node so that whoever is behind it knows that it was the holder's. A mere deletion may be of one
/// that gave up its wait; and a write to the node, which would be told as well, may be anybody's.
async fn pass_on(session: &Session, client: &Client, node: &str) -> Result<(), ZkError> {
    let passing = &passing(node);
    let mut writer = client.new_multi_writer();
    writer.add_create(passing, b"", &CreateMode::Ephemeral.with_acls(session.settings.acls()))?;
    writer.add_delete(passing, None)?;
    writer.add_delete(node, None)?;
    match writer.commit().await.map_err(ZkError::from) {
        // Such as by a quota, or because somebody made that node by hand.
        Err(ZkError::NodeExists | ZkError::NoAuth | ZkError::InvalidAcl | ZkError::QuotaExceeded) => {
            client.delete(node, None).await
        }
        written => written.map(drop),
    }
}

/// The path of the node that a request of unknown fate made, if it made one, and its line.
pub(crate) async fn find(
    session: &Session,
    owner: &OwnerId,
    lock: &LockName,
) -> Result<Option<(String, Vec<String>)>, ZkError> {
    let folder = session.settings.keys.folder(lock);
    let Some(children) = session.list_now(&folder).await? else { return Ok(None) };
    let prefix = owner_prefix(owner);
    let named = children.iter().filter(|child| child.starts_with(&prefix)).cloned().collect();
    // The last, should one of an earlier session be there still.
    let own = in_line(named).pop();
    Ok(own.map(|own| (format!("{folder}/{own}"), children)))
}
