//! etcd: the line of keys with its seat and places, and what is heard of it late.
//!
//! It stands for `lock`, `turn` and `next_turn` (`acquire.rs`), `join` and `leave` (`requests.rs`), `Waits`
//! (`waiters.rs`), `holds` and `wait_for` (`place.rs`), `opened` and `deleted` (`ledger.rs`), `look_at_all` (`watch.rs`),
//! `release` (`release.rs`) and `undo` (`undo.rs`) of `crates/lock-etcd/src`. Each transaction is one action, and so is
//! that its answer comes. Beside our clients is one that does as Go's `concurrency.Mutex`: it has one key, again and again.
//!
//! Every end of a key is told to each client, in order and as late as you like, or the stream breaks and begins anew in
//! the present, as it does after a compaction. Marks are told after the end that they belong to. Who reads asks a member
//! that may be behind by one change. A client ends its holds before its lease is over.
//! `lease.rs` is a model of when it can be sure of that lease.

mod lease;
mod world;

use stateright::{Model, Property};

use crate::{Proof, explore, explore_each, walk};
use lease::Leases;
use world::{Answer, Client, Entry, Event, GO, Phase, SEAT, World, ahead, owner};

const EXCLUSION: &str = "no two hold at once";
const RISING: &str = "tokens rise";
const NO_LOST_WAITER: &str = "whoever waits for a key that is gone will hear of it";
const GONE: &str = "nothing is left of a claim that has ended";

/// Findings E1 and E2.
const BY_NAME: &str = "the end of a key is the end of whatever has its name";
const FOUND_BY_NAME: &str = "a key of that name is the one that is waited for";
const NOT_UNSURE: &str = "a request that was repeated is answered as one that was not";

const NOT_VOID: &str = "what is on its way for a cancelled claim is not made void";
const NOT_ALONE: &str = "a waiter whose predecessor is gone is taken for the first in line";
const OLD_MARK: &str = "a mark is of whatever has the place";
const UNSEEN: &str = "what is heard before the answer is forgotten";
const OLD_WORD: &str = "a member's word is taken, however old";

pub(crate) const PROOF: Proof = Proof {
    name: "etcd",
    stands_for: &[
        "crates/lock-etcd/src/acquire.rs",
        "crates/lock-etcd/src/ledger.rs",
        "crates/lock-etcd/src/place.rs",
        "crates/lock-etcd/src/release.rs",
        "crates/lock-etcd/src/requests.rs",
        "crates/lock-etcd/src/session.rs",
        "crates/lock-etcd/src/undo.rs",
        "crates/lock-etcd/src/waiters.rs",
        "crates/lock-etcd/src/watch.rs",
    ],
    rules: &[EXCLUSION, RISING, NO_LOST_WAITER, GONE, lease::SURE, lease::RENEWED, lease::ONE_LEASE],
    mutations: &[
        BY_NAME,
        FOUND_BY_NAME,
        NOT_UNSURE,
        NOT_VOID,
        NOT_ALONE,
        OLD_MARK,
        UNSEEN,
        OLD_WORD,
        lease::UNPROVED,
        lease::ANY_LEADER,
        lease::FROM_ANSWER,
        lease::BY_EPOCH,
        lease::NO_NUMBER,
    ],
    explore: |mutation| {
        let small =
            |[clients, claims, go, troubles, old]: [u8; 5]| Etcd { clients, claims, go, troubles, old, mutation };
        explore(Leases::new(3, 2, mutation))
            .and(|| explore_each([[1, 1, 2, 1, 1], [2, 1, 1, 1, 1], [3, 1, 0, 0, 0], [2, 2, 0, 0, 0]].map(small)))
    },
    walk: |seed| {
        let large = Etcd { clients: 4, claims: 4, go: 4, troubles: 6, old: 1, mutation: None };
        walk(Leases::new(12, 6, None), seed, 100_000).and(|| walk(large, seed, 300_000))
    },
};

struct Etcd {
    clients: u8,
    /// So many of each of ours, and so many of Go's.
    claims: u8,
    go: u8,
    /// So many requests are repeated, streams broken, and leases over.
    troubles: u8,
    /// May a member be behind by so much?
    old: u8,
    mutation: Option<&'static str>,
}

impl Etcd {
    fn is(&self, mutation: &str) -> bool {
        self.mutation == Some(mutation)
    }

    /// Is the end of a key of this name, at that revision, the end of this one?
    fn ends(&self, entry: Entry, key: u8, at: u8) -> bool {
        entry.key == key && (entry.created < at || self.is(BY_NAME))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Join(usize),
    /// The store does what it was asked for. Whoever knows that the line is crowded wants its place at once.
    Put {
        client: usize,
        crowded: bool,
    },
    /// The answer does not come, so the request is sent again.
    Repeat(usize),
    Look {
        client: usize,
        old: bool,
    },
    Take(usize),
    Hear(usize),
    Wake(usize),
    Leave(usize),
    Release(usize),
    Break(usize),
    Reopen(usize),
    Expire(usize),
    GoPuts,
    GoHolds,
    GoReleases,
}

impl Model for Etcd {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let client = Client {
            phase: Phase::Away,
            claims: self.claims,
            copies: 0,
            repeated: false,
            answer: None,
            since: 0,
            ended: Vec::new(),
            missed: false,
            events: Vec::new(),
            broken: false,
            heard: 0,
        };
        vec![World {
            line: Vec::new(),
            revision: 0,
            before: (Vec::new(), 0),
            clients: vec![client; usize::from(self.clients)],
            go: self.go,
            go_holds: false,
            highest: 0,
            rose: true,
            troubles: self.troubles,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, client) in world.clients.iter().enumerate() {
            let mut push = |is: bool, action: Action| is.then(|| actions.push(action));
            let more = world.troubles > 0;
            push(client.copies > 0, Action::Put { client: at, crowded: false });
            push(client.copies > 0 && world.line.is_empty(), Action::Put { client: at, crowded: true });
            match client.phase {
                Phase::Away => drop(push(client.claims > 0 && client.copies == 0, Action::Join(at))),
                Phase::Joins => {
                    push(more && client.answer.is_none(), Action::Repeat(at));
                    push(client.answer.is_some(), Action::Take(at));
                }
                Phase::Looks(own) => {
                    push(client.answer.is_none(), Action::Look { client: at, old: false });
                    let old = self.old > 0 && world.before.1 >= own.created && client.answer.is_none();
                    push(old, Action::Look { client: at, old: true });
                    push(client.answer.is_some(), Action::Take(at));
                }
                Phase::Waits { gone, unsure, .. } => drop(push(gone || unsure, Action::Wake(at))),
                Phase::Holds(_) => {}
                Phase::Leaves(_) => drop(push(true, Action::Release(at))),
            }
            let is_in = !matches!(client.phase, Phase::Away);
            push(is_in && !matches!(client.phase, Phase::Leaves(_)), Action::Leave(at));
            push(!client.events.is_empty(), Action::Hear(at));
            push(more && is_in && !client.broken, Action::Break(at));
            push(client.broken, Action::Reopen(at));
            push(more && is_in, Action::Expire(at));
        }
        let goes = world.line.iter().position(|entry| entry.owner == GO);
        match goes {
            None if world.go > 0 => actions.push(Action::GoPuts),
            Some(0) if !world.go_holds => actions.push(Action::GoHolds),
            Some(_) => actions.push(Action::GoReleases),
            None => {}
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Join(at) => {
                let client = &mut next.clients[at];
                (client.claims, client.copies) = (client.claims - 1, 1);
                client.asks(Phase::Joins);
            }
            Action::Put { client: at, crowded } => {
                next.clients[at].copies -= 1;
                let (place, own) = (owner(at), owner(at));
                let has = |entry: &&Entry| entry.owner == own;
                let (own, refused) = match world.line.iter().find(has) {
                    Some(own) => (*own, true),
                    None if world.line.is_empty() && !crowded => (next.put(SEAT, own), false),
                    None => (next.put(place, own), false),
                };
                if world.clients[at].phase == Phase::Joins {
                    let ahead = ahead(&next.line, own);
                    next.clients[at].answer = Some(Answer { own, ahead, at: next.revision, refused });
                }
            }
            Action::Repeat(at) => {
                next.troubles -= 1;
                next.clients[at].copies += 1;
                next.clients[at].repeated = true;
            }
            Action::Look { client: at, old } => {
                let Phase::Looks(own) = world.clients[at].phase else { return None };
                let (line, revision) = if old { &world.before } else { &(world.line.clone(), world.revision) };
                let ahead = ahead(line, own);
                next.clients[at].answer = Some(Answer { own, ahead, at: *revision, refused: false });
            }
            Action::Take(at) => {
                let client = &mut next.clients[at];
                let Answer { own, ahead, at: revision, refused } = client.answer.take()?;
                match ahead {
                    _ if refused => client.asks(Phase::Looks(own)),
                    None => {
                        client.phase = Phase::Holds(own);
                        client.ended.clear();
                        client.missed = false;
                        next.holds(own.created);
                    }
                    // The leader is asked.
                    Some(_) if revision < client.since && !self.is(OLD_WORD) => client.asks(Phase::Looks(own)),
                    Some((ahead, alone)) => client.waits(self, own, ahead, alone),
                }
            }
            Action::Hear(at) => {
                let event = next.clients[at].events.remove(0);
                if let (Event::Deleted(key, revision), Phase::Holds(own)) = (event, world.clients[at].phase)
                    && self.ends(own, key, revision)
                {
                    // It believes that nothing is left of it.
                    next.end(at);
                }
                next.clients[at].hears(self, event);
            }
            Action::Wake(at) => {
                let Phase::Waits { own, alone, gone, unsure, .. } = world.clients[at].phase else { return None };
                if gone && !unsure && (alone || self.is(NOT_ALONE)) {
                    next.clients[at].phase = Phase::Holds(own);
                    next.holds(own.created);
                } else {
                    next.clients[at].asks(Phase::Looks(own));
                }
            }
            Action::Leave(at) => {
                let client = &mut next.clients[at];
                client.phase = Phase::Leaves(match client.phase {
                    Phase::Looks(own) | Phase::Waits { own, .. } | Phase::Holds(own) => Some(own),
                    _ => None,
                });
                client.answer = None;
                if matches!(world.clients[at].phase, Phase::Holds(Entry { key, .. }) if key != SEAT) {
                    // It tells whoever is behind it that it held.
                    let Phase::Holds(own) = world.clients[at].phase else { return None };
                    next.delete(|entry| *entry == own, true);
                }
            }
            Action::Release(at) => {
                let Phase::Leaves(own) = world.clients[at].phase else { return None };
                let unsure = match own {
                    None => !self.is(NOT_VOID),
                    Some(_) => world.clients[at].repeated && !self.is(NOT_UNSURE),
                };
                if unsure {
                    // The next epoch begins.
                    next.clients[at].copies = 0;
                    next.delete(|entry| entry.owner == owner(at), false);
                } else {
                    next.delete(
                        |entry| if own.is_some() { Some(*entry) == own } else { entry.owner == owner(at) },
                        false,
                    );
                }
                next.end(at);
            }
            Action::Break(at) => {
                next.troubles -= 1;
                next.clients[at].broken = true;
                next.clients[at].events.clear();
            }
            Action::Reopen(at) => {
                let client = &mut next.clients[at];
                (client.broken, client.missed, client.heard) = (false, true, world.revision);
                if let Phase::Waits { ahead, ref mut gone, .. } = client.phase {
                    let named = world.line.iter().find(|entry| entry.key == ahead.key);
                    *gone |= named.is_none_or(|entry| *entry != ahead && !self.is(FOUND_BY_NAME));
                }
            }
            Action::Expire(at) => {
                next.troubles -= 1;
                next.clients[at].copies = 0;
                next.delete(|entry| entry.owner == owner(at), false);
                next.end(at);
            }
            Action::GoPuts => {
                next.go -= 1;
                next.put(GO, GO);
            }
            Action::GoHolds => {
                next.go_holds = true;
                next.holds(world.line.first()?.created);
            }
            Action::GoReleases => {
                next.go_holds = false;
                next.delete(|entry| entry.owner == GO, false);
            }
        }
        if self.old == 0 {
            // Of no use.
            next.before = (Vec::new(), 0);
        }
        for client in &mut next.clients {
            let over = matches!(client.phase, Phase::Away | Phase::Leaves(_));
            if client.claims == 0 && over {
                // Nor is what it will hear.
                client.events.clear();
                (client.broken, client.heard, client.since) = (false, 0, 0);
            }
            if self.old == 0 {
                (client.heard, client.since) = (0, 0);
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, world: &World| {
                let holds = |client: &&Client| matches!(client.phase, Phase::Holds(_));
                world.clients.iter().filter(holds).count() + usize::from(world.go_holds) < 2
            }),
            Property::always(RISING, |_, world: &World| world.rose),
            Property::always(NO_LOST_WAITER, |_, world: &World| {
                world.clients.iter().all(|client| match client.phase {
                    Phase::Waits { ahead, gone: false, unsure: false, .. } => {
                        world.line.contains(&ahead) || client.broken || !client.events.is_empty()
                    }
                    _ => true,
                })
            }),
            Property::always(GONE, |_, world: &World| {
                let away = |at: &usize| world.clients[*at].phase == Phase::Away;
                let gone = |at: usize| world.line.iter().all(|entry| entry.owner != owner(at));
                (0..world.clients.len()).filter(away).all(gone)
            }),
        ]
    }
}
