//! What the clients and the server know.

use crate::line::{Phase, Seen, Who};
use crate::modes::{Token, Witness, rank};

/// What may happen yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Trouble {
    /// Claims that come by a flight.
    pub(super) flights: u8,
    /// Callers that give up before they have the lock.
    pub(super) cancels: u8,
    /// Connections that break.
    pub(super) breaks: u8,
    /// Processes that die.
    pub(super) crashes: u8,
    /// Clients that are not heard of for so long that they do not count as living.
    pub(super) stalls: u8,
    /// Counters of tokens that fall back.
    pub(super) falls: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) lock: Lock,
    /// Who has it beside others.
    pub(super) holders: Vec<Who>,
    pub(super) line: Vec<Who>,
    /// The last token that was above all before it; and whether the counter fell back since.
    pub(super) last: Token,
    pub(super) fallen: bool,
    pub(super) claims: Vec<Claim>,
    pub(super) witness: Witness,
    /// It may have come free without a release.
    pub(super) unheard: bool,
    /// Somebody was granted the lock past somebody else.
    pub(super) passed: bool,
    pub(super) trouble: Trouble,
}

/// The lock's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Lock {
    Free,
    Of(Who),
    /// Of several.
    Beside,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Claim {
    pub(super) phase: Phase,
    /// Is there a connection, as the client knows?
    pub(super) link: bool,
    /// What the server has yet to do, and what of that is on the former connection.
    pub(super) wire: Vec<Request>,
    pub(super) late: Vec<Request>,
    pub(super) reply: Option<Reply>,
    pub(super) news: Vec<News>,
    /// What the flight has come to: is the key set, and which token was drawn?
    pub(super) set: bool,
    pub(super) drawn: Token,
    /// When the key became its own, this living waiter was in line.
    pub(super) passes: Option<Who>,
    /// What the script is told of the flight before it.
    pub(super) void: bool,
    /// Something may have been done.
    pub(super) unsure: bool,
    /// The server was shown that the client lives; and has its subscription.
    pub(super) shown: bool,
    pub(super) listens: bool,
    /// The token that the store gave it, whether that is written down, and whether the lease is over by its own clock.
    pub(super) token: Token,
    pub(super) written: bool,
    pub(super) lapsed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Request {
    /// The flight: `SET … NX`, `INCR`, and `GET` with `EXISTS`.
    Set,
    Draw,
    Check,
    Acquire {
        void: bool,
    },
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Reply {
    Granted(Token),
    /// The flight is no grant, and perhaps the key is the owner's.
    None {
        void: bool,
    },
    Busy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum News {
    Granted {
        token: Token,
        /// An answer that another has the lock is younger.
        old: bool,
    },
    Enter,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// It comes, by a flight or by a script.
    Fly(Who),
    Ask(Who),
    /// The server does what is first on the wire, or on the former connection.
    Do(Who),
    DoLate(Who),
    /// The client reads a reply, or news.
    Read(Who),
    Hear(Who),
    /// The client of a waiter looks.
    Look(Who),
    Leave(Who),
    Connect(Who),
    /// The lease is over by the holder's clock, and by the server's.
    Lapse(Who),
    Expire(Who),
    /// From here on it is trouble. The caller gives up.
    Cancel(Who),
    /// The connection breaks; the server notices; no other can be made.
    Break(Who),
    Close(Who),
    Refuse(Who),
    Crash(Who),
    Stall(Who),
    Fall,
}

impl Claim {
    /// As the server sees it.
    pub(super) fn lives(&self) -> bool {
        self.shown && self.listens
    }

    /// Sends a request; or when there is a connection again.
    pub(super) fn send(&mut self, requests: &[Request]) {
        if self.link {
            self.wire.extend(requests);
        }
    }

    pub(super) fn ask(&mut self, void: bool) {
        (self.phase, self.void) = (Phase::Asking, void);
        self.send(&[Request::Acquire { void }]);
    }

    /// Whatever it may have is undone.
    pub(super) fn leave(&mut self) {
        (self.phase, self.reply) = (Phase::Leaving, None);
        self.send(&[Request::Release]);
    }

    /// What nobody asks for any more is as it was at first.
    pub(super) fn forget(&mut self) {
        (self.reply, self.set, self.drawn, self.unsure, self.shown) = (None, false, 0, false, false);
        self.news.clear();
        self.wire.clear();
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
        self.lock == Lock::Of(who) || self.holders.contains(&who)
    }

    fn line(&self) -> &[Who] {
        &self.line
    }

    fn witness(&self) -> &Witness {
        &self.witness
    }
}

impl State {
    /// What can make no difference any more is left out.
    pub(super) fn tidy(&mut self) {
        for who in 0..self.claims.len() {
            let has = self.has(who);
            let claim = &mut self.claims[who];
            match claim.phase {
                Phase::Gone => claim.forget(),
                Phase::Dead if claim.late.is_empty() && !has && !self.line.contains(&who) => claim.forget(),
                Phase::Dead | Phase::Leaving => {
                    claim.news.clear();
                    // Nobody believes anything.
                    claim.lapsed = has;
                }
                Phase::Holding => claim.news.clear(),
                _ => {}
            }
            if claim.phase != Phase::Asking {
                (claim.void, claim.unsure) = (false, claim.phase == Phase::Waiting);
            }
            claim.written &= has;
            claim.passes = claim.passes.filter(|_| has && !claim.written);
            let is_granted = matches!(claim.reply, Some(Reply::Granted(_)))
                || claim.news.iter().any(|news| matches!(news, News::Granted { .. }));
            if !is_granted {
                claim.lapsed &= has || claim.phase == Phase::Holding;
                // Of who holds it, the witness has the token.
                if !has || claim.phase == Phase::Holding || claim.phase == Phase::Leaving || claim.phase == Phase::Dead
                {
                    claim.token = 0;
                }
            }
        }
        let mut tokens: Vec<_> = self.witness.tokens().collect();
        tokens.push(&mut self.last);
        for claim in &mut self.claims {
            tokens.extend([&mut claim.token, &mut claim.drawn]);
            tokens.extend(claim.reply.iter_mut().filter_map(|reply| match reply {
                Reply::Granted(token) => Some(token),
                _ => None,
            }));
            tokens.extend(claim.news.iter_mut().filter_map(|news| match news {
                News::Granted { token, .. } => Some(token),
                News::Enter => None,
            }));
        }
        rank(tokens);
    }
}
