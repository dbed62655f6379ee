//! What the store has: who holds and waits, and how to end a hold.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use etcd_client::{GetOptions, KeyValue, SortOrder, SortTarget, Txn, TxnOp};
use lock_core::{Error, Holder, ListQuery, LockName, LockStatus, Mode, OwnerId, Page, Result, Waiter};

use crate::Shared;
use crate::connection::Again;
use crate::error::nonsense;
use crate::keys::end_of;
use crate::permits::{Permits, Taken};
use crate::requests::{deletions, remove_key, text};
use crate::session::{READ_AT_ONCE, transact};
use crate::standing::Standing;
use crate::tokens::Base;

/// A holder's key, who it is, and which permits it has.
type Holding = (KeyValue, Standing, Option<Taken>);

/// How many keys are asked for at a time.
const AT_ONCE: i64 = 1000;

/// What was asked for already.
#[derive(Default)]
struct Seen {
    /// What is left of these leases.
    leases: HashMap<i64, Duration>,
    /// The present one, if there is one.
    base: Option<Option<Base>>,
}

impl Shared {
    pub(crate) async fn inspect(&self, name: &LockName) -> Result<LockStatus> {
        let (line, at) = self.line(name, 0).await?;
        self.status(name.clone(), line, at, &mut Seen::default()).await
    }

    /// The first in line, and nobody else is read.
    pub(crate) async fn first(&self, name: &LockName) -> Result<Option<Holder>> {
        let (line, _) = self.line(name, 1).await?;
        match line.first().zip(self.standings(&line).await?.pop()) {
            // Who has which permits is read with the line.
            Some((_, standing)) if standing.mode.permits().is_some() => Ok(self.inspect(name).await?.into_holder()),
            Some((first, standing)) => self.holder(first, standing, None, &mut Seen::default()).await.map(Some),
            None => Ok(None),
        }
    }

    pub(crate) async fn list(&self, query: &ListQuery) -> Result<Page> {
        let (mut lines, at) = self.lines().await?;
        lines.retain(|name, _| query.selects(name));
        let mut lines: Vec<_> = lines.into_iter().collect();
        let next = query.cut(&mut lines, |(name, _)| name);
        let (mut locks, mut seen) = (Vec::new(), Seen::default());
        for (name, mut line) in lines {
            line.sort_by_key(KeyValue::create_revision);
            locks.push(self.status(name, line, at, &mut seen).await?);
        }
        Ok(Page::new(locks, next))
    }

    /// Ends the holds of all who have the lock, and answers the first of them; or of this owner alone.
    pub(crate) async fn evict(&self, name: &LockName, owner: Option<&OwnerId>) -> Result<Option<Holder>> {
        // By its revision, so that whoever is named in the answer is the one who lost it, and not the next.
        loop {
            let (line, at) = self.line(name, 0).await?;
            let (mut holding, _) = self.parted(name, line, at).await?;
            holding.retain(|(_, standing, _)| owner.is_none_or(|owner| standing.is_known_as(owner)));
            let Some((key, standing, taken)) = holding.first().cloned() else { return Ok(None) };
            let first = self.holder(&key, standing, taken, &mut Seen::default()).await?;
            let mut ended = Vec::new();
            for some in holding.chunks(READ_AT_ONCE) {
                let removal = |key: &KeyValue| TxnOp::txn(remove_key(key.key(), key.create_revision()));
                let removals: Vec<_> = some.iter().map(|(key, ..)| removal(key)).collect();
                let removed = transact(&self.connection, Again::No, Txn::new().and_then(removals));
                ended.extend(deletions(&removed.await.map_err(Error::from)?));
            }
            if ended.first() != Some(&0) {
                return Ok(Some(first));
            }
        }
    }

    /// Who stands in line, the first in line first, so many at most; zero: all. And at which revision.
    pub(crate) async fn line(&self, name: &LockName, limit: i64) -> Result<(Vec<KeyValue>, i64)> {
        let line = self.keys.line(name);
        let options = GetOptions::new().with_range(end_of(&line)).with_limit(limit);
        self.get(line.into(), options.with_sort(SortTarget::Create, SortOrder::Ascend)).await
    }

    /// All lines, at one moment, by the names of their locks.
    pub(crate) async fn lines(&self) -> Result<(BTreeMap<LockName, Vec<KeyValue>>, i64)> {
        let (mut first, last) = self.range();
        let mut lines = BTreeMap::<_, Vec<_>>::new();
        let mut options = GetOptions::new().with_range(last).with_limit(AT_ONCE);
        let (_, revision) = self.tokens.read(&self.connection).await?;
        options = options.with_revision(revision);
        loop {
            let (keys, _) = self.get(first.clone(), options.clone()).await?;
            let all = (keys.len() as i64) < AT_ONCE;
            if let Some(key) = keys.last() {
                // The next key there can be.
                first = [key.key(), &[0]].concat();
            }
            for key in keys {
                if let Some((name, _)) = self.keys.parse(&text(key.key())) {
                    lines.entry(name).or_default().push(key);
                }
            }
            if all {
                return Ok((lines, revision));
            }
        }
    }

    async fn get(&self, first: Vec<u8>, options: GetOptions) -> Result<(Vec<KeyValue>, i64)> {
        let asking = self.connection.ask(Again::Yes, |link| {
            let (mut kv, first, options) = (link.kv.clone(), first.clone(), options.clone());
            async move { kv.get(first, Some(options)).await }
        });
        let mut answer = asking.await?.value;
        let at = answer.header().ok_or_else(nonsense)?.revision();
        Ok((answer.take_kvs(), at))
    }

    async fn status(&self, name: LockName, line: Vec<KeyValue>, at: i64, seen: &mut Seen) -> Result<LockStatus> {
        let (holding, waiting) = self.parted(&name, line, at).await?;
        let mut holders = Vec::new();
        for (key, standing, taken) in holding {
            holders.push(self.holder(&key, standing, taken, seen).await?);
        }
        Ok(LockStatus::new(name, holders, waiting.into_iter().map(|waiter| Waiter::new(waiter.owner, waiter.mode))))
    }

    /// Those of a line, as it was at this revision, who hold, and those who wait.
    async fn parted(&self, name: &LockName, line: Vec<KeyValue>, at: i64) -> Result<(Vec<Holding>, Vec<Standing>)> {
        let mut standings = self.standings(&line).await?;
        let permits = match standings.first().map(|first| first.mode) {
            Some(Mode::Permits { .. }) => {
                let key = self.keys.permits(&self.keys.line(name));
                self.get(key.into(), GetOptions::new().with_revision(at)).await?.0
            }
            _ => Vec::new(),
        };
        let permits = permits.first().map(Permits::read).transpose()?.unwrap_or_default();
        for standing in &mut standings {
            if let Mode::Permits { take, .. } = standing.mode {
                standing.mode = Mode::Permits { take, of: permits.of };
            }
        }
        let reads = |standing: &Standing| standing.mode == Mode::Shared;
        let readers = standings.iter().take_while(|standing| reads(standing)).count();
        let (mut holding, mut waiting) = (Vec::new(), Vec::new());
        for (place, (key, standing)) in line.into_iter().zip(standings).enumerate() {
            let taken = permits.of_owner(standing.owner.as_str()).cloned();
            let holds = match standing.mode {
                Mode::Permits { .. } => taken.is_some(),
                _ => place < readers.max(1),
            };
            if holds { holding.push((key, standing, taken)) } else { waiting.push(standing) }
        }
        Ok((holding, waiting))
    }

    async fn holder(
        &self,
        key: &KeyValue,
        standing: Standing,
        taken: Option<Taken>,
        seen: &mut Seen,
    ) -> Result<Holder> {
        let remaining = match seen.leases.get(&key.lease()) {
            Some(remaining) => *remaining,
            None => self.remaining(key.lease()).await?,
        };
        seen.leases.insert(key.lease(), remaining);
        let (token, slots) = taken.map_or_else(Default::default, |taken| (taken.token, taken.slots));
        let token = match token {
            Some(token) => token,
            None => self.token_of(key.create_revision(), &mut seen.base).await?,
        };
        // The store keeps no times.
        let holder = Holder::new(standing.owner, token, Duration::ZERO, remaining);
        Ok(holder.with_value(standing.value).with_mode(standing.mode, slots))
    }

    /// Rounded up to a whole second.
    async fn remaining(&self, lease: i64) -> Result<Duration> {
        if lease == 0 {
            return Ok(Holder::ENDLESS);
        }
        let asking = self.connection.ask(Again::Yes, |link| {
            let mut leases = link.lease.clone();
            async move { leases.time_to_live(lease, None).await }
        });
        let left = asking.await?.value.ttl();
        Ok(Duration::from_secs(u64::try_from(left + 1).unwrap_or_default()))
    }
}
