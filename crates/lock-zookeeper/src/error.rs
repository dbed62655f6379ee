//! What ZooKeeper's errors mean to a caller, each with the way out.

use std::time::Duration;

use lock_core::{Error, ErrorKind};
use zookeeper_client::Error as ZkError;

/// The error of a request that was sent.
pub(crate) fn of_request(error: ZkError) -> Error {
    use ErrorKind::{Refused, Unavailable, Unknown};
    let (kind, wrong) = match &error {
        ZkError::NoAuth => (Refused, "the user may not do this here; look at the node's rights with getAcl"),
        ZkError::AuthFailed => (Refused, "wrong user or password, or the server wants a user; check the URL"),
        ZkError::InvalidAcl => (Refused, "the server knows no such user; check user, password and the server's set-up"),
        ZkError::NoNode => (Refused, "the path behind the hosts (the chroot) does not exist; make it first"),
        ZkError::NoChildrenForEphemerals => {
            (Refused, "at this lock's path stands an ephemeral node, which is no lock; delete it, or rename the lock")
        }
        ZkError::BadArguments(_) => (
            Refused,
            "in the node beside the prefix from which tokens are counted stands no number; write the highest that ever stood there, or delete what is in it if none did",
        ),
        ZkError::QuotaExceeded => (Refused, "a quota on this path is used up; raise it with setquota"),
        ZkError::Throttled => (Unavailable, "the server is too busy; try again"),
        ZkError::NotReadOnly => (Unavailable, "the server has lost the others and is read-only; try again"),
        ZkError::Timeout => (Unknown, "no answer in time; look whether the servers are stopped or cut off"),
        ZkError::SessionExpired | ZkError::ClientClosed => (Unknown, "the session ended before the answer"),
        _ => (Unknown, "the connection broke before the answer"),
    };
    Error::new(kind, wrong).with_source(error)
}

/// The error of connecting: nothing was asked yet, so nothing can be unknown.
pub(crate) fn of_connecting(servers: &str, error: ZkError) -> Error {
    match of_request(error.clone()) {
        refused if refused.kind() == ErrorKind::Refused => refused,
        _ => unreachable(servers).with_source(error),
    }
}

/// The error of what a claim needs before anything is asked about its lock, so that nothing of it can be unknown.
pub(crate) fn of_preparing(error: ZkError) -> Error {
    match of_request(error.clone()) {
        unknown if unknown.kind() == ErrorKind::Unknown => {
            let wrong = "the servers do not answer in time, or too slowly for so short a lease; look whether they run";
            Error::new(ErrorKind::Unavailable, wrong).with_source(error)
        }
        known => known,
    }
}

/// Nobody but an operator makes it: a name that was mistyped would lock nothing.
pub(crate) fn no_chroot(chroot: &str) -> Error {
    let wrong = format!("the path {chroot} behind the hosts does not exist; check it, or make it with zkCli.sh create");
    Error::new(ErrorKind::Refused, wrong)
}

/// A port is open, and no session comes of it.
pub(crate) fn no_session(host: &str) -> Error {
    let wrong = format!(
        "{host} takes the connection, but gives no session; is it ZooKeeper's port, and do most of the servers run?"
    );
    Error::new(ErrorKind::Unavailable, wrong)
}

pub(crate) fn unreachable(servers: &str) -> Error {
    let message = format!("none of {servers} can be reached; check the addresses, and that most of the servers run");
    Error::new(ErrorKind::Unavailable, message)
}

/// No session lasts as long as a lease.
pub(crate) fn too_long(lease: Duration, longest: Duration) -> Error {
    let message = format!(
        "the lease is {lease:?}, and the servers give no session above {longest:?}; ask for no more, or raise their maxSessionTimeout"
    );
    Error::new(ErrorKind::Invalid, message)
}

/// In a lock's line stands a node that never ends by itself.
pub(crate) fn stray(node: &str) -> Error {
    let wrong =
        format!("the node {node} stands in line for this lock and hangs on no session: delete it with zkCli.sh");
    Error::new(ErrorKind::Refused, wrong)
}

/// In a lock's line stands a node of a program that takes no notice of ours.
pub(crate) fn another_kind(node: &str) -> Error {
    let wrong = format!(
        "the node {node} stands in line for this lock, and is of another of Curator's locks than this client takes part in: \
         connect with curator=read-write for InterProcessReadWriteLock, and with curator=mutex for InterProcessMutex"
    );
    Error::new(ErrorKind::Invalid, wrong)
}

/// The session of a claim is over, and the server has not said yet that its nodes are gone.
pub(crate) fn not_buried() -> Error {
    let message =
        "the session ended, and no server has confirmed yet that nothing of it is left; look whether they run";
    Error::new(ErrorKind::Unknown, message)
}
