//! What a client does, and what becomes of it.

use super::state::{Action, Claim, News, Reply, Request, State};
use super::{LOST_COUNTS, NOT_KILLED, OLD_NEWS, REFUSED, Redis};
use crate::line::{Phase, Who};
use crate::modes::{Mode, Token};

/// A state that changes.
pub(super) struct Step<'m> {
    pub(super) model: &'m Redis,
    pub(super) state: State,
}

impl Step<'_> {
    pub(super) fn is(&self, fault: &'static str) -> bool {
        self.model.fault == Some(fault)
    }

    pub(super) fn claim(&mut self, who: Who) -> &mut Claim {
        &mut self.state.claims[who]
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Fly(who) => {
                self.state.trouble.flights -= 1;
                // Done or not, it is no grant if its answer is lost.
                let void = !self.is(LOST_COUNTS);
                (self.claim(who).phase, self.claim(who).void) = (Phase::Asking, void);
                self.claim(who).send(&[Request::Set, Request::Draw, Request::Check]);
            }
            Action::Ask(who) => self.claim(who).ask(false),
            Action::Do(who) => {
                let request = self.claim(who).wire.remove(0);
                let reply = self.serve_request(who, request);
                let claim = self.claim(who);
                if request == Request::Release {
                    claim.phase = Phase::Gone;
                } else if claim.phase == Phase::Asking {
                    claim.reply = reply;
                }
            }
            Action::DoLate(who) => {
                let request = self.claim(who).late.remove(0);
                self.serve_request(who, request);
            }
            Action::Read(who) => self.read(who),
            Action::Hear(who) => self.hear(who),
            Action::Look(who) => self.look(who),
            Action::Leave(who) => self.claim(who).leave(),
            Action::Cancel(who) => {
                self.state.trouble.cancels -= 1;
                self.claim(who).leave();
            }
            Action::Connect(who) => self.connect(who),
            Action::Lapse(who) => self.claim(who).lapsed = true,
            Action::Expire(who) => {
                self.end(who);
                self.state.unheard = true;
            }
            Action::Break(who) => {
                self.state.trouble.breaks -= 1;
                let claim = self.claim(who);
                claim.link = false;
                claim.unsure |= claim.phase == Phase::Asking;
                let wire = std::mem::take(&mut claim.wire);
                claim.late.extend(wire);
                claim.reply = None;
                claim.news.clear();
            }
            Action::Close(who) => self.unheard(who, |claim| claim.listens = false),
            Action::Refuse(who) => {
                let refused = !self.claim(who).unsure || self.is(REFUSED);
                if refused { self.claim(who).phase = Phase::Gone } else { self.claim(who).leave() }
            }
            Action::Crash(who) => {
                self.state.trouble.crashes -= 1;
                self.unheard(who, |claim| {
                    (claim.phase, claim.link, claim.listens, claim.reply) = (Phase::Dead, false, false, None);
                    let wire = std::mem::take(&mut claim.wire);
                    claim.late.extend(wire);
                });
            }
            Action::Stall(who) => {
                self.state.trouble.stalls -= 1;
                self.unheard(who, |claim| claim.shown = false);
            }
            Action::Fall => {
                self.state.trouble.falls -= 1;
                self.state.fallen = true;
            }
        }
    }

    fn unheard(&mut self, who: Who, change: impl FnOnce(&mut Claim)) {
        change(self.claim(who));
        self.state.unheard = true;
    }

    /// A new connection, which ends the former one first. What was asked is asked again.
    fn connect(&mut self, who: Who) {
        let killed = !self.is(NOT_KILLED);
        let claim = self.claim(who);
        if killed {
            claim.late.clear();
        }
        (claim.link, claim.listens) = (true, true);
        match claim.phase {
            Phase::Asking => claim.ask(claim.void),
            Phase::Leaving => claim.leave(),
            _ => {}
        }
    }

    fn read(&mut self, who: Who) {
        let Some(reply) = self.claim(who).reply.take() else { return };
        let claim = self.claim(who);
        match reply {
            Reply::Granted(token) => self.believe(who, token),
            Reply::None { void } => {
                claim.unsure |= void;
                claim.ask(void);
            }
            Reply::Busy => (claim.phase, claim.unsure) = (Phase::Waiting, true),
        }
    }

    fn hear(&mut self, who: Who) {
        let news = self.claim(who).news.remove(0);
        let mode = self.model.claims[who];
        match news {
            // Which permits, the message does not say.
            News::Granted { .. } if matches!(mode, Mode::Permits { .. }) => self.claim(who).ask(false),
            News::Granted { old: true, .. } if !self.is(OLD_NEWS) => self.claim(who).ask(false),
            // Counted from the request that was answered later.
            News::Granted { token, old: true } => {
                (self.claim(who).token, self.claim(who).lapsed) = (token, false);
                self.believe(who, token);
            }
            News::Granted { token, .. } => self.believe(who, token),
            News::Enter => self.claim(who).ask(false),
        }
    }

    /// It knows that the lock is its own, unless the lease is over by then.
    fn believe(&mut self, who: Who, token: Token) {
        let mode = self.model.claims[who];
        let claim = self.claim(who);
        if claim.lapsed || claim.token != token {
            claim.leave();
            return;
        }
        self.claim(who).phase = Phase::Holding;
        self.state.witness.begins(mode, token);
    }
}
