//! Semaphores, in the layout of Curator's `InterProcessSemaphoreV2`: a line in `<lock>/locks`, and a node in
//! `<lock>/leases` for each permit that is held.
//!
//! Only the first in the line takes permits. It does so in one transaction that also deletes its node in the line: so
//! nothing is taken by who is not the first any more. Each permit is an ephemeral node, which ends with its holder's
//! session. Curator makes its node before it waits, and still stands first in the line then: one more than there are
//! permits may be there.
//!
//! | | name | data |
//! | --- | --- | --- |
//! | a claim that waits | `locks/_c_<uuid>-<base>-permits-<take>-<of>-lock-<number>` | `<owner>` |
//! | one of its permits | `leases/_c_<uuid>-<base>-permits-<slot>-<of>-lease-<number>` | `<owner>` |
//!
//! How many permits there are is what stands in `leases`: whoever takes some has it written there, and `resize` writes
//! it. It counts as long as one of ours holds, and for all of ours who stood in line when it was written; else the
//! first of ours in line says it. Curator writes and reads none of it.

use std::sync::Arc;

use lock_core::{Claim, Error, ErrorKind, LockName, Mode, OwnerId, Result, Slots, TokenBase};
use zookeeper_client::{Client, CreateMode, Error as ZkError, MultiReadResult};

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

/// The two numbers of a node of ours: the permits that it waits for, or the permit that it is; and how many there were
/// then.
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
    pub(crate) written: Option<u32>,
    /// Was that written after the first of ours in line came?
    is_later: bool,
}

impl View {
    /// How many permits there are, if somebody's claim or hold says so.
    pub(crate) fn of(&self) -> Option<u32> {
        let (named, held) = (self.named(), self.leases.iter().find_map(|lease| numbers(lease)));
        let (is_named, is_held) = (named.is_some(), held.is_some());
        // What is left of those who have gone counts for nobody.
        let written = self.written.filter(|_| is_held || (self.is_later && is_named));
        written.or(held.map(|(_, of)| of)).or(named)
    }

    /// As the first of ours in line says it.
    fn named(&self) -> Option<u32> {
        self.line.iter().find_map(|waiting| numbers(waiting)).map(|(_, of)| of)
    }

    /// Does what is written count, and is it not known whether it does?
    fn is_unsure(&self) -> bool {
        let is_held = self.leases.iter().any(|lease| numbers(lease).is_some());
        !is_held && self.named().is_some_and(|named| self.written.is_some_and(|written| written != named))
    }

    /// Are so many of these permits free for this node in the line, and for those ahead of it as well?
    pub(crate) fn has_room(&self, own: &str, take: u32, of: u32) -> bool {
        let ahead = self.line.iter().take_while(|other| *other != own);
        // Curator's first in line may have made its node already: that is counted as held, and not twice.
        let ahead = ahead.enumerate().filter(|(at, other)| *at > 0 || numbers(other).is_some());
        let ahead: u32 = ahead.map(|(_, other)| weight(other)).sum();
        (self.leases.len() as u32).saturating_add(ahead).saturating_add(take) <= of
    }

    pub(crate) fn is_in_use(&self) -> bool {
        !self.line.is_empty() || !self.leases.is_empty()
    }

    /// The same, when others hold permits by now. None: how many there are is not known from this any more.
    pub(crate) fn with_leases(self, leases: Vec<String>, version: i32) -> Option<Self> {
        let is_same = self.version == Some(version);
        let now = Self { leases, ..self };
        (is_same && !now.is_unsure()).then_some(now)
    }

    /// The same, when those who were ahead of this node are not any more. None as there.
    pub(crate) fn from(mut self, own: &str) -> Option<Self> {
        let at = self.line.iter().position(|other| other == own)?;
        self.line.drain(..at);
        (!self.is_unsure()).then_some(self)
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

/// Is this the permit of whoever had this node in the line? Of other programs' nodes that is not known.
pub(crate) fn is_of(lease: &str, waiting: &str) -> bool {
    let number = waiting.rsplit_once("-lock-").map(|(_, number)| number);
    let same = number.zip(lease.rsplit_once("-lease-")).is_some_and(|(number, (_, other))| number == other);
    same && is_ours(waiting) && lease.get(..UUID_ENDS) == waiting.get(..UUID_ENDS)
}

/// So long is what the name of a node of ours begins with, its owner's.
const UUID_ENDS: usize = "_c_".len() + uuid::fmt::Hyphenated::LENGTH;

/// The semaphore in this folder, as far as the session has seen it. Who took permits before somebody became the first
/// in this line is among those who hold them, or has given them back: the line is read first.
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
    if let (true, Some(first)) = (view.is_unsure(), view.line.iter().find(|waiting| numbers(waiting).is_some())) {
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

/// The paths of all nodes of a claim for permits, as of now: also those that a request made whose answer was lost.
/// Those of permits come first.
pub(crate) async fn find(session: &Session, owner: &OwnerId, lock: &LockName) -> Result<Vec<String>, ZkError> {
    let (folder, prefix) = (session.settings.keys.folder(lock), owner_prefix(owner));
    let mut found = Vec::new();
    // Who takes permits is in the line no more: looked for there first, nothing is missed between the two.
    for folder in [locks(&folder), leases(&folder)] {
        let children = session.list_now(&folder).await?.unwrap_or_default();
        let own = children.iter().filter(|child| child.starts_with(&prefix));
        found.extend(own.map(|own| format!("{folder}/{own}")));
    }
    found.reverse();
    Ok(found)
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
            match self.write(&session, path, permits, version).await {
                Ok(()) => return Ok(true),
                Err(ZkError::BadVersion | ZkError::NoNode) => {}
                Err(error) => return Err(of_request(error)),
            }
        }
    }

    /// Writes how many permits there are. Whoever is the first in line hears of nodes that are made and deleted, and so
    /// of this.
    async fn write(&self, session: &Session, leases: &str, permits: u32, version: i32) -> Result<(), ZkError> {
        let (text, told) = (&permits.to_string(), &format!("{leases}/resized"));
        let ephemeral = &CreateMode::Ephemeral.with_acls(session.settings.acls());
        let writing = |client: Arc<Client>| async move {
            let mut writer = client.new_multi_writer();
            writer.add_set_data(leases, text.as_bytes(), Some(version))?;
            writer.add_create(told, b"", ephemeral)?;
            writer.add_delete(told, None)?;
            writer.commit().await.map_err(ZkError::from)
        };
        match session.ask(writing).await {
            // Such as by a quota, or because somebody made that node by hand: heard of it is seconds later.
            Err(ZkError::NodeExists | ZkError::NoAuth | ZkError::InvalidAcl | ZkError::QuotaExceeded) => {
                let writing =
                    |client: Arc<Client>| async move { client.set_data(leases, text.as_bytes(), Some(version)).await };
                session.ask(writing).await.map(drop)
            }
            written => written.map(drop),
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
        let ours = lease_name(&owner, base, (0, 7), &first);
        let curators = "_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lease-0000000001";
        let view = |line: &[&str], leases: &[&str], is_later| View {
            line: line.iter().map(ToString::to_string).collect(),
            leases: leases.iter().map(ToString::to_string).collect(),
            version: Some(0),
            written: Some(6),
            is_later,
        };
        assert_eq!(view(&[], &[], false).of(), None);
        assert_eq!(view(&[], &[&ours], false).of(), Some(6));
        assert_eq!(view(&[&first], &[&ours], false).of(), Some(6));
        // What is left of those who have gone counts for nobody.
        assert_eq!((view(&[&first], &[], false).of(), view(&[], &[curators], false).of()), (Some(5), None));
        assert_eq!(view(&[CURATOR, &first], &[curators], false).of(), Some(5));
        assert_eq!(view(&[&first], &[], true).of(), Some(6));
        assert_eq!(View { written: None, ..view(&[&first], &[&ours], false) }.of(), Some(7));
        // It is to be read anew when nobody of ours holds any more, and when somebody wrote it.
        assert!(view(&[&first], &[&ours], false).with_leases(vec![curators.to_owned()], 0).is_none());
        assert!(view(&[&first], &[&ours], false).with_leases(vec![ours.clone(), curators.to_owned()], 1).is_none());
        assert!(view(&[&first], &[&ours], false).with_leases(vec![ours.clone(), curators.to_owned()], 0).is_some());
    }

    const CURATOR: &str = "_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lock-0000000009";

    #[test]
    fn there_is_room_for_those_ahead_too() {
        let (owner, base) = (OwnerId::from_store("a"), TokenBase::with_above(0));
        let waits = |take, number: &str| format!("{}{number}", waiting_prefix(&owner, base, (take, 5)));
        let (ahead, own) = (waits(2, "0000000012"), waits(1, "0000000013"));
        let room = |line: &[&str], leases: usize| {
            let (line, leases) = (line.iter().map(ToString::to_string).collect(), vec![String::new(); leases]);
            View { line, leases, ..View::default() }.has_room(&own, 1, 5)
        };
        assert!(room(&[&own], 4) && !room(&[&own], 5) && !room(&[&own], 6));
        assert!(room(&[&ahead, &own], 2) && !room(&[&ahead, &own], 3));
        assert!(room(&[CURATOR, &own], 4) && !room(&[CURATOR, &own], 5) && !room(&[&ahead, CURATOR, &own], 2));
    }

    #[test]
    fn whose_permit_it_is() {
        let (owner, base) = (OwnerId::from_store("a"), TokenBase::with_above(0));
        let waiting = format!("{}0000000012", waiting_prefix(&owner, base, (2, 5)));
        let lease = lease_name(&owner, TokenBase::with_above(9), (3, 5), &waiting);
        assert!(is_of(&lease, &waiting) && !is_of(&lease, CURATOR));
        let later = waiting.replace("0000000012", "0000000013");
        let others = format!("{}0000000012", waiting_prefix(&OwnerId::from_store("b"), base, (2, 5)));
        assert!(!is_of(&lease, &later) && !is_of(&lease, &others));
        assert!(!is_of("_c_4f4a2c0e-8a43-4c5a-b1f6-0a6de3bd0c43-lease-0000000009", CURATOR));
    }
}
