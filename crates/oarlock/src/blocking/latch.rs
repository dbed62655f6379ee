//! A gate that opens when all have arrived, for programs without a runtime.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Arrival, Result};

use super::Inner;

/// A handle for a latch; see [`Latch`](crate::Latch).
#[derive(Clone)]
pub struct Latch {
    latch: crate::Latch,
    inner: Arc<Inner>,
}

impl Latch {
    pub(super) fn new(latch: crate::Latch, inner: &Arc<Inner>) -> Self {
        Self { latch, inner: Arc::clone(inner) }
    }

    options! { Latch, latch, generation: u64, keep: Duration, within: impl Into<Option<Duration>> }

    /// This party has arrived.
    ///
    /// # Errors
    /// As [`Latch::arrive`](crate::Latch::arrive); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn arrive(&self, party: &str) -> Result<Arrival> {
        self.inner.block_on(self.latch.arrive(party))
    }

    /// Waits until all parties have arrived, or until [`Latch::within`] is over.
    ///
    /// # Errors
    /// As [`Latch::wait`](crate::Latch::wait); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn wait(&self) -> Result<()> {
        self.inner.block_on(self.latch.wait())
    }

    /// Who has arrived, in the order of their names.
    ///
    /// # Errors
    /// As [`Latch::arrived`](crate::Latch::arrived); [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) inside a tokio runtime.
    pub fn arrived(&self) -> Result<Vec<String>> {
        self.inner.block_on(self.latch.arrived())
    }
}

impl fmt::Debug for Latch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("blocking::Latch").field(&self.latch).finish()
    }
}
