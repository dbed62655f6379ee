//! When a client may be sure that its session lives. It stands for `proved`, `prove`, `sure` and `valid_until` of
//! `crates/lock-zookeeper/src/session.rs`.
//!
//! The leader ends a session of which it has not heard for so long. A follower answers for it meanwhile: it notes that it
//! heard of the session, and reports that when the leader pings it, which that does twice a tick. To commit a write
//! is no such report; it only shows that the session was there. What goes between two servers arrives in its order, or
//! the link is cut for good; then the follower gives its clients up, and the next one asks the leader for the session,
//! which is a report.
//!
//! All times are ages, in quarters of a tick. Assumed is what the half tick stands for: within it the leader pings, the
//! ping arrives, and so does its answer, unless the link is cut. (`LATE_REPORT` shows that this is needed.) The client's
//! clock may be slower than the leader's by one in the whole time, which is what the core takes off.

use stateright::{Model, Property};

pub(super) const SURE: &str = "who is sure of its session has it";

pub(super) const ONE_WRITE: &str = "a write counts when it is answered";
pub(super) const AT_ONCE: &str = "the second write is sent at once";
pub(super) const FROM_ANSWER: &str = "a write counts from its answer";
pub(super) const PINGS: &str = "a follower's answer to a ping counts";
pub(super) const NO_MARGIN: &str = "nothing is taken off for the clock";
pub(super) const LATE_REPORT: &str = "a report is later than half a tick";

/// Half a tick.
const REPORT: u8 = 2;

pub(super) struct Proving {
    /// The session's time.
    lasts: u8,
    mutation: Option<&'static str>,
}

impl Proving {
    pub(super) fn new(lasts: u8, mutation: Option<&'static str>) -> Self {
        Self { lasts, mutation }
    }

    fn is(&self, mutation: &str) -> bool {
        self.mutation == Some(mutation)
    }

    fn is_sure(&self, world: &World) -> bool {
        let margin = if self.is(NO_MARGIN) { 0 } else { 1 };
        world.base.is_some_and(|base| base + margin < self.lasts)
    }

    /// The client hears that a write was committed, which it sent so long ago.
    fn proved(&self, world: &mut World, sent: u8) {
        let report = if self.is(AT_ONCE) { 0 } else { REPORT };
        if self.is(ONE_WRITE) {
            world.base = world.base.min(Some(sent)).or(Some(sent));
        }
        while let Some(&(before, answered)) = world.recent.first()
            && answered >= sent + report
        {
            let counts = if self.is(FROM_ANSWER) { answered } else { before };
            world.base = Some(world.base.map_or(counts, |base| base.min(counts)));
            world.recent.remove(0);
        }
        // A few are enough.
        if world.recent.len() < 2 {
            world.recent.push((sent, 0));
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Message {
    /// From the leader to the follower, and its answer: did it hear of the session?
    Ping,
    Report(bool),
    /// The write, on its way to the leader and back.
    Request,
    Commit,
}

/// How far the client's write has come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Stage {
    Sent,
    /// Between the servers.
    Under,
    Answered,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct World {
    /// Since the leader heard of the session, and since it pinged the follower.
    heard: u8,
    pinged: u8,
    expired: bool,
    /// The follower has something to report.
    owes: bool,
    cut: bool,
    up: Vec<Message>,
    down: Vec<Message>,
    /// By the client's clock, as all that follows: since when the session lasts; what was sent and answered; and its write.
    base: Option<u8>,
    recent: Vec<(u8, u8)>,
    write: Option<(u8, Stage)>,
    lags: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Action {
    Tick,
    /// The client's clock misses it.
    Lag,
    Write,
    Arrive,
    LeaderPings,
    LeaderTakes,
    FollowerTakes,
    /// The client takes the answer.
    Answer,
    Ping,
    Cut,
    /// To another server.
    Reconnect,
    Expire,
}

impl Model for Proving {
    type State = World;
    type Action = Action;

    /// The leader has just made the session, and the client asked for it then.
    fn init_states(&self) -> Vec<World> {
        vec![World {
            heard: 0,
            pinged: 0,
            expired: false,
            owes: false,
            cut: false,
            up: Vec::new(),
            down: Vec::new(),
            base: Some(0),
            recent: Vec::new(),
            write: None,
            lags: 1,
        }]
    }

    fn actions(&self, world: &World, actions: &mut Vec<Action>) {
        let mut push = |is: bool, action: Action| is.then(|| actions.push(action));
        let stage = world.write.map(|(_, stage)| stage);
        // In less than half a tick all of it has happened.
        let late = self.is(LATE_REPORT) || (world.up.is_empty() && world.down.is_empty());
        let ticks = world.cut || (late && world.pinged + 1 < REPORT);
        push(ticks, Action::Tick);
        push(ticks && world.lags > 0, Action::Lag);
        push(stage.is_none() && !world.cut, Action::Write);
        push(stage == Some(Stage::Sent) && !world.cut, Action::Arrive);
        push(!world.cut && world.pinged > 0 && !world.down.contains(&Message::Ping), Action::LeaderPings);
        push(!world.up.is_empty(), Action::LeaderTakes);
        push(!world.down.is_empty(), Action::FollowerTakes);
        push(stage == Some(Stage::Answered), Action::Answer);
        push(self.is(PINGS), Action::Ping);
        push(!world.cut, Action::Cut);
        push(world.cut && !world.expired, Action::Reconnect);
        push(world.heard >= self.lasts && !world.expired, Action::Expire);
    }

    fn next_state(&self, world: &World, action: Action) -> Option<World> {
        let mut next = world.clone();
        match action {
            Action::Tick | Action::Lag => {
                next.heard = (world.heard + 1).min(self.lasts);
                next.pinged = (world.pinged + 1).min(REPORT);
                if action == Action::Lag {
                    next.lags -= 1;
                } else {
                    next.base = world.base.map(|base| base + 1).filter(|base| *base < self.lasts);
                    next.recent.iter_mut().for_each(|(sent, answered)| (*sent, *answered) = (*sent + 1, *answered + 1));
                    next.recent.retain(|(sent, _)| *sent < self.lasts);
                    next.write = world.write.map(|(sent, stage)| ((sent + 1).min(self.lasts), stage));
                }
            }
            Action::Write => next.write = Some((0, Stage::Sent)),
            Action::Arrive => {
                next.write.as_mut()?.1 = Stage::Under;
                next.owes = true;
                next.up.push(Message::Request);
            }
            Action::LeaderPings => {
                next.pinged = 0;
                next.down.push(Message::Ping);
            }
            Action::LeaderTakes => match next.up.remove(0) {
                Message::Report(true) if !world.expired => next.heard = 0,
                Message::Request if world.expired => next.write = None,
                Message::Request => next.down.push(Message::Commit),
                _ => {}
            },
            Action::FollowerTakes => match next.down.remove(0) {
                Message::Ping => {
                    next.up.push(Message::Report(world.owes));
                    next.owes = false;
                }
                _ => next.write.as_mut()?.1 = Stage::Answered,
            },
            Action::Answer => {
                let (sent, _) = next.write.take()?;
                self.proved(&mut next, sent);
            }
            Action::Ping => (next.base, next.owes) = (Some(0), true),
            Action::Cut => {
                (next.cut, next.owes) = (true, false);
                next.up.clear();
                next.down.clear();
                next.write = world.write.filter(|(_, stage)| *stage == Stage::Answered);
            }
            Action::Reconnect => (next.cut, next.heard, next.pinged) = (false, 0, 0),
            Action::Expire => next.expired = true,
        }
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![Property::always(SURE, |rules: &Self, world: &World| !world.expired || !rules.is_sure(world))]
    }
}
