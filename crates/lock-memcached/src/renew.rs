//! How holds are changed by their owners: renewed, kept without them, and shown with another value.

use std::time::Duration;

use lock_core::{Claim, Error, Kept, LockValue, OwnerId, Proclaimed, Renewal, Result};

use crate::MemcachedLock;
use crate::connection::{Failed, Link};
use crate::error;
use crate::read::replaced;
use crate::record::{Found, Record};
use crate::retry::Unheard;
use crate::server_time::expiry;
use crate::wire::Commands;

/// So many leases are renewed by one request.
const TOGETHER: usize = 200;

/// So many times something else may change what is there.
const ROUNDS: usize = 20;

/// What came of a change.
enum Change {
    Done,
    NotHeld,
}

impl MemcachedLock {
    /// Renews these, in turns of as many as fit into a request.
    pub(crate) async fn renew_all(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let mut answers = Vec::with_capacity(claims.len());
        for some in claims.chunks(TOGETHER) {
            answers.extend(self.renew_some(some).await);
        }
        answers
    }

    async fn renew_some(&self, claims: &[Claim]) -> Vec<Result<Renewal>> {
        let renewed = self.client.retrying(|link| async move { self.renew_over(&link, claims).await }).await;
        renewed.unwrap_or_else(|error| claims.iter().map(|_| Err(error.clone())).collect())
    }

    async fn renew_over(&self, link: &Link, claims: &[Claim]) -> Result<Vec<Result<Renewal>>, Failed> {
        let mut answers: Vec<Option<Result<Renewal>>> = claims.iter().map(|_| None).collect();
        let sent = self.client.server.clock.now();
        for _ in 0..ROUNDS {
            let open: Vec<_> = (0..claims.len()).filter(|number| answers[*number].is_none()).collect();
            if open.is_empty() {
                break;
            }
            let keys: Vec<_> = open.iter().map(|number| self.keys.of(&claims[*number].name)).collect();
            let (second, items) = self.look(link, &keys).await?;
            if second == 0 {
                continue;
            }
            let second = second.max(self.client.server.second_at(sent));
            let (mut commands, mut asked) = (Commands::default(), Vec::new());
            for ((number, key), item) in open.into_iter().zip(&keys).zip(items) {
                let claim = &claims[number];
                let renewed = |item| renewed(claim, item, second);
                match item.as_ref().map(renewed).transpose() {
                    Ok(Some(Some((cas, record)))) => {
                        commands.replace(key, cas, record.until, &record.text()?);
                        asked.push(number);
                    }
                    Ok(_) => answers[number] = Some(Ok(Renewal::NotHeld)),
                    Err(error) => answers[number] = Some(Err(error)),
                }
            }
            // It tells the time once more.
            commands.look(&self.keys.tokens());
            let mut replies = link.ask(commands).await?;
            let base = replies.pop().ok_or_else(error::unexpected)?;
            self.base_in(base)?;
            // Else the server's clock was behind, and the items may expire too soon.
            let is_long_enough = self.client.server.second_at(sent) <= second;
            for (number, reply) in asked.into_iter().zip(replies) {
                match replaced(reply) {
                    Ok(Some(_)) if is_long_enough => {
                        let valid_until = sent + claims[number].lease;
                        answers[number] = Some(Ok(Renewal::Held { valid_until }));
                    }
                    Ok(_) => {}
                    Err(failed) => answers[number] = Some(Err(failed.error)),
                }
            }
        }
        let open = || Err(error::overtaken().after_something_was_done());
        Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(open)).collect())
    }

    /// Gives the hold to nobody, for so long.
    pub(crate) async fn keep_for(&self, claim: &Claim, rest: Duration) -> Result<Kept> {
        let kept = claim.owner.kept();
        let change = |record: Record, cas, second| {
            Ok(Record { owner: kept.as_str().to_owned(), ..record.prolonged(cas, rest, expiry(second, rest)?)? })
        };
        Ok(match self.change(claim, Some(&kept), change).await? {
            Change::Done => Kept::Kept,
            Change::NotHeld => Kept::NotHeld,
        })
    }

    /// Shows another value.
    pub(crate) async fn show(&self, claim: &Claim, value: &LockValue) -> Result<Proclaimed> {
        let change = |record: Record, cas, _| {
            let same = record.prolonged(cas, record.lease(), record.until)?;
            Ok(Record { value: Some(value.as_str().to_owned()), ..same })
        };
        Ok(match self.change(claim, None, change).await? {
            Change::Done => Proclaimed::Shown,
            Change::NotHeld => Proclaimed::NotHeld,
        })
    }

    /// Changes this claim's hold. If it is that of `already`, it was changed before.
    async fn change(
        &self,
        claim: &Claim,
        already: Option<&OwnerId>,
        change: impl Fn(Record, u64, u64) -> Result<Record> + Send + Sync,
    ) -> Result<Change> {
        let (change, unheard) = (&change, &Unheard::default());
        let changed =
            self.client.retrying(|link| async move { self.change_over(&link, claim, already, change, unheard).await });
        match (changed.await?, unheard.take()) {
            // By the change that was not answered and is over, or before? Nobody can tell.
            (Change::NotHeld, Some(error)) if already.is_some() => Err(Error::after_something_was_done(error)),
            (changed, _) => Ok(changed),
        }
    }

    async fn change_over(
        &self,
        link: &Link,
        claim: &Claim,
        already: Option<&OwnerId>,
        change: &(impl Fn(Record, u64, u64) -> Result<Record> + Send + Sync),
        unheard: &Unheard,
    ) -> Result<Change, Failed> {
        let (sent, key) = (self.client.server.clock.now(), self.keys.of(&claim.name));
        for _ in 0..ROUNDS {
            let (second, mut items) = self.look(link, std::slice::from_ref(&key)).await?;
            if second == 0 {
                continue;
            }
            let second = second.max(self.client.server.second_at(sent));
            let Some(Some(item)) = items.pop() else { return Ok(Change::NotHeld) };
            let Found::Held(record) = Found::read(&item, &claim.name)? else { return Ok(Change::NotHeld) };
            if already.is_some_and(|owner| owner.as_str() == record.owner) {
                return Ok(Change::Done);
            }
            if record.owner != claim.owner.as_str() {
                return Ok(Change::NotHeld);
            }
            let record = change(*record, item.cas, second)?;
            let mut commands = Commands::default();
            commands.replace(&key, item.cas, record.until, &record.text()?);
            let answers = unheard.note(link.ask(commands).await);
            if replaced(answers?.pop().ok_or_else(error::unexpected)?)?.is_some() {
                return Ok(Change::Done);
            }
        }
        Err(Error::after_something_was_done(error::overtaken()).into())
    }
}

/// What the item becomes, if it is this claim's hold, with its present CAS number.
fn renewed(claim: &Claim, item: &crate::wire::Item, second: u64) -> Result<Option<(u64, Record)>> {
    match Found::read(item, &claim.name)? {
        Found::Held(record) if record.owner == claim.owner.as_str() => {
            let until = expiry(second, claim.lease)?;
            Ok(Some((item.cas, record.prolonged(item.cas, claim.lease, until)?)))
        }
        _ => Ok(None),
    }
}
