//! Deletes what is of no use any more, a little at a time, beside the requests and for as long as there are any. All clients
//! of a database go on where the last one stopped: it keeps the key that was looked at last.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use lock_core::{Background, Result};
use tokio::time::{Instant, sleep};

/// How often a client with requests sees whether it is time.
const TURN: Duration = Duration::from_secs(10);

/// How far apart batches are, whoever does them, unless there is much to delete.
const APART: Duration = Duration::from_secs(1);

/// Of one client: whether it sweeps, and when it did last.
#[derive(Debug, Default)]
pub(crate) struct Sweeper(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    due: Option<Instant>,
    task: Background,
}

/// What was looked at, and what of that was deleted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Swept {
    pub(crate) looked_at: u64,
    pub(crate) deleted: u64,
}

impl Sweeper {
    /// Before a request that may make a name: sweeps in the background, if it is time. `batch` looks at the next rows unless
    /// somebody did so within the time that it is given, and then answers nothing.
    pub(crate) fn consider<B>(&self, batch: impl FnOnce() -> B)
    where
        B: Fn(Duration) -> BoxFuture<'static, Result<Option<Swept>>> + Send + Sync + 'static,
    {
        let now = Instant::now();
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.due.is_some_and(|due| now < due) || state.task.runs() {
            return;
        }
        state.due = Some(now + TURN);
        state.task.start(sweep(batch()));
    }

    /// Sweeps no more.
    pub(crate) fn stop(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).task.stop();
    }
}

/// Goes on while much of what it looks at can go, and leaves half of the time to others.
async fn sweep(batch: impl Fn(Duration) -> BoxFuture<'static, Result<Option<Swept>>>) {
    let mut apart = APART;
    loop {
        let began = Instant::now();
        match batch(apart).await {
            Ok(Some(swept)) if swept.deleted > 0 && swept.deleted >= swept.looked_at / 4 => {}
            Ok(_) => return,
            // There is only more to delete next time.
            Err(error) => return tracing::debug!(%error, "old rows were not deleted"),
        }
        apart = Duration::ZERO;
        sleep(began.elapsed()).await;
    }
}
