//! The line of sequence nodes. It stands for `stand`, `enter`, `turn` and `grant` of `crates/lock-zookeeper/src/acquire.rs`
//! and for `release`, `pass_on` and `find` of `release.rs`.
//!
//! The leader does what is asked in one order. Each client has a server that may be behind; there it reads, and from
//! there its events come, in that order. Anybody may write to a node, once, and delete one of those that wait, once.
//! A release may fail until its caller gives it up. Then the client's upkeep has it, while the session lives.

use stateright::{Model, Property};

pub(super) const EXCLUSION: &str = "no two hold by nodes that are in the line";
pub(super) const RISING: &str = "tokens rise";
pub(super) const SEEN: &str = "nobody is granted by a node whose end it was told";
pub(super) const NO_LOST_WAITER: &str = "whoever waits for a node that is gone will hear of it";
pub(super) const GONE: &str = "nothing is left of a claim that has ended";

/// Finding Z1.
pub(super) const WRITTEN_TO: &str = "a write to the predecessor passes the lock on";
pub(super) const DELETED: &str = "the predecessor's mere end passes the lock on";
/// Finding Z2.
pub(super) const OWN_END: &str = "who is passed the lock does not ask after its own node";
pub(super) const BLIND_WATCH: &str = "a watch is set without a look";
pub(super) const GIVEN_UP: &str = "a release that failed is given up while the session lives on";
pub(super) const BEHIND: &str = "a release looks for its node where that may not be known yet";

pub(super) const MUTATIONS: &[&str] = &[WRITTEN_TO, DELETED, OWN_END, BLIND_WATCH, GIVEN_UP, BEHIND];

pub(super) struct Line {
    clients: usize,
    troubles: u8,
    mutation: Option<&'static str>,
}

impl Line {
    pub(super) fn new(clients: usize, troubles: u8, mutation: Option<&'static str>) -> Self {
        Self { clients, troubles, mutation }
    }

    fn is(&self, mutation: &str) -> bool {
        self.mutation == Some(mutation)
    }
}

/// What the leader did. Nodes are numbered as they are made; the number is the token.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Done {
    Made(u8),
    Deleted(u8),
    /// Deleted by a holder that had waited.
    Passed(u8),
    Written(u8),
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Event {
    Passed,
    /// Anything else: to look at the line.
    Look,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Phase {
    Away,
    /// Its request is on its way.
    Asked,
    /// It is in the line, and reads that.
    Looks,
    /// It sets watches on that node and its own.
    Watches(u8),
    Waits {
        before: u8,
        event: Option<Event>,
        own_ended: bool,
    },
    Holds {
        waited: bool,
    },
    /// It gives back or gives up what it has, or may have. Did it hold, and had waited?
    Leaves {
        passes: bool,
    },
    Gone,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
struct Client {
    phase: Phase,
    /// Its node, once it was made.
    node: Option<u8>,
    /// It has been told the number.
    told: bool,
    waited: bool,
    /// What its server knows, and what that has yet to hear of.
    view: Vec<u8>,
    behind: Vec<Done>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    line: Vec<u8>,
    last: u8,
    clients: Vec<Client>,
    highest: u8,
    rose: bool,
    seen: bool,
    /// So much else may happen.
    troubles: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Ask(usize),
    /// The leader makes the node.
    Make(usize),
    /// It is answered; then its server has it.
    Answer(usize),
    /// Its server hears of one thing more.
    CatchUp(usize),
    Look(usize),
    Watch(usize),
    Wake(usize),
    Leave(usize),
    Release(usize),
    /// The release fails for so long that its caller gives it up.
    Fail(usize),
    /// The session is over. The client's holds are over by then.
    Expire(usize),
    /// By anybody.
    Write(u8),
    Delete(u8),
}

impl World {
    fn does(&mut self, done: Done) {
        match done {
            Done::Made(node) => self.line.push(node),
            Done::Deleted(node) | Done::Passed(node) => self.line.retain(|other| *other != node),
            Done::Written(_) => {}
        }
        for client in &mut self.clients {
            match client.phase {
                Phase::Holds { .. } | Phase::Gone => {}
                // Until its node is made it does not matter how far its server is.
                _ if client.node.is_none() => client.knows(done),
                Phase::Leaves { .. } if client.told => {}
                _ => client.behind.push(done),
            }
        }
    }

    /// Is its node in the line?
    fn has(&self, client: &Client) -> bool {
        client.node.is_some_and(|node| self.line.contains(&node))
    }

    fn holds(&mut self, at: usize, waited: bool) {
        let client = &mut self.clients[at];
        client.phase = Phase::Holds { waited };
        let node = client.node.unwrap_or_default();
        self.seen &= client.view.contains(&node);
        client.view.clear();
        client.behind.clear();
        // One whose node somebody has deleted was evicted before it held.
        if self.line.contains(&node) {
            self.rose &= node > self.highest;
            self.highest = node;
        }
    }

    fn go(&mut self, at: usize) {
        self.clients[at] = Client {
            phase: Phase::Gone,
            node: self.clients[at].node,
            told: true,
            waited: false,
            view: vec![],
            behind: vec![],
        };
    }
}

impl Client {
    fn new() -> Self {
        Self { phase: Phase::Away, node: None, told: false, waited: false, view: Vec::new(), behind: Vec::new() }
    }

    /// Who is right before its node, by what its server knows; `None`: its node is not there.
    fn before(&self) -> Option<Option<u8>> {
        let own = self.node.filter(|own| self.view.contains(own))?;
        Some(self.view.iter().copied().filter(|node| *node < own).max())
    }

    fn knows(&mut self, done: Done) {
        match done {
            Done::Made(node) => self.view.push(node),
            Done::Deleted(node) | Done::Passed(node) => self.view.retain(|other| *other != node),
            Done::Written(_) => {}
        }
    }

    fn hears(&mut self, rules: &Line, done: Done) {
        self.knows(done);
        let Phase::Waits { before, event, own_ended } = &mut self.phase else { return };
        let heard = match done {
            Done::Passed(node) if node == *before => Some(Event::Passed),
            Done::Deleted(node) if node == *before && rules.is(DELETED) => Some(Event::Passed),
            Done::Written(node) if node == *before && rules.is(WRITTEN_TO) => Some(Event::Passed),
            Done::Deleted(node) | Done::Written(node) if node == *before || Some(node) == self.node => {
                Some(Event::Look)
            }
            _ => None,
        };
        *own_ended |= matches!(done, Done::Deleted(node) if Some(node) == self.node);
        // It has passing on told first.
        *event = if *event == Some(Event::Passed) { *event } else { heard.or(*event) };
    }
}

impl Model for Line {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let clients = vec![Client::new(); self.clients];
        vec![World { line: vec![], last: 0, clients, highest: 0, rose: true, seen: true, troubles: self.troubles }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        // Those that have not asked yet are all the same.
        if let Some(away) = world.clients.iter().position(|client| client.phase == Phase::Away) {
            actions.push(Action::Ask(away));
        }
        for (at, client) in world.clients.iter().enumerate() {
            let mut push = |is: bool, action: Action| is.then(|| actions.push(action));
            let unmade = client.node.is_none();
            match client.phase {
                Phase::Away | Phase::Gone => {}
                Phase::Asked if unmade => drop(push(true, Action::Make(at))),
                Phase::Asked => drop(push(client.before().is_some() && !client.told, Action::Answer(at))),
                Phase::Looks => drop(push(true, Action::Look(at))),
                Phase::Watches(_) => drop(push(true, Action::Watch(at))),
                Phase::Waits { event, .. } => drop(push(event.is_some(), Action::Wake(at))),
                Phase::Holds { .. } => {}
                Phase::Leaves { .. } => {
                    // A session's requests are done in their order: it may be made before the release, and not after.
                    push(unmade, Action::Make(at));
                    push(true, Action::Release(at));
                    push(world.troubles > 0, Action::Fail(at));
                }
            }
            let is_in = !matches!(client.phase, Phase::Away | Phase::Gone);
            push(is_in && !matches!(client.phase, Phase::Leaves { .. }), Action::Leave(at));
            push(is_in && !client.behind.is_empty(), Action::CatchUp(at));
            push(is_in && world.troubles > 0, Action::Expire(at));
            if let Some(node) = client.node.filter(|node| world.line.contains(node)) {
                push(world.troubles > 0, Action::Write(node));
                push(world.troubles > 0 && !matches!(client.phase, Phase::Holds { .. }), Action::Delete(node));
            }
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Ask(at) => {
                // Where it starts, its server may know no more than others do.
                next.clients[at].phase = Phase::Asked;
            }
            Action::Make(at) => {
                next.last += 1;
                next.clients[at].node = Some(next.last);
                next.does(Done::Made(world.last + 1));
            }
            Action::Answer(at) => {
                next.clients[at].told = true;
                next.clients[at].phase = Phase::Looks;
            }
            Action::CatchUp(at) => {
                let done = next.clients[at].behind.remove(0);
                next.clients[at].hears(self, done);
            }
            Action::Look(at) => match world.clients[at].before() {
                None => {
                    next.clients[at].phase = Phase::Leaves { passes: false };
                    next.clients[at].view.clear();
                    next.clients[at].behind.clear();
                }
                Some(None) => next.holds(at, world.clients[at].waited),
                Some(Some(before)) => {
                    next.clients[at].waited = true;
                    next.clients[at].phase = Phase::Watches(before);
                }
            },
            Action::Watch(at) => {
                let client = &mut next.clients[at];
                let Phase::Watches(before) = client.phase else { return None };
                let own = client.node.unwrap_or_default();
                let stand = client.view.contains(&before) && client.view.contains(&own);
                client.phase = match stand || self.is(BLIND_WATCH) {
                    true => Phase::Waits { before, event: None, own_ended: false },
                    false => Phase::Looks,
                };
            }
            Action::Wake(at) => {
                let Phase::Waits { event, own_ended, .. } = world.clients[at].phase else { return None };
                match event? {
                    Event::Passed if !own_ended || self.is(OWN_END) => next.holds(at, true),
                    _ => next.clients[at].phase = Phase::Looks,
                }
            }
            Action::Leave(at) => {
                let passes = matches!(world.clients[at].phase, Phase::Holds { waited: true });
                let client = &mut next.clients[at];
                client.phase = Phase::Leaves { passes };
                if client.told {
                    client.view.clear();
                    client.behind.clear();
                }
            }
            Action::Release(at) => {
                let client = &world.clients[at];
                let Phase::Leaves { passes } = client.phase else { return None };
                // What was not answered is looked for: as of now, or else by what its server knows.
                let is_found = |node: &u8| client.told || !self.is(BEHIND) || client.view.contains(node);
                let node = client.node.filter(is_found).filter(|node| world.line.contains(node));
                next.go(at);
                if let Some(node) = node {
                    next.does(if passes { Done::Passed(node) } else { Done::Deleted(node) });
                }
            }
            Action::Fail(at) => {
                next.troubles -= 1;
                // The upkeep goes on with it.
                if self.is(GIVEN_UP) {
                    next.go(at);
                }
            }
            Action::Expire(at) => {
                next.troubles -= 1;
                let node = world.clients[at].node.filter(|node| world.line.contains(node));
                next.go(at);
                if let Some(node) = node {
                    next.does(Done::Deleted(node));
                }
            }
            Action::Write(node) => {
                next.troubles -= 1;
                next.does(Done::Written(node));
            }
            Action::Delete(node) => {
                next.troubles -= 1;
                next.does(Done::Deleted(node));
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |_, world: &World| {
                let holds = |client: &&Client| matches!(client.phase, Phase::Holds { .. }) && world.has(client);
                world.clients.iter().filter(holds).count() < 2
            }),
            Property::always(RISING, |_, world: &World| world.rose),
            Property::always(SEEN, |_, world: &World| world.seen),
            Property::always(NO_LOST_WAITER, |_, world: &World| {
                world.clients.iter().all(|client| match client.phase {
                    Phase::Waits { before, event: None, .. } => {
                        world.line.contains(&before) || !client.behind.is_empty()
                    }
                    _ => true,
                })
            }),
            Property::always(GONE, |_, world: &World| {
                world.clients.iter().all(|client| client.phase != Phase::Gone || !world.has(client))
            }),
        ]
    }
}
