//! Grants that count only when replicas have them.
//!
//! Redis replicates its writes in their order. So when a grant was answered, a write of no matter follows it, and
//! `WAIT` after that: replicas that have this write have the grant too. It goes over a connection of its own, since
//! `WAIT` holds up what stands behind it. One round serves all grants that were answered before it began.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lock_core::{Error, ErrorKind, Result};
use redis::{RedisError, RedisResult};
use tokio::sync::Mutex;

use crate::dial::Wire;
use crate::error::of_request;
use crate::waiters::LIVES;

pub(crate) struct Replicas {
    wire: Wire,
    wanted: usize,
    /// How long a round waits for them.
    limit: Duration,
    /// The number of the round that began last.
    begun: AtomicU64,
    /// Held during a round.
    ended: Mutex<Round>,
}

/// The round that ended last, and how many replicas had everything then.
struct Round {
    number: u64,
    counted: RedisResult<usize>,
}

impl Replicas {
    pub(crate) fn new(wire: Wire, wanted: usize, limit: Duration) -> Self {
        let ended = Mutex::new(Round { number: 0, counted: Ok(0) });
        Self { wire, wanted, limit, begun: AtomicU64::new(0), ended }
    }

    /// Ends when enough replicas have whatever was answered before this call. The key is one that may be written.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] if too few have it in time.
    pub(crate) async fn confirm(self: &Arc<Self>, key: String) -> Result<()> {
        let next = self.begun.load(Ordering::SeqCst) + 1;
        let this = Arc::clone(self);
        // Not to be dropped halfway: the next round would have to wait for the end of this one.
        let round = tokio::spawn(async move { this.round(next, &key).await });
        let counted = round.await.map_err(|_| Error::new(ErrorKind::Unknown, "the runtime is being shut down"))?;
        let counted = counted.map_err(of_request)?;
        if counted >= self.wanted {
            return Ok(());
        }
        let message = format!(
            "{counted} of {} replicas have the grant, so it does not count; look at the replicas, or lower the setting replicas",
            self.wanted
        );
        Err(Error::new(ErrorKind::Unavailable, message))
    }

    /// What the round of this number, or a later one, counted.
    async fn round(&self, number: u64, key: &str) -> Result<usize, RedisError> {
        let mut ended = self.ended.lock().await;
        if ended.number < number {
            let number = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
            *ended = Round { number, counted: self.count(key).await };
        }
        ended.counted.clone()
    }

    async fn count(&self, key: &str) -> RedisResult<usize> {
        let mut pipe = redis::pipe();
        pipe.cmd("SET").arg(key).arg("").arg("PX").arg(LIVES.as_millis() as u64).ignore();
        pipe.cmd("WAIT").arg(self.wanted).arg(self.limit.as_millis() as u64);
        let (counted,) = pipe.query_async(&mut self.wire.connection.clone()).await?;
        Ok(counted)
    }
}
