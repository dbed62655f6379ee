//! Who holds locks, who waits for them, which there are, and how a hold is ended. A line may be long, and while a script reads one the server
//! does nothing else: so it is read some places at a time.

use std::time::Duration;

use lock_core::{Holder, ListQuery, LockName, LockStatus, LockValue, Mode, Page, Result, Unlocked};
use redis::Value;

use crate::RedisLock;
use crate::answers::{holder, mode_of, nonsense, one_of_several, read, waiter};
use crate::batches::together;
use crate::connection::{Again, Connection};
use crate::keys::LINES;
use crate::scripts::INSPECT;

/// So many places in line one script reads.
const PLACES: usize = 1000;

/// A lock, and how many places of its line were read.
type Seen = (LockStatus, usize);

impl RedisLock {
    pub(crate) async fn statuses(&self, names: Vec<LockName>) -> Result<Vec<LockStatus>> {
        // What this client has just been granted. If that fails, so does the question.
        self.write_down(Duration::ZERO).await;
        let mut statuses = Vec::with_capacity(names.len());
        for group in together(&names, |name| self.keys.of(name).slot) {
            let names: Vec<_> = group.into_iter().map(|at| &names[at]).collect();
            let count = PLACES / names.len();
            for (mut status, mut read) in self.look_at_places(&names, 0, count).await? {
                let mut asked = count;
                // Who leaves meanwhile has the others move up, so that one may be missed; the next look has it.
                while read == asked {
                    asked += PLACES;
                    let (rest, more) =
                        self.look_at_places(&[&status.name], read, PLACES).await?.pop().ok_or_else(nonsense)?;
                    status.waiters.extend(rest.waiters);
                    read += more;
                }
                statuses.push(status);
            }
        }
        statuses.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(statuses)
    }

    /// Who holds the lock, whatever the length of its line.
    pub(crate) async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        self.write_down(Duration::ZERO).await;
        let seen = self.look_at_places(&[name], 0, 0).await?.pop();
        Ok(seen.ok_or_else(nonsense)?.0.into_holder())
    }

    /// Locks in one slot, each with so many places from this one on.
    async fn look_at_places(&self, names: &[&LockName], from: usize, count: usize) -> Result<Vec<Seen>> {
        let keys: Vec<_> = names.iter().map(|name| self.keys.of(name)).collect();
        let keys: Vec<_> = keys.iter().flat_map(|keys| [keys.lock.as_str(), &keys.grant, &keys.line]).collect();
        let numbers = [from, count].map(|number| number.to_string());
        let arguments = numbers.each_ref().map(|number| number.as_bytes());
        let answer = self.servers.run(&INSPECT, &keys, &arguments, Again::Yes).await?;
        let mut answers: Vec<Value> = read(answer.value)?;
        if answers.len() != names.len() + 1 {
            return Err(nonsense());
        }
        let now = read(answers.remove(0))?;
        let seen = names.iter().zip(answers).map(|(name, answer)| {
            type Answer = (String, i64, String, Vec<String>, usize, Vec<u8>, Vec<String>);
            let (owner, remaining, grant, places, seen, value, several): Answer = read(answer)?;
            // No more than was asked for, so that the reading ends.
            if seen > count {
                return Err(nonsense());
            }
            let waiters = places.iter().map(|place| waiter(place)).collect::<Result<Vec<_>>>()?;
            let holders = match mode_of(&owner) {
                Mode::Exclusive => {
                    let holder = holder(&owner, remaining, &grant, now)?;
                    holder.map(|holder| holder.with_value(LockValue::from_store(&value))).into_iter().collect()
                }
                kind => several
                    .chunks_exact(3)
                    .map(|one| one_of_several(kind, &one[0], one[1].parse().map_err(|_| nonsense())?, &one[2], now))
                    .collect::<Result<Vec<_>>>()?,
            };
            Ok((LockStatus::new((*name).clone(), holders, waiters), seen))
        });
        seen.collect()
    }

    pub(crate) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let mut names = self.names(query).await?;
        let next = query.cut(&mut names, |name| name);
        let mut locks = self.statuses(names).await?;
        // Released since it was found.
        locks.retain(|lock| lock.holder().is_some() || !lock.waiters.is_empty());
        Ok(Page::new(locks, next))
    }

    /// Ends a hold, whosoever it is.
    pub(crate) async fn end_hold(&self, name: &LockName) -> Result<Option<Holder>> {
        // By owner, so that whoever is named in the answer is the one who lost it, and not the next.
        while let Some(holder) = self.holder_of(name).await? {
            if holder.mode != Mode::Exclusive {
                if let Some(evicted) = self.end_all(name).await? {
                    return Ok(Some(evicted));
                }
                continue;
            }
            let owner = if holder.kept { holder.owner.kept() } else { holder.owner.clone() };
            // What it showed ends by itself.
            if self.end(&self.keys.of(name), owner.as_str(), "", None).await? == Unlocked::Released {
                return Ok(Some(holder));
            }
        }
        Ok(None)
    }

    /// The names of all locks in the list, sorted.
    async fn names(&self, query: &ListQuery) -> Result<Vec<LockName>> {
        let pattern = self.keys.pattern(&query.prefix);
        let mut names = Vec::new();
        for server in self.servers.all().await? {
            // Who leaves a line while we look has its lock, which is found after it.
            names.extend(self.scan(&server, LINES, "zset").await?);
            names.extend(self.scan(&server, &pattern, "string").await?);
        }
        names.retain(|name| query.selects(name));
        names.sort_unstable();
        // A scan may find a key twice.
        names.dedup();
        Ok(names)
    }

    async fn scan(&self, server: &Connection, pattern: &str, kind: &str) -> Result<Vec<LockName>> {
        let (mut cursor, mut names) = ("0".to_owned(), Vec::new());
        loop {
            let mut scan = redis::cmd("SCAN");
            scan.arg(&cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(1000).arg("TYPE").arg(kind);
            let (next, found): (String, Vec<Vec<u8>>) = read(server.ask(&scan).await?)?;
            // What is no text was written by somebody else, and is no lock.
            names.extend(found.into_iter().filter_map(|key| self.keys.name(&String::from_utf8(key).ok()?)));
            if next == "0" {
                return Ok(names);
            }
            cursor = next;
        }
    }
}
