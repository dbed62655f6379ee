//! The check for data in ZooKeeper, where the lock is too: the store itself refuses who has lost the lock.
//!
//! A lock in ZooKeeper is an ephemeral node, whose name is that of no other acquisition. [`writer`] begins a
//! transaction of yours that is committed only if this node is there. So it needs no mark, and costs no request of its
//! own. It refuses a late writer as soon as the lock was released, lost or evicted, even if no later holder was here.
//!
//! - The data have to be on the servers that the lock is on. Over a client of other servers, the check never passes.
//! - The client is one of yours, of any session, and reads the locks' nodes: if these belong to a user, it logs in as
//!   that.
//! - A client with a root (`chroot`) of its own can check only what is below that.
//! - Each reader has a node, and each permit, so those who hold together do not fence each other off. Of several
//!   permits, the check of the first is the writer's own. The others are its first operations.
//! - Tasks of one process between which a lock is handed over have the same node. A lease whose turn is over is refused
//!   by [`writer`] itself. A transaction that was begun before that, and is committed later, is not. Begin it right
//!   before it is committed, or switch the hand-over off by [`hand_overs(0)`](lock_core::Mutex::hand_overs).
//! - A hold that is [kept](lock_core::DistributedLock::keep) has another node, so its former owner is refused.

use lock_core::{Error, ErrorKind, Evidence, Lease, Result};
use zookeeper_client::{CheckWriter, Client, Error as ZkError};

use crate::standing::evidence;

const STORE: &str = "zookeeper";

/// Begins a transaction of this client that is committed exactly if this lease's node stands in ZooKeeper.
///
/// ```
/// # use zookeeper_client::{Acls, CheckWriteError, Client, CreateMode};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use lock_fence as fence;
/// # let servers = test_servers::ZookeeperServers::start();
/// # let lock = lock_zookeeper::ZookeeperLock::connect(&servers.url(), "oarlock").await?;
/// # let lease = lock_core::Locks::new(std::sync::Arc::new(lock)).mutex("orders/42").lock().await?;
/// # let client = Client::connect(&servers.addresses()[0].to_string()).await?;
/// # let mode = CreateMode::Persistent.with_acls(Acls::anyone_all());
/// # client.create("/orders", b"", &mode).await?;
/// # client.create("/orders/42", b"", &mode).await?;
/// let mut writer = fence::zookeeper::writer(&client, &lease)?;
/// writer.add_set_data("/orders/42", b"paid", None)?;
/// match writer.commit().await {
///     Err(CheckWriteError::CheckFailed { .. }) => return Err("the lock was lost, and nothing was written".into()),
///     committed => committed?,
/// };
/// # assert_eq!(client.get_data("/orders/42").await?.0, b"paid");
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// [`ErrorKind::Lost`] if the lease is over by the clock, [`ErrorKind::Unsupported`] if the lock is not in ZooKeeper,
/// and [`ErrorKind::Invalid`] if the client's root is not above it.
///
/// # If the commit's reply is lost
/// Begin the same transaction again: it is done only if the lock is still held.
pub fn writer<'a>(client: &'a Client, lease: &Lease) -> Result<CheckWriter<'a>> {
    let begun = evidence(lease, STORE, "ZooKeeper").and_then(|nodes| begin(client, &nodes));
    begun.map_err(|error| error.with_context("fence", STORE, Some(lease.name())))
}

fn begin<'a>(client: &'a Client, nodes: &[&Evidence]) -> Result<CheckWriter<'a>> {
    let mut writer = None;
    for node in nodes {
        let path = below(client.path(), node.place()).ok_or_else(|| {
            let message = format!(
                "the client sees only what is below {}, and the lock's node is not; use a client with a root above \
                 both the locks and the data",
                client.path()
            );
            Error::new(ErrorKind::Invalid, message)
        })?;
        let added = match &mut writer {
            None => client.new_check_writer(path, None).map(|first| writer = Some(first)),
            // Whatever its version is.
            Some(writer) => writer.add_check_version(path, -1),
        };
        added.map_err(of_path)?;
    }
    writer.ok_or_else(|| of_path(ZkError::NoNode))
}

fn of_path(error: ZkError) -> Error {
    Error::new(ErrorKind::Invalid, "the path of the lock's node is none for this client").with_source(error)
}

/// A path from the servers' root, as a client with this root names it.
fn below<'a>(root: &str, path: &'a str) -> Option<&'a str> {
    path.strip_prefix(root.trim_end_matches('/')).filter(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_a_folder_above() {
        assert_eq!(below("/", "/locks/x/n"), Some("/locks/x/n"));
        assert_eq!(below("/locks", "/locks/x/n"), Some("/x/n"));
        for other in ["/lock", "/locks/x/n", "/other"] {
            assert_eq!(below(other, "/locks/x/n"), None, "{other}");
        }
    }
}
