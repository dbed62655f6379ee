//! Who is to have a lock that several may hold at a time. Nothing here asks a server.

use lock_core::{Mode, Slots};

use crate::modes::{as_only_reader, mark};

/// A lock as it was read at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub(super) owner: Option<String>,
    pub(super) token: i64,
    pub(super) since_us: i64,
    pub(super) expires_us: i64,
    pub(super) rev: i64,
    pub(super) now_us: i64,
    /// The owner who asks has given up.
    pub(super) gone: bool,
    /// Those who hold it together, if several do; and of whom nothing else is to be believed.
    pub(super) holders: Vec<Held>,
    /// Those in line whose clients live, the first first.
    pub(super) waiters: Vec<Waits>,
    /// Those in line whose clients do not.
    pub(super) absent: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) owner: String,
    pub(super) token: i64,
    pub(super) slots: Slots,
    pub(super) since_us: i64,
    pub(super) expires_us: i64,
    pub(super) lease_us: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) owner: String,
    pub(super) mode: Mode,
    pub(super) lease_us: i64,
    pub(super) client: String,
    /// The session that is its client's bell, or 0.
    pub(super) rings: i64,
}

/// Who asks for what.
#[derive(Clone, Debug)]
pub(super) enum Asks<'a> {
    /// This owner wants it, and may be in line for it.
    Wants(&'a Waits),
    /// These let go.
    Leave(&'a [String]),
    /// There are so many permits from now on.
    Resize(u32),
}

/// What is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) owner: Option<String>,
    pub(super) token: i64,
    pub(super) since_us: i64,
    pub(super) lease_us: i64,
    pub(super) expires_us: i64,
    /// Somebody is in line from then on.
    pub(super) has_line: bool,
    /// But nobody who lives. So nobody may have entered since the lock was read: that one would not be served.
    pub(super) serves_all: bool,
    pub(super) removed: Vec<String>,
    pub(super) added: Vec<Held>,
    /// Those in line who have it now, with their tokens.
    pub(super) granted: Vec<(Waits, i64)>,
}

fn marked(mode: Mode) -> String {
    mode.permits().map_or_else(|| "shared#".to_owned(), |of| format!("permits#{of}"))
}

impl State {
    /// If there is an only reader, who has no row, it is among the holders from here on.
    pub(super) fn has_only_reader(&mut self) {
        let Some(reader) = self.owner.as_deref().and_then(as_only_reader) else { return };
        self.holders = vec![Held {
            owner: reader.to_owned(),
            token: self.token,
            slots: Slots::default(),
            since_us: self.since_us,
            expires_us: self.expires_us,
            lease_us: (self.expires_us - self.now_us).max(0),
        }];
    }

    /// How it is held: none, if nobody holds it.
    pub(super) fn held_as(&self) -> Option<Mode> {
        let owner = self.owner.as_deref().filter(|_| self.expires_us > self.now_us)?;
        match mark(owner) {
            None => Some(Mode::Exclusive),
            Some(kind) => self.together().next().map(|_| kind),
        }
    }

    /// Those whose leases run, if several hold it.
    pub(super) fn together(&self) -> impl Iterator<Item = &Held> {
        let owner = self.owner.as_deref().filter(|_| self.expires_us > self.now_us);
        let marked = owner.is_some_and(|owner| mark(owner).is_some());
        self.holders.iter().filter(move |held| marked && held.expires_us > self.now_us)
    }

    /// Of which kind it is for as long as somebody holds it or is in line, but for this owner.
    pub(super) fn kind(&self, but: &str) -> Option<Mode> {
        self.held_as().or_else(|| self.waiters.iter().find(|other| other.owner != but).map(|other| other.mode))
    }

    /// When somebody's lease ends, at the latest, unless it is renewed.
    pub(super) fn left_us(&self) -> i64 {
        let first = self.together().map(|held| held.expires_us).min().unwrap_or(self.expires_us);
        (first.min(self.expires_us) - self.now_us).max(0)
    }

    /// What is to be done. None: nothing.
    pub(super) fn decide(&self, asks: &Asks<'_>) -> Option<Change> {
        let mut grants = Grants::of(self);
        match asks {
            Asks::Leave(owners) => grants.held.retain(|held| !owners.contains(&held.owner)),
            Asks::Resize(permits) => {
                if let Some(Mode::Permits { of, .. }) = &mut grants.kind {
                    *of = *permits;
                }
            }
            Asks::Wants(_) => {}
        }
        if grants.held.is_empty() && grants.kind != Some(Mode::Exclusive) {
            grants.permits = grants.kind.take().and_then(Mode::permits);
        }
        let mut waiters = self.waiters.iter().peekable();
        while let Some(first) = waiters.next_if(|first| grants.fits(first.mode)) {
            grants.grant(first, true);
        }
        if let Asks::Wants(who) = asks
            && waiters.peek().is_none()
            && !self.waiters.iter().any(|other| other.owner == who.owner)
            && grants.fits(who.mode)
        {
            grants.grant(who, self.absent.contains(&who.owner));
        }
        // Also if there are as many: what was asked before, and lands later, finds that something was written since.
        let always = matches!(asks, Asks::Resize(_));
        let change = grants.change(waiters.peek().is_none(), always)?;
        // What else there is to be written can wait, and so does who asks.
        let is_needed = !matches!(asks, Asks::Wants(_)) || change.token != self.token;
        is_needed.then_some(change)
    }
}

/// Who has the lock, and who is given it.
struct Grants<'a> {
    state: &'a State,
    kind: Option<Mode>,
    /// How many there were of a semaphore that nobody holds any more: so many there are for those in line, too.
    permits: Option<u32>,
    held: Vec<Held>,
    token: i64,
    added: Vec<Held>,
    granted: Vec<(Waits, i64)>,
    /// Who has it alone from now on.
    alone: Option<&'a Waits>,
}

impl<'a> Grants<'a> {
    fn of(state: &'a State) -> Self {
        let held = state.together().cloned().collect();
        let (added, granted) = (Vec::new(), Vec::new());
        let kind = state.held_as();
        Self { state, kind, permits: None, held, token: state.token, added, granted, alone: None }
    }

    fn fits(&self, mode: Mode) -> bool {
        match (self.kind, mode) {
            (None, _) => true,
            (Some(Mode::Shared), mode) => mode == Mode::Shared,
            (Some(Mode::Permits { of, .. }), Mode::Permits { take, .. }) => {
                let taken: usize = self.held.iter().map(|held| held.slots.as_slice().len()).sum();
                taken + take as usize <= of as usize
            }
            _ => false,
        }
    }

    fn grant(&mut self, to: &'a Waits, was_in_line: bool) {
        let now = self.state.now_us;
        self.token = now.max(self.token + 1);
        if was_in_line {
            self.granted.push((to.clone(), self.token));
        }
        let kind = self.kind.get_or_insert(match (to.mode, self.permits) {
            (Mode::Permits { take, .. }, Some(of)) => Mode::Permits { take, of },
            (mode, _) => mode,
        });
        if *kind == Mode::Exclusive {
            self.alone = Some(to);
            return;
        }
        let mode = match (to.mode, *kind) {
            (Mode::Permits { take, .. }, Mode::Permits { of, .. }) => Mode::Permits { take, of },
            (mode, _) => mode,
        };
        let taken = self.held.iter().flat_map(|held| held.slots.as_slice()).copied();
        let held = Held {
            owner: to.owner.clone(),
            token: self.token,
            slots: Slots::free(mode, taken),
            since_us: now,
            expires_us: now.saturating_add(to.lease_us),
            lease_us: to.lease_us,
        };
        self.held.push(held.clone());
        self.added.push(held);
    }

    fn change(self, serves_all: bool, always: bool) -> Option<Change> {
        let (state, now) = (self.state, self.state.now_us);
        let is_kept = |owner: &String| self.held.iter().any(|held| held.owner == *owner);
        let only = state.owner.as_deref().and_then(as_only_reader);
        // The only reader has no row.
        let is_gone = |owner: &String| !is_kept(owner) && only != Some(owner.as_str());
        let removed = state.holders.iter().map(|held| held.owner.clone()).filter(is_gone).collect();
        let is_granted = |owner: &String| self.granted.iter().any(|(granted, _)| granted.owner == *owner);
        let has_line = !serves_all || state.absent.iter().any(|owner| !is_granted(owner));
        let mut change = Change {
            owner: state.owner.clone(),
            token: self.token,
            since_us: state.since_us,
            lease_us: (state.expires_us - now).max(0),
            expires_us: state.expires_us,
            has_line,
            serves_all,
            removed,
            added: self.added,
            granted: self.granted,
        };
        if let Some(alone) = self.alone {
            (change.owner, change.since_us) = (Some(alone.owner.clone()), now);
            (change.lease_us, change.expires_us) = (alone.lease_us, now.saturating_add(alone.lease_us));
        } else if let Some(kind) = self.kind.filter(|kind| *kind != Mode::Exclusive) {
            let owner = Some(marked(kind));
            match only.and_then(|only| self.held.iter().find(|held| held.owner == only)) {
                // Nobody joins it.
                Some(_) if change.added.is_empty() => {}
                Some(reader) => {
                    change.added.insert(0, reader.clone());
                    change.owner = owner;
                }
                None => {
                    change.since_us = if owner == state.owner { state.since_us } else { now };
                    change.owner = owner;
                }
            }
            change.expires_us = self.held.iter().map(|held| held.expires_us).max().unwrap_or(now);
            change.lease_us = change.expires_us - now;
        } else if self.kind.is_none() {
            change.owner = None;
        }
        let is_new = change.owner != state.owner || change.token != state.token || !change.removed.is_empty();
        (is_new || always).then_some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modes::mode;

    const NOW: i64 = 1_000;

    fn waits(owner: &str, how: &str) -> Waits {
        Waits { owner: owner.to_owned(), mode: mode(how), lease_us: 100, client: "1".to_owned(), rings: 0 }
    }

    fn free() -> State {
        State { now_us: NOW, ..State::default() }
    }

    /// What is there after this.
    fn after(state: &State, asks: &Asks<'_>) -> State {
        let Some(change) = state.decide(asks) else { return state.clone() };
        let mut next = state.clone();
        (next.owner, next.token, next.expires_us) = (change.owner, change.token, change.expires_us);
        next.holders.retain(|held| !change.removed.contains(&held.owner));
        next.holders.extend(change.added);
        next.waiters.retain(|one| !change.granted.iter().any(|(granted, _)| granted.owner == one.owner));
        assert_eq!((change.has_line, change.serves_all), (!next.waiters.is_empty(), next.waiters.is_empty()));
        next
    }

    /// What is there after somebody asked for it, who is in line if it was not granted.
    fn wants(state: &State, owner: &str, how: &str) -> State {
        let who = waits(owner, how);
        let mut next = after(state, &Asks::Wants(&who));
        if next.owner.as_deref() != Some(owner) && !next.holders.iter().any(|held| held.owner == owner) {
            next.waiters.push(who);
            assert!(next.decide(&Asks::Wants(&waits(owner, how))).is_none());
        }
        next
    }

    fn leave(state: &State, owner: &str) -> State {
        after(state, &Asks::Leave(&[owner.to_owned()]))
    }

    fn seen(state: &State) -> (Option<&str>, Vec<&str>, Vec<&str>) {
        let holders = state.together().map(|held| held.owner.as_str()).collect();
        (state.owner.as_deref(), holders, state.waiters.iter().map(|one| one.owner.as_str()).collect())
    }

    #[test]
    fn readers_share_until_a_writer_waits() {
        let state = wants(&wants(&wants(&wants(&free(), "a", "s"), "b", "s"), "w", ""), "c", "s");
        assert_eq!(seen(&state), (Some("shared#"), vec!["a", "b"], vec!["w", "c"]));
        assert!(state.decide(&Asks::Wants(&waits("d", "s"))).is_none());
        let state = leave(&leave(&state, "a"), "b");
        assert_eq!(seen(&state), (Some("w"), vec![], vec!["c"]));
        assert_eq!((state.expires_us, state.held_as()), (NOW + 100, Some(Mode::Exclusive)));
        // The writer is released by another statement.
        let state = after(&State { owner: None, ..state }, &Asks::Leave(&[]));
        assert_eq!(seen(&state), (Some("shared#"), vec!["c"], vec![]));
        assert_eq!(leave(&state, "c").owner, None);
    }

    #[test]
    fn fewer_permits_are_as_many_for_who_waited_before() {
        let state = wants(&wants(&wants(&free(), "a", "p1/2"), "b", "p1/2"), "c", "p1/2");
        let state = after(&state, &Asks::Resize(1));
        assert_eq!(seen(&state), (Some("permits#1"), vec!["a", "b"], vec!["c"]));
        let state = after(&state, &Asks::Leave(&["a".to_owned(), "b".to_owned()]));
        assert_eq!(seen(&state), (Some("permits#1"), vec!["c"], vec![]));
    }

    #[test]
    fn as_many_permits_are_written_too() {
        let state = wants(&free(), "a", "p1/2");
        let change = state.decide(&Asks::Resize(2)).unwrap();
        assert_eq!((change.owner.as_deref(), change.token), (Some("permits#2"), state.token));
        assert_eq!((change.added, change.removed, change.granted), (vec![], vec![], vec![]));
        assert!(state.decide(&Asks::Leave(&[])).is_none());
    }

    #[test]
    fn an_only_reader_has_a_row_from_whoever_joins_it() {
        let mut only = State { owner: Some("shared#a".to_owned()), token: 7, expires_us: NOW + 50, ..free() };
        only.has_only_reader();
        assert_eq!((only.held_as(), seen(&only).1), (Some(Mode::Shared), vec!["a"]));
        assert!(only.decide(&Asks::Leave(&[])).is_none());
        let with_writer = wants(&only, "w", "");
        assert_eq!(seen(&with_writer), (Some("shared#a"), vec!["a"], vec!["w"]));
        assert_eq!(seen(&leave(&with_writer, "a")), (Some("w"), vec![], vec![]));
        let change = only.decide(&Asks::Wants(&waits("b", "s"))).unwrap();
        let added: Vec<_> = change.added.iter().map(|held| (held.owner.as_str(), held.token)).collect();
        assert_eq!((change.owner.as_deref(), added), (Some("shared#"), vec![("a", 7), ("b", NOW)]));
        // It leaves in the same moment.
        let next = State { waiters: vec![waits("b", "s")], ..only };
        let change = next.decide(&Asks::Leave(&["a".to_owned()])).unwrap();
        let added: Vec<_> = change.added.iter().map(|held| held.owner.as_str()).collect();
        assert_eq!((change.owner.as_deref(), added), (Some("shared#"), vec!["b"]));
    }

    #[test]
    fn permits_are_given_in_their_order() {
        let state = wants(&wants(&wants(&free(), "a", "p1/3"), "all", "p3/3"), "b", "p1/3");
        assert_eq!(seen(&state), (Some("permits#3"), vec!["a"], vec!["all", "b"]));
        let state = leave(&state, "a");
        assert_eq!(seen(&state), (Some("permits#3"), vec!["all"], vec!["b"]));
        let state = after(&leave(&state, "all"), &Asks::Resize(1));
        assert_eq!(seen(&state), (Some("permits#1"), vec!["b"], vec![]));
        let state = wants(&after(&state, &Asks::Resize(2)), "c", "p1/2");
        assert_eq!(state.holders.iter().map(|held| held.slots.as_slice()).collect::<Vec<_>>(), [[0], [1]]);
        assert!(state.holders[0].token < state.holders[1].token);
    }

    #[test]
    fn the_dead_make_room_and_keep_nobody() {
        let mut state = wants(&wants(&free(), "dead", "p1/2"), "live", "p1/2");
        state.holders[1].expires_us += 500;
        state.expires_us += 500;
        state.now_us += 200;
        let state = wants(&state, "next", "p1/2");
        assert_eq!(seen(&state).1, ["live", "next"]);
        assert_eq!(state.holders[1].slots.as_slice(), [0]);
        // Whoever took its place in the lock's row has all.
        let other = State { owner: Some("alone".to_owned()), ..state.clone() };
        assert_eq!((other.together().count(), other.held_as()), (0, Some(Mode::Exclusive)));
        assert_eq!(State { now_us: NOW + 5_000, ..state }.held_as(), None);
    }
}
