//! What is in the store, and what each client knows of it.

use super::{Etcd, OLD_MARK, UNSEEN};

/// The key that anybody may put into an empty line. The places are numbered from 1, as the clients are.
pub(super) const SEAT: u8 = 0;
pub(super) const GO: u8 = u8::MAX;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Entry {
    pub(super) key: u8,
    /// At this revision, which is the token.
    pub(super) created: u8,
    pub(super) owner: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Event {
    /// The name, and the revision.
    Deleted(u8, u8),
    Passed(u8, u8),
}

/// To a request for a place, or to a look: who is directly ahead, and whether there is nobody else.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Answer {
    pub(super) own: Entry,
    pub(super) ahead: Option<(Entry, bool)>,
    pub(super) at: u8,
    /// It has to be asked again: it tells only which key is its own.
    pub(super) refused: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Phase {
    Away,
    Joins,
    /// With this key.
    Looks(Entry),
    Waits {
        own: Entry,
        ahead: Entry,
        alone: bool,
        gone: bool,
        unsure: bool,
    },
    Holds(Entry),
    Leaves(Option<Entry>),
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// So many claims are yet to come.
    pub(super) claims: u8,
    /// So many copies of the request for a place are on their way.
    pub(super) copies: u8,
    pub(super) repeated: bool,
    pub(super) answer: Option<Answer>,
    /// Its request was sent when this was heard.
    pub(super) since: u8,
    /// What was heard since.
    pub(super) ended: Vec<(u8, u8)>,
    /// The stream began anew since.
    pub(super) missed: bool,
    pub(super) events: Vec<Event>,
    pub(super) broken: bool,
    pub(super) heard: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    pub(super) line: Vec<Entry>,
    pub(super) revision: u8,
    /// The line before the last change.
    pub(super) before: (Vec<Entry>, u8),
    pub(super) clients: Vec<Client>,
    pub(super) go: u8,
    pub(super) go_holds: bool,
    pub(super) highest: u8,
    pub(super) rose: bool,
    pub(super) troubles: u8,
}

impl World {
    pub(super) fn change(&mut self) -> u8 {
        self.before = (self.line.clone(), self.revision);
        self.revision += 1;
        self.revision
    }

    pub(super) fn delete(&mut self, which: impl Fn(&Entry) -> bool, passes: bool) {
        let gone: Vec<_> = self.line.iter().copied().filter(&which).collect();
        if gone.is_empty() {
            return;
        }
        let at = self.change();
        self.line.retain(|entry| !which(entry));
        for client in self.clients.iter_mut().filter(|client| !client.broken) {
            for entry in &gone {
                client.events.push(Event::Deleted(entry.key, at));
                if passes {
                    client.events.push(Event::Passed(entry.key, at));
                }
            }
        }
    }

    pub(super) fn put(&mut self, key: u8, owner: u8) -> Entry {
        let entry = Entry { key, created: self.change(), owner };
        self.line.push(entry);
        entry
    }

    pub(super) fn holds(&mut self, token: u8) {
        self.rose &= token > self.highest;
        self.highest = token;
    }

    /// The claim is over.
    pub(super) fn end(&mut self, at: usize) {
        let client = &mut self.clients[at];
        (client.phase, client.answer, client.repeated, client.missed) = (Phase::Away, None, false, false);
        client.ended.clear();
    }
}

pub(super) fn owner(at: usize) -> u8 {
    at as u8 + 1
}

/// Who is directly ahead of the key in this line, and whether there is nobody else.
pub(super) fn ahead(line: &[Entry], own: Entry) -> Option<(Entry, bool)> {
    let before: Vec<_> = line.iter().filter(|entry| entry.created < own.created).collect();
    before.last().map(|next| (**next, before.len() == 1))
}

impl Client {
    pub(super) fn hears(&mut self, rules: &Etcd, event: Event) {
        let (Event::Deleted(_, at) | Event::Passed(_, at)) = event;
        self.heard = self.heard.max(at);
        match (event, self.phase) {
            (Event::Deleted(key, at), Phase::Waits { own, ahead, alone, unsure, .. }) if rules.ends(ahead, key, at) => {
                self.phase = Phase::Waits { own, ahead, alone, gone: true, unsure };
            }
            (Event::Passed(key, at), Phase::Waits { own, ahead, .. })
                if ahead.key == key && (ahead.created < at || rules.is(OLD_MARK)) =>
            {
                self.phase = Phase::Waits { own, ahead, alone: true, gone: true, unsure: false };
            }
            (Event::Deleted(key, at), Phase::Joins | Phase::Looks(_)) => self.ended.push((key, at)),
            _ => {}
        }
    }

    /// Somebody is ahead, as it was answered.
    pub(super) fn waits(&mut self, rules: &Etcd, own: Entry, ahead: Entry, alone: bool) {
        let heard = !rules.is(UNSEEN) && self.ended.iter().any(|(key, at)| rules.ends(ahead, *key, *at));
        self.phase = Phase::Waits { own, ahead, alone, gone: heard, unsure: self.missed };
        self.missed = false;
        self.ended.clear();
    }

    pub(super) fn asks(&mut self, phase: Phase) {
        (self.phase, self.since, self.missed) = (phase, self.heard, false);
        self.ended.clear();
    }
}
