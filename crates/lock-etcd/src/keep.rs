//! Holds that go on without their owners, each on a lease of its own.
//!
//! A new lease is taken, of as many seconds as the hold is to last. Then the holder's key is put on it, if nobody has put
//! the key meanwhile. The key keeps its create revision, and so its token and its place in line. Whoever is behind waits for
//! its end as before, and the store deletes it with its lease.
//!
//! From then on the owner's requests do nothing. A release, another `keep` and another value compare when the key was last
//! put. An undoing compares the lease of the owner's session. A renewal prolongs only that lease. An acquisition that lands
//! late finds the line not empty, and is undone as after a release.
//!
//! etcd counts in whole seconds, two at least with its usual time for elections; a time is rounded up to that. It looks twice
//! a second for leases that are over. A new leader counts all leases from their beginning. The lease is taken before the
//! key is put on it, so part of its time may have passed by then: if so, a keep-alive has it begin anew. Should that land
//! late, the hold lasts so much longer.
//!
//! If an answer is lost, nobody knows which lease the key is on. So all that were taken are remembered, and those that
//! turn out to be of no use are given back by the next call. Until then the key may outlast its owner's session: the end of
//! that is not taken for the end of the key.

use std::time::Duration;

use etcd_client::{Error as EtcdError, PutOptions, TxnOp};
use futures_util::future::join_all;
use lock_core::{Claim, Error, Instant, Kept, Result};

use crate::Shared;
use crate::connection::Again;
use crate::error::{Failure, in_doubt, nonsense, not_done};
use crate::ledger::{Ledger, Own, Stage};
use crate::requests::{found, get_key, revision, unchanged};
use crate::session::{grant, transact};
use crate::sessions::whole_seconds;
use crate::standing::Standing;
use crate::waiters::Entry;

/// A lease that a hold may go on with.
struct Rest {
    lease: i64,
    /// It lasts until then, at least.
    until: Instant,
}

impl Shared {
    pub(crate) async fn keep(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let id = self.keys.id(claim);
        let Some((own, entry)) = self.ledger.keeping(&id) else { return self.was_kept(claim).await };
        let kept = self.keep_on(&id, &own, &entry, rest).await;
        match &kept {
            Ok(Kept::Kept) => self.ledger.leaves_its_place(&id, &entry),
            Ok(_) => self.ledger.remove(&id),
            Err(error) if error.is_refused() => self.ledger.stays(&id, &own),
            Err(_) => {}
        }
        kept
    }

    /// Nothing is known here of a hold of this claim.
    async fn was_kept(&self, claim: &Claim) -> Result<Kept> {
        let line = self.keys.line(&claim.name);
        let first = self.line(&claim.name, 1).await?.0.pop();
        let is_kept = first.is_some_and(|first| Standing::is_kept_by(&line, &first, &claim.owner));
        Ok(if is_kept { Kept::Kept } else { Kept::NotHeld })
    }

    async fn keep_on(&self, id: &str, own: &Own, entry: &Entry, time: Duration) -> Result<Kept> {
        let begun = |lease| self.ledger.may_rest_on(id, lease);
        let granted = grant(&self.connection, whole_seconds(time), begun).await;
        let (lease, since, lasts) = granted.map_err(|failure| not_done(failure.into()))?;
        let on = self.put_on(own, entry, &Rest { lease, until: since + lasts }, time).await?;
        // Nothing hangs on the others, and whatever is on its way that names one of them is void.
        let others = own.rests.iter().copied().chain([lease]).filter(|other| Some(*other) != on);
        self.revoke(others).await;
        if own.unsure {
            // What may still be on its way would put a key anew.
            let undone = own.session.undo(&self.connection, &own.spot).await.map_err(in_doubt)?;
            self.has_gone(undone);
        }
        Ok(if on.is_some() { Kept::Kept } else { Kept::NotHeld })
    }

    /// The lease that the hold goes on with, if it was held, or is kept already.
    async fn put_on(&self, own: &Own, entry: &Entry, rest: &Rest, time: Duration) -> Result<Option<i64>> {
        let (key, spot) = (entry.key.as_str(), &own.spot);
        let options = PutOptions::new().with_lease(rest.lease);
        let kept = match spot.shows {
            None => TxnOp::put(key, spot.owner.kept().as_str(), Some(options)),
            // The owner is in its name, and it goes on showing what it shows.
            Some(_) => TxnOp::put(key, "", Some(options.with_ignore_value())),
        };
        let mut put = own.put(entry);
        loop {
            let txn = unchanged(key, put).and_then([kept.clone()]).or_else([get_key(key)]);
            let answer = match transact(&self.connection, Again::Yes, txn).await {
                Ok(answer) => answer,
                // What filled the store may have been done.
                Err(Failure::Full(error)) => return Err(in_doubt(error)),
                Err(failure) => return Err(failure.into()),
            };
            if answer.succeeded() {
                // It counts from when this was done. That was before now.
                if self.connection.clock.now() + time > rest.until {
                    self.prolong(rest.lease).await?;
                }
                return Ok(Some(rest.lease));
            }
            let there = found(&answer)?.pop().ok_or_else(nonsense)?.pop();
            match there.filter(|there| there.create_revision() == entry.created) {
                None => {
                    self.ledger.found_gone(entry, revision(&answer)?);
                    // An earlier request may have done it whose answer was lost, and it is over by now.
                    let is_over = self.connection.clock.now() >= rest.until;
                    return if is_over { Err(Error::kept_or_not()) } else { Ok(None) };
                }
                // An earlier answer was lost.
                Some(there) if Standing::is_kept_by(&spot.line, &there, &spot.owner) => {
                    if there.lease() == rest.lease || own.rests.contains(&there.lease()) {
                        self.prolong(there.lease()).await?;
                    }
                    return Ok(Some(there.lease()));
                }
                // It shows something else since.
                Some(there) => put = there.mod_revision(),
            }
        }
    }

    /// Has a lease begin anew.
    async fn prolong(&self, lease: i64) -> Result<()> {
        let asking = self.connection.ask(Again::Yes, |link| {
            let mut leases = link.lease.clone();
            async move {
                match leases.keep_alive(lease).await {
                    // It was kept, and is over by now.
                    Err(EtcdError::LeaseKeepAliveError(_)) | Ok(_) => Ok(()),
                    Err(error) => Err(error),
                }
            }
        });
        asking.await.map(drop).map_err(|failure| in_doubt(failure.into()))
    }

    /// Gives leases back, as well as that can be done at once: else they end by themselves.
    async fn revoke(&self, leases: impl IntoIterator<Item = i64>) {
        let revocations = leases.into_iter().map(async |lease| {
            let revoking = self.connection.ask(Again::Yes, |link| {
                let mut leases = link.lease.clone();
                async move { leases.revoke(lease).await }
            });
            if let Err(failure) = revoking.await {
                tracing::debug!(?failure, "a lease that nobody needs was not given back");
            }
        });
        join_all(revocations).await;
    }
}

impl Ledger {
    /// A hold is to go on without its owner: what it was until now, if it is one whose time is not over. From now on
    /// nobody renews it.
    pub(crate) fn keeping(&self, id: &str) -> Option<(Own, Entry)> {
        let now = self.clock.now();
        let mut state = self.state();
        let before = state.own.get(id)?.clone();
        let in_time = before.until.is_none_or(|until| until >= now);
        let entry = match &before.stage {
            Stage::Held(entry) if in_time => entry.clone(),
            Stage::Leaving { held: true, entry } => entry.clone(),
            _ => return None,
        };
        state.becomes(id, Stage::Leaving { held: true, entry: entry.clone() });
        Some((before, entry))
    }

    /// This claim may be kept on this lease. If it turns out that it is not, the lease is given back.
    pub(crate) fn may_rest_on(&self, id: &str, lease: i64) {
        if let Some(own) = self.state().own.get_mut(id) {
            own.rests.push(lease);
        }
    }
}
