//! Oarlock's backend for ZooKeeper 3.6 and later: one server or an ensemble, locks for every host that reaches it.
//!
//! A lock is a line of ephemeral sequential nodes in the layout of Curator's `InterProcessMutex`, and the first of them
//! holds it. So it excludes, and is excluded by, Curator, and kazoo's `Lock` with `extra_lock_patterns=["-lock-"]`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> lock_core::Result<()> {
//! use lock_core::{Config, Registry, ErrorKind};
//!
//! let mut registry = Registry::new();
//! registry.register(lock_zookeeper::ZookeeperFactory);
//! # let servers = test_servers::ZookeeperServers::start();
//! let url = "zookeeper://zk1.internal,zk2.internal,zk3.internal";
//! # let url = &servers.url();
//! let locks = registry.connect(Config::from_url(url)?).await?;
//! let guard = locks.mutex("orders/42").lock().await?;
//! guard.unlock().await?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod acquire;
mod claims;
mod doctor;
mod error;
mod factory;
mod look;
mod names;
#[cfg(test)]
mod properties;
mod release;
mod session;
mod sessions;
mod supervise;
mod tokens;

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use lock_core::{
    Capabilities, Claim, Clock, DistributedLock, Error, Finding, Grant, Holder, Instant, ListQuery, LockName,
    LockStatus, Notice, OwnerId, Page, Renewal, Result, Scope, StoreToken, Unlocked,
};
use tokio::sync::broadcast::error::RecvError;
use zookeeper_client::Error as ZkError;

use acquire::{Attempt, attempt, ready};
use claims::Hold;
use error::of_request;
use factory::Settings;
pub use factory::{ZookeeperFactory, ZookeeperOptions};
use names::ahead;
use release::{node_prefix, release};
use session::{Life, Session};
use sessions::Sessions;

/// Locks on one ZooKeeper server or ensemble.
///
/// Claims of about one lease share a session whose time-out is that lease, or up to a tenth more. A renewal is one
/// committed write for all of them. Waiters each watch the one before them. An eviction, and a connection that breaks,
/// are told at once.
#[derive(Clone)]
pub struct ZookeeperLock {
    settings: Arc<Settings>,
    sessions: Arc<Sessions>,
}

impl fmt::Debug for ZookeeperLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (servers, names) = (&self.settings.servers, &self.settings.names);
        f.debug_struct("ZookeeperLock").field("servers", servers).field("names", names).finish_non_exhaustive()
    }
}

impl ZookeeperLock {
    /// Connects to the servers of a URL such as `zookeeper://zk1,zk2,zk3`, in bounded time. [`ZookeeperOptions`] has
    /// more to choose.
    ///
    /// # Errors
    /// As [`ZookeeperOptions::connect`].
    ///
    /// # Cancel safety
    /// Nothing is held yet.
    pub async fn connect(url: &str, prefix: &str) -> Result<Self> {
        ZookeeperOptions::new(url)?.prefix(prefix).connect().await
    }

    async fn acquire(&self, claim: &Claim, wait: bool) -> Result<Option<Grant>> {
        for session in self.sessions.with_claim(&claim.owner) {
            if let Some(grant) = confirmed(&session, claim).await? {
                return Ok(Some(grant));
            }
            release(&session, &claim.owner).await?;
        }
        loop {
            let session = ready(&self.sessions, claim.lease).await?;
            match attempt(&session, claim, wait).await? {
                Attempt::Granted(grant) => return Ok(Some(grant)),
                Attempt::Busy => return Ok(None),
                Attempt::SessionOver => {}
            }
        }
    }

    /// What this client holds for this owner, and what time it is.
    fn hold(&self, owner: &OwnerId) -> Option<(Hold, Instant)> {
        let sessions = self.sessions.with_claim(owner);
        let hold = sessions.iter().find_map(|session| session.claimed(owner)?.hold)?;
        Some((hold, self.settings.clock.now()))
    }

    /// Renews the claims of one session.
    async fn renew_in(session: &Session, claims: &[(usize, &Claim)]) -> Vec<(usize, Result<Renewal>)> {
        // A proof that comes later renews nothing any more.
        let proof = tokio::time::timeout(session.lasts, session.prove()).await.unwrap_or(Err(ZkError::Timeout));
        let now = session.now();
        let renewal = |claim: &Claim| {
            proof.clone().map_err(of_request)?;
            let valid_until = session.valid_until(claim.lease);
            let mut state = session.state();
            // Under the same lock under which its release begins.
            let claimed = state.claims.get_mut(&claim.owner).filter(|claimed| !claimed.ending);
            Ok(match claimed.and_then(|claimed| claimed.hold.as_mut()).filter(|hold| now < hold.ends) {
                Some(hold) => {
                    hold.ends = valid_until;
                    Renewal::Held { valid_until }
                }
                None => Renewal::NotHeld,
            })
        };
        claims.iter().map(|(at, claim)| (*at, renewal(claim))).collect()
    }

    /// A release of what this client knows nothing of.
    async fn release_unknown(&self, claim: &Claim) -> Result<Unlocked> {
        let session = self.sessions.any().await?;
        let folder = self.settings.names.folder(&claim.name);
        let children = session.list_now(&folder).await.map_err(of_request)?.unwrap_or_default();
        let prefix = node_prefix(&claim.owner);
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

/// The grant that this claim has already, if its node is still the first in line.
async fn confirmed(session: &Session, claim: &Claim) -> Result<Option<Grant>> {
    let Some((hold, node)) = session.claimed(&claim.owner).and_then(|claimed| Some((claimed.hold?, claimed.node?)))
    else {
        return Ok(None);
    };
    if session.life() > Life::Alive || session.now() >= hold.ends {
        return Ok(None);
    }
    let Some((folder, own)) = node.rsplit_once('/') else { return Ok(None) };
    let children = session.list_now(folder).await.map_err(of_request)?.unwrap_or_default();
    let first = ahead(&children, own).is_some_and(|ahead| ahead.count == 0);
    Ok(first.then_some(Grant::new(hold.token, hold.ends)))
}

#[async_trait]
impl DistributedLock for ZookeeperLock {
    fn capabilities(&self) -> Capabilities {
        let mut capabilities = Capabilities::new("zookeeper", Scope::Network);
        capabilities.fair = true;
        capabilities.raises_tokens = true;
        capabilities.prompt_loss = true;
        capabilities.min_lease = self.sessions.shortest;
        capabilities.max_lease = self.sessions.longest.get().copied();
        capabilities.answers_within = self.settings.timeout;
        capabilities
    }

    fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.settings.clock)
    }

    async fn try_lock(&self, claim: &Claim) -> Result<Option<Grant>> {
        self.acquire(claim, false).await
    }

    async fn lock(&self, claim: &Claim) -> Result<Grant> {
        self.acquire(claim, true)
            .await?
            .ok_or_else(|| Error::new(lock_core::ErrorKind::Unknown, "a wait ended for no reason"))
    }

    async fn unlock(&self, claim: &Claim) -> Result<Unlocked> {
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

    async fn renew(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers: Vec<_> = claims.iter().map(|_| Ok(Renewal::NotHeld)).collect();
        let mut by_session: Vec<(Arc<Session>, Vec<(usize, &Claim)>)> = Vec::new();
        for (at, claim) in claims.iter().enumerate() {
            for session in
                self.sessions.with_claim(&claim.owner).into_iter().filter(|session| session.life() == Life::Alive)
            {
                match by_session.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &session)) {
                    Some((_, claims)) => claims.push((at, claim)),
                    None => by_session.push((session, vec![(at, claim)])),
                }
            }
        }
        let renewals = by_session.iter().map(|(session, claims)| Self::renew_in(session, claims));
        for (at, answer) in futures_util::future::join_all(renewals).await.into_iter().flatten() {
            answers[at] = answer;
        }
        answers
    }

    async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let seen = self.look(vec![name.clone()]).await?.pop();
        seen.map(|seen| seen.status).ok_or_else(|| of_request(ZkError::MarshallingError))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page> {
        self.page(query).await
    }

    async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        let session = self.sessions.any().await?;
        loop {
            // By node, so that whoever is named in the answer is the one who lost it, and not the next.
            let seen = self.look(vec![name.clone()]).await?.pop();
            let Some((holder, node)) = seen.and_then(|seen| Some((seen.status.into_holder()?, seen.node?))) else {
                return Ok(None);
            };
            let client = session.connected().await?;
            match session.answer(client.delete(&node, None)).await {
                Ok(()) => return Ok(Some(holder)),
                Err(ZkError::NoNode) => {}
                Err(error) => return Err(of_request(error)),
            }
        }
    }

    async fn raise_tokens(&self, _name: &LockName, above: StoreToken) -> Result<()> {
        self.sessions.any().await?.raise_tokens(above).await
    }

    async fn doctor(&self) -> Result<Vec<Finding>> {
        self.findings().await
    }

    fn notices(&self) -> BoxStream<'static, Notice> {
        let heard = self.sessions.notices.subscribe();
        unfold(heard, async |mut heard| {
            loop {
                match heard.recv().await {
                    Ok(notice) => return Some((notice, heard)),
                    // Renewals tell of what was missed.
                    Err(RecvError::Lagged(_)) => {}
                    Err(RecvError::Closed) => return None,
                }
            }
        })
        .boxed()
    }

    async fn close(&self) -> Result<()> {
        self.sessions.close().await
    }
}
