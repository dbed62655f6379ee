//! Quorum tokens: who holds a lock over three stores, while stores restart empty and answers are lost.
//!
//! It stands for `attempt`, `confirm` and `floor` (`acquire.rs`), `fit` (`rejoin.rs`), `renew_all` with the stores that
//! grant a hold again which they lost (`renew.rs`), `leave` and `leave_later` (`release.rs`) and the owners whom a
//! store knows (`turns.rs`) of `crates/lock-quorum/src`. Each store keeps the contract: it grants the lock to one owner at
//! a time, answers a repeated request as the first one, and does nothing of a claim once it has answered the release.
//! Whoever asks a store again that was to give back is another owner there, and not served before the first is gone.
//!
//! There is no clock. A promise ends for the client first and then in the store, at any time. A store that restarted
//! empty counts again when every promise that it forgot is over. Its tokens begin at its clock, which by then is above
//! every token that was drawn before it was emptied; until then nothing is known of them.

use stateright::{Model, Property};

use crate::{Proof, explore_each, walk};

const STORES: usize = 3;

const EXCLUSION: &str = "no two hold at once";
const RISING: &str = "tokens rise";
const NO_LOST_WAITER: &str = "nobody waits for what nobody gives up";
const GONE: &str = "nothing is left of a claim that has ended";

const SAME_OWNER: &str = "a store is asked again by the owner that was to give back";
const GIVEN_BACK: &str = "what a store was asked to give back counts";
const UNHEARD_IS_UNDONE: &str = "a store that did not answer is not released";

pub(crate) const PROOF: Proof = Proof {
    name: "quorum",
    stands_for: &[
        "crates/lock-quorum/src/acquire.rs",
        "crates/lock-quorum/src/rejoin.rs",
        "crates/lock-quorum/src/release.rs",
        "crates/lock-quorum/src/renew.rs",
        "crates/lock-quorum/src/turns.rs",
    ],
    rules: &[EXCLUSION, RISING, NO_LOST_WAITER, GONE],
    mutations: &[
        "a minority grants",
        "no floor",
        "a claim is numbered when it joins a line",
        "a hold is believed in beyond its end",
        "a store that restarted empty counts at once",
        "a store's mark is read before it grants",
        "what a store granted before it counts again is counted",
        SAME_OWNER,
        GIVEN_BACK,
        "what too few stores granted is kept",
        UNHEARD_IS_UNDONE,
        "a hold that is over is renewed",
    ],
    // All at once would be millions of states: the walk has them.
    explore: |mutation| explore_each([[1, 0], [0, 1]].map(|most| Quorum::new(most, mutation))),
    walk: |seed| {
        let large = Quorum { clients: 4, most: 20, lost: 6, again: true, ..Quorum::new([4, 1], None) };
        walk(large, seed, 500_000)
    },
};

/// The rules of the quorum, and how far they are tried.
struct Quorum {
    clients: usize,
    /// Later grants at one store tell nothing new.
    most: u8,
    /// So often a store restarts empty.
    emptied: u8,
    /// So many answers are lost.
    lost: u8,
    /// So many attempts follow another one of the same claim.
    retries: u8,
    /// Does a client come again when it is through, and retry for as long as it likes?
    again: bool,
    /// So many stores have to grant it.
    majority: usize,
    mutation: Option<&'static str>,
}

impl Quorum {
    /// So many stores restart empty; so many answers are lost and attempts repeated.
    fn new([emptied, unsure]: [u8; 2], mutation: Option<&'static str>) -> Self {
        let majority = if mutation == Some("a minority grants") { 1 } else { 2 };
        // Three are needed for each to have one store.
        let clients = if mutation == Some("what too few stores granted is kept") { 3 } else { 2 };
        Self { clients, most: 3, emptied, lost: unsure, retries: unsure, again: false, majority, mutation }
    }

    fn is(&self, mutation: &str) -> bool {
        self.mutation == Some(mutation)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    Asking,
    /// A majority granted it, and this is the largest token.
    Confirming(u8),
    Holding(u8),
    /// It gives back whatever it may have, or its process has ended.
    Leaving,
    /// Every store has answered the release.
    Gone,
}

/// What a client and one store have with each other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
struct Tie {
    /// The token, while it holds the lock in the store.
    held: Option<u8>,
    /// The token, while it knows of a promise that is not over. The store may have forgotten it.
    known: Option<u8>,
    /// Drawn as it joined the line; of a mutation.
    joined: Option<u8>,
    /// Did the store count when it granted this?
    ripe: bool,
    /// Its floor was raised to the token of the hold, and its mark is old enough.
    counts: bool,
    /// A release of this owner is on its way; once it asks by another name, of an owner that has nothing.
    leaving: bool,
    /// The store has answered the last release.
    left: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Client {
    phase: Phase,
    ties: [Tie; STORES],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Store {
    /// The last token.
    last: u8,
    /// It restarted empty and does not count yet: its clock will be above this token when it does.
    unfit: Option<u8>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    stores: [Store; STORES],
    clients: Vec<Client>,
    /// The token of the last hold, and whether it was above the one before.
    highest: u8,
    rose: bool,
    emptied: u8,
    lost: u8,
    retries: u8,
}

/// By client, and by store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Join(usize, usize),
    /// The store grants it, and answers.
    Ask(usize, usize),
    /// The answer is lost, or the request arrives late.
    AskUnheard(usize, usize),
    /// The request of an owner that is to give back arrives.
    AskLate(usize, usize),
    Decide(usize),
    /// It raises the floor, and reads the mark.
    Confirm(usize, usize),
    /// Of a mutation.
    ReadMark(usize, usize),
    Hold(usize),
    Renew(usize, usize),
    /// It did not answer when it was asked once more.
    GiveBack(usize, usize),
    /// Another attempt follows: what was granted is given back.
    Retry(usize),
    Leave(usize),
    Release(usize, usize),
    /// It knows of no promise any more.
    Elapse(usize, usize),
    /// The store ends the lease.
    Expire(usize, usize),
    Again(usize),
    Empty(usize),
    Rejoin(usize),
}

impl Client {
    fn new() -> Self {
        Self { phase: Phase::Asking, ties: [Tie::default(); STORES] }
    }

    fn count(&self, what: impl Fn(&Tie) -> bool) -> usize {
        self.ties.iter().filter(|tie| what(tie)).count()
    }

    fn known(&self) -> usize {
        self.count(|tie| tie.known.is_some())
    }

    fn holds(&self) -> bool {
        matches!(self.phase, Phase::Holding(_))
    }

    /// Only what is used later is kept, so that there are fewer states.
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        for tie in &mut self.ties {
            (tie.joined, tie.counts) = (None, false);
            tie.known = tie.known.filter(|_| phase != Phase::Leaving).map(|_| 0);
            if !matches!(phase, Phase::Asking | Phase::Confirming(_)) {
                (tie.held, tie.ripe) = (tie.held.map(|_| 0), false);
            }
            tie.leaving &= phase != Phase::Leaving;
        }
    }
}

impl World {
    fn is_free(&self, store: usize) -> bool {
        self.clients.iter().all(|client| client.ties[store].held.is_none())
    }

    /// Does anybody believe in a promise that the store has forgotten?
    fn is_owed(&self, store: usize) -> bool {
        self.clients.iter().any(|client| client.ties[store].known.is_some() && client.ties[store].held.is_none())
    }

    /// Which of them is which makes no difference.
    fn sorted(mut self) -> Self {
        const ORDERS: [[usize; STORES]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let sorted = ORDERS.map(|order| {
            let mut clients = self.clients.clone();
            clients.iter_mut().for_each(|client| client.ties = order.map(|store| client.ties[store]));
            clients.sort_unstable();
            (order.map(|store| self.stores[store]), clients)
        });
        (self.stores, self.clients) = sorted.into_iter().min().expect("there is one");
        self
    }

    fn may(&self, rules: &Quorum, at: usize, store: usize, actions: &mut Vec<Action>) {
        let (client, tie) = (&self.clients[at], &self.clients[at].ties[store]);
        let takes = tie.held.is_some() || self.is_free(store);
        let settled = !tie.leaving || tie.held.is_none() || rules.is(SAME_OWNER);
        let mut push = |is: bool, action: fn(usize, usize) -> Action| is.then(|| actions.push(action(at, store)));
        match client.phase {
            Phase::Asking => {
                let in_line = rules.is("a claim is numbered when it joins a line");
                push(in_line && tie.known.is_none() && tie.joined.is_none(), Action::Join);
                push(takes && settled && tie.known.is_none(), Action::Ask);
                let early = rules.is("a store's mark is read before it grants");
                push(early && !tie.ripe && tie.known.is_none() && self.stores[store].unfit.is_none(), Action::ReadMark);
            }
            Phase::Confirming(_) => {
                push(tie.known.is_some() && !tie.counts && self.is_fit(rules, store, tie), Action::Confirm);
            }
            Phase::Holding(_) => {
                push(takes && tie.known.is_none() && (settled || rules.is(GIVEN_BACK)), Action::Renew);
                push(tie.known.is_none() && !tie.leaving, Action::GiveBack);
            }
            Phase::Leaving => drop(push(!tie.left, Action::Release)),
            Phase::Gone => {}
        }
        let can_land = !tie.left || rules.is(UNHEARD_IS_UNDONE);
        push(can_land && self.lost > 0 && tie.held.is_none() && takes && settled, Action::AskUnheard);
        push(tie.leaving && self.lost > 0 && tie.held.is_none() && takes, Action::AskLate);
        push(tie.leaving, Action::Release);
        // Whoever asks so slowly asks anew.
        let may_elapse = client.phase != Phase::Asking || tie.held.is_none() || self.retries > 0;
        push(tie.known.is_some() && may_elapse, Action::Elapse);
        let over = tie.known.is_none() || rules.is("a hold is believed in beyond its end");
        // A release does the same, and more.
        push(tie.held.is_some() && over && client.phase != Phase::Leaving, Action::Expire);
    }

    fn is_fit(&self, rules: &Quorum, store: usize, tie: &Tie) -> bool {
        match rules.mutation {
            Some("a store that restarted empty counts at once") => true,
            Some("a store's mark is read before it grants") => tie.ripe,
            Some("what a store granted before it counts again is counted") => self.stores[store].unfit.is_none(),
            _ => self.stores[store].unfit.is_none() && tie.ripe,
        }
    }

    /// The store takes the lock for this client: its token.
    fn grant(&mut self, rules: &Quorum, at: usize, store: usize) -> u8 {
        let (tie, counter) = (&mut self.clients[at].ties[store], &mut self.stores[store].last);
        let token = tie.held.or(tie.joined.take()).unwrap_or_else(|| {
            *counter += 1;
            *counter
        });
        if tie.held.is_none() && !rules.is("a store's mark is read before it grants") {
            tie.ripe = self.stores[store].unfit.is_none();
        }
        tie.held = Some(token);
        // By another name, if need be.
        tie.leaving &= rules.is(SAME_OWNER);
        token
    }
}

impl Model for Quorum {
    type State = World;
    type Action = Action;

    /// The stores' counters know nothing of each other.
    fn init_states(&self) -> Vec<World> {
        let stores = [1, 0, 0].map(|last| Store { last, unfit: None });
        let clients = vec![Client::new(); self.clients];
        let Self { emptied, lost, retries, .. } = *self;
        vec![World { stores, clients, highest: 0, rose: true, emptied, lost, retries }.sorted()]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        for (at, client) in world.clients.iter().enumerate() {
            (0..STORES).for_each(|store| world.may(self, at, store, actions));
            let mut push = |is: bool, action: fn(usize) -> Action| is.then(|| actions.push(action(at)));
            match client.phase {
                Phase::Asking => {
                    push(client.known() >= self.majority, Action::Decide);
                    push(
                        world.retries > 0 && client.known() > 0 && !self.is("what too few stores granted is kept"),
                        Action::Retry,
                    );
                    push(true, Action::Leave);
                }
                Phase::Confirming(_) => {
                    push(client.count(|tie| tie.known.is_some() && tie.counts) >= self.majority, Action::Hold);
                    push(world.retries > 0, Action::Retry);
                    push(true, Action::Leave);
                }
                Phase::Holding(_) => drop(push(true, Action::Leave)),
                Phase::Leaving => {}
                Phase::Gone => drop(push(self.again, Action::Again)),
            }
        }
        for (store, Store { unfit, .. }) in world.stores.iter().enumerate() {
            // Fewer than half of them are emptied within the time after which one counts again.
            if world.emptied > 0 && world.stores.iter().all(|store| store.unfit.is_none()) {
                actions.push(Action::Empty(store));
            }
            if unfit.is_some() && !world.is_owed(store) {
                actions.push(Action::Rejoin(store));
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Join(at, store) => {
                next.stores[store].last += 1;
                next.clients[at].ties[store].joined = Some(next.stores[store].last);
            }
            Action::Ask(at, store) => {
                let token = next.grant(self, at, store);
                next.clients[at].ties[store].known = Some(token);
            }
            Action::AskUnheard(at, store) => {
                next.lost -= 1;
                next.grant(self, at, store);
                if !matches!(world.clients[at].phase, Phase::Asking | Phase::Confirming(_)) {
                    next.clients[at].ties[store].held = Some(0);
                }
            }
            Action::AskLate(at, store) => {
                next.lost -= 1;
                next.grant(self, at, store);
                next.clients[at].ties[store].leaving = true;
            }
            Action::Decide(at) => {
                let client = &mut next.clients[at];
                let token = client.ties.iter().filter_map(|tie| tie.known).max()?;
                client.enter(Phase::Confirming(token));
            }
            Action::ReadMark(at, store) => next.clients[at].ties[store].ripe = true,
            Action::Confirm(at, store) => {
                let Phase::Confirming(token) = world.clients[at].phase else { return None };
                if !self.is("no floor") {
                    next.stores[store].last = next.stores[store].last.max(token);
                }
                next.clients[at].ties[store].counts = true;
            }
            Action::Hold(at) => {
                let Phase::Confirming(token) = world.clients[at].phase else { return None };
                next.rose = token > world.highest;
                next.highest = token;
                next.clients[at].enter(Phase::Holding(token));
            }
            Action::Renew(at, store) => {
                let Phase::Holding(token) = world.clients[at].phase else { return None };
                if world.clients[at].ties[store].held.is_none() {
                    // It takes it again, and the floor with it: nothing counts in between.
                    next.grant(self, at, store);
                    next.stores[store].last = next.stores[store].last.max(token);
                }
                let tie = &mut next.clients[at].ties[store];
                (tie.held, tie.known, tie.ripe) = (Some(0), Some(0), false);
            }
            Action::GiveBack(at, store) => next.clients[at].ties[store].leaving = true,
            Action::Retry(at) => {
                next.retries -= u8::from(!self.again);
                let client = &mut next.clients[at];
                for tie in &mut client.ties {
                    tie.leaving |= tie.known.take().is_some();
                }
                client.enter(Phase::Asking);
            }
            Action::Leave(at) => {
                let client = &mut next.clients[at];
                if self.is(UNHEARD_IS_UNDONE) {
                    client.ties.iter_mut().for_each(|tie| tie.left = tie.known.is_none());
                }
                client.enter(Phase::Leaving);
            }
            Action::Release(at, store) => {
                let client = &mut next.clients[at];
                let left = client.phase == Phase::Leaving;
                let tie = &mut client.ties[store];
                (tie.held, tie.leaving, tie.left) = (None, false, left);
            }
            Action::Elapse(at, store) => {
                let client = &mut next.clients[at];
                if client.phase == Phase::Asking && client.ties[store].held.is_some() {
                    next.retries -= u8::from(!self.again);
                }
                client.ties[store].known = None;
                if client.holds() && client.known() < self.majority && !self.is("a hold that is over is renewed") {
                    client.enter(Phase::Leaving);
                }
            }
            Action::Expire(at, store) => next.clients[at].ties[store].held = None,
            Action::Again(at) => next.clients[at] = Client::new(),
            Action::Empty(store) => {
                next.emptied -= 1;
                let drawn = world.stores.iter().map(|store| store.last).max();
                next.stores[store] = Store { last: 0, unfit: drawn };
                next.clients.iter_mut().for_each(|client| client.ties[store].held = None);
            }
            Action::Rejoin(store) => {
                let Store { last, unfit } = &mut next.stores[store];
                *last = unfit.take()?.max(*last);
            }
        }
        for client in &mut next.clients {
            if next.lost == 0 && client.phase == Phase::Leaving {
                // Nothing of it can land there any more.
                client.ties.iter_mut().for_each(|tie| tie.left |= tie.held.is_none());
            }
            if client.phase == Phase::Leaving && client.ties.iter().all(|tie| tie.left) {
                client.phase = Phase::Gone;
            }
        }
        Some(next.sorted())
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |rules: &Self, world: &World| {
                // Of a hold that is over nobody is sure.
                let holds = |client: &&Client| client.holds() && client.known() >= rules.majority;
                world.clients.iter().filter(holds).count() < 2
            }),
            Property::always(RISING, |_, world: &World| world.rose),
            Property::always(NO_LOST_WAITER, |rules: &Self, world: &World| {
                let asks = |at: usize| world.clients[at].phase == Phase::Asking;
                let mut actions = Vec::new();
                rules.actions(world, &mut actions);
                // Whoever is alive keeps up its promises and waits.
                let goes_on = |action: &Action| match action {
                    Action::Elapse(..)
                    | Action::AskUnheard(..)
                    | Action::AskLate(..)
                    | Action::Empty(_)
                    | Action::Again(_) => false,
                    Action::Leave(at) => !asks(*at),
                    _ => true,
                };
                actions.iter().any(goes_on) || !(0..world.clients.len()).any(asks)
            }),
            Property::always(GONE, |_, world: &World| {
                let is_gone = |client: &&Client| client.phase == Phase::Gone;
                world.clients.iter().filter(is_gone).all(|client| client.count(|tie| tie.held.is_some()) == 0)
            }),
        ]
    }

    fn within_boundary(&self, world: &World) -> bool {
        world.stores.iter().all(|store| store.last <= self.most)
    }
}
