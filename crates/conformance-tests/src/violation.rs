//! A promise that was broken, and the part of the history that shows it.

use std::fmt;
use std::time::Duration;

use crate::acquisition::{Acquisition, acquisitions};
use crate::history::Event;
use crate::ordeal::{Ordeal, ordeals};

/// A promise that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The rule.
    pub rule: &'static str,
    /// What is wrong.
    pub what: String,
    /// The tokens of those involved.
    pub tokens: Vec<u64>,
    /// Their events, in the order of time; empty if only a resource's log is known.
    pub events: Vec<Event>,
    /// What was being done to anybody meanwhile.
    pub ordeals: Vec<Ordeal>,
}

impl Violation {
    pub(crate) fn new(rule: &'static str, what: String, involved: &[&Acquisition<'_>]) -> Self {
        let tokens: Vec<_> = involved.iter().map(|acquisition| acquisition.token()).collect();
        let mut violation = Self::of_tokens(rule, what, &tokens);
        violation.involve(involved);
        violation
    }

    pub(crate) fn of_tokens(rule: &'static str, what: String, tokens: &[u64]) -> Self {
        Self { rule, what, tokens: tokens.to_vec(), events: Vec::new(), ordeals: Vec::new() }
    }

    fn involve(&mut self, involved: &[&Acquisition<'_>]) {
        self.events = involved.iter().flat_map(|acquisition| acquisition.telling_events()).collect();
        self.events.sort_by_key(|event| event.at);
    }

    /// Shows those of this lock in the history who had the tokens, and what was done meanwhile.
    pub(crate) fn show(&mut self, name: &str, history: &[Event]) {
        let all = acquisitions(history);
        let had = |a: &&Acquisition<'_>| a.name == name && a.granted.is_some() && self.tokens.contains(&a.token());
        let involved: Vec<_> = all.iter().filter(had).collect();
        self.involve(&involved);
        self.suffered(&ordeals(history));
    }

    /// Keeps those of the ordeals that were meanwhile.
    pub(crate) fn suffered(&mut self, ordeals: &[Ordeal]) {
        let (first, last) = self.span();
        let meanwhile = ordeals.iter().filter(|ordeal| ordeal.from <= last && ordeal.to >= first);
        self.ordeals = meanwhile.cloned().collect();
    }

    /// The time from the first of its events to the last.
    pub fn length(&self) -> Duration {
        let (first, last) = self.span();
        Duration::from_nanos(last - first)
    }

    fn span(&self) -> (u64, u64) {
        (self.events.first().map_or(0, |event| event.at), self.events.last().map_or(0, |event| event.at))
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, _) = self.span();
        let ms = |at: u64| (at as f64 - start as f64) / 1e6;
        write!(f, "{}: {} (ms, from {start} ns)", self.rule, self.what)?;
        for Ordeal { whose, blow, from, to } in &self.ordeals {
            write!(f, "\n    {:>10.3} to {:.3}  {whose}: {blow}", ms(*from), ms(*to))?;
        }
        for event in &self.events {
            write!(f, "\n    {:>10.3}  {} #{}  {:?}", ms(event.at), event.client, event.op, event.what)?;
        }
        Ok(())
    }
}
