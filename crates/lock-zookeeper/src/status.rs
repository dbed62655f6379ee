//! What others see of the locks, and how a hold is ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use lock_core::{
    Holder, ListQuery, LockName, LockStatus, Mode, OwnerId, Page, Result, Slots, StoreToken, TokenBase, Waiter,
};
use tokio::sync::OnceCell;
use zookeeper_client::{Client, Error as ZkError, MultiReadResult, MultiReader, Stat};

use crate::ZookeeperLock;
use crate::error::of_request;
use crate::kept::left;
use crate::keys::{holding, in_line, is_in_line, name_of, reads};
use crate::nodes::{self, Terms, read, terms};
use crate::permits::{self, is_part};
use crate::session::{Session, beacon};
use crate::tokens::Tokens;

/// How many nodes one request asks for: an answer has its bounds.
const AT_ONCE: usize = 200;

/// How many semaphores are asked for at the same time: each takes a few requests.
const SEMAPHORES_AT_ONCE: usize = 16;

/// How many locks are looked at for nodes of another kind: one of many tells as much.
const MOST: usize = 2000;

/// A lock, and the paths of each of its holders' nodes.
pub(crate) struct Seen {
    pub(crate) status: LockStatus,
    pub(crate) nodes: Vec<Vec<String>>,
    /// The path of a kept hold whose time is over, and which is there all the same.
    over: Option<String>,
}

impl ZookeeperLock {
    pub(crate) async fn look(&self, names: Vec<LockName>) -> Result<Vec<Seen>> {
        let session = self.sessions.any().await?;
        session.catch_up().await.map_err(of_request)?;
        Look { lock: self, session: &session }.at(names).await.map_err(of_request)
    }

    pub(crate) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let session = self.sessions.any().await?;
        let keys = &self.settings.keys;
        let children = session.list_now(keys.root()).await.map_err(of_request)?.unwrap_or_default();
        let mut found: Vec<_> = children.iter().filter_map(|child| keys.name(child)).collect();
        found.retain(|name| query.selects(name));
        found.sort_unstable();
        let mut page = Page::default();
        // Many may be empty, until the server has removed them.
        for some in found.chunks(AT_ONCE) {
            let seen = Look { lock: self, session: &session }.at(some.to_vec()).await;
            let held = seen.map_err(of_request)?.into_iter().map(|seen| seen.status);
            page.locks.extend(held.filter(|status| status.holder().is_some()));
            page.next = query.cut(&mut page.locks, |lock| &lock.name);
            if page.next.is_some() {
                break;
            }
        }
        Ok(page)
    }
}

impl ZookeeperLock {
    /// Ends the holds of all who hold, and answers the first of them; or of this owner alone.
    pub(crate) async fn end_hold(&self, name: &LockName, owner: Option<&OwnerId>) -> Result<Option<Holder>> {
        let session = self.sessions.any().await?;
        loop {
            // By node, so that whoever is named in the answer is the one who lost it, and not the next.
            let Some(seen) = self.look(vec![name.clone()]).await?.pop() else { return Ok(None) };
            if let Some(over) = seen.over {
                // Whoever waits behind it holds only when that is gone.
                let now = session.servers_now().await.map_err(of_request)?;
                session.end_if_over(&over, now).await.map_err(of_request)?;
                continue;
            }
            let mut holding: Vec<_> = seen.status.holders.into_iter().zip(seen.nodes).collect();
            holding.retain(|(holder, _)| owner.is_none_or(|owner| holder.owner == *owner));
            if holding.is_empty() {
                return Ok(None);
            }
            let (client, mut ended) = (session.connected().await?, None);
            for (holder, nodes) in holding {
                for node in nodes {
                    match session.answer(client.delete(&node, None)).await {
                        Ok(()) => drop(ended.get_or_insert_with(|| holder.clone())),
                        Err(ZkError::NoNode) => {}
                        Err(error) => return Err(of_request(error)),
                    }
                }
            }
            if ended.is_some() {
                return Ok(ended);
            }
        }
    }

    /// Nodes in the folders of some locks, as they are found: those that are in none of our lines, and those that hang
    /// on no session and are no holds that were kept.
    pub(crate) async fn foreign(&self) -> Result<(Vec<String>, Vec<String>)> {
        let session = self.sessions.any().await?;
        let look = Look { lock: self, session: &session };
        let nodes = look.nodes(0).await.map_err(of_request)?.into_iter();
        let (parts, nodes): (Vec<_>, Vec<_>) = nodes.partition(|node| is_part(name_of(node)));
        let is_known = |node: &str| is_in_line(node) && !self.settings.peers.are_missed_by(node);
        let (mut line, strangers): (Vec<_>, _) = nodes.into_iter().partition(|node| is_known(name_of(node)));
        line.retain(|node| terms(name_of(node)).is_none());
        // Whoever waits for permits, and who holds some: any node counts.
        line.extend(look.below(&parts).await.map_err(of_request)?);
        let mut states = look.data(&line).await.map_err(of_request)?.into_iter();
        line.retain(|_| states.next().flatten().is_some_and(|(_, stat)| stat.ephemeral_owner == 0));
        Ok((strangers, line))
    }

    /// Deletes the nodes of kept holds whose time is over, in the folders of some locks.
    pub(crate) async fn sweep(&self, session: &Session) -> Result<(), ZkError> {
        let look = Look { lock: self, session };
        let now = session.servers_now().await?;
        let mut kept = look.nodes(now as usize).await?;
        kept.retain(|node| terms(name_of(node)).is_some());
        let states = look.data(&kept).await?;
        for (node, state) in kept.iter().zip(states) {
            if state.is_some_and(|(_, stat)| is_over(node, &stat, now)) {
                session.end_if_over(node, now).await?;
            }
        }
        Ok(())
    }
}

/// How a hold is kept, if it is.
fn kept(node: &str, stat: &Stat) -> Option<Terms> {
    terms(name_of(node)).filter(|_| stat.ephemeral_owner == 0)
}

fn mode(node: &str) -> Mode {
    if reads(name_of(node)) { Mode::Shared } else { Mode::Exclusive }
}

/// Is it a kept hold whose time is over?
fn is_over(node: &str, stat: &Stat, now: i64) -> bool {
    kept(node, stat).is_some_and(|terms| left(terms, stat.ctime, now).is_zero())
}

/// A node in a line: its path, what stands in it, and its state.
type Node = (String, String, Stat);

/// A line as it counts, and the path of the kept hold that was its first and is over.
fn without_what_is_over(mut line: Vec<Node>, now: i64) -> (Vec<Node>, Option<String>) {
    let over = line.first().is_some_and(|(node, _, stat)| is_over(node, stat, now));
    let over = over.then(|| line.remove(0).0);
    (line, over)
}

struct Look<'a> {
    lock: &'a ZookeeperLock,
    session: &'a Session,
}

impl Look<'_> {
    async fn at(&self, names: Vec<LockName>) -> Result<Vec<Seen>, ZkError> {
        let folders: Vec<_> = names.iter().map(|name| self.lock.settings.keys.folder(name)).collect();
        let (mut lines, mut semaphores) = self.lines(&folders).await?;
        let mut now = 0;
        // Their clock is asked by a write, which makes the folder: not for a line in which nobody stands. And once more they
        // are asked behind it, as a server that was cut off shows the past until it notices, after a sync too, but commits
        // no write.
        if lines.iter().any(|line| !line.is_empty()) {
            now = self.servers_time().await?;
            (lines, semaphores) = self.lines(&folders).await?;
        }
        let mut paths = lines.concat();
        paths.push(self.lock.settings.keys.tokens());
        let mut nodes = self.data(&paths).await?;
        let base = match nodes.pop().flatten() {
            Some((data, stat)) => Some((Tokens::read(data.as_bytes(), &stat)?.base, stat.mzxid)),
            None => None,
        };
        let mut nodes = nodes.into_iter();
        // Each line as far as it is still there.
        let lines: Vec<Vec<_>> = lines
            .into_iter()
            .map(|line| {
                line.into_iter().filter_map(|path| nodes.next()?.map(|(data, stat)| (path, data, stat))).collect()
            })
            .collect();
        let (lines, over): (Vec<_>, Vec<_>) = lines.into_iter().map(|line| without_what_is_over(line, now)).unzip();
        let folder = self.lock.settings.keys.beacons();
        let holders = |line: &Vec<Node>| holding(line.iter().map(|(node, ..)| name_of(node)));
        let sessions = lines.iter().flat_map(|line| &line[..holders(line)]).map(|(.., stat)| stat.ephemeral_owner);
        let sessions: Vec<_> = sessions.collect::<BTreeSet<_>>().into_iter().collect();
        let beacons: Vec<_> = sessions.iter().map(|session| beacon(&folder, *session)).collect();
        let lives: BTreeMap<_, _> = sessions.into_iter().zip(self.data(&beacons).await?).collect();
        let seen = |((name, line), over): ((LockName, Vec<Node>), _)| {
            let (holding, waiting) = line.split_at(holders(&line));
            let held = holding.iter().map(|node| {
                let life = lives.get(&node.2.ephemeral_owner).and_then(Option::as_ref);
                self.holder(node, life, now, base).with_mode(mode(&node.0), Slots::default())
            });
            let waiters = waiting.iter().map(|(node, text, _)| Waiter::new(read(node, text).0, mode(node)));
            let nodes = holding.iter().map(|(node, ..)| vec![node.clone()]).collect();
            Ok(Seen { status: LockStatus::new(name, held, waiters), nodes, over })
        };
        let mut seen = names.into_iter().zip(lines).zip(over).map(seen).collect::<Result<Vec<Seen>, ZkError>>()?;
        semaphores.retain(|at| seen[*at].nodes.is_empty() && seen[*at].status.waiters.is_empty());
        let clock = OnceCell::new();
        let names: Vec<_> = semaphores.iter().map(|at| seen[*at].status.name.clone()).collect();
        let asked: Vec<_> = names.iter().map(|name| self.semaphore(name, base, &clock)).collect();
        let looked: Vec<_> = stream::iter(asked).buffered(SEMAPHORES_AT_ONCE).try_collect().await?;
        for (at, looked) in semaphores.into_iter().zip(looked) {
            seen[at] = looked;
        }
        Ok(seen)
    }

    /// The nodes in line in each folder, and which of the folders are semaphores'.
    async fn lines(&self, folders: &[String]) -> Result<(Vec<Vec<String>>, Vec<usize>), ZkError> {
        let (mut lines, mut semaphores) = (Vec::new(), Vec::new());
        for (at, (folder, children)) in folders.iter().zip(self.children(folders).await?).enumerate() {
            if children.iter().any(|child| is_part(child)) {
                semaphores.push(at);
            }
            lines.push(in_line(children).into_iter().map(|child| format!("{folder}/{child}")).collect());
        }
        Ok((lines, semaphores))
    }

    /// Who has permits, and who waits for some. The servers' clock is asked for once.
    async fn semaphore(
        &self,
        name: &LockName,
        base: Option<(TokenBase, i64)>,
        clock: &OnceCell<i64>,
    ) -> Result<Seen, ZkError> {
        let folder = self.lock.settings.keys.folder(name);
        let view = permits::view(self.session, &folder).await?;
        let of = view.of().unwrap_or(view.leases.len() as u32);
        let paths = |folder: String, names: &[String]| {
            names.iter().map(move |name| format!("{folder}/{name}")).collect::<Vec<_>>()
        };
        let (held, waiting) =
            (paths(permits::leases(&folder), &view.leases), paths(permits::locks(&folder), &view.line));
        let (states, waits) = (self.data(&held).await?, self.data(&waiting).await?);
        let there = |(path, found): (String, Option<(String, Stat)>)| found.map(|(data, stat)| (path, data, stat));
        let mut held: Vec<Node> = held.into_iter().zip(states).filter_map(there).collect();
        held.sort_by_key(|(.., stat)| stat.czxid);
        let now = if held.is_empty() { 0 } else { *clock.get_or_try_init(|| self.servers_time()).await? };
        let first_session = waits.first().and_then(Option::as_ref).map(|(_, stat)| stat.ephemeral_owner);
        // Curator's first in line has made its node already, and holds nothing by it.
        if held.len() > of as usize
            && let Some((node, _, stat)) = held.last()
            && permits::numbers(name_of(node)).is_none()
            && Some(stat.ephemeral_owner) == first_session
        {
            held.pop();
        }
        let beacons = self.lock.settings.keys.beacons();
        let sessions: BTreeSet<_> = held.iter().map(|(.., stat)| stat.ephemeral_owner).collect();
        let beacons: Vec<_> = sessions.iter().map(|session| beacon(&beacons, *session)).collect();
        let lives: BTreeMap<_, _> = sessions.into_iter().zip(self.data(&beacons).await?).collect();
        let mut by_owner: Vec<(&Node, Vec<String>)> = Vec::new();
        for node in &held {
            let is_ours = permits::numbers(name_of(&node.0)).is_some();
            match by_owner.iter_mut().find(|(first, _)| is_ours && first.1 == node.1 && first.2.czxid == node.2.czxid) {
                Some((_, nodes)) => nodes.push(node.0.clone()),
                None => by_owner.push((node, vec![node.0.clone()])),
            }
        }
        let holders = by_owner.iter().map(|(node, nodes)| {
            let life = lives.get(&node.2.ephemeral_owner).and_then(Option::as_ref);
            let slots = permits::slots(nodes.iter().map(|node| name_of(node)));
            self.holder(node, life, now, base).with_mode(Mode::Permits { take: nodes.len() as u32, of }, slots)
        });
        let waiters = waiting.into_iter().zip(waits).filter_map(there).map(|(node, text, _)| {
            let take = permits::weight(name_of(&node));
            Waiter::new(read(&node, &text).0, Mode::Permits { take, of })
        });
        let status = LockStatus::new(name.clone(), holders, waiters);
        Ok(Seen { status, nodes: by_owner.into_iter().map(|(_, nodes)| nodes).collect(), over: None })
    }

    /// The base is the present one, and with which transaction it became that.
    fn holder(&self, node: &Node, life: Option<&(String, Stat)>, now: i64, base: Option<(TokenBase, i64)>) -> Holder {
        let (node, text, stat) = node;
        let (owner, value) = read(node, text);
        // What another program made before the base was raised or made is counted from none.
        let present = base.filter(|(_, since)| *since < stat.czxid).map(|(base, _)| base);
        self.hold_of(owner, node, stat, life, now, nodes::base(name_of(node)).or(present)).with_value(value)
    }

    fn hold_of(
        &self,
        owner: OwnerId,
        node: &str,
        stat: &Stat,
        life: Option<&(String, Stat)>,
        now: i64,
        base: Option<TokenBase>,
    ) -> Holder {
        let since = |then: i64| Duration::from_millis(now.saturating_sub(then).max(0) as u64);
        let highest = |_| StoreToken::new(StoreToken::MAX).expect("the highest");
        let token = base.map_or(Holder::NO_TOKEN, |base| base.token(stat.czxid).unwrap_or_else(highest));
        // Of our own we know better.
        if let Some((hold, now)) = self.lock.hold(&owner) {
            let held_for = now.saturating_duration_since(hold.since);
            return Holder::new(owner, hold.token, held_for, hold.ends.saturating_duration_since(now));
        }
        if let Some(terms) = kept(node, stat) {
            return Holder::new(owner, terms.token, since(stat.ctime), left(terms, stat.ctime, now));
        }
        if stat.ephemeral_owner == 0 {
            return Holder::new(owner, token, since(stat.ctime), Holder::ENDLESS);
        }
        let remaining = life.and_then(|(lasts, written)| {
            Some(Duration::from_millis(lasts.parse().ok()?).saturating_sub(since(written.mtime)))
        });
        Holder::new(owner, token, since(stat.ctime), remaining.unwrap_or_default())
    }

    /// The paths of all nodes in the folders of some locks, of which `from` chooses the first.
    async fn nodes(&self, from: usize) -> Result<Vec<String>, ZkError> {
        let keys = &self.lock.settings.keys;
        let children = self.session.list_now(keys.root()).await?.unwrap_or_default();
        let (before, after) = children.split_at(from % children.len().max(1));
        let folders = after.iter().chain(before).filter_map(|child| Some(keys.folder(&keys.name(child)?)));
        let folders: Vec<_> = folders.take(MOST).collect();
        self.below(&folders).await
    }

    /// The paths of all nodes in these folders.
    async fn below(&self, folders: &[String]) -> Result<Vec<String>, ZkError> {
        let found = self.children(folders).await?;
        let paths = |(folder, children): (&String, Vec<String>)| {
            children.into_iter().map(move |child| format!("{folder}/{child}")).collect::<Vec<_>>()
        };
        Ok(folders.iter().zip(found).flat_map(paths).collect())
    }

    async fn children(&self, folders: &[String]) -> Result<Vec<Vec<String>>, ZkError> {
        let children = |read| match read {
            MultiReadResult::Children { children } => Some(children),
            _ => None,
        };
        let read = self.read(folders, |reader, path| reader.add_get_children(path), children).await?;
        Ok(read.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Text and state of each node that is there.
    async fn data(&self, nodes: &[String]) -> Result<Vec<Option<(String, Stat)>>, ZkError> {
        let data = |read| match read {
            MultiReadResult::Data { data, stat } => Some((String::from_utf8_lossy(&data).into_owned(), stat)),
            _ => None,
        };
        self.read(nodes, |reader, path| reader.add_get_data(path), data).await
    }

    /// What was asked for of each node that is there.
    async fn read<T>(
        &self,
        nodes: &[String],
        ask: fn(&mut MultiReader<'_>, &str) -> Result<(), ZkError>,
        wanted: fn(MultiReadResult) -> Option<T>,
    ) -> Result<Vec<Option<T>>, ZkError> {
        let mut all = Vec::with_capacity(nodes.len());
        for some in nodes.chunks(AT_ONCE) {
            let reading = |client: Arc<Client>| async move {
                let mut reader = client.new_multi_reader();
                some.iter().try_for_each(|path| ask(&mut reader, path))?;
                reader.commit().await
            };
            for read in self.session.ask(reading).await? {
                all.push(match read {
                    MultiReadResult::Error { err: ZkError::NoNode } => None,
                    MultiReadResult::Error { err } => return Err(err),
                    read => Some(wanted(read).ok_or(ZkError::MarshallingError)?),
                });
            }
        }
        Ok(all)
    }

    /// The servers' clock, in milliseconds: what they say of a write. Who may only read goes by the own clock: it
    /// decides nothing. Nobody else does, for a write that is not answered tells of no server that it is up to date.
    async fn servers_time(&self) -> Result<i64, ZkError> {
        match self.session.write_beacon().await {
            Err(ZkError::NoAuth | ZkError::InvalidAcl | ZkError::QuotaExceeded) => {
                let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
                Ok(now.as_millis() as i64)
            }
            written => written.map(|stat| stat.mtime),
        }
    }
}
