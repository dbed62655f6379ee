//! Redis: a line with modes, in which a release hands the lock over. A script is one step, and so is each command of the
//! flight by which a free lock is taken.
//!
//! It stands for `crates/lock-redis/src`: the scripts `common.lua`, `modes.lua`, `acquire.lua`, `acquire_mode.lua`,
//! `release.lua`, `release_mode.lua` and `look.lua` with what stands in front of them, and what `free.rs`, `acquire.rs`,
//! `connection.rs` and `waiters.rs` make of the answers. Each claim has a client of its own, with one connection.

use stateright::{Model, Property};

use crate::line::{EXCLUSION, GOES_ON, GONE, Phase, SERVED, Seen, TOKENS, Who, WithLine, comes, rules};
use crate::modes::{Mode, Witness};
use crate::{Explored, Proof, explore_each, walk};

mod client;
mod scripts;
mod state;

use client::Step;
use state::{Action, Claim, Lock, State, Trouble};

const IN_TURN: &str = "nobody is granted the lock past a living waiter";

const NO_HAND_OVER: &str = "a release frees the lock and leaves the line alone";
const LEAVES_QUIETLY: &str = "who leaves the line does not look at those behind";
const PAST_THE_LINE: &str = "a reader joins readers though somebody waits";
const NOT_KILLED: &str = "the former connection is not ended before the next one is used";
const REFUSED: &str = "an error calls a request refused of which a copy was sent";
const FROM_ARRIVAL: &str = "the lease counts from the arrival of the answer";
const OLD_NEWS: &str = "a grant is believed that is older than the answer that another has the lock";
const NO_FLOOR: &str = "a plain token is taken from a counter that fell back";
const LOST_COUNTS: &str = "a flight whose answer was lost is a grant, whoever is in line";
const VOID_COUNTS: &str = "commands that found others waiting count as a grant";

/// The model and its faults.
pub(crate) const PROOF: Proof = Proof {
    name: "redis",
    stands_for: &["crates/lock-redis/src", "crates/lock-redis/src/scripts"],
    rules: &[EXCLUSION, TOKENS, GONE, SERVED, IN_TURN, GOES_ON],
    mutations: &[
        NO_HAND_OVER,
        LEAVES_QUIETLY,
        PAST_THE_LINE,
        NOT_KILLED,
        REFUSED,
        FROM_ARRIVAL,
        OLD_NEWS,
        NO_FLOOR,
        LOST_COUNTS,
        VOID_COUNTS,
    ],
    explore: |fault| explore_each(small(fault)),
    walk: large,
};

fn small(fault: Option<&'static str>) -> Vec<Redis> {
    let of_two = |take| Mode::Permits { take, of: 2 };
    let none = Trouble { flights: 0, cancels: 0, breaks: 0, crashes: 0, stalls: 0, falls: 0 };
    [
        (vec![Mode::Shared, Mode::Alone, Mode::Shared], Trouble { cancels: 2, crashes: 1, ..none.clone() }),
        (vec![Mode::Alone, Mode::Shared], Trouble { cancels: 2, breaks: 2, stalls: 1, ..none.clone() }),
        (vec![Mode::Alone, Mode::Alone], Trouble { flights: 2, cancels: 2, breaks: 1, falls: 1, ..none.clone() }),
        (vec![of_two(1), of_two(1), of_two(2)], Trouble { cancels: 1, crashes: 1, ..none.clone() }),
    ]
    .into_iter()
    .map(|(claims, trouble)| Redis { claims, trouble, after_a_death: false, fault })
    .chain([Redis {
        claims: vec![Mode::Alone, Mode::Alone, Mode::Alone],
        trouble: Trouble { flights: 1, breaks: 1, ..none.clone() },
        after_a_death: true,
        fault,
    }])
    .collect()
}

fn large(seed: u64) -> Explored {
    let claims = vec![Mode::Alone, Mode::Shared, Mode::Alone, Mode::Shared, Mode::Alone, Mode::Shared];
    let trouble = Trouble { flights: 3, cancels: 3, breaks: 3, crashes: 1, stalls: 2, falls: 1 };
    walk(Redis { claims, trouble, after_a_death: false, fault: None }, seed, 200_000)
}

struct Redis {
    claims: Vec<Mode>,
    trouble: Trouble,
    /// The first of them has died while it had the lock.
    after_a_death: bool,
    fault: Option<&'static str>,
}

impl WithLine for Redis {
    fn mode(&self, who: Who) -> Mode {
        self.claims[who]
    }

    fn is_trouble(action: &Action) -> bool {
        use Action::{Break, Cancel, Close, Crash, Fall, Refuse, Stall};
        matches!(action, Cancel(_) | Break(_) | Close(_) | Refuse(_) | Crash(_) | Stall(_) | Fall)
    }
}

impl Model for Redis {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let claim = Claim {
            phase: Phase::Idle,
            link: true,
            wire: Vec::new(),
            late: Vec::new(),
            reply: None,
            news: Vec::new(),
            set: false,
            drawn: 0,
            passes: None,
            void: false,
            unsure: false,
            shown: false,
            listens: true,
            token: 0,
            written: false,
            lapsed: false,
        };
        let mut state = State {
            lock: Lock::Free,
            holders: Vec::new(),
            line: Vec::new(),
            last: 0,
            fallen: false,
            claims: vec![claim; self.claims.len()],
            witness: Witness::default(),
            unheard: false,
            passed: false,
            trouble: self.trouble.clone(),
        };
        if self.after_a_death {
            state.lock = Lock::Of(0);
            (state.claims[0].phase, state.claims[0].listens) = (Phase::Dead, false);
        }
        vec![state]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (who, claim) in state.claims.iter().enumerate() {
            let asks = claim.phase == Phase::Asking;
            let waits = claim.phase == Phase::Waiting;
            let lives = !matches!(claim.phase, Phase::Gone | Phase::Dead | Phase::Idle);
            let has = state.has(who);
            let unread = asks || waits;
            let comes = comes(&self.claims, who, |who| state.claims[who].phase == Phase::Idle);
            let late = self.fault == Some(FROM_ARRIVAL) && unread;
            let can = [
                (comes && self.claims[who] == Mode::Alone && state.trouble.flights > 0, Action::Fly(who)),
                (comes, Action::Ask(who)),
                (!claim.wire.is_empty(), Action::Do(who)),
                (!claim.late.is_empty(), Action::DoLate(who)),
                (claim.reply.is_some(), Action::Read(who)),
                (waits && !claim.news.is_empty(), Action::Hear(who)),
                (waits && claim.link && claim.news.is_empty() && self.looks(state, who), Action::Look(who)),
                (claim.phase == Phase::Holding, Action::Leave(who)),
                (lives && !claim.link, Action::Connect(who)),
                (has && !claim.lapsed, Action::Lapse(who)),
                (has && (claim.lapsed || late), Action::Expire(who)),
                (unread && state.trouble.cancels > 0, Action::Cancel(who)),
                (lives && claim.link && state.trouble.breaks > 0, Action::Break(who)),
                (lives && !claim.link && claim.listens, Action::Close(who)),
                (asks && !claim.link, Action::Refuse(who)),
                (lives && state.trouble.crashes > 0, Action::Crash(who)),
                (unread && claim.shown && state.trouble.stalls > 0, Action::Stall(who)),
            ];
            actions.extend(can.into_iter().filter_map(|(can, action)| can.then_some(action)));
        }
        if state.trouble.falls > 0 && state.last > 0 {
            actions.push(Action::Fall);
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
                Property::always(SERVED, |model: &Self, state: &State| state.unheard || !model.can_be_served(state)),
                Property::always(IN_TURN, |_, state: &State| !state.passed),
            ])
            .collect()
    }
}

impl Redis {
    /// Can somebody in line have the lock as it is?
    fn can_be_served(&self, state: &State) -> bool {
        let lives = |who: &&Who| state.claims[**who].lives();
        match state.lock {
            Lock::Of(_) => false,
            Lock::Free => state.line.iter().any(|who| lives(&who)),
            Lock::Beside => state.line.first().filter(lives).is_some_and(|&first| self.fits(state, first)),
        }
    }

    fn fits(&self, state: &State, who: Who) -> bool {
        let held = state.holders.iter().map(|&holder| self.claims[holder]);
        state.lock == Lock::Free || state.lock == Lock::Beside && self.claims[who].fits(held)
    }

    /// Would a look change anything?
    fn looks(&self, state: &State, who: Who) -> bool {
        let mut step = Step { model: self, state: state.clone() };
        step.look(who);
        step.state != *state
    }
}
