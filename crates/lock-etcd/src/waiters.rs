//! Who waits for the ends of which keys, and what was deleted while somebody asks.
//!
//! A key is known by its name and its create revision, for a name comes again: a deletion ends only what was created
//! before it. That a key is gone stays true. A waiter waits for the one directly ahead of it. If there was nobody else,
//! it is the first once that one is gone; and also if that one says, in the request that ends it, that it held.

use std::collections::HashMap;
use std::sync::Arc;

use etcd_client::KeyValue;
use lock_core::Evidence;
use tokio::sync::Notify;

use crate::keys::tells;
use crate::requests::text;

/// A key in a line: what was created under this name at this revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: String,
    pub(crate) created: i64,
}

impl Entry {
    pub(crate) fn of(key: &KeyValue) -> Self {
        Self { key: text(key.key()), created: key.create_revision() }
    }

    /// What shows in the store that who has this key and is granted the lock by it holds it.
    pub(crate) fn evidence(&self) -> Evidence {
        Evidence::new("etcd", self.key.as_str(), self.created as u64)
    }
}

/// Who is directly ahead of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ahead {
    pub(crate) next: Entry,
    /// There is nobody else.
    pub(crate) alone: bool,
    /// It tells, when it gives the lock back, that it held.
    pub(crate) tells: bool,
    /// At this revision.
    pub(crate) at: i64,
}

impl Ahead {
    /// Of the nearest, and one more if there is one.
    pub(crate) fn of(keys: &[KeyValue], line: &str, at: i64) -> Option<Self> {
        let (next, others) = keys.split_first()?;
        // Others' keys have nothing in them.
        let tells = !next.value().is_empty() && tells(line, &text(next.key()));
        Some(Self { next: Entry::of(next), alone: others.is_empty(), tells, at })
    }
}

/// What a waiter has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    Wait,
    /// The one ahead is gone, and whether it held is told at any moment, if it did.
    Soon,
    /// To ask who is ahead.
    Look,
    /// All who were ahead are gone.
    First,
}

#[derive(Default)]
pub(crate) struct Waits {
    waiters: HashMap<u64, Waiter>,
    /// Which of them wait for keys of these names.
    by_key: HashMap<String, Vec<u64>>,
    asks: HashMap<u64, Asked>,
    last: u64,
}

struct Waiter {
    line: String,
    ahead: Ahead,
    /// The end of the one ahead was heard of.
    gone: bool,
    /// It held until then.
    passed: bool,
    /// Something may have been missed.
    unsure: bool,
    wake: Arc<Notify>,
}

impl Waiter {
    fn turn(&self) -> Turn {
        match self.gone {
            _ if self.passed => Turn::First,
            _ if self.unsure => Turn::Look,
            false => Turn::Wait,
            true if self.ahead.alone => Turn::First,
            true if self.ahead.tells => Turn::Soon,
            true => Turn::Look,
        }
    }
}

/// Somebody asks who is ahead.
struct Asked {
    line: String,
    /// What was created under these names before these revisions is gone.
    gone: Vec<(String, i64)>,
    /// Something may have been missed.
    unsure: bool,
}

impl Asked {
    fn ended(&self, entry: &Entry) -> bool {
        self.gone.iter().any(|(key, before)| *key == entry.key && *before > entry.created)
    }
}

impl Waits {
    /// From now on what is deleted in this line is kept for whom this number is given to.
    pub(crate) fn ask(&mut self, line: &str) -> u64 {
        self.last += 1;
        self.asks.insert(self.last, Asked { line: line.to_owned(), gone: Vec::new(), unsure: false });
        self.last
    }

    pub(crate) fn asked(&mut self, ask: u64) {
        self.asks.remove(&ask);
    }

    /// Was this heard of since it was asked?
    pub(crate) fn has_ended(&self, ask: u64, entry: &Entry) -> bool {
        self.asks.get(&ask).is_some_and(|asked| asked.ended(entry))
    }

    /// What `ask` was answered: this one was ahead. From now on it is waited for, by who has this number.
    pub(crate) fn wait_for(&mut self, ask: u64, mut ahead: Ahead, line: &str, wake: &Arc<Notify>) -> u64 {
        let asked = self.asks.remove(&ask);
        let gone = asked.as_ref().is_some_and(|asked| asked.ended(&ahead.next));
        // Then nobody listened to it.
        ahead.tells &= !gone;
        let unsure = asked.is_some_and(|asked| asked.unsure);
        if !gone {
            self.by_key.entry(ahead.next.key.clone()).or_default().push(ask);
        }
        let (line, wake) = (line.to_owned(), Arc::clone(wake));
        self.waiters.insert(ask, Waiter { line, ahead, gone, passed: false, unsure, wake });
        ask
    }

    pub(crate) fn leave(&mut self, waiter: u64) {
        let Some(left) = self.waiters.remove(&waiter) else { return };
        self.unlist(&left.ahead.next.key, waiter);
    }

    fn unlist(&mut self, key: &str, waiter: u64) {
        if let Some(waiters) = self.by_key.get_mut(key) {
            waiters.retain(|other| *other != waiter);
            if waiters.is_empty() {
                self.by_key.remove(key);
            }
        }
    }

    pub(crate) fn turn(&self, waiter: u64) -> Turn {
        self.waiters.get(&waiter).map_or(Turn::Look, Waiter::turn)
    }

    /// Whom it waits for still, and whether that one tells that it held.
    pub(crate) fn ahead_of(&self, waiter: u64) -> Option<(&Entry, bool)> {
        let waiter = self.waiters.get(&waiter).filter(|waiter| !waiter.gone)?;
        Some((&waiter.ahead.next, waiter.ahead.tells && !waiter.ahead.alone))
    }

    /// Was the end of this one heard of since it waits?
    pub(crate) fn has_outlived(&self, waiter: u64, entry: &Entry) -> bool {
        self.waiters.get(&waiter).is_some_and(|waiter| waiter.gone && waiter.ahead.next == *entry)
    }

    /// What was created under this name before this revision is gone. Was that told by a watch? Then so is whether it
    /// held, if it did.
    pub(crate) fn gone(&mut self, key: &str, before: i64, told: bool) {
        for ask in self.asks.values_mut().filter(|ask| key.starts_with(&ask.line)) {
            ask.gone.push((key.to_owned(), before));
        }
        for number in self.by_key.get(key).cloned().unwrap_or_default() {
            let Some(waiter) = self.waiters.get_mut(&number) else { continue };
            if waiter.ahead.next.created < before {
                waiter.gone = true;
                waiter.ahead.tells &= told;
                waiter.wake.notify_one();
                // Whether it held may be told yet.
                if !waiter.ahead.tells {
                    self.unlist(key, number);
                }
            }
        }
    }

    /// Who had a key of this name held the lock until it was deleted at this revision.
    pub(crate) fn passed(&mut self, key: &str, at: i64) {
        for number in self.by_key.get(key).cloned().unwrap_or_default() {
            let Some(waiter) = self.waiters.get_mut(&number) else { continue };
            if waiter.ahead.next.created < at {
                (waiter.gone, waiter.passed) = (true, true);
                waiter.wake.notify_one();
                self.unlist(key, number);
            }
        }
    }

    /// Whoever waits for this one asks who is ahead.
    pub(crate) fn ask_again(&mut self, entry: &Entry) {
        for waiter in self.waiters.values_mut().filter(|waiter| waiter.ahead.next == *entry && !waiter.gone) {
            waiter.unsure = true;
            waiter.wake.notify_one();
        }
    }

    /// Some deletions may have been missed.
    pub(crate) fn missed(&mut self) {
        self.asks.values_mut().for_each(|ask| ask.unsure = true);
    }

    /// Does anybody wait for a key of this name?
    pub(crate) fn needs(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// The names of all keys whose end is waited for.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &String> {
        self.by_key.keys()
    }

    /// In each line that somebody waits in, the first key that one of them waits for. Once the end of that is heard of,
    /// another is the first.
    pub(crate) fn firsts(&self) -> Vec<Entry> {
        let mut firsts = HashMap::<&str, &Entry>::new();
        for waiter in self.waiters.values().filter(|waiter| !waiter.gone) {
            let entry = &waiter.ahead.next;
            let first = firsts.entry(&waiter.line).or_insert(entry);
            if entry.created < first.created {
                *first = entry;
            }
        }
        firsts.into_values().cloned().collect()
    }

    /// Does anybody wait for this one?
    pub(crate) fn awaits(&self, entry: &Entry) -> bool {
        let waiters = self.by_key.get(&entry.key);
        waiters.is_some_and(|all| all.iter().any(|one| self.ahead_of(*one).is_some_and(|(next, _)| next == entry)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, created: i64) -> Entry {
        Entry { key: key.to_owned(), created }
    }

    /// One who waits for this one, as it was answered just now.
    fn waiter(waits: &mut Waits, next: &Entry, alone: bool, tells: bool) -> u64 {
        let ask = waits.ask("x/");
        waits.wait_for(ask, Ahead { next: next.clone(), alone, tells, at: 20 }, "x/", &Arc::default())
    }

    #[test]
    fn who_is_behind_one_alone_is_first_when_that_is_gone() {
        let mut waits = Waits::default();
        let a = entry("x/a", 5);
        let (knows, guesses) = (waiter(&mut waits, &a, true, false), waiter(&mut waits, &a, false, false));
        assert_eq!((waits.turn(knows), waits.turn(guesses)), (Turn::Wait, Turn::Wait));
        waits.gone("x/a", 9, true);
        assert_eq!((waits.turn(knows), waits.turn(guesses)), (Turn::First, Turn::Look));
        waits.leave(knows);
        waits.leave(guesses);
        assert_eq!(waits.keys().count(), 0);
    }

    /// The two may be heard of in either order.
    #[test]
    fn who_is_told_that_the_one_ahead_held_is_first() {
        for deletion_first in [true, false] {
            let mut waits = Waits::default();
            let waiter = waiter(&mut waits, &entry("x/a", 5), false, true);
            // Of an earlier claim that had the same place.
            waits.passed("x/a", 5);
            assert_eq!(waits.turn(waiter), Turn::Wait);
            if deletion_first {
                waits.gone("x/a", 9, true);
                assert_eq!(waits.turn(waiter), Turn::Soon);
            }
            waits.passed("x/a", 9);
            waits.gone("x/a", 9, true);
            assert_eq!(waits.turn(waiter), Turn::First);
            waits.leave(waiter);
            assert_eq!(waits.keys().count(), 0);
        }
    }

    /// Go's session puts the same key for each of its locks, and so do we.
    #[test]
    fn a_late_deletion_ends_only_what_was_created_before_it() {
        let mut waits = Waits::default();
        let go = entry("x/go", 15);
        let (ask, other) = (waits.ask("x/"), waits.ask("x/"));
        waits.gone("x/go", 12, true);
        let ahead = Ahead { next: go.clone(), alone: true, tells: false, at: 20 };
        let first = waits.wait_for(ask, ahead.clone(), "x/", &Arc::default());
        waits.gone("x/go", 15, true);
        assert_eq!(waits.turn(first), Turn::Wait);
        assert!(waits.awaits(&go) && !waits.awaits(&entry("x/go", 12)));
        assert_eq!(waits.firsts(), std::slice::from_ref(&go));
        waits.gone("x/go", 22, true);
        assert_eq!(waits.turn(first), Turn::First);
        assert!(waits.firsts().is_empty() && waits.has_ended(other, &go));
        // Its end was heard of after this was asked.
        let second = waits.wait_for(other, ahead, "x/", &Arc::default());
        assert_eq!(waits.turn(second), Turn::First);
    }

    #[test]
    fn who_may_have_missed_something_looks() {
        let mut waits = Waits::default();
        let ask = waits.ask("x/");
        waits.missed();
        let ahead = Ahead { next: entry("x/a", 5), alone: true, tells: false, at: 20 };
        let waiter = waits.wait_for(ask, ahead, "x/", &Arc::default());
        assert_eq!(waits.turn(waiter), Turn::Look);
        // That it looks is no sign of its end.
        assert!(!waits.has_outlived(waiter, &entry("x/a", 5)));
    }
}
