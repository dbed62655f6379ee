//! All that three clients and three stores can do, in every order: no two hold at once, and tokens rise. And each rule
//! of the quorum, broken, is caught.

use std::collections::{HashSet, VecDeque};

const STORES: usize = 3;
const CLIENTS: usize = 3;

/// Later grants at one store tell nothing new.
const MOST: u8 = 4;

/// The rules, each of which can be broken.
#[derive(Clone, Copy)]
struct Rules {
    /// How many stores have to grant it.
    majority: usize,
    /// How many of these have to have the floor under later tokens.
    floored: usize,
    /// Is a claim numbered when it is granted, and not when it joins the line?
    numbers_grants: bool,
    /// Does the hold end before any of its stores may grant the lock to another?
    holds_to_the_end: bool,
}

const OURS: Rules = Rules { majority: 2, floored: 2, numbers_grants: true, holds_to_the_end: true };

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    Asking,
    /// A majority granted it, and this is the largest token.
    Flooring(u8),
    Holding,
    Leaving,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Client {
    phase: Phase,
    /// By store: its number there, drawn as it joined the line.
    joined: [Option<u8>; STORES],
    /// By store: its token, while it holds the lock there.
    tokens: [Option<u8>; STORES],
    floored: [bool; STORES],
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct World {
    /// The last token of each store.
    last: [u8; STORES],
    clients: [Client; CLIENTS],
    /// That of the last hold.
    highest: u8,
}

impl World {
    /// The stores' counters know nothing of each other.
    fn new() -> Self {
        let nothing = [None; STORES];
        let client = Client { phase: Phase::Asking, joined: nothing, tokens: nothing, floored: [false; STORES] };
        Self { last: [2, 1, 0], clients: [client; CLIENTS], highest: 0 }
    }

    fn is_free(&self, store: usize) -> bool {
        self.clients.iter().all(|client| client.tokens[store].is_none())
    }

    /// All that may happen next. A store that is away is one of which nothing is asked for a while.
    fn next(&self, rules: Rules) -> Result<Vec<Self>, String> {
        let mut next = Vec::new();
        for (number, client) in self.clients.iter().enumerate() {
            let mut push = |change: &dyn Fn(&mut Self, &mut Client)| {
                let (mut world, mut changed) = (*self, *client);
                change(&mut world, &mut changed);
                world.clients[number] = changed;
                // Which of them is which makes no difference.
                world.clients.sort_unstable();
                next.push(world);
            };
            let granted = client.tokens.iter().flatten().count();
            for store in 0..STORES {
                let held = client.tokens[store];
                match client.phase {
                    Phase::Asking if held.is_none() && !rules.numbers_grants && client.joined[store].is_none() => {
                        push(&|world, client| {
                            world.last[store] += 1;
                            client.joined[store] = Some(world.last[store]);
                        });
                    }
                    Phase::Asking if held.is_none() && self.is_free(store) => push(&|world, client| {
                        client.tokens[store] = client.joined[store].take().or_else(|| {
                            world.last[store] += 1;
                            Some(world.last[store])
                        });
                    }),
                    Phase::Flooring(token) if held.is_some() && !client.floored[store] => push(&|world, client| {
                        world.last[store] = world.last[store].max(token);
                        client.floored[store] = true;
                    }),
                    _ => {}
                }
                // Its lease is over there, of which it knows; or it gives it back.
                if held.is_some() && (client.phase != Phase::Holding || !rules.holds_to_the_end) {
                    push(&|_, client| (client.tokens[store], client.floored[store]) = (None, false));
                }
            }
            match client.phase {
                Phase::Asking if granted >= rules.majority => push(&|_, client| {
                    let token = client.tokens.iter().flatten().max().copied().unwrap_or_default();
                    client.phase = Phase::Flooring(token);
                    client.floored = client.tokens.map(|own| own == Some(token));
                }),
                Phase::Flooring(token) => {
                    let floored = client.tokens.iter().zip(client.floored).filter(|(own, done)| own.is_some() && *done);
                    if granted >= rules.majority && floored.count() >= rules.floored {
                        if self.clients.iter().any(|other| other.phase == Phase::Holding) {
                            return Err(format!("two hold at once: {self:?}"));
                        }
                        if token <= self.highest {
                            return Err(format!("{token} after {}: {self:?}", self.highest));
                        }
                        push(&|world, client| {
                            world.highest = token;
                            client.phase = Phase::Holding;
                        });
                    }
                    push(&leave);
                }
                Phase::Holding => push(&leave),
                Phase::Asking | Phase::Leaving => {}
            }
        }
        Ok(next)
    }
}

/// Whatever it still holds, it gives back.
fn leave(_: &mut World, client: &mut Client) {
    client.phase = Phase::Leaving;
    (client.joined, client.floored) = ([None; STORES], [false; STORES]);
}

/// How many states there are, or which rule one of them breaks.
fn explore(rules: Rules) -> Result<usize, String> {
    let mut known = HashSet::from([World::new()]);
    let mut open = VecDeque::from([World::new()]);
    while let Some(world) = open.pop_front() {
        for next in world.next(rules)? {
            if next.last.iter().all(|last| *last <= MOST) && known.insert(next) {
                open.push_back(next);
            }
        }
    }
    Ok(known.len())
}

#[test]
fn no_two_hold_at_once_and_tokens_rise() {
    let states = explore(OURS).unwrap();
    assert!(states > 10_000, "{states}");
}

#[test]
fn without_a_floor_tokens_fall() {
    let wrong = explore(Rules { floored: 0, ..OURS }).unwrap_err();
    assert!(wrong.contains(" after "), "{wrong}");
}

#[test]
fn with_a_floor_at_a_minority_tokens_fall() {
    let wrong = explore(Rules { floored: 1, ..OURS }).unwrap_err();
    assert!(wrong.contains(" after "), "{wrong}");
}

#[test]
fn where_a_claim_is_numbered_in_line_tokens_fall() {
    let wrong = explore(Rules { numbers_grants: false, ..OURS }).unwrap_err();
    assert!(wrong.contains(" after "), "{wrong}");
}

#[test]
fn what_grants_by_a_minority_grants_to_two() {
    let wrong = explore(Rules { majority: 1, floored: 1, ..OURS }).unwrap_err();
    assert!(wrong.contains("two hold at once"), "{wrong}");
}

#[test]
fn who_believes_in_a_hold_beyond_its_end_is_not_alone() {
    let wrong = explore(Rules { holds_to_the_end: false, ..OURS }).unwrap_err();
    assert!(wrong.contains("two hold at once"), "{wrong}");
}
