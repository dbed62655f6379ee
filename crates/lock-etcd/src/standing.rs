//! Whose a key in a line is, and what it shows: see `keys`.
//!
//! Go's `concurrency.Election` and `etcdctl elect` put what they propose as the value of a key that is named by its lease,
//! and so do we with the owner of a plain claim. A value of the form that owners have is one. Of any other, the beacon of
//! the lease tells: only our sessions have one.

use std::collections::HashSet;

use etcd_client::KeyValue;
use lock_core::{LockValue, Mode, OwnerId, Result};

use crate::Shared;
use crate::keys::{shown_by, stands_as};
use crate::requests::text;
use crate::session::{READ_AT_ONCE, read};

/// Who stands in line.
#[derive(Clone)]
pub(crate) struct Standing {
    /// As one that has [kept](OwnerId::kept) its hold, if it has.
    pub(crate) owner: OwnerId,
    pub(crate) value: Option<LockValue>,
    /// Of a semaphore's permits it does not say how many there are.
    pub(crate) mode: Mode,
}

impl Standing {
    /// Of a key, without what all keys of its line begin with. Does its value belong to another program's election?
    pub(crate) fn of(rest: &str, key: &KeyValue, foreign: bool) -> Self {
        if let Some((lease, owner)) = shown_by(rest) {
            let owner = OwnerId::from_store(&owner);
            let is_kept = ![0, lease].contains(&key.lease());
            let owner = if is_kept { owner.kept() } else { owner };
            return Self { owner, value: LockValue::from_store(key.value()), mode: Mode::Exclusive };
        }
        if foreign {
            let (owner, value) = (OwnerId::from_store(rest), LockValue::from_store(key.value()));
            return Self { owner, value, mode: Mode::Exclusive };
        }
        // `concurrency.Mutex` writes nothing there, and is known by its key.
        let (mut owner, mut mode) = (text(key.value()), stands_as(rest));
        if let Mode::Permits { take, .. } = &mut mode
            && let Some((number, rest)) = owner.split_once(' ')
        {
            *take = number.parse().unwrap_or(Mode::MOST_PERMITS);
            owner = rest.to_owned();
        }
        let owner = if owner.is_empty() { rest } else { &owner };
        Self { owner: OwnerId::from_store(owner), value: None, mode }
    }

    /// Has this claim's owner this key, and has not kept the hold?
    pub(crate) fn is_of(line: &str, key: &KeyValue, owner: &str) -> bool {
        Self::own(line, key).owner.as_str() == owner
    }

    /// Is it this owner, or has that kept the hold?
    pub(crate) fn is_known_as(&self, owner: &OwnerId) -> bool {
        self.owner == *owner || self.owner == owner.kept()
    }

    /// Has this owner kept the hold that has this key?
    pub(crate) fn is_kept_by(line: &str, key: &KeyValue, owner: &OwnerId) -> bool {
        Self::own(line, key).owner == owner.kept()
    }

    fn own(line: &str, key: &KeyValue) -> Self {
        let key_text = text(key.key());
        Self::of(key_text.strip_prefix(line).unwrap_or_default(), key, false)
    }

    /// A value that no owner has, under a name that both we and others give.
    fn may_be_foreign(rest: &str, key: &KeyValue) -> bool {
        let is_named_by_its_lease = key.lease() != 0 && rest == format!("{:x}", key.lease());
        let has_parts = || OwnerId::from_store(&text(key.value())).label().is_some();
        is_named_by_its_lease && !key.value().is_empty() && !has_parts()
    }
}

impl Shared {
    /// Who stands in this line, in its order. Unless there are values of unknown kind in it, nothing is asked for this.
    pub(crate) async fn standings(&self, line: &[KeyValue]) -> Result<Vec<Standing>> {
        let rests: Vec<_> = line.iter().map(|key| self.rest_of(key)).collect();
        let doubtful = line.iter().zip(&rests).filter(|(key, rest)| Standing::may_be_foreign(rest, key));
        let beacons: Vec<_> = doubtful.map(|(key, _)| self.keys.beacon(key.lease())).collect();
        let mut foreign = HashSet::new();
        for some in beacons.chunks(READ_AT_ONCE) {
            let (_, found) = read(&self.connection, some.iter()).await?;
            foreign.extend(some.iter().zip(found).filter_map(|(beacon, found)| found.is_none().then_some(beacon)));
        }
        let standing = |(key, rest): (&KeyValue, &String)| {
            let is_foreign = !foreign.is_empty()
                && Standing::may_be_foreign(rest, key)
                && foreign.contains(&self.keys.beacon(key.lease()));
            Standing::of(rest, key, is_foreign)
        };
        Ok(line.iter().zip(&rests).map(standing).collect())
    }

    /// What comes after the name of the lock. Of a key that is no lock's it is all of it.
    pub(crate) fn rest_of(&self, key: &KeyValue) -> String {
        let key = text(key.key());
        self.keys.parse(&key).map_or_else(|| key.clone(), |(_, rest)| rest.to_owned())
    }
}
