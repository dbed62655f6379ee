//! Counts what is sent to an SQL database, also to one without a server that could count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::{DefaultGuard, Interest};
use tracing::{Event, Metadata, Subscriber};

/// The statements that the locks in SQL databases send from this thread, as long as it lives.
#[derive(Debug)]
pub struct Statements {
    sent: Arc<AtomicU64>,
    _listening: DefaultGuard,
}

impl Statements {
    /// Counts from now on.
    pub fn listen() -> Self {
        let sent = Arc::default();
        Self { _listening: tracing::subscriber::set_default(Counter(Arc::clone(&sent))), sent }
    }

    /// How many there were.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

struct Counter(Arc<AtomicU64>);

impl Subscriber for Counter {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "lock_sql::sent"
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    // It hears of no span.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
