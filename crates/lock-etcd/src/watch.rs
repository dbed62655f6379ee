//! The watches: one stream per client, with a watch for each key whose end matters to it (see `watchlist`). So a release
//! is told to who comes next, however many clients there are. Behind etcd's grpc-proxy, which numbers watches by
//! itself, it is one watch over all keys of the prefix.
//!
//! However a stream ends, by a lost connection, a compaction or a cancellation, the next one begins in the same way: with
//! the present revision, and with a look at every key whose end matters. So there is no gap.
//!
//! Servers were seen to lose an event, and a proxy between may go on without telling. So while anybody waits, the keys
//! are also looked at now and then; if one is gone that nothing was heard of, the stream is opened anew.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{
    EventType, GetOptions, KeyValue, ResponseHeader, WatchFilterType, WatchOptions, WatchResponse, WatchStream,
};
use futures_util::stream::{FuturesUnordered, StreamExt};
use lock_core::{Error, ErrorKind, Failures, Result};
use tokio::time::MissedTickBehavior;

use crate::Shared;
use crate::changes::{Changes, Opening};
use crate::connection::{Again, Link};
use crate::error::nonsense;
use crate::follow::Happened;
use crate::keys::end_of;
use crate::requests::text;
use crate::session::{READ_AT_ONCE, read};
use crate::waiters::Entry;
use crate::watchlist::FIRST;

/// How often is looked whether something was missed. An event that is lost costs no longer than that and [`LATE`], and a
/// connection that is dead without a word no longer than that and the time-out of a request.
pub(crate) const LOOK: Duration = Duration::from_secs(3);

/// What is told this much later than a look found it is late, and not lost.
const LATE: Duration = Duration::from_secs(1);

/// Who holds for longer than one or two of these has its key watched.
const TICK: Duration = Duration::from_millis(100);

/// How often is looked for watches that nobody needs any more.
const SWEEP: Duration = Duration::from_secs(1);

/// Watches until the client is gone.
pub(crate) async fn keep_watching(shared: Arc<Shared>) {
    let mut failures = Failures::default();
    loop {
        let failed = match shared.open_watch().await {
            Ok((stream, link)) => {
                let opened = tokio::time::Instant::now();
                let ended = tokio::select! {
                    error = shared.follow(stream) => Some(error),
                    () = shared.something_missed() => None,
                    () = shared.connection.left(link.number) => None,
                };
                // A stream that ends as soon as it is open is no better than none.
                ended.filter(|_| opened.elapsed() < Failures::PAUSE)
            }
            Err(error) => Some(error),
        };
        let Some(error) = failed else {
            failures.forget();
            continue;
        };
        if failures.count(&error) {
            shared.ledger.fail(&error.to_string());
        }
        if error.kind() == ErrorKind::Closed {
            return;
        }
        tokio::time::sleep(Failures::PAUSE).await;
    }
}

/// From the present on, which the first message names: to ask for it would be to count all keys of the prefix.
pub(crate) fn deletions(number: i64) -> WatchOptions {
    WatchOptions::new().with_watch_id(number).with_filters([WatchFilterType::NoPut])
}

/// The same of what is put.
fn puts(number: i64) -> WatchOptions {
    WatchOptions::new().with_watch_id(number).with_filters([WatchFilterType::NoDelete])
}

/// Was the first watch of a stream opened by etcd's grpc-proxy, which numbers them by itself?
pub(crate) fn is_by_proxy(created: &WatchResponse) -> bool {
    created.watch_id() != FIRST
}

fn ended() -> Error {
    Error::new(ErrorKind::Unavailable, "the server ends each stream of watches")
}

fn revision_of(message: &WatchResponse) -> i64 {
    message.header().map_or(0, ResponseHeader::revision)
}

impl Shared {
    async fn open_watch(&self) -> Result<(WatchStream, Arc<Link>)> {
        let link = self.connection.link().await?;
        // A stream begins with a watch: here one of a key that is not deleted.
        let (stream, created) = self.begin_watch(&link, self.keys.tokens().into(), deletions(FIRST)).await?;
        if !is_by_proxy(&created) {
            // What was deleted before, it does not tell; the keys that matter are looked at when they are watched.
            self.ledger.opened(revision_of(&created), false);
            self.changes.begin(false);
            return Ok((stream, link));
        }
        let (first, last) = self.range();
        let (stream, created) = self.begin_watch(&link, first, deletions(FIRST).with_range(last)).await?;
        let present = match revision_of(&created) {
            // Nor does it always name the revision.
            0 => self.tokens.read(&self.connection).await?.1,
            present => present,
        };
        self.ledger.opened(present, true);
        self.changes.begin(true);
        self.look_at_all(self.ledger.keys()).await?;
        Ok((stream, link))
    }

    /// A stream with one watch, and what was said when it was opened.
    async fn begin_watch(
        &self,
        link: &Link,
        key: Vec<u8>,
        options: WatchOptions,
    ) -> Result<(WatchStream, WatchResponse)> {
        let mut watch = link.watch.clone();
        let opening = async {
            let mut stream = watch.watch(key, Some(options)).await?;
            Ok((stream.message().await?, stream))
        };
        let (created, stream) = self.connection.bounded(link, opening).await?;
        let Some(created) = created.filter(|created| created.created() && !created.canceled()) else {
            self.connection.leave(link.number);
            return Err(Error::new(ErrorKind::Unavailable, "the member refuses to be watched"));
        };
        Ok((stream, created))
    }

    /// What was created under these names before they were watched may be gone. (Of a mark that was put before, the place
    /// tells: it is gone.)
    async fn look_at_all(&self, mut keys: Vec<String>) -> Result<()> {
        keys.retain(|key| !self.keys.is_mark(key));
        for some in keys.chunks(READ_AT_ONCE) {
            let (at, found) = read(&self.connection, some.iter()).await?;
            for (key, found) in some.iter().zip(found) {
                // What is there now may be another one of the same name.
                let before = found.as_ref().map_or(at + 1, KeyValue::create_revision);
                self.ledger.ended(key, before);
            }
        }
        Ok(())
    }

    /// Until the stream ends, or something cannot be looked at: that is the answer.
    async fn follow(&self, stream: WatchStream) -> Error {
        let (mut sender, mut messages) = stream.split();
        let mut looks = FuturesUnordered::new();
        let (mut ticks, mut sweeps) = (tokio::time::interval(TICK), tokio::time::interval(SWEEP));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        sweeps.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let (todo, has_ticks, has_sweeps) = self.ledger.todo(looks.is_empty());
            for (number, key) in todo.open {
                let options = if self.keys.is_mark(&key) { puts(number) } else { deletions(number) };
                if sender.watch(key, Some(options)).await.is_err() {
                    return ended();
                }
            }
            let (opening, closed) = self.changes.todo();
            for Opening { number, key, is_line } in opening {
                let options = WatchOptions::new().with_watch_id(number);
                let options = if is_line { options.with_range(end_of(&key)) } else { options };
                if sender.watch(key, Some(options)).await.is_err() {
                    return ended();
                }
            }
            for number in todo.close.into_iter().chain(closed) {
                if sender.cancel(number).await.is_err() {
                    return ended();
                }
            }
            if !todo.look.is_empty() {
                looks.push(self.look_at_all(todo.look));
            }
            tokio::select! {
                message = messages.message() => match message {
                    Ok(Some(message)) if self.hear(&message) => {}
                    _ => return ended(),
                },
                Some(looked) = looks.next() => if let Err(error) = looked {
                    return error;
                },
                () = self.ledger.bell.notified() => {}
                () = self.changes.bell.notified() => {}
                _ = ticks.tick(), if has_ticks => self.ledger.tick(),
                _ = sweeps.tick(), if has_sweeps || self.crowds.any() => {
                    self.ledger.sweep();
                    self.crowds.sweep();
                }
            }
        }
    }

    /// False: the stream is of no more use.
    fn hear(&self, message: &WatchResponse) -> bool {
        let number = message.watch_id();
        if message.canceled() {
            return self.ledger.has_closed(number) || self.changes.closed(number);
        }
        if message.created() {
            self.ledger.watching(number, revision_of(message));
            self.changes.opened(number);
        }
        for event in message.events() {
            let Some(key) = event.kv() else { continue };
            let (name, at) = (text(key.key()), key.mod_revision());
            let put = (event.event_type() == EventType::Put).then_some(key);
            self.changes.heard(number, &Happened { key: &name, at, put });
            if Changes::is_of_line(number) {
                continue;
            }
            match event.event_type() {
                EventType::Delete => self.ledger.deleted(&name, at),
                EventType::Put if self.keys.is_mark(&name) => self.ledger.passed(&text(key.value()), at),
                EventType::Put => {}
            }
        }
        true
    }

    /// Ends when a key is gone and nothing was heard of it.
    async fn something_missed(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut gone = Vec::new();
            // One request, unless it waits for more than a hundred locks.
            for some in self.ledger.of_waiters().chunks(READ_AT_ONCE) {
                // If the store is away, the watch is, too.
                gone.extend(self.gone(some).await.unwrap_or_default());
            }
            if !gone.is_empty() {
                tokio::time::sleep(LATE).await;
            }
            gone.retain(|entry| self.ledger.is_of_waiters(entry));
            for entry in &gone {
                self.ledger.ended(&entry.key, entry.created + 1);
            }
            if !gone.is_empty() {
                return;
            }
        }
    }

    /// Which of these are not there any more. Of those that hang on no lease, which nobody but an operator puts, whoever
    /// has to do with them is told.
    async fn gone(&self, some: &[Entry]) -> Result<Vec<Entry>> {
        let (_, found) = read(&self.connection, some.iter().map(|entry| &entry.key)).await?;
        let mut gone = Vec::new();
        for (entry, found) in some.iter().zip(found) {
            if found.as_ref().is_some_and(|key| key.lease() == 0) {
                self.ledger.has_no_lease(entry);
            }
            if found.is_none_or(|key| key.create_revision() != entry.created) {
                gone.push(entry.clone());
            }
        }
        Ok(gone)
    }

    /// The cluster's revision. It changes nothing.
    pub(crate) async fn present_revision(&self) -> Result<i64> {
        let asking = self.connection.ask(Again::Yes, |link| {
            let mut kv = link.kv.clone();
            let (first, last) = self.range();
            let options = GetOptions::new().with_range(last).with_count_only().with_limit(1);
            async move { kv.get(first, Some(options)).await }
        });
        let answer = asking.await?.value;
        Ok(answer.header().ok_or_else(nonsense)?.revision())
    }

    /// The range of all keys with the prefix.
    pub(crate) fn range(&self) -> (Vec<u8>, Vec<u8>) {
        let prefix = self.keys.all();
        (if prefix.is_empty() { vec![0] } else { prefix.into() }, end_of(prefix))
    }
}
