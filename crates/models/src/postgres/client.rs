//! What a client does, and what becomes of it.

use super::state::{Action, Owner, Reply, State, Verb};
use super::{DENIED, Postgres, REFUSED, SETTLED};
use crate::line::{Phase, Who, WithLine};
use crate::modes::Token;

/// A state that changes.
pub(super) struct Step<'m> {
    pub(super) model: &'m Postgres,
    pub(super) state: State,
}

impl Step<'_> {
    pub(super) fn is(&self, fault: &'static str) -> bool {
        self.model.fault == Some(fault)
    }

    pub(super) fn act(&mut self, action: Action) {
        let state = &mut self.state;
        match action {
            Action::Come(who) => state.claims[who].ask(),
            Action::ComeTogether(who) => {
                state.trouble.together -= 1;
                state.claims[who].phase = Phase::Asking;
                state.claims[who].send(Verb::Take);
            }
            Action::Begin(who, at) => self.begin(who, at),
            Action::Finish(who, at) => self.finish(who, at),
            Action::Read(who) => self.read(who),
            Action::Hear(who) => self.hear(who),
            Action::Look(who) => self.look(who),
            // It listens anew, as another client.
            Action::Notice(who) => state.claims[who].news.push(None),
            Action::Leave(who) => state.claims[who].leave(),
            Action::Lapse(who) => state.claims[who].lapsed = true,
            Action::Expire(who) => {
                state.holders.retain(|&holder| holder != who);
                state.row.over = state.row.owner != Owner::Beside || state.holders.is_empty();
                state.unheard = true;
            }
            Action::Cancel(who) => {
                state.trouble.cancels -= 1;
                let claim = &mut state.claims[who];
                // A request without an answer may land yet.
                claim.unsettled |= claim.phase == Phase::Asking && claim.reply.is_none();
                claim.leave();
            }
            Action::Break(who) => {
                state.trouble.breaks -= 1;
                let settled = self.is(SETTLED);
                let claim = &mut self.state.claims[who];
                let Some(last) = claim.requests.last().copied() else { return };
                match last.verb {
                    // The janitor repeats it.
                    Verb::Release { .. } => claim.leave(),
                    verb => {
                        (claim.twice, claim.unsettled) = (true, !settled);
                        claim.send(verb);
                    }
                }
            }
            Action::Refuse(who) => {
                if self.is(REFUSED) {
                    self.state.claims[who].phase = Phase::Gone;
                    self.state.claims[who].reply = None;
                } else {
                    self.state.claims[who].unsettled = true;
                    self.state.claims[who].leave();
                }
            }
            Action::Crash(who) => {
                state.trouble.crashes -= 1;
                let claim = &mut state.claims[who];
                (claim.phase, claim.reply, claim.seen) = (Phase::Dead, None, false);
                state.unheard = true;
            }
            Action::Stall(who) => {
                state.trouble.stalls -= 1;
                state.claims[who].seen = false;
                state.unheard = true;
            }
            Action::Mute(who) => {
                state.trouble.mutes -= 1;
                state.claims[who].news.remove(0);
            }
            Action::DieSilently(who) => {
                state.trouble.silent_deaths -= 1;
                state.claims[who].deaf = true;
                // What was on its way is lost.
                state.claims[who].news.clear();
                state.unheard = true;
            }
        }
    }

    fn read(&mut self, who: Who) {
        let waits = self.model.claims[who].1;
        let denied = self.is(DENIED);
        let claim = &mut self.state.claims[who];
        let Some(reply) = claim.reply.take() else { return };
        match reply {
            Reply::Granted(token) => self.believe(who, token),
            Reply::NotTaken => claim.ask(),
            Reply::Busy { held } if waits => (claim.phase, claim.held) = (Phase::Waiting, held),
            // Nobody undoes what was denied, and its first copy may land yet.
            Reply::Busy { .. } if claim.unsettled && !denied => claim.leave(),
            Reply::Busy { .. } => claim.phase = Phase::Gone,
            Reply::GivenUp => claim.leave(),
        }
    }

    fn hear(&mut self, who: Who) {
        let claim = &mut self.state.claims[who];
        match claim.news.remove(0) {
            // It was over when the lock was another's.
            Some(token) if token <= claim.held => {}
            Some(_) if matches!(self.model.mode(who), crate::modes::Mode::Permits { .. }) => claim.ask(),
            Some(token) => self.believe(who, token),
            None => claim.ask(),
        }
    }

    /// It knows that the lock is its own, unless the lease is over by then.
    fn believe(&mut self, who: Who, token: Token) {
        let mode = self.model.mode(who);
        let claim = &mut self.state.claims[who];
        if claim.lapsed || claim.token != token {
            return claim.leave();
        }
        claim.phase = Phase::Holding;
        self.state.witness.begins(mode, token);
    }
}
