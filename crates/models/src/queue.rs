//! The queue in the process: tasks that want one name, one of which asks the store. What one does while the line is
//! locked is one step; what is sent to a waiter arrives later, and a waiter may be cancelled at any moment.
//!
//! It stands for `crates/lock-core/src/engine`: `queue.rs` with `queue/line.rs`, `queue/place.rs` and
//! `queue/readers.rs`, what `request.rs` and `core.rs` make of them, and the end of a hold in `hold.rs` and `keeper.rs`.
//! Tasks of one owner that have a lock together are left out.

use stateright::{Model, Property};

use crate::line::{comes, goes_on};
use crate::modes::{Mode, Witness};
use crate::{Explored, Proof, explore_each, walk};

mod line;
mod state;

use state::{Action, Asks, Kind, Line, Mail, Permit, Phase, State, Step, Store, Task, Trouble, Turn};

const EXCLUSION: &str = "the tasks that believe that they hold the lock may hold it together";
const TOKENS: &str = "a token is above that of every earlier holder whom it excludes";
const ONE_ASKS: &str = "the right to ask for all is somebody's if it is taken, and one's alone";
const AWAITED: &str = "who waits waits for a hold that runs, for who asks, or for a look that is due";
const GONE: &str = "who has gone stands in no line";
const AT_REST: &str = "when nothing goes on any more, nobody waits and nothing is left in the process or in the store";

const SWALLOWED: &str = "a right to ask that is dropped goes to nobody";
const LOST_TURN: &str = "what is sent to a waiter that has gone is lost";
const BOTH_BELIEVE: &str = "a grant does not end the hold that it replaces";
const READS_ALONE: &str = "a reader's grant does not end the hold of who had the lock alone before";
const NO_VACATE: &str = "a hold that is over is taken out of the line by nobody";
const OVER_BEFORE: &str = "a hold that ended before it came into the line stays there";
const KEEPS_PLACE: &str = "who gives up keeps its place in line";
const FAILURE_STAYS: &str = "who asked and failed tells the others, and still counts as asking";

/// The model and its faults.
pub(crate) const PROOF: Proof = Proof {
    name: "queue",
    stands_for: &[
        "crates/lock-core/src/engine/queue.rs",
        "crates/lock-core/src/engine/queue",
        "crates/lock-core/src/engine/request.rs",
        "crates/lock-core/src/engine/core.rs",
    ],
    rules: &[EXCLUSION, TOKENS, ONE_ASKS, AWAITED, GONE, AT_REST],
    mutations: &[SWALLOWED, LOST_TURN, BOTH_BELIEVE, READS_ALONE, NO_VACATE, OVER_BEFORE, KEEPS_PLACE, FAILURE_STAYS],
    explore: |fault| explore_each(small(fault)),
    walk: large,
};

fn small(fault: Option<&'static str>) -> Vec<Queue> {
    let some = Trouble { cancels: 1, losses: 1, evictions: 0, failures: 1 };
    [
        (vec![Kind::Line, Kind::Line, Kind::Line], Trouble { cancels: 2, ..some }),
        (vec![Kind::Reader, Kind::Reader, Kind::Line], some.clone()),
        (vec![Kind::Fair, Kind::Line, Kind::Line], some.clone()),
        (vec![Kind::Fair, Kind::Fair, Kind::Line], Trouble { losses: 0, evictions: 1, failures: 0, ..some.clone() }),
        (vec![Kind::Fair, Kind::Line, Kind::Reader], Trouble { losses: 0, evictions: 1, failures: 0, ..some.clone() }),
        (vec![Kind::Line, Kind::Line, Kind::Line, Kind::Line], Trouble { cancels: 2, ..some }),
        (vec![Kind::Line, Kind::Line, Kind::Fair, Kind::Reader], some.clone()),
    ]
    .into_iter()
    .map(|(tasks, trouble)| Queue { tasks, trouble, fault })
    .collect()
}

fn large(seed: u64) -> Explored {
    let tasks = vec![Kind::Line, Kind::Reader, Kind::Line, Kind::Fair, Kind::Line, Kind::Reader, Kind::Line];
    let trouble = Trouble { cancels: 4, losses: 2, evictions: 1, failures: 2 };
    walk(Queue { tasks, trouble, fault: None }, seed, 200_000)
}

struct Queue {
    tasks: Vec<Kind>,
    trouble: Trouble,
    fault: Option<&'static str>,
}

impl Queue {
    fn mode(&self, request: usize) -> Mode {
        if self.tasks[request] == Kind::Reader { Mode::Shared } else { Mode::Alone }
    }
}

impl Model for Queue {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            line: Line { holding: None, asks: false, waiting: Vec::new(), alone: 0, reading: None },
            tasks: vec![Task { phase: Phase::Out, ends: None }; self.tasks.len()],
            store: vec![Store::Nothing; self.tasks.len()],
            holds: vec![None; self.tasks.len()],
            mail: Vec::new(),
            granted: 0,
            witness: Witness::default(),
            trouble: self.trouble.clone(),
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (who, task) in state.tasks.iter().enumerate() {
            let store = state.store[who];
            let mode = self.mode(who);
            let comes = comes(&self.tasks, who, |who| state.tasks[who].phase == Phase::Out);
            let pending = matches!(task.phase, Phase::Asking(Asks { request, .. })
                if state.store[request] == Store::Asked);
            let answered = matches!(task.phase, Phase::Asking(Asks { request, .. })
                if matches!(state.store[request], Store::Has { .. }));
            let gives_up = matches!(task.phase, Phase::Asking(_) | Phase::Waiting) && state.trouble.cancels > 0;
            let hold = state.holds[who];
            let runs = hold.is_some_and(|hold| hold.runs);
            // Between the answer and the line a task does not wait for anything.
            let entered =
                !state.tasks.iter().any(|task| matches!(task.phase, Phase::Enters { hold, .. } if hold == who));
            let has = matches!(store, Store::Has { .. });
            let held = state.store.iter().enumerate().filter(|(_, store)| matches!(store, Store::Has { .. }));
            let is_free = mode.fits(held.map(|(other, _)| self.mode(other)));
            let can = [
                (comes, Action::Come(who)),
                (answered, Action::Know(who)),
                (matches!(task.phase, Phase::Enters { .. }), Action::Enter(who)),
                (matches!(task.phase, Phase::Inside { .. }), Action::Leave(who)),
                (task.ends.is_some(), Action::Close(who)),
                (store == Store::Asked && is_free, Action::Grant(who)),
                (matches!(store, Store::Undone { .. }), Action::Undo(who)),
                (hold.is_some_and(|hold| hold.look_is_due), Action::Vacate(who)),
                (has && hold.is_some_and(|hold| hold.lost), Action::Expire(who)),
                (gives_up, Action::Cancel(who)),
                (pending && state.trouble.failures > 0, Action::Fail(who)),
                (
                    runs && state.trouble.losses > 0 || hold.is_some_and(|hold| hold.runs && hold.evicted),
                    Action::Lose(who),
                ),
                (runs && has && entered && state.trouble.evictions > 0, Action::Evict(who)),
            ];
            actions.extend(can.into_iter().filter_map(|(can, action)| can.then_some(action)));
        }
        actions.extend((0..state.mail.len()).map(Action::Deliver));
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut step = Step { model: self, state: before.clone() };
        step.act(action);
        Some(step.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(EXCLUSION, |model: &Self, state: &State| {
                let believe = (0..state.tasks.len()).filter(|&who| state.believes(who).is_some());
                Mode::all_fit(&believe.map(|who| model.mode(who)).collect::<Vec<_>>())
            }),
            Property::always(TOKENS, |_, state: &State| !state.witness.fell),
            Property::always(ONE_ASKS, |_, state: &State| {
                let of_all = |asks: &Asks| asks.permit == Some(Permit::Line);
                let asking =
                    state.tasks.iter().filter(|task| matches!(&task.phase, Phase::Asking(asks) if of_all(asks)));
                let entering = state
                    .tasks
                    .iter()
                    .filter(|task| matches!(&task.phase, Phase::Enters { permit: Some(Permit::Line), .. }));
                let told = state.mail.iter().filter(|Mail { turn, .. }| match turn {
                    Turn::Ask => true,
                    Turn::GoOn(asks) => of_all(asks),
                    _ => false,
                });
                asking.count() + entering.count() + told.count() == usize::from(state.line.asks)
            }),
            Property::always(AWAITED, |_, state: &State| {
                let line = &state.line;
                let holds = line.holding.is_some_and(|(hold, turn)| {
                    state.holds[hold].is_some_and(|hold| hold.look_is_due || hold.runs && hold.turn == turn)
                });
                line.waiting.is_empty() || line.asks || holds
            }),
            Property::always(GONE, |_, state: &State| {
                state.line.waiting.iter().all(|&who| state.tasks[who].phase == Phase::Waiting)
            }),
            Property::always(AT_REST, |model: &Self, state: &State| {
                if goes_on(model, state, |action| action.is_trouble()) {
                    return true;
                }
                let Line { holding, asks, waiting, alone, reading } = &state.line;
                let unused = holding.is_none() && !asks && waiting.is_empty() && *alone == 0 && reading.is_none();
                let all_gone = state.tasks.iter().all(|task| task.phase == Phase::Done);
                unused && all_gone && state.store.iter().all(|store| *store == Store::Nothing)
            }),
        ]
    }
}
