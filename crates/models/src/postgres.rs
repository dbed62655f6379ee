//! PostgreSQL: a lock is a row, and there are two ways to it. One update takes it or frees it where nobody waits; all else
//! has the row first and decides. A call of a function is two steps where what others commit in between may count: it has
//! the row, and it looks at the other tables and commits. Others are one step.
//!
//! It stands for `crates/lock-sql/src/postgres`: the functions of `schema.sql` and `modes.sql`, and what `acquire.rs`,
//! `release.rs`, `waiters.rs` and `crates/lock-sql/src/server/unsettled.rs` make of the answers. A connection that broke
//! does not end what was sent over it: that is done later, or never. A listener may die, and only
//! the server knows. So the client asks a question on it, once in a turn.

use stateright::{Model, Property};

use crate::line::{EXCLUSION, GOES_ON, GONE, Phase, SERVED, Seen, TOKENS, Who, WithLine, comes, rules};
use crate::modes::{Mode, Witness};
use crate::{Explored, Proof, explore_each, walk};

mod client;
mod functions;
mod state;

use client::Step;
use state::{Action, Claim, Owner, Row, State, Trouble};

const MARKED: &str = "a lock for which somebody waits says so";

const KEEPS_PLACE: &str = "who is granted the lock keeps its own place in line";
const GONE_FIRST: &str = "whether the owner gave up is looked at before the row is had";
const NO_MARK: &str = "who gives up leaves no mark against late requests";
const SETTLED: &str = "the answer to the second copy of a request settles the first";
const DENIED: &str = "who was denied the lock does not undo an earlier copy";
const REFUSED: &str = "an error calls a request refused of which a copy was sent";
const UNMARKED: &str = "who enters the line does not say so in the row";
const CLEARED: &str = "a hand-over forgets that others wait";
const OVERLOOKED: &str = "a plain release does not ask whether somebody waits";
const UNASKED: &str = "nobody asks whether the listener is alive";
const BEHIND_THE_DEAD: &str = "a reader waits behind dead ones though it handed the lock to other readers";

/// The model and its faults.
pub(crate) const PROOF: Proof = Proof {
    name: "postgres",
    stands_for: &[
        "crates/lock-sql/src/postgres/schema.sql",
        "crates/lock-sql/src/postgres/modes.sql",
        "crates/lock-sql/src/postgres",
        "crates/lock-sql/src/server/unsettled.rs",
    ],
    rules: &[EXCLUSION, TOKENS, GONE, MARKED, SERVED, GOES_ON],
    mutations: &[
        KEEPS_PLACE,
        GONE_FIRST,
        NO_MARK,
        SETTLED,
        DENIED,
        REFUSED,
        UNMARKED,
        CLEARED,
        OVERLOOKED,
        UNASKED,
        BEHIND_THE_DEAD,
    ],
    explore: |fault| explore_each(small(fault)),
    walk: large,
};

/// Whoever waits for a lock, and in which way.
const ALONE: (Mode, bool) = (Mode::Alone, true);
const TRIES: (Mode, bool) = (Mode::Alone, false);
const READS: (Mode, bool) = (Mode::Shared, true);

fn small(fault: Option<&'static str>) -> Vec<Postgres> {
    let of_two = |take| (Mode::Permits { take, of: 2 }, true);
    let none = Trouble { together: 0, cancels: 0, breaks: 0, crashes: 0, stalls: 0, mutes: 0, silent_deaths: 0 };
    [
        (vec![ALONE, TRIES], Trouble { together: 1, cancels: 1, breaks: 1, ..none.clone() }),
        (vec![ALONE, ALONE, ALONE], Trouble { stalls: 2, ..none.clone() }),
        (vec![READS, READS, ALONE], Trouble { cancels: 1, mutes: 1, ..none.clone() }),
        (vec![of_two(1), of_two(1), of_two(2)], Trouble { cancels: 1, ..none.clone() }),
        (vec![ALONE, ALONE, READS], Trouble { silent_deaths: 2, ..none.clone() }),
        (vec![ALONE, READS], Trouble { cancels: 2, breaks: 1, crashes: 1, ..none.clone() }),
    ]
    .into_iter()
    .map(|(claims, trouble)| Postgres { claims, trouble, after_a_death: false, fault })
    .chain([Postgres {
        claims: vec![ALONE, READS, READS],
        trouble: Trouble { cancels: 1, ..none.clone() },
        after_a_death: true,
        fault,
    }])
    .collect()
}

fn large(seed: u64) -> Explored {
    let claims = vec![ALONE, READS, ALONE, READS, TRIES, ALONE];
    let trouble = Trouble { together: 2, cancels: 3, breaks: 2, crashes: 1, stalls: 2, mutes: 1, silent_deaths: 1 };
    walk(Postgres { claims, trouble, after_a_death: false, fault: None }, seed, 200_000)
}

struct Postgres {
    /// How each wants the lock, and whether it waits for it.
    claims: Vec<(Mode, bool)>,
    trouble: Trouble,
    /// The first of them has died. It had the lock, and has a place in line yet.
    after_a_death: bool,
    fault: Option<&'static str>,
}

impl Postgres {
    /// Can it have the lock beside those who have it?
    fn fits(&self, state: &State, who: Who) -> bool {
        self.mode(who).fits(state.holders.iter().map(|&holder| self.mode(holder)))
    }

    /// Would a look change anything?
    fn looks(&self, state: &State, who: Who) -> bool {
        let mut step = Step { model: self, state: state.clone() };
        step.look(who);
        step.state != *state
    }

    /// Can somebody in line have the lock as it is?
    fn can_be_served(&self, state: &State) -> bool {
        let mut living = state.line.iter().filter(|&&who| state.lives(who));
        match state.row.owner {
            Owner::Nobody => living.next().is_some(),
            Owner::Beside => living.next().is_some_and(|&who| self.mode(who) != Mode::Alone && self.fits(state, who)),
            // As long as it is one reader's, the others have not looked.
            Owner::Alone(_) | Owner::Reader(_) => false,
        }
    }
}

impl WithLine for Postgres {
    fn mode(&self, who: Who) -> Mode {
        self.claims[who].0
    }

    fn is_trouble(action: &Action) -> bool {
        use Action::{Break, Cancel, Crash, DieSilently, Mute, Refuse, Stall};
        matches!(action, Cancel(_) | Break(_) | Refuse(_) | Crash(_) | Stall(_) | Mute(_) | DieSilently(_))
    }
}

impl Model for Postgres {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let mut state = State {
            row: Row { owner: Owner::Nobody, over: false, waited_for: false },
            had_by: None,
            holders: Vec::new(),
            line: Vec::new(),
            gone: vec![false; self.claims.len()],
            last: 0,
            claims: vec![Claim::default(); self.claims.len()],
            witness: Witness::default(),
            unheard: false,
            trouble: self.trouble.clone(),
        };
        if self.after_a_death {
            (state.line, state.row) = (vec![0], Row { owner: Owner::Alone(0), over: false, waited_for: true });
            (state.claims[0].phase, state.claims[0].seen) = (Phase::Dead, false);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        let trouble = &state.trouble;
        for (who, claim) in state.claims.iter().enumerate() {
            let (asks, waits) = (claim.phase == Phase::Asking, claim.phase == Phase::Waiting);
            let leaves = claim.phase == Phase::Leaving;
            let lives = asks || waits || leaves || claim.phase == Phase::Holding;
            let has = state.has(who);
            let comes = comes(&self.claims, who, |who| state.claims[who].phase == Phase::Idle);
            let together = comes && self.mode(who) == Mode::Alone && trouble.together > 0;
            let can = [
                (comes, Action::Come(who)),
                (together, Action::ComeTogether(who)),
                (claim.reply.is_some(), Action::Read(who)),
                (waits && !claim.news.is_empty(), Action::Hear(who)),
                (waits && claim.news.is_empty() && state.had_by.is_none() && self.looks(state, who), Action::Look(who)),
                (waits && claim.deaf && claim.news.is_empty() && self.fault != Some(UNASKED), Action::Notice(who)),
                (claim.phase == Phase::Holding, Action::Leave(who)),
                (has && !claim.lapsed, Action::Lapse(who)),
                (has && claim.lapsed && state.had_by.is_none(), Action::Expire(who)),
                ((asks || waits) && trouble.cancels > 0, Action::Cancel(who)),
                ((asks || leaves) && claim.reply.is_none() && trouble.breaks > 0, Action::Break(who)),
                (asks && claim.twice, Action::Refuse(who)),
                (lives && trouble.crashes > 0, Action::Crash(who)),
                ((asks || waits) && claim.seen && trouble.stalls > 0, Action::Stall(who)),
                (waits && !claim.news.is_empty() && trouble.mutes > 0, Action::Mute(who)),
                (waits && !claim.deaf && trouble.silent_deaths > 0, Action::DieSilently(who)),
            ];
            actions.extend(can.into_iter().filter_map(|(can, action)| can.then_some(action)));
            let requests = 0..claim.requests.len();
            actions.extend(requests.filter_map(|at| match state.had_by {
                None => Some(Action::Begin(who, at)),
                Some(had_by) if had_by == (who, at) => Some(Action::Finish(who, at)),
                // What another is at is left out by a request that was sent with others.
                Some(_) if claim.requests[at].skips() => Some(Action::Begin(who, at)),
                Some(_) => None,
            }));
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut step = Step { model: self, state: before.clone() };
        step.act(action);
        let mut state = step.state;
        state.tidy();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        rules()
            .into_iter()
            .chain([
                Property::always(MARKED, |_, state: &State| state.line.is_empty() || state.row.waited_for),
                Property::always(SERVED, |model: &Self, state: &State| {
                    state.unheard || state.row.over || !model.can_be_served(state)
                }),
            ])
            .collect()
    }
}
