//! Who holds locks, and which there are.

use std::time::Duration;

use lock_core::{Error, ErrorKind, Holder, ListQuery, LockName, LockStatus, OwnerId, Page, Result};
use tokio::time;

use crate::MemcachedLock;
use crate::connection::{Failed, Link};
use crate::error;
use crate::read::there;
use crate::record::{Found, Record};
use crate::retry::Retry;
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
        let mut retry = Retry::default();
        loop {
            let link = self.client.link()?;
            match self.look(&link, std::slice::from_ref(name)).await {
                Ok((second, mut items)) => {
                    let second = self.second(second);
                    let Some(Some(item)) = items.pop() else { return Ok(None) };
                    let Found::Held(record) = Found::read(&item, name)? else { return Ok(None) };
                    return record.holder(item.cas, second).map(Some);
                }
                Err(failed) => retry.after(failed, &self.client, &link)?,
            }
        }
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
        let mut retry = Retry::default();
        loop {
            let link = self.client.link()?;
            match self.page_over(&link, query).await {
                Ok(page) => return Ok(page),
                Err(failed) => retry.after(failed, &self.client, &link)?,
            }
        }
    }

    async fn page_over(&self, link: &Link, query: &ListQuery) -> Result<Page, Failed> {
        let keys = self.keys_there().await?;
        let mut held = Vec::new();
        for some in keys.chunks(TOGETHER) {
            let second = self.second(self.look(link, &[]).await?.0);
            let mut commands = Commands::default();
            some.iter().for_each(|key| commands.look(key));
            for reply in link.ask(commands).await? {
                let Some(item) = there(reply)? else { continue };
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
        let mut ways = WAYS.into_iter();
        let mut way = ways.next();
        while let Some(now) = way {
            let mut commands = Commands::default();
            commands.keys(now, &self.keys.listed());
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
                Some(Reply::Refused(_)) if now == WAYS[0] => way = ways.next(),
                Some(Reply::Refused(why)) => {
                    let wrong = "the server lists no keys; start it without -X and with its crawler, and look anew";
                    return Err(Error::new(ErrorKind::Unsupported, wrong).with_source(why).into());
                }
                _ => return Err(error::unexpected().into()),
            }
        }
        Err(error::unexpected().into())
    }
}
