//! The watch: one stream per client, opened beforehand and kept, over all keys of the prefix. A stream that is opened
//! for a key that is there already is served only every 100 ms.
//!
//! However it ends, by a lost connection, a compaction or a cancellation, the next one begins in the same way: with the
//! present revision, and with a look at every key whose end matters. So there is no gap.

use std::sync::Arc;

use etcd_client::{EventType, GetOptions, Txn, WatchFilterType, WatchOptions, WatchStream};
use lock_core::{Error, ErrorKind, Failures, Result};

use crate::Shared;
use crate::connection::{Again, Link};
use crate::error::nonsense;
use crate::keys::end_of;
use crate::requests::{found, get_key, revision, text};
use crate::session::transact;

/// A transaction may have 128 operations.
const AT_ONCE: usize = 100;

/// Watches until the client is gone.
pub(crate) async fn keep_watching(shared: Arc<Shared>) {
    let mut failures = Failures::default();
    loop {
        match shared.open_watch().await {
            Ok((stream, link)) => {
                failures.forget();
                tokio::select! {
                    () = shared.follow(stream) => {}
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
        let present = self.present_revision().await?;
        let (first, last) = self.range();
        let options = WatchOptions::new()
            .with_range(last)
            .with_start_revision(present + 1)
            .with_filters([WatchFilterType::NoPut]);
        let link = self.connection.link().await?;
        let mut watch = link.watch.clone();
        let opening = async {
            let mut stream = watch.watch(first, Some(options)).await?;
            Ok((stream.message().await?, stream))
        };
        let (created, stream) = self.connection.bounded(&link, opening).await?;
        if created.is_none_or(|created| !created.created() || created.canceled()) {
            self.connection.leave(link.number);
            return Err(Error::new(ErrorKind::Unavailable, "the member refuses to be watched"));
        }
        // What was deleted before, it does not tell.
        self.ledger.opened(present);
        let keys = self.ledger.keys();
        for some in keys.chunks(AT_ONCE) {
            let looks: Vec<_> = some.iter().map(|key| get_key(key)).collect();
            let answer = transact(&self.connection, Again::Yes, Txn::new().and_then(looks)).await?;
            let at = revision(&answer)?;
            for (key, _) in some.iter().zip(found(&answer)?).filter(|(_, found)| found.is_empty()) {
                self.ledger.missing(key, at);
            }
        }
        Ok((stream, link))
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
