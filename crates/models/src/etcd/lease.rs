//! When a client may be sure of its lease, and that it has one at a time. It stands for `grant`, `renew`, `keep_alive`
//! and `confirm` of `crates/lock-etcd/src/session.rs`.
//!
//! The leader keeps in memory when a lease was renewed. So does a former leader that does not know yet that another was
//! elected. Both answer keep-alives. Only the leader commits writes. A new leader counts all leases from their
//! beginning. Other claims of the client may be undone at any moment, and each time an epoch begins.
//!
//! All times are ages, and the lease lasts so many steps of time. All clocks are the same: what the core takes off for
//! their difference is left out.

use stateright::{Model, Property};

pub(super) const SURE: &str = "who is sure of its lease has it";
pub(super) const RENEWED: &str = "a renewal of a lease that is there fails only if the leader changed";
pub(super) const ONE_LEASE: &str = "who asks for a lease has one at a time";

pub(super) const UNPROVED: &str = "a keep-alive counts without a write";
pub(super) const ANY_LEADER: &str = "a write that another leader commits proves a lease";
pub(super) const FROM_ANSWER: &str = "a renewal counts from its answer";
pub(super) const BY_EPOCH: &str = "a renewal demands that no epoch has begun";
pub(super) const NO_NUMBER: &str = "a repeated request for a lease does not say which";

/// So often is a renewal repeated.
const TRIES: u8 = 3;

pub(super) struct Leases {
    /// A lease's time.
    lasts: u8,
    /// So many leaders are elected, answers lost, and requests repeated.
    troubles: u8,
    mutation: Option<&'static str>,
}

impl Leases {
    pub(super) fn new(lasts: u8, troubles: u8, mutation: Option<&'static str>) -> Self {
        Self { lasts, troubles, mutation }
    }

    fn is(&self, mutation: &str) -> bool {
        self.mutation == Some(mutation)
    }

    fn is_sure(&self, world: &World) -> bool {
        matches!(world.client, Client::Has { since, .. } if since < self.lasts)
    }

    /// What a write finds that is to prove a keep-alive.
    fn finds(&self, world: &World, renewal: Renewal, by_former: bool) -> Found {
        match world.age {
            None => Found::Nothing,
            Some(_) if renewal.undone && self.is(BY_EPOCH) => Found::Unsure,
            Some(_) if by_former && !self.is(ANY_LEADER) => Found::Unsure,
            Some(_) => Found::Lease,
        }
    }

    /// What a renewal makes of the answer to its write.
    fn proves(&self, client: &mut Client, failed: &mut bool, found: Found) {
        let Client::Has { since, renewal: of_client } = client else { return };
        let Some(renewal) = of_client.take() else { return };
        match found {
            Found::Lease => *since = (*since).min(if self.is(FROM_ANSWER) { 0 } else { renewal.sent }),
            Found::Nothing => *client = Client::Lost,
            Found::Unsure if renewal.tries > 1 => *of_client = Some(renewal.again()),
            Found::Unsure => *failed |= !renewal.met_former,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Client {
    /// It asked for a lease so long ago.
    Asks(u8),
    /// It counts its lease as renewed so long ago.
    Has {
        since: u8,
        renewal: Option<Renewal>,
    },
    Lost,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Renewal {
    /// The keep-alive, so long ago.
    sent: u8,
    tries: u8,
    stage: Stage,
    /// An epoch has begun since the write was sent.
    undone: bool,
    met_former: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Asks,
    /// The write is on its way. Has the leader gone that answered the keep-alive?
    Writes {
        by_former: bool,
    },
    Answered(Found),
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Found {
    Lease,
    /// It is there, and whether it was renewed is not known.
    Unsure,
    Nothing,
}

impl Renewal {
    fn first() -> Self {
        Self { sent: 0, tries: TRIES, stage: Stage::Asks, undone: false, met_former: false }
    }

    fn again(self) -> Self {
        Self { tries: self.tries - 1, met_former: self.met_former, ..Self::first() }
    }
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    /// Since when the leader counts the lease.
    age: Option<u8>,
    /// How many leases there are that this client asked for.
    leases: u8,
    /// Requests for one that are on their way.
    copies: u8,
    /// There is a former leader that does not know that it is one.
    former: bool,
    client: Client,
    /// A renewal failed for no reason.
    failed: bool,
    troubles: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Tick,
    Grant {
        answer_lost: bool,
    },
    /// No answer came, so the request is sent again.
    Repeat,
    Renew,
    /// A leader answers the keep-alive, or a former one.
    KeepAlive {
        by_former: bool,
    },
    Commit,
    Answer,
    /// An epoch of the session begins.
    Undo,
    Elect,
    /// The leader ends a lease that is over.
    Revoke,
}

impl Model for Leases {
    type State = World;
    type Action = Action;

    fn init_states(&self) -> Vec<World> {
        let client = Client::Asks(0);
        vec![World { age: None, leases: 0, copies: 1, former: false, client, failed: false, troubles: self.troubles }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let mut push = |is: bool, action: Action| is.then(|| actions.push(action));
        push(true, Action::Tick);
        push(world.copies > 0, Action::Grant { answer_lost: false });
        push(world.troubles > 0, Action::Elect);
        push(world.age == Some(self.lasts), Action::Revoke);
        match world.client {
            Client::Asks(_) => {
                push(world.troubles > 0 && world.copies > 0, Action::Grant { answer_lost: true });
                push(world.troubles > 0, Action::Repeat);
            }
            Client::Has { renewal: None, .. } => drop(push(true, Action::Renew)),
            Client::Has { renewal: Some(renewal), .. } => match renewal.stage {
                Stage::Asks => {
                    push(true, Action::KeepAlive { by_former: false });
                    push(world.former, Action::KeepAlive { by_former: true });
                }
                Stage::Writes { .. } => {
                    push(true, Action::Commit);
                    push(!renewal.undone, Action::Undo);
                }
                Stage::Answered(_) => drop(push(true, Action::Answer)),
            },
            Client::Lost => {}
        }
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        let older = |age: u8| (age + 1).min(self.lasts);
        let renewal = match &mut next.client {
            Client::Has { renewal, .. } => renewal.as_mut(),
            _ => None,
        };
        match action {
            Action::Tick => {
                next.age = world.age.map(older);
                renewal.into_iter().for_each(|renewal| renewal.sent = older(renewal.sent));
                if let Client::Asks(since) | Client::Has { since, .. } = &mut next.client {
                    *since = older(*since);
                }
            }
            Action::Grant { answer_lost } => {
                next.copies -= 1;
                next.troubles -= u8::from(answer_lost);
                let is_new = world.leases == 0 || self.is(NO_NUMBER);
                next.leases += u8::from(is_new);
                // One that comes too late takes a lease that nobody uses, and that ends after its time.
                if let Client::Asks(since) = world.client {
                    next.age = if is_new { Some(0) } else { world.age };
                    next.client = if answer_lost { world.client } else { Client::Has { since, renewal: None } };
                }
            }
            Action::Repeat => (next.copies, next.troubles) = (world.copies + 1, world.troubles - 1),
            Action::Renew => {
                let Client::Has { renewal, .. } = &mut next.client else { return None };
                *renewal = Some(Renewal::first());
            }
            Action::KeepAlive { by_former } => {
                let renewal = renewal?;
                renewal.met_former |= by_former;
                renewal.stage = Stage::Writes { by_former };
                if self.is(UNPROVED) {
                    renewal.stage = Stage::Answered(Found::Lease);
                }
                if !by_former {
                    next.age = world.age.map(|_| 0);
                    if world.age.is_none() {
                        renewal.stage = Stage::Answered(Found::Nothing);
                    }
                }
            }
            Action::Commit => {
                let renewal = renewal?;
                let Stage::Writes { by_former } = renewal.stage else { return None };
                renewal.stage = Stage::Answered(self.finds(world, *renewal, by_former));
            }
            Action::Answer => {
                let Stage::Answered(found) = renewal?.stage else { return None };
                self.proves(&mut next.client, &mut next.failed, found);
            }
            Action::Undo => renewal?.undone = true,
            Action::Elect => {
                (next.former, next.troubles) = (true, world.troubles - 1);
                next.age = world.age.map(|_| 0);
                if let Some(renewal) = renewal
                    && let Stage::Writes { by_former } = &mut renewal.stage
                {
                    (*by_former, renewal.met_former) = (true, true);
                }
            }
            Action::Revoke => (next.age, next.leases) = (None, world.leases - 1),
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SURE, |rules: &Self, world: &World| world.age.is_some() || !rules.is_sure(world)),
            Property::always(RENEWED, |_, world: &World| !world.failed),
            Property::always(ONE_LEASE, |_, world: &World| world.leases < 2),
        ]
    }
}
