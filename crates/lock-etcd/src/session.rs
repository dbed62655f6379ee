//! A lease of the store that claims share, and the key that proves it: its beacon.
//!
//! The store answers a keep-alive from memory, and was seen to do so for seconds after the lease had gone. So it counts
//! only when a write that demands the beacon, which hangs on the lease, was committed after it, under the same leader.
//! Behind etcd's grpc-proxy only the first keep-alive of a stream is answered soon, and the client library swallows that
//! answer. There each renewal opens a stream, and asks afterwards what is left of the lease, which then is what counts.
//!
//! Beside the beacon are keys that stand for *epochs*, each for some of the claims. Every request that puts a key demands
//! that its epoch is the present one. To begin the next makes void whatever is still on its way for these claims. They
//! are many, so that claims which are undone all the time keep nobody else from the store. Renewals put nothing, and
//! demand the beacon alone.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{
    Compare, CompareOp, Error as EtcdError, GetOptions, KeyValue, LeaseGrantOptions, LeaseKeepAliveStream, LeaseKeeper,
    PutOptions, Txn, TxnOp, TxnResponse,
};
use lock_core::{Error, ErrorKind, Instant, Result};

use crate::connection::{Again, Answer, Connection, Link};
use crate::error::{Failure, Verdict, broken, nonsense, not_done};
use crate::keys::Keys;
use crate::requests::{found, get_key, revision};
use crate::tokens::{Tokens, last};
use crate::undo::Undoing;

/// How many epochs a session has.
const EPOCHS: usize = 64;

/// So often is a renewal repeated whose answers come from two leaders.
const TRIES: usize = 3;

pub(crate) struct Session {
    pub(crate) lease: i64,
    pub(crate) beacon: String,
    state: Mutex<State>,
    stream: tokio::sync::Mutex<Option<Stream>>,
    pub(crate) undoing: Undoing,
}

struct State {
    /// When the renewal was sent that was confirmed last.
    since: Instant,
    /// As granted with it.
    ttl: Duration,
    /// When each began: the modification revisions of their keys. Zero: there is none yet.
    epochs: [i64; EPOCHS],
    lost: bool,
    used: Instant,
}

/// Keep-alives go over a stream of their own.
struct Stream {
    link: u64,
    keeper: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

/// What the write found.
enum Confirmed {
    /// The lease lives, and these keys have these create revisions, if they are there.
    Yes(Vec<Option<i64>>),
    /// Another leader did it: ask again.
    Again,
    /// There is no beacon any more.
    Gone,
}

impl Session {
    /// Takes a lease of so many seconds and puts up its beacon.
    ///
    /// # Errors
    /// None of them is about a claim: nothing was done for any.
    pub(crate) async fn open(connection: &Connection, keys: &Keys, tokens: &Tokens, seconds: i64) -> Result<Self> {
        let opening = async {
            let (lease, since, ttl) = grant(connection, seconds, |_| ()).await?;
            let beacon = keys.beacon(lease);
            // Only where there is none, so that it does no harm should it come twice.
            let others = GetOptions::new().with_prefix().with_keys_only().with_limit(2);
            let others = || TxnOp::get(keys.beacons(), Some(others.clone()));
            let txn = Txn::new()
                .when([Compare::create_revision(beacon.as_str(), CompareOp::Equal, 0)])
                .and_then([
                    TxnOp::put(beacon.as_str(), "", Some(PutOptions::new().with_lease(lease))),
                    others(),
                    tokens.make(),
                ])
                .or_else([others(), tokens.get()]);
            let answer = transact(connection, Again::Yes, txn).await?;
            let at = revision(&answer)?;
            tokens.settle(connection, last(&answer), at).await?;
            let alone = found(&answer)?.first().is_some_and(|beacons| beacons.len() == 1);
            tokens.catch_up(connection, alone, at).await?;
            Ok(Self::new(lease, beacon, since, ttl))
        };
        opening.await.map_err(not_done)
    }

    /// A session whose lease was asked for at `since`.
    pub(crate) fn new(lease: i64, beacon: String, since: Instant, ttl: Duration) -> Self {
        let state = Mutex::new(State { since, ttl, epochs: [0; EPOCHS], lost: false, used: since });
        Self { lease, beacon, state, stream: tokio::sync::Mutex::default(), undoing: Undoing::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The store keeps the lease until then, at least.
    pub(crate) fn valid_until(&self) -> Instant {
        let state = self.state();
        state.since + state.ttl
    }

    /// As the store granted it.
    pub(crate) fn ttl(&self) -> Duration {
        self.state().ttl
    }

    /// Was it renewed less than this part of it ago?
    pub(crate) fn is_fresh(&self, part: u32, now: Instant) -> bool {
        let state = self.state();
        !state.lost && now <= state.since + state.ttl / part
    }

    /// Did a claim begin with it less than its time ago?
    pub(crate) fn is_used(&self, now: Instant) -> bool {
        let state = self.state();
        now <= state.used + state.ttl
    }

    pub(crate) fn touch(&self, now: Instant) {
        self.state().used = now;
    }

    /// An epoch began at this revision. Zero: somebody has deleted its key.
    pub(crate) fn saw_epoch(&self, number: usize, began: i64) {
        let mut state = self.state();
        let known = &mut state.epochs[number];
        *known = if began == 0 { 0 } else { began.max(*known) };
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.state().lost
    }

    pub(crate) fn lose(&self) {
        self.state().lost = true;
    }

    /// The lease is there, as far as the beacon shows it.
    pub(crate) fn is_there(&self) -> Compare {
        Compare::create_revision(self.beacon.as_str(), CompareOp::Greater, 0)
    }

    /// This epoch is still the present one. With [`Session::is_there`] it is the condition under which a key may be put.
    pub(crate) fn is_present(&self, number: usize) -> Compare {
        Compare::mod_revision(self.epoch_key(number), CompareOp::Equal, self.state().epochs[number])
    }

    /// The key that stands for this epoch.
    pub(crate) fn epoch_key(&self, number: usize) -> String {
        format!("{}/{number}", self.beacon)
    }

    /// Hangs a key on the lease.
    pub(crate) fn put(&self, key: &str, value: &str) -> TxnOp {
        TxnOp::put(key, value, Some(PutOptions::new().with_lease(self.lease)))
    }

    /// Prolongs the lease, and answers the create revisions of these keys; `None`: the lease is over.
    pub(crate) async fn renew(
        self: &Arc<Self>,
        connection: &Connection,
        keys: &[String],
    ) -> Result<Option<Vec<Option<i64>>>> {
        let known = self.state().since;
        let mut stream = self.stream.lock().await;
        if keys.is_empty() && self.state().since > known {
            // Somebody else did while this waited for its turn.
            return Ok(Some(Vec::new()));
        }
        for _ in 0..TRIES {
            let Some((sent, ttl, term)) = self.keep_alive(connection, &mut stream).await? else {
                self.lose();
                return Ok(None);
            };
            match self.confirm(connection, term, keys).await? {
                Confirmed::Yes(revisions) => {
                    let mut state = self.state();
                    if sent > state.since {
                        (state.since, state.ttl) = (sent, ttl);
                    }
                    return Ok(Some(revisions));
                }
                Confirmed::Again => {}
                Confirmed::Gone => {
                    self.lose();
                    return Ok(None);
                }
            }
        }
        Err(Error::new(ErrorKind::Unknown, "the cluster changed its leader; the lease could not be confirmed"))
    }

    /// When it was sent, the lease's time as granted, and the leader's term; `None`: the lease is over.
    async fn keep_alive(
        &self,
        connection: &Connection,
        stream: &mut Option<Stream>,
    ) -> Result<Option<(Instant, Duration, u64)>> {
        let mut tries = connection.tries(Again::Yes);
        loop {
            match self.keep_alive_once(connection, stream).await {
                Ok(answer) => return Ok(answer),
                Err(Verdict::Answered(Failure::LeaseGone)) => return Ok(None),
                Err(verdict) => tries.after(verdict).await?,
            }
        }
    }

    async fn keep_alive_once(
        &self,
        connection: &Connection,
        stream: &mut Option<Stream>,
    ) -> Result<Option<(Instant, Duration, u64)>, Verdict> {
        let link = connection.link().await?;
        let opening = async {
            // Its first answer, which says neither time nor term, is swallowed by the client.
            let (keeper, answers) = link.lease.clone().keep_alive(self.lease).await?;
            Ok(Stream { link: link.number, keeper, answers })
        };
        // Taken out: an answer that is late must not count for the next question.
        let kept = stream.take().filter(|stream| stream.link == link.number);
        let is_new = kept.is_none();
        let mut open = match kept {
            Some(stream) => stream,
            None => match connection.bounded(&link, async { Ok(opening.await) }).await? {
                Ok(stream) => stream,
                Err(EtcdError::LeaseKeepAliveError(_)) => return Ok(None),
                Err(error) => return connection.bounded(&link, async { Err(error) }).await,
            },
        };
        if link.proxied.load(Relaxed) {
            return self.time_to_live(connection, &link).await;
        }
        let sent = connection.clock.now();
        let asking = async {
            open.keeper.keep_alive().await?;
            open.answers.message().await
        };
        // A proxy answers the second one a third of the lease later: would that be too late?
        let soon = connection.timeout / 2;
        let answer = if is_new && self.ttl() / 3 > soon {
            match tokio::time::timeout(soon, connection.bounded(&link, asking)).await {
                Ok(answer) => answer?,
                Err(_) => {
                    link.proxied.store(true, Relaxed);
                    return self.time_to_live(connection, &link).await;
                }
            }
        } else {
            connection.bounded(&link, asking).await?
        };
        let Some(answer) = answer else {
            connection.leave(link.number);
            return Err(Verdict::Unknown(broken(&link.endpoint)));
        };
        *stream = Some(open);
        let term = answer.header().map_or(0, |header| header.raft_term());
        Ok((answer.ttl() > 0).then(|| (sent, seconds_of(answer.ttl()), term)))
    }

    /// What is left of the lease, after a keep-alive whose answer said nothing. It is rounded down.
    async fn time_to_live(
        &self,
        connection: &Connection,
        link: &Link,
    ) -> Result<Option<(Instant, Duration, u64)>, Verdict> {
        let (mut leases, sent) = (link.lease.clone(), connection.clock.now());
        let answer = connection.bounded(link, leases.time_to_live(self.lease, None)).await?;
        let term = answer.header().map_or(0, |header| header.raft_term());
        Ok((answer.ttl() >= 0).then(|| (sent, seconds_of(answer.ttl()), term)))
    }

    /// The write that proves it. It deletes what is not there: that is committed like any other, also when the store is
    /// full.
    async fn confirm(&self, connection: &Connection, term: u64, keys: &[String]) -> Result<Confirmed> {
        let write = TxnOp::delete(format!("{}/", self.beacon), None);
        let looks = keys.iter().map(|key| get_key(key));
        let txn = Txn::new().when([self.is_there()]).and_then([write].into_iter().chain(looks).collect::<Vec<_>>());
        let answer = transact(connection, Again::Yes, txn).await?;
        if !answer.succeeded() {
            return Ok(Confirmed::Gone);
        }
        if answer.header().ok_or_else(nonsense)?.raft_term() != term {
            return Ok(Confirmed::Again);
        }
        let found = found(&answer)?;
        if found.len() != keys.len() {
            return Err(nonsense());
        }
        Ok(Confirmed::Yes(found.iter().map(|found| found.first().map(|key| key.create_revision())).collect()))
    }

    /// Reads these epochs from an answer whose first keys are the beacon and theirs. False: there is no beacon.
    pub(crate) fn saw_epochs(&self, numbers: &[usize], answer: &TxnResponse) -> Result<bool> {
        let found = found(answer)?;
        let (beacon, epochs) =
            found.split_first().filter(|(_, rest)| rest.len() >= numbers.len()).ok_or_else(nonsense)?;
        for (number, epoch) in numbers.iter().zip(epochs) {
            self.saw_epoch(*number, epoch.first().map_or(0, KeyValue::mod_revision));
        }
        Ok(!beacon.is_empty())
    }
}

/// Takes a lease of so many seconds: its number, since when it runs at the earliest, and its time. The number is ours, so
/// that a request that is repeated takes no second one; `begun` is told it before the first byte leaves.
pub(crate) async fn grant(
    connection: &Connection,
    seconds: i64,
    begun: impl Fn(i64),
) -> Result<(i64, Instant, Duration), Failure> {
    loop {
        let number = rand::random_range(1..i64::MAX);
        begun(number);
        let began = connection.clock.now();
        let granted = connection.ask(Again::Yes, |link| {
            let (mut lease, options) = (link.lease.clone(), LeaseGrantOptions::new().with_id(number));
            async move { lease.grant(seconds, Some(options)).await }
        });
        match granted.await {
            Ok(granted) => return Ok((number, began, seconds_of(granted.value.ttl()))),
            // As long as was asked for, at least.
            Err(Failure::LeaseExists { ours: true }) => return Ok((number, began, seconds_of(seconds))),
            Err(Failure::LeaseExists { ours: false }) => {}
            Err(failure) => return Err(failure),
        }
    }
}

pub(crate) async fn transact(connection: &Connection, again: Again, txn: Txn) -> Result<TxnResponse, Failure> {
    Ok(transact_surely(connection, again, txn).await?.value)
}

/// The same, for who has to know whether an earlier copy may land yet.
pub(crate) async fn transact_surely(
    connection: &Connection,
    again: Again,
    txn: Txn,
) -> Result<Answer<TxnResponse>, Failure> {
    let asking = connection.ask(again, |link| {
        let (mut kv, txn) = (link.kv.clone(), txn.clone());
        async move { kv.txn(txn).await }
    });
    asking.await
}

/// So many keys are read by one transaction, which may have 128 operations.
pub(crate) const READ_AT_ONCE: usize = 100;

/// What stands at these keys, and at which revision.
pub(crate) async fn read<'a>(
    connection: &Connection,
    keys: impl ExactSizeIterator<Item = &'a String>,
) -> Result<(i64, Vec<Option<KeyValue>>)> {
    let count = keys.len();
    let reads: Vec<_> = keys.map(|key| get_key(key)).collect();
    let answer = transact(connection, Again::Yes, Txn::new().and_then(reads)).await?;
    let found: Vec<_> = found(&answer)?.into_iter().map(|found| found.into_iter().next()).collect();
    if found.len() == count { Ok((revision(&answer)?, found)) } else { Err(nonsense()) }
}

/// The epoch of the claim that its client calls this.
pub(crate) fn epoch_of(id: &str) -> usize {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    (hasher.finish() % EPOCHS as u64) as usize
}

fn seconds_of(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or_default())
}
