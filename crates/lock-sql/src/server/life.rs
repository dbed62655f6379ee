//! Connections work only as long as the tokio runtime on which they were opened.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use lock_core::Background;
use tokio::runtime::{self, Handle};

/// The runtime on which some connections were opened.
pub(crate) struct Life {
    runtime: runtime::Id,
    /// A task that does nothing and ends with that runtime.
    task: Background,
}

impl Life {
    /// Is it the runtime that this is called on?
    pub(crate) fn is_here(&self) -> bool {
        self.runtime == Handle::current().id()
    }

    /// Has it not ended?
    pub(crate) fn runs(&self) -> bool {
        self.task.runs()
    }
}

/// Of the connections of a client: one task for all that were opened on one runtime, as long as there are any.
#[derive(Default)]
pub(crate) struct Lives(Mutex<HashMap<runtime::Id, Weak<Life>>>);

impl Lives {
    /// That of the runtime that this is called on.
    pub(crate) fn here(&self) -> Arc<Life> {
        let runtime = Handle::current().id();
        let mut lives = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(life) = lives.get(&runtime).and_then(Weak::upgrade).filter(|life| life.runs()) {
            return life;
        }
        lives.retain(|_, life| life.strong_count() > 0);
        let mut task = Background::default();
        task.start(std::future::pending());
        let life = Arc::new(Life { runtime, task });
        lives.insert(runtime, Arc::downgrade(&life));
        life
    }
}
