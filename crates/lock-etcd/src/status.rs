//! What the store has: who holds and waits, and how to end a hold.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use etcd_client::{GetOptions, KeyValue, SortOrder, SortTarget};
use lock_core::{Error, Holder, ListQuery, LockName, LockStatus, Page, Result};

use crate::Shared;
use crate::connection::Again;
use crate::keys::end_of;
use crate::requests::{remove_key, text};
use crate::session::transact;
use crate::standing::Standing;
use crate::tokens::Base;

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
        let line = self.line(name, 0).await?;
        self.status(name.clone(), &line, &mut Seen::default()).await
    }

    /// The first in line, and nobody else is read.
    pub(crate) async fn first(&self, name: &LockName) -> Result<Option<Holder>> {
        let line = self.line(name, 1).await?;
        let standing = self.standings(&line).await?.pop();
        match line.first().zip(standing) {
            Some((first, standing)) => self.holder(first, standing, &mut Seen::default()).await.map(Some),
            None => Ok(None),
        }
    }

    pub(crate) async fn list(&self, query: &ListQuery) -> Result<Page> {
        let mut lines = self.lines().await?;
        lines.retain(|name, _| query.selects(name));
        let mut lines: Vec<_> = lines.into_iter().collect();
        let next = query.cut(&mut lines, |(name, _)| name);
        let (mut locks, mut seen) = (Vec::new(), Seen::default());
        for (name, mut line) in lines {
            line.sort_by_key(KeyValue::create_revision);
            locks.push(self.status(name, &line, &mut seen).await?);
        }
        Ok(Page::new(locks, next))
    }

    pub(crate) async fn evict(&self, name: &LockName) -> Result<Option<Holder>> {
        // By its revision, so that whoever is named in the answer is the one who lost it, and not the next.
        loop {
            let line = self.line(name, 1).await?;
            let Some((first, standing)) = line.first().zip(self.standings(&line).await?.pop()) else {
                return Ok(None);
            };
            let holder = self.holder(first, standing, &mut Seen::default()).await?;
            let removed = transact(&self.connection, Again::No, remove_key(first.key(), first.create_revision()));
            if removed.await.map_err(Error::from)?.succeeded() {
                return Ok(Some(holder));
            }
        }
    }

    /// Who stands in line, the first in line first, so many at most; zero: all.
    pub(crate) async fn line(&self, name: &LockName, limit: i64) -> Result<Vec<KeyValue>> {
        let line = self.keys.line(name);
        let options = GetOptions::new().with_range(end_of(&line)).with_limit(limit);
        self.get(line.into(), options.with_sort(SortTarget::Create, SortOrder::Ascend)).await
    }

    /// All lines, at one moment, by the names of their locks.
    pub(crate) async fn lines(&self) -> Result<BTreeMap<LockName, Vec<KeyValue>>> {
        let (mut first, last) = self.range();
        let mut lines = BTreeMap::<_, Vec<_>>::new();
        let mut options = GetOptions::new().with_range(last).with_limit(AT_ONCE);
        let (_, revision) = self.tokens.read(&self.connection).await?;
        options = options.with_revision(revision);
        loop {
            let keys = self.get(first.clone(), options.clone()).await?;
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
                return Ok(lines);
            }
        }
    }

    async fn get(&self, first: Vec<u8>, options: GetOptions) -> Result<Vec<KeyValue>> {
        let asking = self.connection.ask(Again::Yes, |link| {
            let (mut kv, first, options) = (link.kv.clone(), first.clone(), options.clone());
            async move { kv.get(first, Some(options)).await }
        });
        Ok(asking.await?.value.take_kvs())
    }

    async fn status(&self, name: LockName, line: &[KeyValue], seen: &mut Seen) -> Result<LockStatus> {
        let mut standings = self.standings(line).await?.into_iter();
        let holder = match line.first().zip(standings.next()) {
            Some((first, standing)) => Some(self.holder(first, standing, seen).await?),
            None => None,
        };
        Ok(LockStatus::new(name, holder, standings.map(|waiter| waiter.owner)))
    }

    async fn holder(&self, key: &KeyValue, standing: Standing, seen: &mut Seen) -> Result<Holder> {
        let remaining = match seen.leases.get(&key.lease()) {
            Some(remaining) => *remaining,
            None => self.remaining(key.lease()).await?,
        };
        seen.leases.insert(key.lease(), remaining);
        let created = key.create_revision();
        let token = self.token_of(created, &mut seen.base).await?;
        // The store keeps no times.
        Ok(Holder::new(standing.owner, token, Duration::ZERO, remaining).with_value(standing.value))
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
