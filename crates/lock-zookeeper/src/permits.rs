//! Semaphores, in the layout of Curator's `InterProcessSemaphoreV2`: a line in `<lock>/locks`, and a node in `<lock>/leases` for
//! each permit that is held.
//!
//! Only the first in the line takes permits. It does so in one transaction that also deletes its node in the line: so nothing is
//! taken by who is not the first any more. Each permit is an ephemeral node, which ends with its holder's session. Curator makes
//! its node before it waits, and still stands first in the line then: one more than there are permits may be there.
//!
//! | | name | data |
//! | --- | --- | --- |
//! | a claim that waits | `locks/_c_<uuid>-<base>-permits-<take>-<of>-lock-<number>` | `<owner>` |
//! | one of its permits | `leases/_c_<uuid>-<base>-permits-<slot>-<of>-lease-<number>` | `<owner>` |
//!
//! How many permits there are is what stands in `leases`: whoever takes some writes it, and `resize`. It counts as long as somebody
//! holds, and for all who stood in line when it was written; else the first in line says it. Curator writes and reads none of it.

use std::sync::Arc;

use lock_core::{Claim, Error, ErrorKind, LockName, Mode, OwnerId, Result, Slots, TokenBase};
use zookeeper_client::{Client, Error as ZkError, MultiReadResult};

use crate::ZookeeperLock;
use crate::error::of_request;
use crate::keys::{in_line, is_in_line};
use crate::nodes::{is_ours, owner_prefix};
use crate::session::Session;

/// The folder of those who wait for permits.
pub(crate) fn locks(folder: &str) -> String {
    format!("{folder}/locks")
}

/// The folder of the permits that are held.
pub(crate) fn leases(folder: &str) -> String {
    format!("{folder}/leases")
}

/// Is this child of a lock's folder part of a semaphore?
pub(crate) fn is_part(child: &str) -> bool {
    ["locks", "leases"].contains(&child)
}

/// The name of a claim's node in the line, up to its number.
pub(crate) fn waiting_prefix(owner: &OwnerId, base: TokenBase, (take, of): (u32, u32)) -> String {
    format!("{}{}-permits-{take}-{of}-lock-", owner_prefix(owner), base.above())
}

/// The name of the node of this permit, which the claim takes that has this node in the line.
pub(crate) fn lease_name(owner: &OwnerId, base: TokenBase, (slot, of): (u32, u32), waiting: &str) -> String {
    let number = waiting.rsplit_once("-lock-").map_or(waiting, |(_, number)| number);
    format!("{}{}-permits-{slot}-{of}-lease-{number}", owner_prefix(owner), base.above())
}

/// The two numbers of a node of ours: the permits that it waits for, or the permit that it is; and how many there were then.
pub(crate) fn numbers(name: &str) -> Option<(u32, u32)> {
    let (_, rest) = name.split_once("-permits-").filter(|_| is_ours(name))?;
    let mut parts = rest.splitn(3, '-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// How many permits a node in the line is for. Other programs take one after the other.
pub(crate) fn weight(waiting: &str) -> u32 {
    numbers(waiting).map_or(1, |(take, _)| take)
}

/// The permits of these nodes.
pub(crate) fn slots<'a>(leases: impl IntoIterator<Item = &'a str>) -> Slots {
    Slots::new(leases.into_iter().filter_map(|lease| Some(numbers(lease)?.0)))
}

/// A semaphore as it was found.
#[derive(Debug, Default)]
pub(crate) struct View {
    /// Those who wait, the first first.
    pub(crate) line: Vec<String>,
    /// The permits that are held.
    pub(crate) leases: Vec<String>,
    /// The version of their folder, if it is there.
    pub(crate) version: Option<i32>,
    /// How many there are, as it is written there.
    written: Option<u32>,
    /// Was that written after the first in line came?
    is_later: bool,
}

impl View {
    /// How many permits there are, if somebody's claim or hold says so.
    pub(crate) fn of(&self) -> Option<u32> {
        let first = self.line.first().and_then(|first| numbers(first));
        let named = first.map(|(_, of)| of);
        if self.leases.is_empty() && !(self.is_later && first.is_some()) { named } else { self.written.or(named) }
    }

    pub(crate) fn is_in_use(&self) -> bool {
        !self.line.is_empty() || !self.leases.is_empty()
    }

    /// # Errors
    /// If it is in use, and this claim is for another kind.
    pub(crate) fn check_kind(&self, mode: Mode) -> Result<()> {
        match (self.of().or(mode.permits()), self.is_in_use()) {
            (Some(of), true) => mode.check_kind(Mode::Permits { take: 1, of }),
            (None, true) => {
                let wrong = "it is in use as a semaphore of Curator's, and was asked for as a lock: take another name";
                Err(Error::new(ErrorKind::Invalid, wrong))
            }
            (_, false) => Ok(()),
        }
    }
}

/// The semaphore in this folder, as far as the session has seen it.
pub(crate) async fn view(session: &Session, folder: &str) -> Result<View, ZkError> {
    let (locks, leases) = (&locks(folder), &leases(folder));
    let reading = |client: Arc<Client>| async move {
        let mut reader = client.new_multi_reader();
        reader.add_get_children(locks)?;
        reader.add_get_children(leases)?;
        reader.add_get_data(leases)?;
        reader.commit().await
    };
    let (mut view, mut changed, mut lists) = (View::default(), 0, Vec::new());
    for read in session.ask(reading).await? {
        match read {
            MultiReadResult::Children { children } => lists.push(children),
            MultiReadResult::Data { data, stat } => {
                view.version = Some(stat.version);
                view.written = std::str::from_utf8(&data).ok().and_then(|data| data.parse().ok());
                changed = stat.mzxid;
            }
            MultiReadResult::Error { err: ZkError::NoNode } => lists.push(Vec::new()),
            MultiReadResult::Error { err } => return Err(err),
            _ => return Err(ZkError::MarshallingError),
        }
    }
    let mut lists = lists.into_iter();
    view.line = in_line(lists.next().unwrap_or_default());
    view.leases = lists.next().unwrap_or_default();
    if let (true, Some(first), Some(_)) = (view.leases.is_empty(), view.line.first(), view.written) {
        let path = &format!("{locks}/{first}");
        let stat = session.ask(|client: Arc<Client>| async move { client.check_stat(path).await }).await?;
        view.is_later = stat.is_some_and(|stat| changed > stat.czxid);
    }
    Ok(view)
}

/// Refuses a lock's folder to a claim for permits, and a semaphore's to any other.
///
/// # Errors
/// If it is in use as another kind.
pub(crate) async fn check_folder(session: &Session, claim: &Claim, children: &[String]) -> Result<()> {
    let folder = session.settings.keys.folder(&claim.name);
    if claim.mode.permits().is_none() {
        if !children.iter().any(|child| is_part(child)) {
            return Ok(());
        }
        return view(session, &folder).await.map_err(of_request)?.check_kind(claim.mode);
    }
    if children.iter().any(|child| is_in_line(child)) {
        return claim.mode.check_kind(Mode::Exclusive);
    }
    let is_kazoos = |child: &&String| child.len() == 32 && child.bytes().all(|byte| byte.is_ascii_hexdigit());
    match children.iter().find(is_kazoos) {
        Some(other) => {
            let wrong = format!(
                "the node {folder}/{other} is of kazoo's Semaphore, which takes no notice of ours: take another name"
            );
            Err(Error::new(ErrorKind::Invalid, wrong))
        }
        None => Ok(()),
    }
}

/// The paths of all nodes of a claim for permits, as of now: also those that a request made whose answer was lost. Those of permits
/// come first.
pub(crate) async fn find(session: &Session, owner: &OwnerId, lock: &LockName) -> Result<(Vec<String>, bool), ZkError> {
    let (folder, prefix) = (session.settings.keys.folder(lock), owner_prefix(owner));
    let mut found = Vec::new();
    let mut held = false;
    // Who takes permits is in the line no more: looked for there first, nothing is missed between the two.
    for (folder, is_held) in [(locks(&folder), false), (leases(&folder), true)] {
        let children = session.list_now(&folder).await?.unwrap_or_default();
        let own: Vec<_> = children.iter().filter(|child| child.starts_with(&prefix)).collect();
        held |= is_held && !own.is_empty();
        found.extend(own.into_iter().map(|own| format!("{folder}/{own}")));
    }
    found.reverse();
    Ok((found, held))
}

impl ZookeeperLock {
    pub(crate) async fn set_permits(&self, name: &LockName, permits: u32) -> Result<bool> {
        let session = self.sessions.any().await?;
        let (folder, wanted) = (self.settings.keys.folder(name), Mode::Permits { take: 1, of: permits });
        let path = &leases(&folder);
        loop {
            let children = session.list_now(&folder).await.map_err(of_request)?.unwrap_or_default();
            if children.iter().any(|child| is_in_line(child)) {
                return wanted.check_kind(Mode::Exclusive).map(|()| false);
            }
            let view = view(&session, &folder).await.map_err(of_request)?;
            if !view.is_in_use() {
                return Ok(false);
            }
            let most = view.line.iter().map(|waiting| weight(waiting)).max().unwrap_or_default();
            if most > permits {
                return Err(Mode::too_few(permits, most));
            }
            if view.of() == Some(permits) {
                return Ok(true);
            }
            let Some(version) = view.version else {
                session.make_folder(path).await.map_err(of_request)?;
                continue;
            };
            let text = &permits.to_string();
            let writing =
                |client: Arc<Client>| async move { client.set_data(path, text.as_bytes(), Some(version)).await };
            match session.ask(writing).await {
                Ok(_) => return Ok(true),
                Err(ZkError::BadVersion | ZkError::NoNode) => {}
                Err(error) => return Err(of_request(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_name_says_is_read_back() {
        let (owner, base) = (OwnerId::from_store("job@host:7#5f6f"), TokenBase::with_above(-7));
        let waiting = format!("{}0000000012", waiting_prefix(&owner, base, (2, 5)));
        assert!(is_in_line(&waiting) && numbers(&waiting) == Some((2, 5)) && weight(&waiting) == 2);
        let lease = lease_name(&owner, base, (4, 5), &waiting);
        assert!(lease.ends_with("-lease-0000000012") && !is_in_line(&lease));
        assert_eq!(slots([lease.as_str(), "_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lease-0000000006"]).as_slice(), [4]);
        for name in [&waiting, &lease] {
            assert_eq!(crate::nodes::base(name), Some(base));
        }
    }

    #[test]
    fn how_many_permits_there_are() {
        let (owner, base) = (OwnerId::from_store("a"), TokenBase::with_above(0));
        let first = format!("{}0000000012", waiting_prefix(&owner, base, (2, 5)));
        let view = |line: &[&String], leases: usize, is_later| View {
            line: line.iter().map(|name| (*name).clone()).collect(),
            leases: vec!["_c_x-lease-0000000001".to_owned(); leases],
            version: Some(0),
            written: Some(6),
            is_later,
        };
        assert_eq!(view(&[], 0, false).of(), None);
        assert_eq!(view(&[], 1, false).of(), Some(6));
        assert_eq!(view(&[&first], 1, false).of(), Some(6));
        // What is left of those who have gone counts for nobody.
        assert_eq!(view(&[&first], 0, false).of(), Some(5));
        assert_eq!(view(&[&first], 0, true).of(), Some(6));
    }
}
