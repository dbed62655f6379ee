//! The watch: one stream per client, opened beforehand and kept, over all keys of the prefix. A stream that is opened
//! for a key that is there already is served only every 100 ms.
//!
//! However it ends, by a lost connection, a compaction or a cancellation, the next one begins in the same way: with the
//! present revision, and with a look at every key whose end matters. So there is no gap.
//!
//! Servers were seen to lose an event, and a proxy between may go on without telling. So while anybody waits, the keys
//! are also looked at now and then; if one is gone that nothing was heard of, the stream is opened anew.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{EventType, GetOptions, KeyValue, ResponseHeader, Txn, WatchFilterType, WatchOptions, WatchStream};
use lock_core::{Error, ErrorKind, Failures, Result};

use crate::Shared;
use crate::connection::{Again, Link};
use crate::error::nonsense;
use crate::keys::end_of;
use crate::ledger::Entry;
use crate::requests::{found, get_key, revision, text};
use crate::session::transact;

/// A transaction may have 128 operations.
const AT_ONCE: usize = 100;

/// How often is looked whether something was missed. An event that is lost costs no longer than that and [`LATE`].
const LOOK: Duration = Duration::from_secs(5);

/// What is told this much later than a look found it is late, and not lost.
const LATE: Duration = Duration::from_secs(1);

/// Watches until the client is gone.
pub(crate) async fn keep_watching(shared: Arc<Shared>) {
    let mut failures = Failures::default();
    loop {
        match shared.open_watch().await {
            Ok((stream, link)) => {
                failures.forget();
                tokio::select! {
                    () = shared.follow(stream) => {}
                    () = shared.something_missed() => {}
                    () = shared.connection.left(link.number) => {}
                }
            }
            Err(error) => {
                if failures.count(&error) {
                    shared.ledger.fail(&error.to_string());
                }
                if error.kind() == ErrorKind::Closed {
                    return;
                }
                tokio::time::sleep(Failures::PAUSE).await;
            }
        }
    }
}

impl Shared {
    async fn open_watch(&self) -> Result<(WatchStream, Arc<Link>)> {
        let (first, last) = self.range();
        // From the present on, which the first message names: to ask for it would be to count all keys of the prefix.
        let options = WatchOptions::new().with_range(last).with_filters([WatchFilterType::NoPut]);
        let link = self.connection.link().await?;
        let mut watch = link.watch.clone();
        let opening = async {
            let mut stream = watch.watch(first, Some(options)).await?;
            Ok((stream.message().await?, stream))
        };
        let (created, stream) = self.connection.bounded(&link, opening).await?;
        let Some(created) = created.filter(|created| created.created() && !created.canceled()) else {
            self.connection.leave(link.number);
            return Err(Error::new(ErrorKind::Unavailable, "the member refuses to be watched"));
        };
        let present = match created.header().map_or(0, ResponseHeader::revision) {
            // etcd's grpc-proxy does not name it.
            0 => self.tokens.read(&self.connection).await?.1,
            present => present,
        };
        // What was deleted before, it does not tell.
        self.ledger.opened(present);
        let keys = self.ledger.keys();
        for some in keys.chunks(AT_ONCE) {
            let looks: Vec<_> = some.iter().map(|key| get_key(key)).collect();
            let answer = transact(&self.connection, Again::Yes, Txn::new().and_then(looks)).await?;
            let at = revision(&answer)?;
            for (key, found) in some.iter().zip(found(&answer)?) {
                // What is there now may be another one of the same name.
                let before = found.first().map_or(at + 1, KeyValue::create_revision);
                self.ledger.ended(key, before);
            }
        }
        Ok((stream, link))
    }

    /// Ends when a key is gone and nothing was heard of it.
    async fn something_missed(&self) {
        loop {
            tokio::time::sleep(LOOK).await;
            let mut gone = Vec::new();
            // One request, unless it waits for more than a hundred locks.
            for some in self.ledger.waited_for().chunks(AT_ONCE) {
                // If the store is away, the watch is, too.
                gone.extend(self.gone(some).await.unwrap_or_default());
            }
            if !gone.is_empty() {
                tokio::time::sleep(LATE).await;
            }
            if gone.iter().any(|entry| self.ledger.awaits(entry)) {
                return;
            }
        }
    }

    /// Which of these are not there any more.
    async fn gone(&self, some: &[Entry]) -> Result<Vec<Entry>> {
        let looks: Vec<_> = some.iter().map(|entry| get_key(&entry.key)).collect();
        let answer = transact(&self.connection, Again::Yes, Txn::new().and_then(looks)).await?;
        let is_there =
            |found: &[KeyValue], entry: &Entry| found.first().is_some_and(|key| key.create_revision() == entry.created);
        let found = some.iter().zip(found(&answer)?);
        Ok(found.filter(|(entry, found)| !is_there(found, entry)).map(|(entry, _)| entry.clone()).collect())
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

    /// Until the stream ends.
    async fn follow(&self, mut stream: WatchStream) {
        while let Ok(Some(message)) = stream.message().await {
            if message.canceled() {
                return;
            }
            for event in message.events().iter().filter(|event| event.event_type() == EventType::Delete) {
                if let Some(key) = event.kv() {
                    self.ledger.deleted(&text(key.key()), key.mod_revision());
                }
            }
        }
    }
}
