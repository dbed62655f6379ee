//! A hold that outlives its owner.
//!
//! One transaction deletes the holder's ephemeral node and makes a persistent one in its place: with its number, so that
//! it is the first in the same line. Who waits behind it, of ours or of another program, sees a node like any other, and
//! goes on waiting. The node's name says for how long the hold is kept, and which token it has (`nodes.rs`). Its own
//! number of creation is no token: it is above those of waiters behind it.
//!
//! The time is over when the servers say so: when a write is committed whose time is that much later than that of the
//! node's creation. No clock of ours decides that. We only sleep by it before we write again.
//!
//! ZooKeeper deletes no node when a time is over. A client of ours does that:
//!
//! - whoever waits right behind the node, or with nobody but other programs in between;
//! - whoever tries to take the lock;
//! - the client that kept it, for as long as that is not closed;
//! - whoever keeps another lock of the same prefix, now and then;
//! - whoever evicts from the lock.
//!
//! **Where none of them is there and only programs without Oarlock wait, the node stands, and they wait, until one of
//! them comes.** Oarlock takes no notice of it: it shows the next in line as the holder, or nobody, and the next attempt
//! passes it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use lock_core::{Background, Claim, Clock, Instant, Kept, Result};
use tokio::sync::Notify;
use zookeeper_client::{Client, CreateMode, Error as ZkError, Stat};

use crate::ZookeeperLock;
use crate::claims::{Claimed, Hold};
use crate::error::{self, of_request};
use crate::nodes::{Terms, content, kept_path, kept_prefix, read, terms};
use crate::release::release;
use crate::session::{Life, Session};
use crate::sessions::Sessions;

/// The pause before a hold is looked at again that could not be ended.
const PAUSE: Duration = Duration::from_secs(5);

/// For how long at most others' holds are looked for when one is kept, and how often.
const SWEEP: Duration = Duration::from_secs(1);
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// What a look at a kept hold showed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stands {
    /// For so long, by the servers' clock.
    For(Duration),
    /// It is none of ours, and may stand for ever.
    Endless,
    /// It has gone, by us or by others.
    No,
}

/// How long a kept hold still stands at `now`, by the servers' clock. Times are cut off to milliseconds.
pub(crate) fn left(terms: Terms, stat: &Stat, now: i64) -> Duration {
    let rest = i64::try_from(terms.rest).unwrap_or(i64::MAX);
    let ends = stat.ctime.saturating_add(rest).saturating_add(1);
    Duration::from_millis(ends.saturating_sub(now).max(0) as u64)
}

impl ZookeeperLock {
    pub(crate) async fn keep_hold(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let mut kept = Kept::NotHeld;
        for session in self.sessions.with_claim(&claim.owner) {
            match begin(&session, claim) {
                Some((node, hold)) => kept = self.keep_in(&session, claim, &node, hold, rest).await?,
                // Its lease is over: what may still be on its way of an earlier attempt is overtaken.
                None if session.claimed(&claim.owner).is_some_and(|claimed| claimed.hold.is_some()) => {
                    release(&session, &claim.owner).await?;
                }
                None => {}
            }
        }
        if kept == Kept::NotHeld {
            // It may have been done by a request whose answer was lost.
            return self.is_kept(claim).await;
        }
        Ok(kept)
    }

    /// Has it done in bounded time.
    async fn keep_in(&self, session: &Session, claim: &Claim, node: &str, hold: Hold, rest: Duration) -> Result<Kept> {
        let _attending = session.attend(&claim.owner);
        let rest = u64::try_from(rest.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
        let terms = Terms { token: hold.token, rest };
        let Some(path) = kept_path(node, &claim.owner, terms) else { return Ok(Kept::NotHeld) };
        let replacing = tokio::time::timeout(session.settings.timeout, replace(session, claim, node, &path)).await;
        match replacing {
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
/// request made it.
async fn replace(session: &Session, claim: &Claim, node: &str, path: &str) -> std::result::Result<bool, ZkError> {
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
            Err(ZkError::ConnectionLoss | ZkError::Custom(_)) => session.doubt(),
            Err(error) => return Err(error),
        }
    }
}

impl Session {
    /// The servers' clock, in milliseconds, as of a write.
    pub(crate) async fn servers_now(&self) -> std::result::Result<i64, ZkError> {
        self.write_beacon().await.map(|stat| stat.mtime)
    }

    /// Deletes the node of a kept hold if its time is over at `now`, a time of the servers that has been: this one, and
    /// none that came after it in its place.
    pub(crate) async fn end_if_over(&self, path: &str, now: i64) -> std::result::Result<Stands, ZkError> {
        let Some(terms) = terms(crate::keys::name_of(path)) else { return Ok(Stands::Endless) };
        loop {
            let seen = self.ask(|client: Arc<Client>| async move { client.check_stat(path).await }).await?;
            let Some(stat) = seen else { return Ok(Stands::No) };
            if stat.ephemeral_owner != 0 {
                return Ok(Stands::Endless);
            }
            let left = left(terms, &stat, now);
            if !left.is_zero() {
                return Ok(Stands::For(left));
            }
            let version = Some(stat.version);
            match self.ask(|client: Arc<Client>| async move { client.delete(path, version).await }).await {
                Ok(()) | Err(ZkError::NoNode) => return Ok(Stands::No),
                // Somebody wrote to it.
                Err(ZkError::BadVersion) => {}
                // Somebody made a node below it.
                Err(ZkError::NotEmpty) => return Ok(Stands::Endless),
                Err(error) => return Err(error),
            }
        }
    }
}

/// What this client kept and is to end, and the task that does it.
#[derive(Default)]
pub(crate) struct Keeping {
    due: Arc<Due>,
    task: Mutex<Background>,
    swept: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Due {
    /// The paths of their nodes, by when they are over.
    ends: Mutex<BTreeSet<(Instant, String)>>,
    changed: Notify,
}

impl Due {
    fn ends(&self) -> MutexGuard<'_, BTreeSet<(Instant, String)>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn first(&self) -> Option<(Instant, String)> {
        self.ends().first().cloned()
    }
}

impl Keeping {
    fn task(&self) -> MutexGuard<'_, Background> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, end: (Instant, String), sessions: &Arc<Sessions>, clock: &Arc<dyn Clock>) {
        {
            let mut ends = self.due.ends();
            if ends.iter().any(|(_, path)| *path == end.1) {
                return;
            }
            ends.insert(end);
        }
        self.due.changed.notify_one();
        let mut task = self.task();
        // On the runtime of whoever kept something first, unless that is gone.
        if !task.runs() {
            task.start(tend(Arc::clone(&self.due), Arc::downgrade(sessions), Arc::clone(clock)));
        }
    }

    /// Nothing is ended from here on.
    pub(crate) fn stop(&self) {
        self.task().stop();
    }

    fn is_to_sweep(&self, now: Instant) -> bool {
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let due = swept.is_none_or(|swept| now >= swept + SWEEP_EVERY);
        if due {
            *swept = Some(now);
        }
        due
    }
}

/// Ends what is kept when its time is over.
async fn tend(due: Arc<Due>, sessions: Weak<Sessions>, clock: Arc<dyn Clock>) {
    loop {
        let Some((at, path)) = due.first() else {
            due.changed.notified().await;
            continue;
        };
        tokio::select! {
            () = clock.sleep_until(at) => {}
            () = due.changed.notified() => continue,
        }
        let Some(sessions) = sessions.upgrade() else { return };
        let stands = end(&sessions, &path).await;
        let mut ends = due.ends();
        ends.remove(&(at, path.clone()));
        match stands {
            Ok(Stands::For(left)) => drop(ends.insert((clock.now() + left, path))),
            Ok(Stands::No | Stands::Endless) => {}
            Err(error) => {
                tracing::debug!(%error, "a kept hold is over, and its node could not be deleted yet");
                ends.insert((clock.now() + PAUSE, path));
            }
        }
    }
}

async fn end(sessions: &Sessions, path: &str) -> Result<Stands> {
    let session = sessions.any().await?;
    let now = session.servers_now().await.map_err(of_request)?;
    session.end_if_over(path, now).await.map_err(of_request)
}
