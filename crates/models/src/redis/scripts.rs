//! What the server does: the scripts, and the commands of a flight.

use super::client::Step;
use super::state::{Lock, News, Reply, Request};
use super::{LEAVES_QUIETLY, NO_FLOOR, NO_HAND_OVER, PAST_THE_LINE, VOID_COUNTS};
use crate::line::{Seen, Who};
use crate::modes::{Mode, Token};

impl Step<'_> {
    /// Answers what the client is told, if it is told something.
    pub(super) fn serve_request(&mut self, who: Who, request: Request) -> Option<Reply> {
        let alone = self.model.claims[who] == Mode::Alone;
        match request {
            Request::Set => {
                let set = self.state.lock == Lock::Free;
                if set {
                    self.state.lock = Lock::Of(who);
                    let passes = self.passes(who);
                    (self.claim(who).passes, self.claim(who).lapsed) = (passes, false);
                }
                self.claim(who).set = set;
                None
            }
            Request::Draw => {
                let drawn = if self.state.fallen { 0 } else { self.next() };
                self.claim(who).drawn = drawn;
                None
            }
            Request::Check => Some(self.check(who)),
            Request::Acquire { void } if alone => Some(self.acquire(who, void)),
            Request::Acquire { .. } => Some(self.acquire_mode(who)),
            Request::Release => {
                if alone {
                    self.release(who)
                } else {
                    self.release_mode(who)
                }
                None
            }
        }
    }

    fn next(&mut self) -> Token {
        self.state.last += 1;
        self.state.last
    }

    /// A script's token is not below the server's clock, which is above all tokens of the past.
    fn draw(&mut self) -> Token {
        self.state.fallen = false;
        self.next()
    }

    /// The end of a flight.
    fn check(&mut self, who: Who) -> Reply {
        let (set, token) = (self.claim(who).set, self.claim(who).drawn);
        let is_free = self.state.line.is_empty() || self.is(VOID_COUNTS);
        let has = self.state.lock == Lock::Of(who);
        (self.claim(who).set, self.claim(who).drawn) = (false, 0);
        if !(set && has && is_free && (token > 0 || self.is(NO_FLOOR))) {
            return Reply::None { void: set };
        }
        self.see_who_was_passed(who);
        self.claim(who).token = token;
        Reply::Granted(token)
    }

    /// Who lives and would have it first.
    fn passes(&self, who: Who) -> Option<Who> {
        let mut before = self.state.line.iter().take_while(|&&other| other != who);
        before.find(|&&other| self.state.claims[other].lives()).copied()
    }

    /// A flight became a grant.
    fn see_who_was_passed(&mut self, who: Who) {
        let passed = self.claim(who).passes.take();
        self.state.passed |= passed.is_some_and(|other| self.state.line.contains(&other));
    }

    /// Grants it to who asks.
    fn take(&mut self, who: Who) -> Token {
        self.state.passed |= self.passes(who).is_some();
        self.give(who)
    }

    /// Grants it to this owner, alone or beside others.
    fn give(&mut self, who: Who) -> Token {
        let token = self.draw();
        if self.model.claims[who] == Mode::Alone {
            self.state.lock = Lock::Of(who);
        } else {
            self.state.lock = Lock::Beside;
            self.state.holders.push(who);
            self.state.holders.sort_unstable();
        }
        let claim = self.claim(who);
        (claim.token, claim.written, claim.lapsed, claim.passes) = (token, false, false, None);
        token
    }

    /// Ends its hold, if it has one.
    pub(super) fn end(&mut self, who: Who) -> bool {
        let had = self.state.has(who);
        self.state.holders.retain(|&holder| holder != who);
        if had && self.state.holders.is_empty() {
            self.state.lock = Lock::Free;
        }
        had
    }

    /// Tells a client that it was granted the lock. False: it does not listen.
    fn publish(&mut self, who: Who, token: Token) -> bool {
        let claim = self.claim(who);
        if claim.listens && claim.link {
            claim.news.push(News::Granted { token, old: false });
        }
        claim.listens
    }

    fn pop(&mut self) -> Option<Who> {
        (!self.state.line.is_empty()).then(|| self.state.line.remove(0))
    }

    /// `serve` of common.lua. Answers whether somebody has the lock now.
    fn serve(&mut self, first: Option<Who>) -> bool {
        self.state.unheard = false;
        let mut first = first.or_else(|| self.pop());
        while let Some(who) = first {
            if self.model.claims[who] != Mode::Alone {
                self.state.lock = Lock::Free;
                return self.serve_modes(Some(who));
            }
            if self.state.claims[who].shown {
                let token = self.give(who);
                if self.publish(who, token) {
                    return true;
                }
            }
            first = self.pop();
        }
        self.state.lock = Lock::Free;
        false
    }

    /// `serve_modes` of modes.lua.
    fn serve_modes(&mut self, mut first: Option<Who>) -> bool {
        self.state.unheard = false;
        while let Some(who) = first.or_else(|| self.state.line.first().copied()) {
            if matches!(self.state.lock, Lock::Of(_)) {
                break;
            }
            if self.model.claims[who] == Mode::Alone {
                if self.state.lock != Lock::Free {
                    break;
                }
                self.state.line.retain(|&other| other != who);
                return self.serve(Some(who));
            }
            if self.state.claims[who].shown {
                if !self.model.fits(&self.state, who) {
                    break;
                }
                let token = self.give(who);
                if !self.publish(who, token) {
                    self.end(who);
                }
            }
            self.state.line.retain(|&other| other != who);
            first = None;
        }
        self.state.lock != Lock::Free
    }

    fn enter(&mut self, who: Who) -> Reply {
        if !self.state.line.contains(&who) {
            self.state.line.push(who);
        }
        for news in &mut self.claim(who).news {
            if let News::Granted { old, .. } = news {
                *old = true;
            }
        }
        Reply::Busy
    }

    /// acquire.lua
    fn acquire(&mut self, who: Who, void: bool) -> Reply {
        let granted = |step: &mut Self| {
            step.claim(who).written = true;
            Reply::Granted(step.claim(who).token)
        };
        if self.state.lock == Lock::Free && self.state.line.is_empty() {
            self.take(who);
            return granted(self);
        }
        if self.state.lock == Lock::Of(who) && (self.claim(who).written || !void) {
            if !self.claim(who).written {
                self.see_who_was_passed(who);
                self.claim(who).token = self.draw();
            }
            return granted(self);
        }
        self.claim(who).shown = true;
        if matches!(self.state.lock, Lock::Free) || self.state.lock == Lock::Of(who) {
            if !self.serve(None) {
                self.take(who);
            }
            if self.state.lock == Lock::Of(who) {
                return granted(self);
            }
        }
        self.enter(who)
    }

    /// acquire_mode_free.lua and acquire_mode.lua
    fn acquire_mode(&mut self, who: Who) -> Reply {
        if self.state.lock == Lock::Free && self.state.line.is_empty() {
            return Reply::Granted(self.take(who));
        }
        for served in [false, true] {
            if self.state.holders.contains(&who) {
                return Reply::Granted(self.claim(who).token);
            }
            if !served {
                self.claim(who).shown = true;
                if !self.state.line.is_empty() && !matches!(self.state.lock, Lock::Of(_)) {
                    self.serve_modes(None);
                }
            }
        }
        let nobody_waits = self.state.line.is_empty() || self.is(PAST_THE_LINE);
        if self.model.fits(&self.state, who) && (self.state.lock == Lock::Free || nobody_waits) {
            return Reply::Granted(self.take(who));
        }
        self.enter(who)
    }

    /// release_free.lua and release.lua
    fn release(&mut self, who: Who) {
        if self.state.lock == Lock::Of(who) {
            if self.is(NO_HAND_OVER) {
                self.state.lock = Lock::Free;
                return;
            }
            match self.pop() {
                Some(first) => drop(self.serve(Some(first))),
                None => self.state.lock = Lock::Free,
            }
            return;
        }
        self.state.line.retain(|&other| other != who);
        if self.is(LEAVES_QUIETLY) {
            return;
        }
        if self.state.lock == Lock::Beside {
            self.serve_modes(None);
        }
        if self.state.lock == Lock::Free {
            self.serve(None);
        }
    }

    /// release_mode_free.lua and release_mode.lua
    fn release_mode(&mut self, who: Who) {
        if !self.end(who) {
            self.state.line.retain(|&other| other != who);
        }
        if !matches!(self.state.lock, Lock::Of(_)) {
            self.serve_modes(None);
        }
    }

    /// look.lua, and what the client makes of it.
    pub(super) fn look(&mut self, who: Who) {
        self.claim(who).shown = true;
        match self.state.lock {
            Lock::Free => drop(self.serve(None)),
            Lock::Beside => drop(self.serve_modes(None)),
            Lock::Of(_) => {}
        }
        let has = self.state.lock == Lock::Of(who);
        if has || !self.state.line.contains(&who) {
            self.claim(who).news.push(News::Enter);
        }
    }
}
