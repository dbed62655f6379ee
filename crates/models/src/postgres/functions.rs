//! What the functions of the schema do.

use super::client::Step;
use super::state::{Owner, Reply, Request, Verb};
use super::{BEHIND_THE_DEAD, CLEARED, GONE_FIRST, KEEPS_PLACE, NO_MARK, OVERLOOKED, UNMARKED};
use crate::line::{Phase, Seen, Who, WithLine};
use crate::modes::{Mode, Token};

impl Step<'_> {
    fn request(&mut self, (who, at): (Who, usize)) -> &mut Request {
        &mut self.state.claims[who].requests[at]
    }

    /// Nobody has it, and nobody waits.
    fn is_free(&self) -> bool {
        self.state.row.owner == Owner::Nobody && !self.state.row.waited_for
    }

    /// The first statement, which has the row.
    pub(super) fn begin(&mut self, who: Who, at: usize) {
        let (verb, mode) = (self.request((who, at)).verb, self.model.mode(who));
        let acquires = !matches!(verb, Verb::Release { .. });
        if self.is(GONE_FIRST) && acquires && self.request((who, at)).saw_gone.is_none() {
            let gone = self.state.gone[who];
            self.request((who, at)).saw_gone = Some(gone);
            return;
        }
        match verb {
            // A row that another is at is left out.
            Verb::Take if self.state.had_by.is_some() || !self.is_free() => self.answer(who, at, Some(Reply::NotTaken)),
            Verb::Take | Verb::Acquire => {
                let took = self.is_free() && !matches!(mode, Mode::Permits { .. });
                self.request((who, at)).took = took;
                self.state.had_by = Some((who, at));
            }
            Verb::Release { gives_up: true } => self.state.had_by = Some((who, at)),
            Verb::Release { gives_up: false } => {
                self.release(who);
                self.answer(who, at, None);
            }
        }
    }

    /// The others, and the commit.
    pub(super) fn finish(&mut self, who: Who, at: usize) {
        let Request { verb, took, saw_gone } = *self.request((who, at));
        self.state.had_by = None;
        let gone = saw_gone.unwrap_or(self.state.gone[who]);
        let reply = match verb {
            Verb::Release { .. } => {
                self.state.gone[who] = !self.is(NO_MARK);
                self.release_decided(who);
                None
            }
            _ if gone && !self.state.has(who) => Some(Reply::GivenUp),
            _ if took => {
                let token = self.next(who);
                let owner = if self.model.mode(who) == Mode::Alone { Owner::Alone(who) } else { Owner::Reader(who) };
                (self.state.row.owner, self.state.row.over) = (owner, false);
                Some(Reply::Granted(token))
            }
            Verb::Take => Some(Reply::NotTaken),
            Verb::Acquire => {
                self.decide();
                let alone = self.model.mode(who) == Mode::Alone;
                Some(if alone { self.acquire(who) } else { self.acquire_beside(who) })
            }
        };
        self.answer(who, at, reply);
    }

    /// A request is done. Who sent it is told, if it listens yet.
    fn answer(&mut self, who: Who, at: usize, reply: Option<Reply>) {
        let claim = &mut self.state.claims[who];
        let is_last = at + 1 == claim.requests.len();
        claim.requests.remove(at);
        match &mut self.state.had_by {
            Some((other, behind)) if *other == who && *behind > at => *behind -= 1,
            _ => {}
        }
        match reply {
            _ if !is_last => {}
            None if claim.phase == Phase::Leaving => claim.phase = Phase::Gone,
            Some(_) if claim.phase == Phase::Asking => claim.reply = reply,
            _ => {}
        }
    }

    fn next(&mut self, who: Who) -> Token {
        self.state.last += 1;
        let claim = &mut self.state.claims[who];
        (claim.token, claim.lapsed) = (self.state.last, false);
        claim.token
    }

    fn waited_for(&mut self) {
        self.state.row.waited_for = !self.state.line.is_empty();
    }

    fn is_held(&self) -> bool {
        self.state.row.owner != Owner::Nobody && !self.state.row.over
    }

    /// `decide`: a reader that found the lock free has a row from now on.
    fn decide(&mut self) {
        if let (Owner::Reader(reader), false) = (self.state.row.owner, self.state.row.over) {
            self.state.row.owner = Owner::Beside;
            self.state.holders = vec![reader];
        }
    }

    /// `held_as`: how it is held, without those whose leases are over.
    fn held_as(&mut self) -> Option<Owner> {
        if !self.is_held() {
            self.state.holders.clear();
            return None;
        }
        Some(self.state.row.owner)
    }

    fn end_with_the_last(&mut self) {
        if self.state.holders.is_empty() {
            self.state.row.owner = Owner::Nobody;
        }
        self.waited_for();
    }

    fn give(&mut self, who: Who) -> Token {
        (self.state.row.owner, self.state.row.over) = (Owner::Alone(who), false);
        self.waited_for();
        if self.is(CLEARED) {
            self.state.row.waited_for = false;
        }
        self.next(who)
    }

    fn join(&mut self, who: Who, mark: Option<Owner>) -> Option<Token> {
        match mark {
            None => self.state.holders.clear(),
            Some(Owner::Beside) if self.model.fits(&self.state, who) => {}
            Some(_) => return None,
        }
        self.state.line.retain(|&other| other != who);
        (self.state.row.owner, self.state.row.over) = (Owner::Beside, false);
        self.state.holders.push(who);
        self.state.holders.sort_unstable();
        self.end_with_the_last();
        Some(self.next(who))
    }

    /// Answers whether somebody who lives was found in line.
    fn hand_over(&mut self, mut mark: Option<Owner>) -> bool {
        self.state.unheard = false;
        let mut told = false;
        for who in self.state.line.clone() {
            if !self.state.lives(who) {
                continue;
            }
            let alone = self.model.mode(who) == Mode::Alone;
            let token = if alone {
                if mark.is_some() && !self.state.holders.is_empty() {
                    return true;
                }
                self.state.line.retain(|&other| other != who);
                Some(self.give(who))
            } else {
                self.join(who, mark)
            };
            let Some(token) = token else { return true };
            self.state.claims[who].news.push(Some(token));
            if alone {
                return true;
            }
            (mark, told) = (Some(Owner::Beside), true);
        }
        told
    }

    fn enter(&mut self, who: Who) {
        if !self.state.line.contains(&who) {
            self.state.line.push(who);
        }
        // Its old place is that of a living client again. A reader was not asked there just now: its look serves it.
        self.state.unheard |= std::mem::take(&mut self.state.claims[who].deaf);
        self.state.row.waited_for |= !self.is(UNMARKED);
    }

    /// `acquire`, behind its first update.
    fn acquire(&mut self, who: Who) -> Reply {
        let (held, waits) = (self.is_held(), self.model.claims[who].1);
        if held && self.state.row.owner == Owner::Alone(who) {
            return Reply::Granted(self.state.claims[who].token);
        }
        let was_in_line = self.state.line.contains(&who);
        let somebody_waits = !self.state.line.is_empty();
        if waits && (held || somebody_waits) {
            self.enter(who);
        }
        let busy = |step: &Self| Reply::Busy { held: step.state.last };
        if held {
            return busy(self);
        }
        if somebody_waits && self.hand_over(None) {
            if self.state.row.owner == Owner::Alone(who) {
                return Reply::Granted(self.state.claims[who].token);
            }
            return busy(self);
        }
        if if self.is(KEEPS_PLACE) { was_in_line } else { somebody_waits } {
            self.state.line.retain(|&other| other != who);
        }
        Reply::Granted(self.give(who))
    }

    /// `acquire_beside`, behind its first update.
    fn acquire_beside(&mut self, who: Who) -> Reply {
        let mut mark = self.held_as();
        let mut told = false;
        if !self.state.line.is_empty() && mark.is_none_or(|mark| mark == Owner::Beside) {
            told = self.hand_over(mark);
            mark = self.is_held().then_some(self.state.row.owner);
            if told && mark == Some(Owner::Beside) && !self.is(BEHIND_THE_DEAD) {
                told = self.hand_over(mark);
            }
        }
        if self.state.holders.contains(&who) && mark == Some(Owner::Beside) {
            return Reply::Granted(self.state.claims[who].token);
        }
        let nobody_waits = self.state.line.is_empty();
        if (nobody_waits || !told && mark.is_none_or(|mark| mark == Owner::Beside))
            && let Some(token) = self.join(who, mark)
        {
            return Reply::Granted(token);
        }
        if self.model.claims[who].1 {
            self.enter(who);
        }
        Reply::Busy { held: self.state.last }
    }

    /// A release of who does not give up, as one step.
    fn release(&mut self, who: Who) {
        let own = matches!(self.state.row.owner, Owner::Alone(owner) | Owner::Reader(owner) if owner == who);
        if own && (!self.state.row.waited_for || self.is(OVERLOOKED)) {
            self.state.row.owner = Owner::Nobody;
        } else {
            self.release_decided(who);
        }
    }

    /// `release` and `release_beside`, which have the row.
    fn release_decided(&mut self, who: Who) {
        if self.model.mode(who) != Mode::Alone {
            return self.release_beside(who);
        }
        if self.state.row.owner != Owner::Alone(who) {
            self.state.line.retain(|&other| other != who);
            if self.state.row.owner == Owner::Beside && !self.state.row.over {
                self.hand_over(Some(Owner::Beside));
            }
            return;
        }
        if !self.hand_over(None) {
            self.state.row.owner = Owner::Nobody;
            self.waited_for();
        }
    }

    fn release_beside(&mut self, who: Who) {
        self.decide();
        self.state.holders.retain(|&holder| holder != who);
        self.state.line.retain(|&other| other != who);
        let beside = self.state.row.owner == Owner::Beside;
        if self.held_as().is_none() || beside {
            self.hand_over(beside.then_some(Owner::Beside));
            if self.state.row.owner == Owner::Beside {
                self.end_with_the_last();
            }
        }
    }

    /// `look`, and what the client makes of it.
    pub(super) fn look(&mut self, who: Who) {
        self.state.claims[who].seen = true;
        if self.state.row.owner == Owner::Beside && !self.state.row.over {
            self.hand_over(Some(Owner::Beside));
            self.end_with_the_last();
        } else if !self.is_held() {
            self.hand_over(None);
        }
        let claim = &self.state.claims[who];
        let own = self.state.row.owner == Owner::Alone(who);
        let news = match own {
            true => Some(Some(claim.token)),
            false => (!self.state.line.contains(&who)).then_some(None),
        };
        if let Some(news) = news
            && claim.news.is_empty()
        {
            self.state.claims[who].news.push(news);
        }
    }
}
