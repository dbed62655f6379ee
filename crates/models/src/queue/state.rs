//! What the tasks, the line and the store know, and what happens.

use super::Queue;
use crate::modes::Witness;

/// A task; a request and the hold that comes of it have the number of the task that began the request.
pub(super) type Who = usize;

/// How often a hold is handed over.
pub(super) const HAND_OVERS: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It stands in the line of the process.
    Line,
    /// It asks the store itself, to be fair to other processes.
    Fair,
    /// It shares a grant with other readers.
    Reader,
}

/// How much may go wrong yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Trouble {
    /// Tasks that are cancelled while they wait.
    pub(super) cancels: u8,
    /// Holds that end: their time is over, or the store said so.
    pub(super) losses: u8,
    /// Holds that the store ends without a word.
    pub(super) evictions: u8,
    /// Requests that fail.
    pub(super) failures: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) line: Line,
    pub(super) tasks: Vec<Task>,
    /// What the store has of each request.
    pub(super) store: Vec<Store>,
    pub(super) holds: Vec<Option<Hold>>,
    pub(super) mail: Vec<Mail>,
    /// How many grants there were.
    pub(super) granted: u8,
    pub(super) witness: Witness,
    pub(super) trouble: Trouble,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Line {
    /// The hold, and whose turn it is.
    pub(super) holding: Option<(Who, u8)>,
    pub(super) asks: bool,
    pub(super) waiting: Vec<Who>,
    pub(super) alone: u8,
    /// What readers share, and how many came in to it.
    pub(super) reading: Option<(Who, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Task {
    pub(super) phase: Phase,
    /// It was the last reader of this hold, which it is about to close.
    pub(super) ends: Option<Who>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Out,
    Waiting,
    Asking(Asks),
    /// The keeper knows its hold, and the line not yet.
    Enters {
        hold: Who,
        permit: Option<Permit>,
    },
    Inside {
        hold: Who,
        turn: u8,
    },
    Done,
}

/// Who asks the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asks {
    pub(super) request: Who,
    pub(super) permit: Option<Permit>,
}

/// The right to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Permit {
    /// For all who wait.
    Line,
    Nobody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Store {
    Nothing,
    Asked,
    Has {
        token: u8,
    },
    /// A release is on its way.
    Undone {
        token: Option<u8>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Hold {
    pub(super) runs: bool,
    pub(super) turn: u8,
    pub(super) readers: u8,
    pub(super) token: u8,
    /// It ended without a release, and the keeper is to look whether the line knows.
    pub(super) lost: bool,
    pub(super) look_is_due: bool,
    pub(super) evicted: bool,
}

/// What is on its way to a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mail {
    pub(super) to: Who,
    pub(super) turn: Turn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Turn {
    Held { hold: Who, turn: u8 },
    Ask,
    GoOn(Asks),
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Come(Who),
    /// It is told that it was granted the lock; and says so in the line.
    Know(Who),
    Enter(Who),
    Leave(Who),
    /// The last reader closes what was shared.
    Close(Who),
    Deliver(usize),
    Grant(Who),
    Undo(Who),
    /// The keeper looks whether a hold that is over is still in the line.
    Vacate(Who),
    /// The store's time of a hold is over.
    Expire(Who),
    /// From here on it is trouble.
    Cancel(Who),
    Fail(Who),
    Lose(Who),
    Evict(Who),
}

impl Action {
    pub(super) fn is_trouble(self) -> bool {
        matches!(self, Self::Cancel(_) | Self::Fail(_) | Self::Lose(_) | Self::Evict(_))
    }
}

impl State {
    /// The turn in which it holds the lock, as it believes.
    pub(super) fn believes(&self, who: Who) -> Option<(Who, u8)> {
        let Phase::Inside { hold, turn } = self.tasks[who].phase else { return None };
        self.holds[hold].filter(|hold| hold.runs && hold.turn == turn).map(|_| (hold, turn))
    }
}

/// A state that changes.
pub(super) struct Step<'m> {
    pub(super) model: &'m Queue,
    pub(super) state: State,
}
