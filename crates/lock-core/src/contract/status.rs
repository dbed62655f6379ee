//! What a store says of its locks: who holds them, who waits, what of its settings voids a promise.

use std::time::Duration;

use crate::contract::{LockName, LockValue, Mode, OwnerId, Slots, StoreToken};

/// Who holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner.
    pub owner: OwnerId,
    /// For how long, by the store's clock. Zero if the store does not tell.
    pub held_for: Duration,
    /// How long its lease still runs, by the store's clock; [`Holder::ENDLESS`] if another program holds by what never
    /// ends by itself.
    pub remaining: Duration,
    /// The token of its grant; [`Holder::NO_TOKEN`] if it has none, since another program holds the lock.
    pub token: StoreToken,
    /// What the owner shows with its hold, if it shows something.
    pub value: Option<LockValue>,
    /// How it holds the lock.
    pub mode: Mode,
    /// The permits that it has, of a semaphore's.
    pub slots: Slots,
    /// Has the owner gone, and the hold goes on without it until its time is over? See
    /// [`keep`](crate::DistributedLock::keep).
    pub kept: bool,
}

impl Holder {
    /// What is left to a holder without a lease.
    pub const ENDLESS: Duration = Duration::MAX;

    /// The token of a holder without one. No grant has it.
    pub const NO_TOKEN: StoreToken = StoreToken::NONE;

    /// This owner as the store has it, with the token of its grant; for how long it has held the lock, and how long its
    /// lease still runs. One that [kept](OwnerId::kept) its hold is known by its text.
    pub fn new(owner: OwnerId, token: StoreToken, held_for: Duration, remaining: Duration) -> Self {
        let before = owner.before_it_kept();
        let kept = before.is_some();
        let (mode, slots) = (Mode::Exclusive, Slots::default());
        Self { owner: before.unwrap_or(owner), held_for, remaining, token, value: None, mode, slots, kept }
    }

    /// Not alone: in this mode, with these permits. How many it takes, they tell.
    #[must_use]
    pub fn with_mode(mut self, mut mode: Mode, slots: Slots) -> Self {
        if let Mode::Permits { take, .. } = &mut mode
            && !slots.as_slice().is_empty()
        {
            *take = slots.as_slice().len() as u32;
        }
        (self.mode, self.slots) = (mode, slots);
        self
    }

    /// With what its owner shows.
    #[must_use]
    pub fn with_value(mut self, value: Option<LockValue>) -> Self {
        self.value = value;
        self
    }
}

/// Who waits for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The owner as the store has it.
    pub owner: OwnerId,
    /// How it wants the lock.
    pub mode: Mode,
}

impl Waiter {
    /// This owner, who wants the lock in this mode.
    pub fn new(owner: OwnerId, mode: Mode) -> Self {
        Self { owner, mode }
    }
}

impl From<OwnerId> for Waiter {
    /// Wants the lock for itself alone.
    fn from(owner: OwnerId) -> Self {
        Self { owner, mode: Mode::Exclusive }
    }
}

/// A lock as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStatus {
    /// The lock.
    pub name: LockName,
    /// Who holds it: several if they share it.
    pub holders: Vec<Holder>,
    /// Who waits for it, the first in line first; empty where the store keeps no line.
    pub waiters: Vec<Waiter>,
}

impl LockStatus {
    /// A lock that these hold, and for which these wait, the first in line first.
    pub fn new<W: Into<Waiter>>(
        name: LockName,
        holders: impl IntoIterator<Item = Holder>,
        waiters: impl IntoIterator<Item = W>,
    ) -> Self {
        let waiters = waiters.into_iter().map(Into::into).collect();
        Self { name, holders: holders.into_iter().collect(), waiters }
    }

    /// Nobody holds it, and nobody waits.
    pub fn free(name: LockName) -> Self {
        Self { name, holders: Vec::new(), waiters: Vec::new() }
    }

    /// The holder, or the first of several.
    pub fn holder(&self) -> Option<&Holder> {
        self.holders.first()
    }

    /// The same, to keep.
    pub fn into_holder(self) -> Option<Holder> {
        self.holders.into_iter().next()
    }
}

/// Which locks to list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ListQuery {
    /// Only names that begin with this.
    pub prefix: String,
    /// Only names after this one.
    pub after: Option<LockName>,
    /// At most so many, 1000 unless set; at least one.
    pub limit: usize,
}

impl ListQuery {
    /// Those whose names begin so.
    pub fn new(prefix: impl Into<String>) -> Self {
        Self { prefix: prefix.into(), after: None, limit: 1000 }
    }

    /// Only those after this one: the next page, with [`Page::next`].
    #[must_use]
    pub fn after(mut self, after: impl Into<Option<LockName>>) -> Self {
        self.after = after.into();
        self
    }

    /// At most so many.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = limit;
        self
    }
}

impl Default for ListQuery {
    /// All.
    fn default() -> Self {
        Self::new("")
    }
}

/// Some of the locks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// In the order of their names.
    pub locks: Vec<LockStatus>,
    /// If there are more: the [`ListQuery::after`] of the next page.
    pub next: Option<LockName>,
}

impl Page {
    /// These, and from where it goes on.
    pub fn new(locks: Vec<LockStatus>, next: Option<LockName>) -> Self {
        Self { locks, next }
    }
}

/// A setting of the store that voids a promise.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The setting and its value.
    pub setting: String,
    /// What it voids.
    pub voids: String,
    /// What to do about it.
    pub advice: String,
}

impl Finding {
    /// This setting voids that; do this about it.
    pub fn new(setting: impl Into<String>, voids: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { setting: setting.into(), voids: voids.into(), advice: advice.into() }
    }
}
