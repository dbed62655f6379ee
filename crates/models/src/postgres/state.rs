//! What the clients know, and what is in the tables.

use crate::line::{Phase, Seen, Who};
use crate::modes::{Token, Witness, rank};

/// What may happen yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Trouble {
    /// Claims that are sent with others.
    pub(super) together: u8,
    /// Callers that give up before they have the lock.
    pub(super) cancels: u8,
    /// Connections that break with a request on its way.
    pub(super) breaks: u8,
    /// Processes that die.
    pub(super) crashes: u8,
    /// Clients that are not seen for so long that they do not count as living.
    pub(super) stalls: u8,
    /// Notifications that are lost.
    pub(super) mutes: u8,
    /// Listeners that die, and only the server knows.
    pub(super) silent_deaths: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) row: Row,
    /// Which request of whose has the row.
    pub(super) had_by: Option<(Who, usize)>,
    /// Who has the lock beside others.
    pub(super) holders: Vec<Who>,
    pub(super) line: Vec<Who>,
    /// The marks of those who gave up.
    pub(super) gone: Vec<bool>,
    pub(super) last: Token,
    pub(super) claims: Vec<Claim>,
    pub(super) witness: Witness,
    /// It may have come free without a release.
    pub(super) unheard: bool,
    pub(super) trouble: Trouble,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Row {
    pub(super) owner: Owner,
    /// The lease is over.
    pub(super) over: bool,
    pub(super) waited_for: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Owner {
    Nobody,
    Alone(Who),
    /// The only reader, who found it free.
    Reader(Who),
    /// Several.
    Beside,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) phase: Phase,
    /// What is on its way to the server. All but the last were given up.
    pub(super) requests: Vec<Request>,
    pub(super) reply: Option<Reply>,
    /// Grants of which it was told; none: it is to enter anew.
    pub(super) news: Vec<Option<Token>>,
    /// A request was sent twice; or may be on its way yet, as the client has noted.
    pub(super) twice: bool,
    pub(super) unsettled: bool,
    /// Its client counts as living.
    pub(super) seen: bool,
    /// The listener is dead with which it entered the line. Nothing is heard there, and the session lock is gone.
    pub(super) deaf: bool,
    /// The token of who had the lock when it entered the line.
    pub(super) held: Token,
    pub(super) token: Token,
    pub(super) lapsed: bool,
}

impl Default for Claim {
    fn default() -> Self {
        Self {
            phase: Phase::Idle,
            requests: Vec::new(),
            reply: None,
            news: Vec::new(),
            twice: false,
            unsettled: false,
            seen: true,
            deaf: false,
            held: 0,
            token: 0,
            lapsed: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    pub(super) verb: Verb,
    /// It took the lock as it had the row.
    pub(super) took: bool,
    /// Whether it saw, before it had the row, that its owner had given up: with a fault only.
    pub(super) saw_gone: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Verb {
    /// With others: it waits for nobody.
    Take,
    Acquire,
    Release {
        gives_up: bool,
    },
}

impl Request {
    pub(super) fn skips(self) -> bool {
        self.verb == Verb::Take
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Granted(Token),
    /// It was sent with others, and is to be sent alone.
    NotTaken,
    Busy {
        held: Token,
    },
    /// The owner gave up.
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Come(Who),
    ComeTogether(Who),
    /// A request has the row; and it commits.
    Begin(Who, usize),
    Finish(Who, usize),
    Read(Who),
    Hear(Who),
    Look(Who),
    /// It asked a question on its listener, and heard no answer.
    Notice(Who),
    Leave(Who),
    /// The lease is over by the holder's clock, and by the server's.
    Lapse(Who),
    Expire(Who),
    /// From here on it is trouble. The caller gives up.
    Cancel(Who),
    Break(Who),
    Refuse(Who),
    Crash(Who),
    Stall(Who),
    Mute(Who),
    DieSilently(Who),
}

impl Claim {
    pub(super) fn send(&mut self, verb: Verb) {
        self.requests.push(Request { verb, took: false, saw_gone: None });
    }

    pub(super) fn ask(&mut self) {
        self.phase = Phase::Asking;
        self.send(Verb::Acquire);
    }

    /// Whatever it may have is undone.
    pub(super) fn leave(&mut self) {
        (self.phase, self.reply) = (Phase::Leaving, None);
        self.send(Verb::Release { gives_up: self.unsettled });
    }
}

impl Seen for State {
    fn phases(&self) -> impl Iterator<Item = Phase> {
        self.claims.iter().map(|claim| claim.phase)
    }

    fn believes(&self, who: Who) -> bool {
        self.claims[who].phase == Phase::Holding && !self.claims[who].lapsed
    }

    fn has(&self, who: Who) -> bool {
        let own = matches!(self.row.owner, Owner::Alone(owner) | Owner::Reader(owner) if owner == who);
        own && !self.row.over || self.holders.contains(&who)
    }

    fn line(&self) -> &[Who] {
        &self.line
    }

    fn witness(&self) -> &Witness {
        &self.witness
    }
}

impl State {
    /// Is its place in line that of a client that counts as living?
    pub(super) fn lives(&self, who: Who) -> bool {
        self.claims[who].seen && !self.claims[who].deaf
    }

    /// What can make no difference any more is left out.
    pub(super) fn tidy(&mut self) {
        for who in 0..self.claims.len() {
            let has = self.has(who);
            let claim = &mut self.claims[who];
            claim.deaf &= self.line.contains(&who);
            let waits = matches!(claim.phase, Phase::Asking | Phase::Waiting);
            if !waits {
                claim.news.clear();
                (claim.twice, claim.held) = (false, 0);
                claim.seen |= matches!(claim.phase, Phase::Holding | Phase::Gone);
            }
            let is_granted = matches!(claim.reply, Some(Reply::Granted(_))) || claim.news.iter().any(Option::is_some);
            if !is_granted {
                claim.lapsed &= has || claim.phase == Phase::Holding;
                if !waits || !has {
                    claim.token = 0;
                }
            }
            if matches!(claim.phase, Phase::Leaving | Phase::Dead | Phase::Gone) {
                claim.lapsed = has;
            }
            if matches!(claim.phase, Phase::Gone | Phase::Dead) {
                claim.unsettled = false;
                if claim.requests.is_empty() {
                    self.gone[who] = false;
                }
            }
        }
        let mut tokens: Vec<_> = self.witness.tokens().collect();
        tokens.push(&mut self.last);
        for claim in &mut self.claims {
            tokens.extend([&mut claim.token, &mut claim.held]);
            tokens.extend(claim.reply.iter_mut().filter_map(|reply| match reply {
                Reply::Granted(token) | Reply::Busy { held: token } => Some(token),
                _ => None,
            }));
            tokens.extend(claim.news.iter_mut().filter_map(Option::as_mut));
        }
        rank(tokens);
    }
}
