//! Which keys the server is to tell the end of: each a watch of its own, over one stream.
//!
//! A watch begins with the present, for one that begins in the past is served only every 100 ms. So a key is looked at
//! once when its watch has been opened: what is there then, the watch tells the end of. Since keys are used again, a
//! watch is kept for a while when nobody needs it: whoever comes next may stand behind the same key.

use std::collections::{HashMap, HashSet};

/// The watch that each stream begins with.
pub(crate) const FIRST: i64 = 1;

/// For so many sweeps a watch is kept that nobody needs.
const KEPT: u32 = 2;

/// So many watches may be asked for and not be opened yet. Who asks does not read, and the server, whose answers are not
/// read, takes nothing more at some point.
const UNANSWERED: usize = 1000;

pub(crate) struct Watchlist {
    /// One watch over all keys of the prefix stands for all.
    whole: bool,
    keys: HashMap<String, Watch>,
    by_number: HashMap<i64, String>,
    last: i64,
    /// So many have been asked for and not been opened.
    unanswered: usize,
    /// The server was asked to close these.
    closing: HashSet<i64>,
    todo: Todo,
}

struct Watch {
    number: i64,
    /// All deletions are told that come after this revision; once the server has said so.
    since: Option<i64>,
    /// So many sweeps found that nobody needs it.
    idle: u32,
}

/// What is to be sent.
#[derive(Default)]
pub(crate) struct Todo {
    pub(crate) open: Vec<(i64, String)>,
    pub(crate) close: Vec<i64>,
    /// These keys are to be looked at.
    pub(crate) look: Vec<String>,
}

impl Default for Watchlist {
    fn default() -> Self {
        let (keys, by_number) = (HashMap::new(), HashMap::new());
        let (closing, todo) = (HashSet::new(), Todo::default());
        Self { whole: false, keys, by_number, last: FIRST, unanswered: 0, closing, todo }
    }
}

impl Watchlist {
    /// The end of this key matters, which was there at this revision.
    pub(crate) fn need(&mut self, key: &str, at: i64) {
        if self.whole {
            return;
        }
        let Some(watch) = self.keys.get_mut(key) else { return self.open(key.to_owned()) };
        watch.idle = 0;
        // If it has not been opened yet, it is looked at then.
        if watch.since.is_some_and(|since| since > at) {
            self.todo.look.push(key.to_owned());
        }
    }

    /// How much is to be sent.
    pub(crate) fn pending(&self) -> usize {
        self.todo.open.len() + self.todo.look.len()
    }

    fn open(&mut self, key: String) {
        self.last += 1;
        self.keys.insert(key.clone(), Watch { number: self.last, since: None, idle: 0 });
        self.by_number.insert(self.last, key.clone());
        self.todo.open.push((self.last, key));
    }

    /// The server tells of this watch's key from now on.
    pub(crate) fn opened(&mut self, number: i64, at: i64) {
        let Some(key) = self.by_number.get(&number) else { return };
        let Some(watch) = self.keys.get_mut(key) else { return };
        if watch.since.replace(at).is_none() {
            self.unanswered -= 1;
        }
        self.todo.look.push(key.clone());
    }

    /// The server has closed this watch. Was it asked to?
    pub(crate) fn closed(&mut self, number: i64) -> bool {
        self.closing.remove(&number)
    }

    /// There is a new stream, and nothing is watched over it yet; or everything is. Was everything until now?
    pub(crate) fn begin(&mut self, whole: bool) -> bool {
        let before = std::mem::replace(&mut self.whole, whole);
        self.todo = Todo::default();
        self.unanswered = 0;
        self.by_number.clear();
        self.closing.clear();
        let keys = std::mem::take(&mut self.keys);
        if !whole {
            keys.into_keys().for_each(|key| self.open(key));
        }
        before
    }

    /// Is everything watched by one?
    pub(crate) fn is_whole(&self) -> bool {
        self.whole
    }

    /// What is to be sent now. While keys are being looked at, others wait for that, and are looked at together.
    pub(crate) fn todo(&mut self, may_look: bool) -> Todo {
        let mut todo = std::mem::take(&mut self.todo);
        self.todo.open = todo.open.split_off(todo.open.len().min(UNANSWERED - self.unanswered));
        self.unanswered += todo.open.len();
        if !may_look {
            self.todo.look = std::mem::take(&mut todo.look);
        }
        todo
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Closes those that nobody has needed for a while.
    pub(crate) fn sweep(&mut self, is_needed: impl Fn(&str) -> bool) {
        for (key, watch) in &mut self.keys {
            watch.idle = if is_needed(key) { 0 } else { watch.idle + 1 };
        }
        for (_, watch) in self.keys.extract_if(|_, watch| watch.idle > KEPT && watch.since.is_some()) {
            self.by_number.remove(&watch.number);
            self.closing.insert(watch.number);
            self.todo.close.push(watch.number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_looked_at_when_its_watch_has_been_opened() {
        let mut list = Watchlist::default();
        list.need("a", 5);
        list.need("b", 5);
        let todo = list.todo(true);
        assert_eq!(todo.open.len(), 2);
        // It will be.
        list.need("a", 6);
        assert_eq!(list.pending(), 0);
        list.opened(todo.open[0].0, 7);
        list.opened(todo.open[1].0, 8);
        assert!(list.todo(false).look.is_empty());
        assert_eq!(list.todo(true).look, ["a", "b"]);
        // Its end would have been told; or perhaps not.
        list.need("a", 8);
        assert_eq!(list.pending(), 0);
        list.need("a", 6);
        assert_eq!(list.todo(true).look, ["a"]);
    }

    #[test]
    fn not_all_are_asked_for_before_the_first_is_opened() {
        let mut list = Watchlist::default();
        (0..UNANSWERED + 5).for_each(|key| list.need(&key.to_string(), 5));
        let first = list.todo(true).open;
        assert_eq!((first.len(), list.todo(true).open.len()), (UNANSWERED, 0));
        for (number, _) in first.iter().take(3) {
            list.opened(*number, 6);
            list.opened(*number, 6);
        }
        assert_eq!((list.todo(true).open.len(), list.todo(true).open.len()), (3, 0));
        list.begin(false);
        assert_eq!(list.todo(true).open.len(), UNANSWERED);
    }

    #[test]
    fn what_nobody_needs_is_closed_after_a_while() {
        let mut list = Watchlist::default();
        list.need("a", 5);
        let number = list.todo(true).open[0].0;
        list.opened(number, 6);
        list.todo(true);
        for _ in 0..KEPT {
            list.sweep(|_| false);
        }
        list.need("a", 7);
        for _ in 0..KEPT {
            list.sweep(|_| false);
        }
        assert!(list.todo(true).close.is_empty() && !list.closed(number));
        list.sweep(|_| false);
        assert_eq!(list.todo(true).close, [number]);
        assert!(list.closed(number) && list.is_empty() && !list.closed(FIRST));
    }

    #[test]
    fn a_new_stream_watches_all_of_them_anew() {
        let mut list = Watchlist::default();
        list.need("a", 5);
        let before = list.todo(true).open[0].0;
        assert!(!list.begin(false));
        let after = list.todo(true).open[0].0;
        assert!(after > before);
        // Of the stream that is gone.
        list.opened(before, 6);
        assert!(list.todo(true).look.is_empty());
        list.begin(true);
        assert!(list.is_whole());
        list.need("b", 7);
        assert!(list.pending() == 0 && list.is_empty());
    }
}
