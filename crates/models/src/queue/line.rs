//! What tasks do with the line, as the code has it.

use super::state::{Action, Asks, HAND_OVERS, Hold, Kind, Mail, Permit, Phase, State, Step, Store, Turn, Who};
use super::{BOTH_BELIEVE, FAILURE_STAYS, KEEPS_PLACE, LOST_TURN, NO_VACATE, OVER_BEFORE, READS_ALONE, SWALLOWED};

impl Step<'_> {
    fn is(&self, fault: &'static str) -> bool {
        self.model.fault == Some(fault)
    }

    pub(super) fn act(&mut self, action: Action) {
        match action {
            Action::Come(who) => self.come(who),
            Action::Know(who) => self.know(who),
            Action::Enter(who) => self.granted(who),
            Action::Leave(who) => {
                if let Phase::Inside { hold, turn } = self.state.tasks[who].phase {
                    self.state.tasks[who].phase = Phase::Done;
                    self.leave(Some(who), hold, turn);
                }
            }
            Action::Close(who) => {
                if let Some(hold) = self.state.tasks[who].ends.take() {
                    self.state.line.reading.take_if(|reading| reading.0 == hold);
                    self.release(hold);
                }
            }
            Action::Deliver(at) => {
                let Mail { to, turn } = self.state.mail.remove(at);
                self.deliver(to, turn);
            }
            Action::Grant(request) => {
                self.state.granted += 1;
                self.state.store[request] = Store::Has { token: self.state.granted };
            }
            Action::Undo(request) => self.state.store[request] = Store::Nothing,
            Action::Vacate(hold) => {
                self.hold(hold).look_is_due = false;
                if !self.is(NO_VACATE) {
                    self.vacate(hold);
                }
            }
            Action::Expire(hold) => self.state.store[hold] = Store::Nothing,
            Action::Cancel(who) => {
                self.state.trouble.cancels -= 1;
                self.cancel(who);
            }
            Action::Fail(who) => {
                self.state.trouble.failures -= 1;
                self.fail(who);
            }
            Action::Lose(hold) => {
                if !self.hold(hold).evicted {
                    self.state.trouble.losses -= 1;
                }
                self.lose(hold);
            }
            Action::Evict(hold) => {
                self.state.trouble.evictions -= 1;
                self.hold(hold).evicted = true;
                self.state.store[hold] = Store::Nothing;
            }
        }
    }

    fn hold(&mut self, hold: Who) -> &mut Hold {
        self.state.holds[hold].as_mut().expect("it was granted")
    }

    fn runs(state: &State, holding: (Who, u8)) -> bool {
        state.holds[holding.0].is_some_and(|hold| hold.runs && hold.turn == holding.1)
    }

    fn send(&mut self, to: Who, turn: Turn) {
        self.state.mail.push(Mail { to, turn });
        self.state.mail.sort_unstable_by_key(|mail| mail.to);
    }

    fn ask(&mut self, who: Who, permit: Option<Permit>) {
        self.state.tasks[who].phase = Phase::Asking(Asks { request: who, permit });
        self.state.store[who] = Store::Asked;
    }

    fn pop_first(&mut self) -> Option<Who> {
        let waiting = &mut self.state.line.waiting;
        (!waiting.is_empty()).then(|| waiting.remove(0))
    }

    fn promote(&mut self) {
        if self.state.line.holding.is_some() || self.state.line.asks {
            return;
        }
        if let Some(next) = self.pop_first() {
            self.state.line.asks = true;
            self.send(next, Turn::Ask);
        }
    }

    fn come(&mut self, who: Who) {
        let kind = self.model.tasks[who];
        if kind == Kind::Reader {
            return self.come_to_read(who);
        }
        let state = &mut self.state;
        if state.line.holding.is_some_and(|holding| !Self::runs(state, holding)) {
            state.line.holding = None;
        }
        if kind == Kind::Fair {
            state.line.alone += 1;
            self.promote();
            return self.ask(who, Some(Permit::Nobody));
        }
        let line = &mut self.state.line;
        if line.holding.is_none() && line.waiting.is_empty() && !std::mem::replace(&mut line.asks, true) {
            return self.ask(who, Some(Permit::Line));
        }
        line.waiting.push(who);
        self.state.tasks[who].phase = Phase::Waiting;
        self.promote();
    }

    fn come_to_read(&mut self, who: Who) {
        let line = &mut self.state.line;
        let wanted_alone = line.holding.is_some() || line.asks || line.alone > 0 || !line.waiting.is_empty();
        if let Some((hold, joined)) = line.reading.as_mut().filter(|_| !wanted_alone) {
            let shared = self.state.holds[*hold].as_mut().expect("it is shared");
            if *joined < HAND_OVERS && shared.runs && shared.readers > 0 {
                (*joined, shared.readers) = (*joined + 1, shared.readers + 1);
                let hold = *hold;
                return self.inside(who, hold, 0);
            }
        }
        self.ask(who, None);
    }

    fn inside(&mut self, who: Who, hold: Who, turn: u8) {
        self.state.tasks[who].phase = Phase::Inside { hold, turn };
        if let Some((hold, turn)) = self.state.believes(who) {
            // A store's token has room for the turns of its hold.
            let token = self.hold(hold).token * (HAND_OVERS + 1) + turn;
            self.state.witness.begins(self.model.mode(who), token);
        }
    }

    /// The answer is read: there is a hold, which the keeper renews.
    fn know(&mut self, who: Who) {
        let Phase::Asking(Asks { request, permit }) = self.state.tasks[who].phase else { return };
        let Store::Has { token } = self.state.store[request] else { return };
        let hold = Hold { runs: true, turn: 0, readers: 1, token, lost: false, look_is_due: false, evicted: false };
        self.state.holds[request] = Some(hold);
        self.state.tasks[who].phase = Phase::Enters { hold: request, permit };
    }

    fn granted(&mut self, who: Who) {
        let Phase::Enters { hold, permit } = self.state.tasks[who].phase else { return };
        match permit {
            Some(Permit::Line) => self.state.line.asks = false,
            Some(Permit::Nobody) => self.state.line.alone -= 1,
            None => {}
        }
        if self.model.tasks[hold] == Kind::Reader {
            return self.reads(who, hold);
        }
        let before = self.state.line.holding.replace((hold, 0));
        let read = self.state.line.reading.take();
        if !self.is(BOTH_BELIEVE) {
            for (before, _) in before.into_iter().chain(read) {
                self.hold(before).runs = false;
            }
        }
        self.inside(who, hold, 0);
        if !self.hold(hold).runs && !self.is(OVER_BEFORE) {
            self.vacate(hold);
        }
    }

    fn reads(&mut self, who: Who, hold: Who) {
        self.state.line.reading = Some((hold, 0));
        let token = self.hold(hold).token;
        if let Some((before, _)) = self.state.line.holding
            && self.hold(before).token < token
            && !self.is(READS_ALONE)
        {
            self.hold(before).runs = false;
            self.vacate(before);
        }
        self.inside(who, hold, 0);
    }

    /// A guard goes, of a task or on its way to one.
    fn leave(&mut self, who: Option<Who>, hold: Who, turn: u8) {
        if self.model.tasks[hold] == Kind::Reader {
            self.hold(hold).readers -= 1;
            if self.hold(hold).readers == 0 {
                match who {
                    Some(who) => self.state.tasks[who].ends = Some(hold),
                    None => self.release(hold),
                }
            }
            return;
        }
        if self.state.line.holding.is_some_and(|holding| holding.0 == hold) {
            let can = Self::runs(&self.state, (hold, turn)) && turn < HAND_OVERS && !self.state.line.asks;
            if can && let Some(first) = self.pop_first() {
                self.hold(hold).turn = turn + 1;
                self.state.line.holding = Some((hold, turn + 1));
                return self.send(first, Turn::Held { hold, turn: turn + 1 });
            }
            self.state.line.holding = None;
            self.promote();
        }
        self.release(hold);
    }

    /// It ends, and the store is told so.
    fn release(&mut self, hold: Who) {
        self.hold(hold).runs = false;
        self.undo(hold);
    }

    fn undo(&mut self, request: Who) {
        let store = &mut self.state.store[request];
        match *store {
            Store::Asked => *store = Store::Undone { token: None },
            Store::Has { token } => *store = Store::Undone { token: Some(token) },
            Store::Nothing | Store::Undone { .. } => {}
        }
    }

    fn vacate(&mut self, hold: Who) {
        if self.state.line.holding.take_if(|holding| holding.0 == hold).is_some() {
            self.promote();
        }
    }

    fn lose(&mut self, hold: Who) {
        let hold = self.hold(hold);
        (hold.runs, hold.lost, hold.look_is_due) = (false, true, true);
    }

    fn stop_asking(&mut self, permit: Option<Permit>, failed: bool) {
        match permit {
            Some(Permit::Line) if failed && self.state.line.holding.is_none() => {
                self.state.line.asks = self.is(FAILURE_STAYS);
                for waiting in std::mem::take(&mut self.state.line.waiting) {
                    self.send(waiting, Turn::Failed);
                }
            }
            Some(Permit::Line) => {
                self.state.line.asks = false;
                if !self.is(SWALLOWED) {
                    self.promote();
                }
            }
            Some(Permit::Nobody) => self.state.line.alone -= 1,
            None => {}
        }
    }

    fn fail(&mut self, who: Who) {
        let Phase::Asking(Asks { request, permit }) = self.state.tasks[who].phase else { return };
        self.state.tasks[who].phase = Phase::Done;
        self.undo(request);
        self.stop_asking(permit, true);
    }

    fn cancel(&mut self, who: Who) {
        let phase = std::mem::replace(&mut self.state.tasks[who].phase, Phase::Done);
        match phase {
            Phase::Waiting if !self.is(KEEPS_PLACE) => self.state.line.waiting.retain(|&other| other != who),
            Phase::Asking(asks) if asks.permit == Some(Permit::Line) => match self.pop_first() {
                Some(first) => self.send(first, Turn::GoOn(asks)),
                None => self.abandon(asks),
            },
            Phase::Asking(asks) => self.abandon(asks),
            _ => {}
        }
    }

    fn abandon(&mut self, asks: Asks) {
        self.undo(asks.request);
        self.stop_asking(asks.permit, false);
    }

    /// It comes to a waiter, or gives itself back if that has gone.
    fn deliver(&mut self, to: Who, turn: Turn) {
        let is_there = self.state.tasks[to].phase == Phase::Waiting;
        match turn {
            _ if !is_there && self.is(LOST_TURN) => {}
            Turn::Held { hold, turn } if is_there => {
                self.inside(to, hold, turn);
                if self.state.believes(to).is_none() {
                    // It was lost on the way, and the waiter comes again.
                    self.leave(None, hold, turn);
                    self.state.tasks[to].phase = Phase::Out;
                }
            }
            Turn::Held { hold, turn } => self.leave(None, hold, turn),
            Turn::Ask if is_there => self.ask(to, Some(Permit::Line)),
            Turn::Ask => self.stop_asking(Some(Permit::Line), false),
            Turn::GoOn(asks) if is_there => self.state.tasks[to].phase = Phase::Asking(asks),
            Turn::GoOn(asks) => self.abandon(asks),
            Turn::Failed if is_there => self.state.tasks[to].phase = Phase::Done,
            Turn::Failed => {}
        }
    }
}
