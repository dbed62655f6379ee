//! The way out of a line: a node is deleted by its path, or searched for where it is in doubt.

use lock_core::{OwnerId, Result, Unlocked};
use uuid::Uuid;
use zookeeper_client::{Client, Error as ZkError, MultiWriteError};

use crate::error;
use crate::names::{ahead, in_line};
use crate::session::{Claimed, Life, Session};

/// What a node's name begins with. Of the owner it shows nothing, and from the owner it can be told again.
pub(crate) fn node_prefix(owner: &OwnerId) -> String {
    format!("_c_{}-lock-", Uuid::new_v5(&Uuid::NAMESPACE_OID, owner.as_str().as_bytes()))
}

/// Sees to it that nothing of a claim is left of this session.
///
/// # Errors
/// After any, something may be left; it may be repeated.
pub(crate) async fn release(session: &Session, owner: &OwnerId) -> Result<Unlocked> {
    let Some(claimed) = session.claimed(owner) else { return Ok(Unlocked::NotHeld) };
    session.update(owner, |claimed| claimed.ending = true);
    let released = match delete(session, owner, &claimed).await {
        Err(_) if session.life() > Life::Alive || session.client().is_err() => {
            // Its nodes go with the session.
            let buried = session.reached(Life::Buried);
            tokio::time::timeout(session.settings.timeout, buried).await.map_err(|_| error::not_buried())?;
            Unlocked::NotHeld
        }
        answer => answer.map_err(error::of_request)?,
    };
    session.forget(owner);
    Ok(released)
}

async fn delete(session: &Session, owner: &OwnerId, claimed: &Claimed) -> Result<Unlocked, ZkError> {
    let client = session.client()?;
    let (node, held) = match &claimed.node {
        Some(node) => (node.clone(), claimed.hold.is_some()),
        None => match find(session, owner, claimed).await? {
            Some(found) => found,
            None => return Ok(Unlocked::NotHeld),
        },
    };
    let sent = session.now();
    let deleted = match claimed.hold {
        Some(hold) if hold.waited => hand_over(session, &client, &node, owner).await,
        _ => session.answer(client.delete(&node, None)).await,
    };
    match deleted {
        Ok(()) => {
            session.proved(sent);
            Ok(if held { Unlocked::Released } else { Unlocked::NotHeld })
        }
        Err(ZkError::NoNode) => Ok(Unlocked::NotHeld),
        Err(error) => Err(error),
    }
}

/// Deletes the node so that whoever watches it knows that it was the holder's and that it is next: in one transaction,
/// the data is written first, and the watch fires for that.
async fn hand_over(session: &Session, client: &Client, node: &str, owner: &OwnerId) -> Result<(), ZkError> {
    let mut writer = client.new_multi_writer();
    writer.add_set_data(node, owner.as_str().as_bytes(), None)?;
    writer.add_delete(node, None)?;
    let commit = writer.commit();
    let committed = async {
        match commit.await {
            Ok(_) => Ok(()),
            Err(MultiWriteError::RequestFailed { source } | MultiWriteError::OperationFailed { source, .. }) => {
                Err(source)
            }
        }
    };
    session.answer(committed).await
}

/// The node that a request of unknown fate made, if it made one, and whether it is the first in line.
async fn find(session: &Session, owner: &OwnerId, claimed: &Claimed) -> Result<Option<(String, bool)>, ZkError> {
    let folder = session.settings.names.folder(&claimed.lock);
    let Some(children) = session.list_now(&folder).await? else { return Ok(None) };
    let prefix = node_prefix(owner);
    let named = children.iter().filter(|child| child.starts_with(&prefix)).cloned().collect();
    // The last, should one of an earlier session be there still.
    let Some(own) = in_line(named).pop() else { return Ok(None) };
    let first = ahead(&children, &own).is_some_and(|ahead| ahead.count == 0);
    Ok(Some((format!("{folder}/{own}"), first)))
}
