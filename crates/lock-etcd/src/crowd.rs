//! Those of this client who wait for permits of one semaphore: all of them have to know the whole line, and one of them asks
//! for it for all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use etcd_client::Txn;
use lock_core::{Error, ErrorKind, Result};
use tokio::time::Instant;

use crate::Shared;
use crate::changes::Observer;
use crate::connection::Again;
use crate::error::in_doubt;
use crate::permits::{View, view};
use crate::place::Place;
use crate::requests::Spot;
use crate::session::transact;
use crate::watch::LOOK;

/// By what all keys of the line begin with.
#[derive(Default)]
pub(crate) struct Crowds(Mutex<HashMap<String, Weak<Crowd>>>);

#[derive(Default)]
pub(crate) struct Crowd(tokio::sync::Mutex<Option<Seen>>);

/// What was answered last.
struct Seen {
    /// How much had been heard of the line before it was asked for.
    heard: u64,
    asked: Instant,
    view: Arc<View>,
}

impl Crowds {
    pub(crate) fn of(&self, line: &str) -> Arc<Crowd> {
        let mut crowds = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(crowd) = crowds.get(line).and_then(Weak::upgrade) {
            return crowd;
        }
        crowds.retain(|_, crowd| crowd.strong_count() > 0);
        let crowd = Arc::default();
        crowds.insert(line.to_owned(), Arc::downgrade(&crowd));
        crowd
    }
}

impl Crowd {
    /// The line as it is after all that was heard of it, and was not long ago.
    pub(crate) async fn look(&self, shared: &Shared, spot: &Spot, observer: &Observer) -> Result<Arc<View>> {
        let needed = observer.heard();
        let mut seen = self.0.lock().await;
        if let Some(seen) = seen.as_ref().filter(|seen| seen.heard >= needed && seen.asked.elapsed() < LOOK) {
            return Ok(Arc::clone(&seen.view));
        }
        let (heard, asked) = (observer.heard(), Instant::now());
        let view = Arc::new(shared.view(spot).await?);
        *seen = Some(Seen { heard, asked, view: Arc::clone(&view) });
        Ok(view)
    }
}

impl Shared {
    /// The line of a semaphore and its permits.
    pub(crate) async fn view(&self, spot: &Spot) -> Result<View> {
        let asking = transact(&self.connection, Again::Yes, Txn::new().and_then(view(spot)));
        let answer = asking.await.map_err(|failure| in_doubt(failure.into()))?;
        View::of(&answer).map_err(in_doubt)
    }
}

impl Place {
    /// Ends when something happened in the line, or to its own key, or when it is time to look.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub(crate) async fn news_of_line(&mut self, observer: &mut Observer) -> Result<()> {
        tokio::select! {
            () = self.wake.notified() => {}
            () = observer.news() => {}
            () = tokio::time::sleep(LOOK) => {}
        }
        let failed = self.ledger.state().own.get_mut(&self.spot.id).and_then(|own| own.failed.take());
        failed.map_or(Ok(()), |why| Err(Error::new(ErrorKind::Unknown, why)))
    }
}
