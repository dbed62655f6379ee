//! What is asked of ShedLock's table.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use lock_core::{Claim, Finding, Holder, ListQuery, LockName, OwnerId, Result};

use super::layout::Layout;
use crate::keys::duration;
use crate::server::Unsettled;

/// The table in one kind of database. Each change is one statement that commits by itself.
#[async_trait]
pub(super) trait Table: fmt::Debug + Send + Sync + 'static {
    fn layout(&self) -> &Layout;

    /// The owners whose request to take a row may land yet.
    fn unsettled(&self) -> &Unsettled;

    /// Takes the row for as long as a lease, unless another has it, or the owner does not hold our lock at that moment.
    async fn take(&self, claim: &Claim) -> Result<Taken>;

    /// Prolongs the rows that their owners still have, and answers of each whether it does.
    async fn prolong(&self, claims: &[Claim]) -> Vec<Result<bool>>;

    /// Ends the hold that was seen, and answers whether it had the row. What is sent here may land late: a later hold
    /// stays, be it by the same owner, unless it began at the same time as far as the table tells times apart.
    async fn free(&self, name: &LockName, seen: &Row) -> Result<bool>;

    /// Has the row outlive its owner for so long, and answers whether it does. Not if the owner does not hold our lock
    /// at that moment.
    async fn keep(&self, claim: &Claim, rest: Duration) -> Result<RowKept>;

    /// What there is to see of a lock.
    async fn look(&self, name: &LockName) -> Result<Seen>;

    /// The rows that somebody has, in the order of the names.
    async fn list(&self, query: &ListQuery) -> Result<Rows>;

    /// Settings that void a promise.
    async fn findings(&self) -> Result<Vec<Finding>>;
}

/// What became of a request to keep it.
#[derive(Debug)]
pub(super) struct RowKept {
    /// It is kept, since now.
    pub(super) now: bool,
    /// An earlier request may have done that, whose answer was lost.
    pub(super) twice: bool,
}

/// What became of a request to take the row.
#[derive(Debug)]
pub(super) enum Taken {
    Ours,
    /// Another has it, for so long.
    Busy {
        /// Not known if it has just changed hands.
        by: Option<OwnerId>,
        left: Duration,
    },
    /// The owner does not hold our lock any more.
    NotHeld,
}

/// A row that somebody has.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) by: OwnerId,
    /// Since when, as the table has it: `locked_by` alone may be a host's name, or who waited and takes it again.
    pub(super) at_us: Option<i64>,
    pub(super) held_for: Duration,
    pub(super) left: Duration,
}

/// What there is to see of a lock, all at one moment.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    /// If somebody has it.
    pub(super) row: Option<Row>,
    /// Who has our lock, as our table has it.
    pub(super) ours: Option<OwnerId>,
}

/// The rows of a page.
#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) rows: Vec<(LockName, Seen)>,
    /// There may be more behind the last one.
    pub(super) more: bool,
}

/// What is read of a row: who has it, since when, and for how many microseconds it does since and on; and who has our
/// lock.
#[derive(Debug)]
pub(super) struct Columns {
    pub(super) who: Option<String>,
    pub(super) at_us: Option<i64>,
    pub(super) held_us: Option<i64>,
    pub(super) left_us: Option<i64>,
    pub(super) ours: Option<String>,
}

impl From<Columns> for Seen {
    fn from(Columns { who, at_us, held_us, left_us, ours }: Columns) -> Self {
        let row = who.map(|who| Row {
            by: OwnerId::from_store(&who),
            at_us,
            held_for: duration(held_us.unwrap_or_default()),
            left: duration(left_us.unwrap_or_default()),
        });
        Self { row, ours: ours.map(|ours| OwnerId::from_store(&ours)) }
    }
}

impl Seen {
    /// Nobody has anything.
    pub(super) fn nothing() -> Self {
        Self { row: None, ours: None }
    }

    /// Has one of ours both, also if it is about to keep them?
    pub(super) fn is_ours(&self) -> bool {
        let rows = self.row.as_ref().map(|row| first(&row.by));
        rows.is_some() && rows == self.ours.as_ref().map(first)
    }

    /// Who has the row, without a token: theirs have none, and one of ours that has the row alone has lost its own.
    pub(super) fn holder(&self) -> Option<Holder> {
        let row = self.row.as_ref()?;
        Some(Holder::new(row.by.clone(), Holder::NO_TOKEN, row.held_for, row.left))
    }
}

/// The owner, also if it has kept its hold.
pub(super) fn first(owner: &OwnerId) -> OwnerId {
    owner.before_it_kept().unwrap_or_else(|| owner.clone())
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One who has the row, and one who has our lock.
    pub(in crate::shedlock) fn seen(who: Option<&str>, ours: Option<&str>) -> Seen {
        let text = |text: Option<&str>| text.map(str::to_owned);
        Columns { who: text(who), at_us: Some(0), held_us: Some(1), left_us: Some(2), ours: text(ours) }.into()
    }

    #[test]
    fn who_has_both_is_one_of_ours() {
        for (who, ours, is_ours) in [
            (Some("a"), Some("a"), true),
            (Some("kept#a"), Some("kept#a"), true),
            (Some("kept#a"), Some("a"), true),
            (Some("b"), Some("a"), false),
            (Some("a"), None, false),
            (None, Some("a"), false),
            (None, None, false),
        ] {
            assert_eq!(seen(who, ours).is_ours(), is_ours, "{who:?} {ours:?}");
        }
    }

    #[test]
    fn a_holder_of_theirs_has_no_token() {
        let holder = seen(Some("worker-7"), None).holder().unwrap();
        assert_eq!((holder.owner.as_str(), holder.token, holder.kept), ("worker-7", Holder::NO_TOKEN, false));
        assert_eq!((holder.held_for, holder.remaining), (duration(1), duration(2)));
        assert!(seen(Some("kept#a"), None).holder().unwrap().kept);
    }
}
