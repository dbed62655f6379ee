//! Marks in the memory of a process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use lock_core::Result;

use super::Marks;
use crate::{Access, Stale};

/// Marks in the memory of this process.
///
/// - **A restart loses them.** From then on, an early holder passes until a later one was seen.
/// - **Another process has marks of its own.** Where several servers take requests for one resource, use marks that they
///   share, in a database or in Redis.
/// - **Each name takes memory**, about 100 bytes more than its length, for ever, unless [`MemoryMarks::keeping`] bounds
///   them.
#[derive(Debug)]
pub struct MemoryMarks {
    most: usize,
    marks: Mutex<Generations>,
}

/// What is used goes to the young. When these are enough, they are the old, and the old are forgotten.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<String, u64>,
    old: HashMap<String, u64>,
}

impl MemoryMarks {
    /// Keeps all marks.
    pub fn new() -> Self {
        Self::keeping(usize::MAX)
    }

    /// Keeps the marks of at least so many names that were used last, and of twice as many at most. What it forgets is
    /// as after a restart: an early holder of such a name passes until a later one was seen. So it should keep more
    /// names than are used in the time for which a holder may be paused.
    pub fn keeping(most: usize) -> Self {
        Self { most, marks: Mutex::default() }
    }

    fn check_now(&self, access: &Access) -> Result<(), Stale> {
        // Whoever panicked has left each mark as it was, or raised.
        let mut marks = self.marks.lock().unwrap_or_else(PoisonError::into_inner);
        let names = access.marks();
        let checked: Vec<_> = names.iter().map(|name| access.mark_after(marks.get(name))).collect::<Result<_, _>>()?;
        for (name, mark) in names.into_iter().zip(checked) {
            if let Some(mark) = mark {
                marks.put(name, mark, self.most);
            }
        }
        Ok(())
    }
}

impl Default for MemoryMarks {
    fn default() -> Self {
        Self::new()
    }
}

impl Generations {
    fn get(&self, name: &str) -> Option<u64> {
        self.young.get(name).or_else(|| self.old.get(name)).copied()
    }

    fn put(&mut self, name: String, mark: u64, most: usize) {
        if let Some(known) = self.young.get_mut(&name) {
            *known = mark;
            return;
        }
        if self.young.len() >= most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(name, mark);
    }
}

impl Marks for MemoryMarks {
    async fn check(&self, access: &Access) -> Result<()> {
        Ok(self.check_now(access)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(name: &str, token: u64) -> Access {
        Access::new(name, token).unwrap()
    }

    #[test]
    fn each_name_has_a_mark() {
        let marks = MemoryMarks::new();
        for token in [7, 7, 9] {
            marks.check_now(&access("a", token)).unwrap();
        }
        let stale = Stale { resource: "a".to_owned(), presented: 7, newest: 9 };
        assert_eq!(marks.check_now(&access("a", 7)), Err(stale));
        marks.check_now(&access("b", 7)).unwrap();
    }

    #[test]
    fn readers_raise_nothing() {
        let marks = MemoryMarks::new();
        marks.check_now(&access("a", 9).shared()).unwrap();
        marks.check_now(&access("a", 5)).unwrap();
        for reader in [7, 6, 5] {
            marks.check_now(&access("a", reader).shared()).unwrap();
        }
        marks.check_now(&access("a", 5)).unwrap();
        assert_eq!(marks.check_now(&access("a", 4).shared()).unwrap_err().newest, 5);
    }

    #[test]
    fn of_several_slots_all_are_raised_or_none() {
        let marks = MemoryMarks::new();
        marks.check_now(&access("a", 9).with_slots([1])).unwrap();
        assert_eq!(marks.check_now(&access("a", 7).with_slots([0, 1])).unwrap_err().newest, 9);
        marks.check_now(&access("a", 5).with_slots([0])).unwrap();
        marks.check_now(&access("a", 1)).unwrap();
    }

    #[test]
    fn the_marks_used_last_are_kept() {
        let marks = MemoryMarks::keeping(2);
        for name in ["a", "b", "a", "c", "a", "d", "e"] {
            marks.check_now(&access(name, 9)).unwrap();
        }
        let kept = |name| marks.check_now(&access(name, 7)).is_err();
        assert_eq!(["e", "d", "b"].map(kept), [true, true, false]);
        let held = marks.marks.lock().unwrap();
        assert!(held.young.len() <= 2 && held.old.len() <= 2, "{held:?}");
    }
}
