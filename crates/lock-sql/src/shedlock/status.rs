//! Who has locks, and who waits for them: whoever has the row holds the lock, and one of ours that has only our lock
//! waits.

use std::collections::BTreeMap;

use lock_core::{DistributedLock, Holder, ListQuery, LockName, LockStatus, OwnerId, Page, Result, Waiter};

use super::Shedlock;
use super::table::{Rows, Seen, Table, first};

/// How often it is asked again who of ours it is, if that changes all the time.
const AGAIN: usize = 5;

/// Who holds a lock, and who of ours is the first in line for it.
#[derive(Debug, PartialEq, Eq)]
struct Judged {
    holder: Option<Holder>,
    next: Option<OwnerId>,
}

impl<B: DistributedLock, T: Table> Shedlock<B, T> {
    pub(super) async fn status_of(&self, name: &LockName) -> Result<LockStatus> {
        let mut tries = 0;
        loop {
            let status = self.ours.inspect(name).await?;
            // Later, so that it is the newest who counts.
            let seen = self.table.look(name).await?;
            tries += 1;
            if is_settled(&seen, status.holder()) || tries == AGAIN {
                return Ok(shown(status, &seen));
            }
        }
    }

    pub(super) async fn holder_of(&self, name: &LockName) -> Result<Option<Holder>> {
        let mut tries = 0;
        loop {
            let ours = self.ours.holder(name).await?;
            let seen = self.table.look(name).await?;
            tries += 1;
            if is_settled(&seen, ours.as_ref()) || tries == AGAIN {
                return Ok(judge(&seen, ours).holder);
            }
        }
    }

    pub(super) async fn page(&self, query: &ListQuery) -> Result<Page> {
        let page = self.ours.list(query).await?;
        let rows = self.table.list(query).await?;
        Ok(merged(query, page, rows))
    }
}

/// Is the holder the one whom the table tells of, if that is one of ours?
fn is_settled(seen: &Seen, ours: Option<&Holder>) -> bool {
    !seen.is_ours() || ours.map(|holder| &holder.owner) == seen.row.as_ref().map(|row| first(&row.by)).as_ref()
}

fn judge(seen: &Seen, ours: Option<Holder>) -> Judged {
    // Of those who have only our lock, one that kept its hold waits for nothing.
    let has_ours = |holder: &Holder| !holder.kept && seen.ours.as_ref() == Some(&holder.owner);
    match &seen.row {
        Some(row) if seen.is_ours() => {
            let ours = ours.filter(|holder| holder.owner == first(&row.by));
            Judged { holder: ours.or_else(|| seen.holder()), next: None }
        }
        _ => Judged { holder: seen.holder(), next: ours.filter(has_ours).map(|holder| holder.owner) },
    }
}

/// What our tables say of a lock, with what is seen of its row.
fn shown(status: LockStatus, seen: &Seen) -> LockStatus {
    let LockStatus { name, holders, waiters, .. } = status;
    let Judged { holder, next } = judge(seen, holders.into_iter().next());
    LockStatus::new(name, holder, next.map(Waiter::from).into_iter().chain(waiters))
}

/// A page of what our tables say, with the rows that others have.
fn merged(query: &ListQuery, page: Page, Rows { rows, more }: Rows) -> Page {
    // Behind the end of either there may be more.
    let mut end = page.next;
    if let Some((last, _)) = rows.last().filter(|_| more) {
        end = Some(end.map_or_else(|| last.clone(), |end| end.min(last.clone())));
    }
    let mut rows: BTreeMap<_, _> = rows.into_iter().collect();
    let mut locks = BTreeMap::new();
    for status in page.locks {
        let seen = rows.remove(&status.name).unwrap_or_else(Seen::nothing);
        locks.insert(status.name.clone(), shown(status, &seen));
    }
    // What is one of ours came after our tables were read.
    for (name, seen) in rows.into_iter().filter(|(_, seen)| !seen.is_ours()) {
        locks.insert(name.clone(), shown(LockStatus::free(name), &seen));
    }
    let is_before_end = |lock: &LockStatus| end.as_ref().is_none_or(|end| lock.name <= *end);
    let is_of_use = |lock: &LockStatus| lock.holder().is_some() || !lock.waiters.is_empty();
    let mut locks: Vec<_> = locks.into_values().filter(|lock| is_before_end(lock) && is_of_use(lock)).collect();
    let next = query.cut(&mut locks, |lock| &lock.name).or(end);
    Page::new(locks, next)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use lock_core::StoreToken;

    use super::super::table::tests::seen;
    use super::*;

    fn holder(owner: &str) -> Holder {
        let token = StoreToken::new(7).unwrap();
        Holder::new(OwnerId::from_store(owner), token, Duration::ZERO, Duration::from_secs(1))
    }

    fn told(who: Option<&str>, ours: Option<&str>, holder_of_ours: Option<&str>) -> (Option<String>, Option<String>) {
        let Judged { holder, next } = judge(&seen(who, ours), holder_of_ours.map(self::holder));
        (holder.map(|holder| holder.owner.as_str().to_owned()), next.map(|next| next.as_str().to_owned()))
    }

    #[test]
    fn who_has_the_row_is_the_holder() {
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(told(None, None, None), (None, None));
        assert_eq!(told(Some("a"), Some("a"), Some("a")), (text("a"), None));
        assert_eq!(told(Some("java"), None, None), (text("java"), None));
        assert_eq!(told(Some("java"), Some("a"), Some("a")), (text("java"), text("a")));
        assert_eq!(told(Some("java"), Some("kept#a"), Some("kept#a")), (text("java"), None));
        assert_eq!(told(None, Some("a"), Some("a")), (None, text("a")), "it is about to take the row");
        assert_eq!(told(None, None, Some("a")), (None, None), "it has released both since");
        assert_eq!(told(Some("b"), Some("b"), Some("a")), (text("b"), None), "b has come since");
        let kept = judge(&seen(Some("kept#a"), Some("a")), Some(self::holder("a")));
        assert_eq!(kept.holder, Some(self::holder("a")), "about to be kept");
        assert!(!is_settled(&seen(Some("b"), Some("b")), Some(&self::holder("a"))));
        assert!(is_settled(&seen(Some("kept#b"), Some("kept#b")), Some(&self::holder("kept#b"))));
        assert!(is_settled(&seen(Some("java"), Some("b")), None));
    }

    fn name(text: &str) -> LockName {
        LockName::new(text).unwrap()
    }

    /// The names of ours, and whether there are more; the names of rows that others have, and whether there are more.
    fn listed(limit: usize, ours: (&[&str], bool), theirs: (&[&str], bool)) -> (Vec<String>, Option<String>) {
        let status = |text: &&str| LockStatus::new(name(text), None, [OwnerId::from_store("waits")]);
        let next = ours.0.last().filter(|_| ours.1).map(|last| name(last));
        let rows = theirs.0.iter().map(|text| (name(text), seen(Some("java"), None))).collect();
        let page = Page::new(ours.0.iter().map(status).collect(), next);
        let page = merged(&ListQuery::new("").limit(limit), page, Rows { rows, more: theirs.1 });
        (page.locks.iter().map(|lock| lock.name.to_string()).collect(), page.next.map(|next| next.to_string()))
    }

    #[test]
    fn pages_have_the_locks_of_both() {
        let none: (&[&str], bool) = (&[], false);
        let text = |texts: &[&str], next: Option<&str>| {
            (texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>(), next.map(str::to_owned))
        };
        assert_eq!(listed(2, none, none), text(&[], None));
        assert_eq!(listed(9, (&["b", "d"], false), (&["a", "c"], false)), text(&["a", "b", "c", "d"], None));
        assert_eq!(listed(9, (&["b"], false), (&["b"], false)), text(&["b"], None));
        assert_eq!(listed(2, (&["b", "d"], false), (&["a", "c"], false)), text(&["a", "b"], Some("b")));
        assert_eq!(listed(2, (&["b", "d"], true), (&["x"], false)), text(&["b", "d"], Some("d")));
        assert_eq!(listed(2, none, (&["a", "b", "c"], true)), text(&["a", "b"], Some("b")));
        assert_eq!(listed(3, (&["x"], false), (&["a", "b"], true)), text(&["a", "b"], Some("b")));
    }

    #[test]
    fn what_was_released_meanwhile_is_not_listed() {
        let page = Page::new(vec![LockStatus::new(name("x"), Some(holder("a")), None::<OwnerId>)], None);
        assert_eq!(merged(&ListQuery::new(""), page, Rows::default()), Page::default());
    }
}
