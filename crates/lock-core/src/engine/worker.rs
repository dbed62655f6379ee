//! A background task that is started when it is first needed, and again if the runtime it ran on is gone.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

#[derive(Debug, Default)]
pub(crate) struct Worker(Arc<State>);

#[derive(Debug, Default)]
struct State {
    runs: AtomicBool,
    stopped: Notify,
}

/// A task that runs, until it ends or its runtime drops it.
struct Running(Arc<State>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.runs.store(false, Ordering::Release);
        self.0.stopped.notify_waiters();
    }
}

impl Worker {
    /// Sees to it that the task runs. Outside a runtime it cannot, and is started at the next call inside one.
    pub(crate) fn ensure<F>(&self, task: impl FnOnce() -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        if self.0.runs.load(Ordering::Acquire) {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        if !self.0.runs.swap(true, Ordering::AcqRel) {
            let (running, task) = (Running(Arc::clone(&self.0)), task());
            runtime.spawn(async move {
                let _running = running;
                task.await;
            });
        }
    }

    /// Ends when the task stops, from when this is enabled on.
    pub(crate) fn stopped(&self) -> Notified<'_> {
        self.0.stopped.notified()
    }
}
