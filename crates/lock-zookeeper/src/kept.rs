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
//! - whoever waits right behind the node, or right behind another program's (that one may be some seconds late);
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

use lock_core::{Background, Clock, Instant, Result};
use tokio::sync::Notify;
use zookeeper_client::{Client, Error as ZkError};

use crate::error::of_request;
use crate::keys::name_of;
use crate::nodes::{Terms, terms};
use crate::session::Session;
use crate::sessions::Sessions;

/// The pause before a hold is looked at again that could not be ended.
const PAUSE: Duration = Duration::from_secs(5);

/// How often others' holds are looked for when one is kept.
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

/// How long a kept hold whose node was `made` then still stands `now`, both by the servers' clock, which cuts off to
/// milliseconds.
pub(crate) fn left(terms: Terms, made: i64, now: i64) -> Duration {
    let rest = i64::try_from(terms.rest).unwrap_or(i64::MAX);
    let ends = made.saturating_add(rest).saturating_add(1);
    Duration::from_millis(ends.saturating_sub(now).max(0) as u64)
}

impl Session {
    /// The servers' clock, in milliseconds, as of a write.
    pub(crate) async fn servers_now(&self) -> Result<i64, ZkError> {
        self.write_beacon().await.map(|stat| stat.mtime)
    }

    /// Deletes the node of a kept hold if its time is over at `now`, a time of the servers that has been: this one, and
    /// none that came after it in its place.
    pub(crate) async fn end_if_over(&self, path: &str, now: i64) -> Result<Stands, ZkError> {
        let Some(terms) = terms(name_of(path)) else { return Ok(Stands::Endless) };
        loop {
            let seen = self.ask(|client: Arc<Client>| async move { client.check_stat(path).await }).await?;
            let Some(stat) = seen else { return Ok(Stands::No) };
            if stat.ephemeral_owner != 0 {
                return Ok(Stands::Endless);
            }
            let left = left(terms, stat.ctime, now);
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

    pub(crate) fn add(&self, end: (Instant, String), sessions: &Arc<Sessions>, clock: &Arc<dyn Clock>) {
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

    pub(crate) fn is_to_sweep(&self, now: Instant) -> bool {
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

async fn end(sessions: &Arc<Sessions>, path: &str) -> Result<Stands> {
    let session = sessions.any().await?;
    let now = session.servers_now().await.map_err(of_request)?;
    session.end_if_over(path, now).await.map_err(of_request)
}

#[cfg(test)]
mod tests {
    use lock_core::StoreToken;

    use super::*;

    /// A time that is cut off may be nearly a millisecond later.
    #[test]
    fn nothing_ends_before_its_time() {
        let left = |rest, made, now| {
            let left = left(Terms { token: StoreToken::new(1).unwrap(), rest }, made, now);
            u64::try_from(left.as_millis()).unwrap()
        };
        assert_eq!([left(10, 100, 100), left(10, 100, 110), left(10, 100, 111), left(10, 100, 500)], [11, 1, 0, 0]);
        // The clock was set back.
        assert_eq!(left(10, 100, 40), 71);
        assert!(left(u64::MAX, 100, 110) > 1 << 62);
        assert_eq!(left(0, i64::MAX, i64::MAX), 0);
    }
}
