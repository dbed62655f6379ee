//! A background task that is started when it is first needed, and again if the runtime it ran on is gone.

use std::future::Future;
use std::sync::{Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::task::JoinHandle;

#[derive(Debug, Default)]
pub(crate) struct Worker(Mutex<Option<JoinHandle<()>>>);

impl Worker {
    /// Sees to it that the task runs. Outside a runtime it cannot, and is started at the next call inside one.
    pub(crate) fn ensure<F>(&self, task: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if running.as_ref().is_none_or(JoinHandle::is_finished)
            && let Ok(runtime) = Handle::try_current()
        {
            *running = Some(runtime.spawn(task()));
        }
    }
}
