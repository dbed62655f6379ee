//! The task of a client with waiters: it looks for what no message told, once in a turn and when a lease is over, and
//! ends when nobody waits.
//!
//! It stands for `register`, `entered`, `look_by`, `ensure_task`, `due` and `is_over` of
//! `crates/lock-core/src/authors/waiters.rs`, and for what Redis, PostgreSQL and MySQL make of them. What happens while
//! the list of waiters is locked is one step. No message comes: a waiter is served when a look finds its grant.

use stateright::{Model, Property};

use crate::{Proof, explore, walk};

const LOOKED_FOR: &str = "while somebody waits, a task looks that is not about to end";
const IN_TIME: &str = "when a lease ends for which somebody waits, the task looks";

const ENDS_UNSAID: &str = "a task that is about to end does not say so";
const LATE: &str = "who comes is in the list only after it has seen to the task";
const SHUT_DOWN: &str = "whether the task runs is not asked";
const ASLEEP: &str = "only a task that sleeps already is woken";
const ONCE: &str = "a look that comes before the end of a lease asks for no other";

pub(crate) const PROOF: Proof = Proof {
    name: "waiters",
    stands_for: &[
        "crates/lock-core/src/authors/waiters.rs",
        "crates/lock-redis/src/waiters.rs",
        "crates/lock-sql/src/mysql/waiters.rs",
        "crates/lock-sql/src/postgres/waiters.rs",
    ],
    rules: &[LOOKED_FOR, IN_TIME],
    mutations: &[ENDS_UNSAID, LATE, SHUT_DOWN, ASLEEP, ONCE],
    explore: |fault| explore(Waiters { waiters: 3, comes: 2, shutdowns: 1, fault }),
    walk: |seed| walk(Waiters { waiters: 6, comes: 6, shutdowns: 3, fault: None }, seed, 100_000),
};

struct Waiters {
    waiters: usize,
    /// So often each comes.
    comes: u8,
    shutdowns: u8,
    fault: Option<&'static str>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct State {
    waiters: Vec<Waiter>,
    task: Task,
    /// When to look next; `None`: no task looks, or it is about to end.
    next_look: Option<Look>,
    /// The task is to look at that again.
    woken: bool,
    /// Runtimes on which the task ran, and that end.
    shutdowns: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Waiter {
    phase: Phase,
    comes: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Away,
    /// Its request is on its way.
    Asks,
    /// The store has it in line, and it is to see to the task.
    InLine,
    /// The task runs. It is to be told when the holder's lease is over.
    Enters,
    Waits,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
enum Look {
    /// When a lease is over.
    Soon,
    InATurn,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Task {
    Nothing,
    /// It is to read when to look.
    Reads,
    /// It has read that, and then sleeps until then.
    Read(Look),
    Sleeps(Look),
    /// It is time: it ends or asks the store.
    Due,
    Looks,
    Ends,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Action {
    Come(usize),
    Answer(usize),
    SeeToTheTask(usize),
    Enter(usize),
    /// It was served, or gives up.
    Leave(usize),
    /// The task's next step.
    GoOn,
    /// The time has come until which it slept.
    Wake,
    /// Its look serves this one, or nobody.
    Look(Option<usize>),
    /// Its runtime ends, on which nobody waits.
    ShutDown,
}

impl Waiters {
    fn is(&self, fault: &str) -> bool {
        self.fault == Some(fault)
    }

    /// Is it in the list?
    fn lists(&self, phase: Phase) -> bool {
        match phase {
            Phase::Away => false,
            Phase::Waits => true,
            _ => !self.is(LATE),
        }
    }

    fn look_soon(&self, state: &mut State) {
        if state.next_look == Some(Look::InATurn) {
            state.next_look = Some(Look::Soon);
            state.woken = !self.is(ASLEEP) || matches!(state.task, Task::Sleeps(_));
        }
    }

    /// The task's step between two of its awaits.
    fn go_on(&self, state: &mut State) {
        state.task = match state.task {
            Task::Reads => Task::Read(*state.next_look.get_or_insert(Look::InATurn)),
            Task::Read(_) | Task::Sleeps(_) if state.woken => {
                state.woken = false;
                Task::Reads
            }
            Task::Read(look) => Task::Sleeps(look),
            Task::Due if state.waiters.iter().any(|waiter| self.lists(waiter.phase)) => Task::Looks,
            Task::Due => {
                if !self.is(ENDS_UNSAID) {
                    state.next_look = None;
                }
                Task::Ends
            }
            Task::Ends => Task::Nothing,
            other => other,
        };
    }
}

impl Model for Waiters {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        let waiter = Waiter { phase: Phase::Away, comes: self.comes };
        let waiters = vec![waiter; self.waiters];
        vec![State { waiters, task: Task::Nothing, next_look: None, woken: false, shutdowns: self.shutdowns }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for (who, waiter) in state.waiters.iter().enumerate() {
            let next = match waiter.phase {
                Phase::Away => (waiter.comes > 0).then_some(Action::Come(who)),
                Phase::Asks => Some(Action::Answer(who)),
                Phase::InLine => Some(Action::SeeToTheTask(who)),
                Phase::Enters => Some(Action::Enter(who)),
                Phase::Waits => None,
            };
            let leaves = (waiter.phase != Phase::Away).then_some(Action::Leave(who));
            actions.extend(next.into_iter().chain(leaves));
        }
        match state.task {
            Task::Nothing => {}
            Task::Sleeps(_) if !state.woken => actions.push(Action::Wake),
            Task::Looks => {
                let waits = |who: &usize| state.waiters[*who].phase == Phase::Waits;
                actions.extend((0..self.waiters).filter(waits).map(Some).chain([None]).map(Action::Look));
            }
            _ => actions.push(Action::GoOn),
        }
        let anybody = state.waiters.iter().any(|waiter| waiter.phase != Phase::Away);
        if state.task != Task::Nothing && state.shutdowns > 0 && !anybody {
            actions.push(Action::ShutDown);
        }
    }

    fn next_state(&self, before: &State, action: Action) -> Option<State> {
        let mut state = before.clone();
        match action {
            Action::Come(who) => {
                let waiter = &mut state.waiters[who];
                (waiter.phase, waiter.comes) = (Phase::Asks, waiter.comes - 1);
            }
            Action::Answer(who) => state.waiters[who].phase = Phase::InLine,
            Action::SeeToTheTask(who) => {
                let runs = state.task != Task::Nothing || self.is(SHUT_DOWN);
                if !runs || state.next_look.is_none() {
                    (state.task, state.next_look) = (Task::Reads, Some(Look::InATurn));
                }
                state.waiters[who].phase = Phase::Enters;
            }
            Action::Enter(who) => {
                state.waiters[who].phase = Phase::Waits;
                self.look_soon(&mut state);
            }
            Action::Leave(who) => state.waiters[who].phase = Phase::Away,
            Action::GoOn => self.go_on(&mut state),
            Action::Wake => {
                // It reads once more when to look.
                let is_due = Task::Sleeps(state.next_look?) == state.task;
                state.task = if is_due { Task::Due } else { Task::Reads };
                if is_due {
                    state.next_look = Some(Look::InATurn);
                }
            }
            Action::Look(served) => {
                state.task = Task::Reads;
                served.into_iter().for_each(|who| state.waiters[who].phase = Phase::Away);
                // The other locks are held yet.
                if state.waiters.iter().any(|waiter| waiter.phase == Phase::Waits) && !self.is(ONCE) {
                    self.look_soon(&mut state);
                }
            }
            Action::ShutDown => {
                state.shutdowns -= 1;
                state.task = Task::Nothing;
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(LOOKED_FOR, |_, state: &State| {
                let waits = |waiter: &Waiter| matches!(waiter.phase, Phase::Enters | Phase::Waits);
                !state.waiters.iter().any(waits) || !matches!(state.task, Task::Nothing | Task::Ends)
            }),
            Property::always(IN_TIME, |_, state: &State| {
                let sleeps_on = match state.task {
                    Task::Nothing | Task::Ends | Task::Due | Task::Looks => false,
                    Task::Reads => state.next_look != Some(Look::Soon),
                    Task::Read(look) | Task::Sleeps(look) => look != Look::Soon && !state.woken,
                };
                !state.waiters.iter().any(|waiter| waiter.phase == Phase::Waits) || !sleeps_on
            }),
        ]
    }
}
