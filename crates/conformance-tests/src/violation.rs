//! A promise that was broken, and the part of the history that shows it.

use std::fmt;
use std::time::Duration;

use crate::acquisition::{Acquisition, acquisitions};
use crate::history::{Event, What};
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
    /// Their events, and how others ended meanwhile, in the order of time; empty if only a resource's log is known.
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

    /// Shows these too.
    pub(crate) fn beside(&mut self, events: impl Iterator<Item = Event>) {
        self.events.extend(events);
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

    /// When the last of what shows it happened.
    pub(crate) fn shown_at(&self) -> u64 {
        self.span().1
    }

    fn span(&self) -> (u64, u64) {
        match (self.events.first(), self.events.last()) {
            (Some(first), Some(last)) => (first.at, last.at),
            _ => self.ordeals.first().map_or((0, 0), |ordeal| (ordeal.from, ordeal.from)),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (start, _) = self.span();
        let ms = |at: u64| (at as f64 - start as f64) / 1e6;
        write!(f, "{}: {}", self.rule, self.what)?;
        if start > 0 {
            write!(f, "\n  what was done meanwhile, and what happened, in ms from {start} ns of the histories:")?;
        }
        for Ordeal { whose, blow, from, to } in &self.ordeals {
            let to = if *to == u64::MAX { "the end".to_owned() } else { format!("{:.3}", ms(*to)) };
            write!(f, "\n    {:>10.3}  {whose}: {blow}, until {to}", ms(*from))?;
        }
        for event in &self.events {
            write!(f, "\n    {:>10.3}  {} #{} {}", ms(event.at), event.client, event.op, told(&event.what, ms))?;
        }
        Ok(())
    }
}

/// An event of an acquisition as a sentence without its subject. What it has of times is turned into milliseconds.
fn told(what: &What, ms: impl Fn(u64) -> f64) -> String {
    match what {
        What::Acquire { name, mode, lease, .. } => {
            format!("asks for {name} ({mode}), with a lease of {} ms", lease / 1_000_000)
        }
        What::Granted { token, until } => format!("is granted token {token}, and believes it until {:.3}", ms(*until)),
        What::Denied => "is denied".to_owned(),
        What::Failed { unknown: false } => "fails, and nothing was done".to_owned(),
        What::Failed { unknown: true } => "fails, and it may have been done".to_owned(),
        What::Checked { held: true, until } => format!("asks itself: held, until {:.3}", ms(*until)),
        What::Checked { held: false, .. } => "asks itself: not held".to_owned(),
        What::Told => "is told of the loss".to_owned(),
        What::Release => "releases".to_owned(),
        What::Keep { at_least } => format!("has it go on until {} ms after its grant", at_least / 1_000_000),
        What::Showed { value } => format!("shows {value:?}"),
        What::Released { held: true } => "is answered that it was held until then".to_owned(),
        What::Released { held: false } => "is answered that it was not held any more".to_owned(),
        What::ReleaseFailed => "fails to release".to_owned(),
        What::Misled { owner, .. } => format!("looks, and is shown {owner:?}"),
        other => format!("{other:?}"),
    }
}
