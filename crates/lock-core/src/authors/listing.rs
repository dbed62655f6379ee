//! How a list becomes pages.

use crate::contract::{ListQuery, LockName};

/// The most locks on one page, however many are asked for: a request has its bounds.
const LARGEST_PAGE: usize = 10_000;

impl ListQuery {
    /// The most locks on the page: [`limit`](Self::limit), but at least 1 and at most 10,000.
    pub fn page_size(&self) -> usize {
        self.limit.clamp(1, LARGEST_PAGE)
    }

    /// How many locks to ask the store for: one more than the [page](Self::page_size) has. If that one is there, more
    /// pages follow.
    pub fn fetch_size(&self) -> usize {
        self.page_size() + 1
    }

    /// Does this name belong to the list? For stores that cannot choose by it themselves.
    pub fn selects(&self, name: &LockName) -> bool {
        name.as_str().starts_with(&self.prefix) && self.after.as_ref().is_none_or(|after| name > after)
    }

    /// Cuts what was found, in the order of names, down to one page; answers its [`next`](crate::Page::next).
    pub fn cut<T>(&self, found: &mut Vec<T>, name: impl Fn(&T) -> &LockName) -> Option<LockName> {
        let more = found.len() > self.page_size();
        found.truncate(self.page_size());
        found.last().filter(|_| more).map(|last| name(last).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(texts: &[&str]) -> Vec<LockName> {
        texts.iter().map(|text| LockName::new(text).unwrap()).collect()
    }

    #[test]
    fn a_page_has_one_lock_at_least_and_not_too_many() {
        for (limit, size) in [(0, 1), (1, 1), (7, 7), (usize::MAX, LARGEST_PAGE)] {
            let query = ListQuery { limit, ..ListQuery::default() };
            assert_eq!((query.page_size(), query.fetch_size()), (size, size + 1));
        }
    }

    #[test]
    fn only_a_page_with_more_behind_it_has_a_next() {
        let query = ListQuery { limit: 2, ..ListQuery::default() };
        for (found, page, next) in [
            (&["a"][..], &["a"][..], None),
            (&["a", "b"], &["a", "b"], None),
            (&["a", "b", "c"], &["a", "b"], Some("b")),
            (&[], &[], None),
        ] {
            let mut found = names(found);
            let cut = query.cut(&mut found, |name| name);
            assert_eq!((found, cut), (names(page), next.map(|next| LockName::new(next).unwrap())));
        }
    }

    #[test]
    fn a_list_goes_on_after_a_name() {
        let after = LockName::new("a/2").ok();
        let query = ListQuery { prefix: "a/".to_owned(), after, ..ListQuery::default() };
        let mut all = names(&["a/1", "a/2", "a/3", "b"]);
        all.retain(|name| query.selects(name));
        assert_eq!(all, names(&["a/3"]));
    }
}
