//! Those of this client who wait for permits of one semaphore. All of them have to know the whole line: they are told what
//! happens in it, and if it has to be looked at, one of them does so for all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::Txn;
use lock_core::{Error, ErrorKind, Result};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::broadcast::{self, Receiver, Sender};
use tokio::time::Instant;

use crate::Shared;
use crate::changes::{Changes, Observer};
use crate::connection::Again;
use crate::error::in_doubt;
use crate::follow::{Followed, News};
use crate::permits::{View, view};
use crate::place::Place;
use crate::requests::Spot;
use crate::session::transact;
use crate::waiters::Entry;
use crate::watch::LOOK;

/// Whoever has not heard of so much looks at the line.
const UNHEARD: usize = 256;

/// For so many sweeps a line is followed where nobody waits: whoever comes next finds that it is.
const KEPT: u32 = 2;

/// By what all keys of the line begin with.
#[derive(Default)]
pub(crate) struct Crowds(Mutex<HashMap<String, Kept>>);

struct Kept {
    crowd: Arc<Crowd>,
    /// So many sweeps found that nobody waits.
    idle: u32,
}

struct Crowd {
    news: Sender<News>,
    seen: tokio::sync::Mutex<Option<Seen>>,
    /// The line is followed for as long as this is there.
    _observer: Observer,
}

/// What was answered last.
struct Seen {
    asked: Instant,
    view: Arc<View>,
}

/// Somebody hears what happens in a line.
pub(crate) struct Listener {
    crowd: Arc<Crowd>,
    news: Receiver<News>,
    /// The line is to be looked at, because of what was heard then.
    look: Option<Instant>,
}

impl Crowds {
    fn kept(&self) -> MutexGuard<'_, HashMap<String, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What happens from now on in this line, if it is followed.
    pub(crate) fn hear(&self, line: &str) -> Option<Listener> {
        let mut kept = self.kept();
        let kept = kept.get_mut(line)?;
        kept.idle = 0;
        Some(kept.crowd.hear(None))
    }

    /// The same in any case.
    pub(crate) fn join(&self, changes: &Arc<Changes>, spot: &Spot) -> Listener {
        // It may have happened since the line was answered. If it was not followed, the look comes when it is.
        let mut all = self.kept();
        let look = all.contains_key(&spot.line).then(Instant::now);
        let new = || {
            let (news, permits) = (broadcast::channel(UNHEARD).0, spot.permits.as_deref().unwrap_or_default());
            let observer = changes.follow(&spot.line, permits, news.clone());
            Kept { crowd: Arc::new(Crowd { news, seen: tokio::sync::Mutex::default(), _observer: observer }), idle: 0 }
        };
        let kept = all.entry(spot.line.clone()).or_insert_with(new);
        kept.idle = 0;
        kept.crowd.hear(look)
    }

    pub(crate) fn any(&self) -> bool {
        !self.kept().is_empty()
    }

    /// Forgets lines in which nobody has waited for a while.
    pub(crate) fn sweep(&self) {
        self.kept().retain(|_, kept| {
            kept.idle = if Arc::strong_count(&kept.crowd) > 1 { 0 } else { kept.idle + 1 };
            kept.idle <= KEPT
        });
    }
}

impl Crowd {
    fn hear(self: &Arc<Self>, look: Option<Instant>) -> Listener {
        Listener { news: self.news.subscribe(), crowd: Arc::clone(self), look }
    }

    /// The line, asked for since then, with this key in it if that is there.
    async fn look(&self, shared: &Shared, spot: &Spot, own: &Entry, since: Instant) -> Result<Followed> {
        let mut seen = self.seen.lock().await;
        let is_new = |seen: &&Seen| seen.asked >= since && seen.view.at >= own.created;
        if let Some(Seen { asked, view }) = seen.as_ref().filter(is_new) {
            return Ok(Followed::new(Arc::clone(view), *asked));
        }
        let (asked, view) = shared.view(spot).await?;
        *seen = Some(Seen { asked, view: Arc::clone(&view) });
        Ok(Followed::new(view, asked))
    }
}

impl Listener {
    /// Ends when something was heard.
    async fn news(&mut self, line: &mut Followed) {
        let mut heard = self.news.recv().await;
        loop {
            let look = match heard {
                Ok(news) => line.hear(news),
                Err(RecvError::Lagged(_)) => Some(Instant::now()),
                Err(RecvError::Closed) => std::future::pending().await,
            };
            self.look = self.look.max(look);
            heard = match self.news.try_recv() {
                Ok(news) => Ok(news),
                Err(TryRecvError::Lagged(missed)) => Err(RecvError::Lagged(missed)),
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            };
        }
    }
}

impl Shared {
    /// The line of a semaphore and its permits, and the moment before it was asked for.
    pub(crate) async fn view(&self, spot: &Spot) -> Result<(Instant, Arc<View>)> {
        let asked = Instant::now();
        let asking = transact(&self.connection, Again::Yes, Txn::new().and_then(view(spot)));
        let answer = asking.await.map_err(|failure| in_doubt(failure.into()))?;
        Ok((asked, Arc::new(View::of(&spot.line, &answer).map_err(in_doubt)?)))
    }

    /// Ends when something happened in the line, or to the own key, or by then, or when it was time to look; and `line` is
    /// what is known then.
    ///
    /// # Errors
    /// If the store cannot be asked.
    pub(crate) async fn hear_of_line(
        &self,
        place: &mut Place,
        own: &Entry,
        listener: &mut Listener,
        line: &mut Followed,
        by: Option<Instant>,
    ) -> Result<()> {
        let spot = Arc::clone(&place.spot);
        if listener.look.is_none() {
            let due = line.asked + LOOK;
            tokio::select! {
                () = place.wake.notified() => listener.look = Some(Instant::now()),
                () = listener.news(line) => {}
                () = tokio::time::sleep_until(by.map_or(due, |by| by.min(due))) => {}
            }
            if line.asked.elapsed() >= LOOK {
                // One who has looked since has looked for all.
                listener.look = listener.look.or(Some(line.asked + Duration::from_nanos(1)));
            }
        }
        let failed = place.ledger.state().own.get_mut(&spot.id).and_then(|own| own.failed.take());
        if let Some(why) = failed {
            return Err(Error::new(ErrorKind::Unknown, why));
        }
        if let Some(since) = listener.look.take() {
            *line = listener.crowd.look(self, &spot, own, since).await?;
        }
        Ok(())
    }
}
