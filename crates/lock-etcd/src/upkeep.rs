//! What has to be done in time without anybody asking: leases are renewed for those who wait, and claims end that
//! nobody renews.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;

use crate::Shared;
use crate::session::Session;

/// How often to look: a tenth of the shortest lease, within these bounds.
const TICKS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Keeps up until the client is gone.
pub(crate) async fn keep_up(shared: Arc<Shared>) {
    loop {
        let opened = shared.sessions.opened.notified();
        let sessions = shared.sessions.all();
        let Some(shortest) = sessions.iter().map(|session| session.ttl()).min() else {
            opened.await;
            continue;
        };
        tokio::time::sleep((shortest / 10).clamp(TICKS.0, TICKS.1)).await;
        join_all(sessions.iter().map(|session| shared.keep_up(session))).await;
        join_all(shared.ledger.overdue().iter().map(|id| shared.end(id))).await;
    }
}

impl Shared {
    async fn keep_up(&self, session: &Arc<Session>) {
        let now = self.connection.clock.now();
        let needed = self.ledger.needs(session);
        if session.is_lost() || !(needed || session.is_used(now)) {
            // Nobody is harmed if the lease runs out, and its beacon with it.
            return self.sessions.forget(session);
        }
        // Holders are renewed by the core, at a third of the time, and all others with them.
        if !session.is_fresh(DUE, now)
            && let Err(error) = self.renew_session(session, &[]).await
        {
            tracing::debug!(%error, "a lease could not be renewed");
        }
    }

    /// Ends a claim whose time is over. While others keep its lease, the store would not.
    async fn end(&self, id: &str) {
        let Some(own) = self.ledger.get(id) else { return };
        if own.session.is_lost() && own.rests.is_empty() {
            return self.ledger.remove(id);
        }
        if let Err(error) = self.release(id).await {
            tracing::debug!(owner = %own.spot.owner, %error, "a claim that is over could not be removed");
        }
    }
}

/// What was renewed longer ago than this part of its time is renewed.
const DUE: u32 = 2;
