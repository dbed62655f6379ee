//! Who holds locks, and which there are.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Holder, ListQuery, LockName, LockStatus, OwnerId, Page, Result};
use tokio::time;

use crate::MemcachedLock;
use crate::connection::{Failed, Link};
use crate::error;
use crate::record::{Found, Record};
use crate::wire::{Commands, Reply};

/// The ways in which the server lists keys. The first, which misses nothing that is moved meanwhile, is newer.
const WAYS: [&str; 2] = ["hash", "all"];

/// How long to wait while the server makes a list for somebody else.
const LOOK: Duration = Duration::from_millis(20);

/// So many locks are looked at by one request.
const TOGETHER: usize = 500;

impl MemcachedLock {
    /// Who holds this lock.
    pub(crate) async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        let keys = &[self.keys.of(name)];
        let (second, mut items) = self.client.retrying(|link| async move { self.look(&link, keys).await }).await?;
        let second = self.second(second);
        let Some(Some(item)) = items.pop() else { return Ok(None) };
        let Found::Held(record) = Found::read(&item, name)? else { return Ok(None) };
        record.holder(item.cas, second).map(Some)
    }

    /// The second that was told, or what is known of it if none was.
    fn second(&self, told: u64) -> u64 {
        if told > 0 { told } else { self.client.server.second_at(self.client.server.clock.now()) }
    }

    /// The same, with the waiters, of whom memcached knows none.
    pub(crate) async fn status(&self, name: &LockName) -> Result<LockStatus> {
        let holder = self.holder_of(name).await?;
        Ok(LockStatus::new(name.clone(), holder, Vec::<OwnerId>::new()))
    }

    /// The locks that are held, a page of them.
    pub(crate) async fn page(&self, query: &ListQuery) -> Result<Page> {
        self.client.retrying(|link| async move { self.page_over(&link, query).await }).await
    }

    async fn page_over(&self, link: &Link, query: &ListQuery) -> Result<Page, Failed> {
        let keys = self.keys_there().await?;
        let mut held = Vec::new();
        for some in keys.chunks(TOGETHER) {
            let (second, items) = self.look(link, some).await?;
            let second = self.second(second);
            for item in items.into_iter().flatten() {
                // What is no lock of ours is not listed.
                let Ok(record) = serde_json::from_slice::<Record>(&item.value) else { continue };
                let Ok(name) = LockName::new(&record.name) else { continue };
                if query.selects(&name) {
                    held.push(LockStatus::new(name, Some(record.holder(item.cas, second)?), Vec::<OwnerId>::new()));
                }
            }
        }
        held.sort_by(|one, other| one.name.cmp(&other.name));
        held.dedup_by(|one, other| one.name == other.name);
        let next = query.cut(&mut held, |lock| &lock.name);
        Ok(Page::new(held, next))
    }

    /// The keys that are there, over a connection of its own: others wait for no list of a large cache.
    async fn keys_there(&self) -> Result<Vec<String>, Failed> {
        let link = self.client.server.connect();
        let late = time::Instant::now() + self.client.server.timeout;
        let mut way = WAYS[0];
        loop {
            let mut commands = Commands::default();
            commands.keys(way, &self.keys.listed());
            match link.ask(commands).await?.pop() {
                Some(Reply::List(lines)) => {
                    return Ok(lines.iter().filter_map(|line| self.keys.in_line(line)).collect());
                }
                // It makes one such list at a time.
                Some(Reply::Refused(why)) if why.starts_with("BUSY") && time::Instant::now() < late => {
                    time::sleep(LOOK).await;
                }
                Some(Reply::Refused(why)) if why.starts_with("BUSY") => {
                    let wrong = "the server makes such a list for somebody else; try again";
                    return Err(Error::new(ErrorKind::Unavailable, wrong).with_source(why).into());
                }
                // The older way, perhaps.
                Some(Reply::Refused(_)) if way == WAYS[0] => way = WAYS[1],
                Some(Reply::Refused(why)) => {
                    let wrong = "the server lists no keys; start it without -X and with its crawler, and look anew";
                    return Err(Error::new(ErrorKind::Unsupported, wrong).with_source(why).into());
                }
                _ => return Err(error::unexpected().into()),
            }
        }
    }
}
