//! Who waits. memcached keeps no line and tells nobody anything: a waiter looks again and again.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, Grant, Instant, Result};
use tokio::time;

use crate::MemcachedLock;
use crate::connection::Link;

/// How long a waiter sleeps after its first look, and at most. Of a process, one waits for each name.
const SLEEPS: (Duration, Duration) = (Duration::from_millis(2), Duration::from_millis(100));

/// What a waiter has seen of the holder.
///
/// An item expires up to four seconds after its lease, since the server's clock counts whole ones. But whoever sees the
/// same item for as long as the lease lasts knows that it was not renewed since. It was written, and so its holder's
/// lease began, before it was first seen. So the lease is over, whatever the server's clock says.
#[derive(Default)]
pub(crate) struct Watch(Option<(Arc<Link>, u64, Instant)>);

impl Watch {
    /// An item with this CAS number was seen just now, over this connection. Was it, for as long as that?
    pub(crate) fn is_over(&mut self, link: &Arc<Link>, cas: u64, lease: Duration, now: Instant) -> bool {
        match &self.0 {
            // Another process of the server may give the same number to something else.
            Some((over, seen, since)) if Arc::ptr_eq(over, link) && *seen == cas => {
                now.saturating_duration_since(*since) >= lease
            }
            _ => {
                self.0 = Some((Arc::clone(link), cas, now));
                false
            }
        }
    }
}

impl MemcachedLock {
    /// Takes the lock as soon as a look finds it free.
    pub(crate) async fn wait(&self, claim: &Claim) -> Result<Grant> {
        let (mut sleep, mut watch) = (SLEEPS.0, Watch::default());
        loop {
            if let Some(grant) = self.take(claim, &mut watch).await? {
                return Ok(grant);
            }
            // So that those who began together do not stay together.
            let part = rand::random_range(0.5..1.0);
            time::sleep(sleep.mul_f64(part)).await;
            sleep = (sleep * 2).min(SLEEPS.1);
        }
    }
}
