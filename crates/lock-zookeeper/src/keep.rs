//! A holder goes, and its hold stays: `kept.rs` says what that is in the store.

use std::time::Duration;

use lock_core::{Claim, Error, Instant, Kept, Result};
use zookeeper_client::{CreateMode, Error as ZkError};

use crate::ZookeeperLock;
use crate::claims::{Claimed, Hold};
use crate::error::{self, of_request};
use crate::kept::Stands;
use crate::nodes::{Terms, content, kept_path, kept_prefix, read};
use crate::release::release;
use crate::session::{Life, Session};

/// For how long at most others' holds are looked for when one is kept.
const SWEEP: Duration = Duration::from_secs(1);

impl ZookeeperLock {
    pub(crate) async fn keep_hold(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let (mut kept, mut unanswered) = (Kept::NotHeld, None);
        for session in self.sessions.with_claim(&claim.owner) {
            match begin(&session, claim) {
                Some((node, hold)) => {
                    kept = self.keep_in(&session, claim, &node, hold, rest, &mut unanswered).await?;
                }
                // Its lease is over: what may still be on its way of an earlier attempt is overtaken.
                None if session.claimed(&claim.owner).is_some_and(|claimed| claimed.hold.is_some()) => {
                    release(&session, &claim.owner).await?;
                }
                None => {}
            }
        }
        if kept != Kept::NotHeld {
            return Ok(kept);
        }
        // It may have been done by a request whose answer was lost, and be over since.
        match (self.is_kept(claim).await, unanswered) {
            (Ok(Kept::NotHeld), Some(sent)) if self.settings.clock.now() >= sent + rest => Err(Error::kept_or_not()),
            (Err(error), Some(_)) => Err(error.after_something_was_done()),
            (is_kept, _) => is_kept,
        }
    }

    /// Has it done in bounded time. `unanswered` tells when a request for it was sent first that was not answered.
    async fn keep_in(
        &self,
        session: &Session,
        claim: &Claim,
        node: &str,
        hold: Hold,
        rest: Duration,
        unanswered: &mut Option<Instant>,
    ) -> Result<Kept> {
        let _attending = session.attend(&claim.owner);
        let rest = u64::try_from(rest.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let terms = Terms { token: hold.token, rest };
        let Some(path) = kept_path(node, &claim.owner, terms) else { return Ok(Kept::NotHeld) };
        let replacing = replace(session, claim, node, &path, unanswered);
        match tokio::time::timeout(session.settings.timeout, replacing).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => {
                session.forget(&claim.owner);
                return Ok(Kept::NotHeld);
            }
            Ok(Err(_)) if session.is_over() => {
                // It may be done until the servers have ended the session, too.
                let buried = session.reached(Life::Buried);
                tokio::time::timeout(session.settings.timeout, buried).await.map_err(|_| error::not_buried())?;
                session.forget(&claim.owner);
                return Ok(Kept::NotHeld);
            }
            Ok(Err(error)) => return Err(of_request(error)),
            Err(_) => {
                session.doubt();
                return Err(of_request(ZkError::Timeout));
            }
        }
        session.forget(&claim.owner);
        self.end_later(path, Duration::from_millis(rest));
        if self.sessions.kept.is_to_sweep(session.now()) {
            // What was kept by programs that have ended since.
            let _ = tokio::time::timeout(SWEEP, self.sweep(session)).await;
        }
        Ok(Kept::Kept)
    }

    /// Is a hold of this owner kept, by whatever request?
    async fn is_kept(&self, claim: &Claim) -> Result<Kept> {
        let session = self.sessions.any().await?;
        let folder = self.settings.keys.folder(&claim.name);
        let children = session.list_now(&folder).await.map_err(of_request)?.unwrap_or_default();
        let prefix = kept_prefix(&claim.owner);
        for kept in children.iter().filter(|child| child.starts_with(&prefix)) {
            let path = format!("{folder}/{kept}");
            let now = session.servers_now().await.map_err(of_request)?;
            if let Stands::For(left) = session.end_if_over(&path, now).await.map_err(of_request)? {
                self.end_later(path, left);
                return Ok(Kept::Kept);
            }
        }
        Ok(Kept::NotHeld)
    }

    /// Has it ended when its time is over, if this client is there by then.
    fn end_later(&self, path: String, left: Duration) {
        let at = self.settings.clock.now() + left;
        self.sessions.kept.add((at, path), &self.sessions, &self.settings.clock);
    }
}

/// The node and the hold of this claim, which is renewed no more from here on.
fn begin(session: &Session, claim: &Claim) -> Option<(String, Hold)> {
    let now = session.now();
    let mut state = session.state();
    let claimed: &mut Claimed = state.claims.get_mut(&claim.owner)?;
    let hold = claimed.hold.filter(|hold| now < hold.ends)?;
    let node = claimed.node.clone()?;
    // What becomes of the node then says nothing new.
    claimed.ending = true;
    Some((node, hold))
}

/// Makes the node `path` in the place of `node`. No, if that is not there any more: then nothing is made, or an earlier
/// request made it, which was `unanswered`.
async fn replace(
    session: &Session,
    claim: &Claim,
    node: &str,
    path: &str,
    unanswered: &mut Option<Instant>,
) -> Result<bool, ZkError> {
    let persistent = &CreateMode::Persistent.with_acls(session.settings.acls());
    let owner = &claim.owner.kept();
    loop {
        // What is asked before it is connected may never leave.
        let client = session.connected().await.map_err(|_| ZkError::ConnectionLoss)?;
        if session.is_over() {
            return Err(ZkError::SessionExpired);
        }
        // As it was proclaimed last.
        let value = match &claim.value {
            None => None,
            Some(_) => match client.get_data(node).await {
                Ok((data, _)) => read(node, &String::from_utf8_lossy(&data)).1,
                Err(ZkError::NoNode) => return Ok(false),
                Err(ZkError::ConnectionLoss | ZkError::Custom(_)) => {
                    session.doubt();
                    continue;
                }
                Err(error) => return Err(error),
            },
        };
        let (at, text) = (session.now(), content(owner, value.as_ref()));
        let mut writer = client.new_multi_writer();
        writer.add_delete(node, None)?;
        writer.add_create(path, text.as_bytes(), persistent)?;
        match writer.commit().await.map_err(ZkError::from) {
            Ok(_) => {
                session.proved(at);
                return Ok(true);
            }
            Err(ZkError::NoNode) => return Ok(false),
            Err(ZkError::ConnectionLoss | ZkError::Custom(_)) => {
                unanswered.get_or_insert(at);
                session.doubt();
            }
            Err(error) => return Err(error),
        }
    }
}
