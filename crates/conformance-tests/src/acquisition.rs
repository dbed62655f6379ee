//! The events of one acquisition put together, and the questions the oracle asks of it.

use std::collections::HashMap;

use lock_core::Mode;

use crate::history::{Event, What};

/// One acquisition, from its question to its end.
#[derive(Clone, Debug)]
pub(crate) struct Acquisition<'a> {
    pub(crate) client: &'a str,
    pub(crate) name: &'a str,
    pub(crate) events: Vec<&'a Event>,
    pub(crate) mode: Mode,
    /// The permits that were granted.
    pub(crate) slots: &'a [u32],
    pub(crate) asked: u64,
    pub(crate) lease: u64,
    pub(crate) watched: bool,
    /// When it was granted, and with which token.
    pub(crate) granted: Option<(u64, u64)>,
    pub(crate) denied: Option<u64>,
    /// When it failed, and whether it may have been done.
    pub(crate) failed: Option<(u64, bool)>,
    /// Until when the client believed to hold, by its last question.
    pub(crate) until: u64,
    pub(crate) told: Option<u64>,
    pub(crate) release: Option<u64>,
    /// How long after its grant it was to go on without its owner.
    kept: Option<u64>,
    /// What was shown with it.
    pub(crate) showed: Option<&'a str>,
    /// When the release was answered, and whether it was held until then; `None`: with an error.
    pub(crate) released: Option<(u64, Option<bool>)>,
    pub(crate) pauses: Pauses,
}

/// Puts events together, in whatever order they come.
pub(crate) fn acquisitions(events: &[Event]) -> Vec<Acquisition<'_>> {
    let mut in_time: Vec<_> = events.iter().collect();
    in_time.sort_by_key(|event| event.at);
    let mut all = HashMap::<(&str, u64), Acquisition<'_>>::new();
    for event in in_time {
        if let What::Acquire { name, mode, lease, watched } = &event.what {
            let new = Acquisition {
                client: &event.client,
                name,
                events: vec![event],
                mode: *mode,
                slots: &[],
                asked: event.at,
                lease: *lease,
                watched: *watched,
                granted: None,
                denied: None,
                failed: None,
                until: 0,
                told: None,
                release: None,
                kept: None,
                showed: None,
                released: None,
                pauses: Pauses::default(),
            };
            all.insert((&event.client, event.op), new);
        } else if let Some(acquisition) = all.get_mut(&(event.client.as_str(), event.op)) {
            acquisition.add(event);
        }
    }
    all.into_values().collect()
}

impl<'a> Acquisition<'a> {
    fn add(&mut self, event: &'a Event) {
        self.events.push(event);
        let at = event.at;
        match &event.what {
            &What::Granted { token, until } => {
                self.granted = Some((at, token));
                self.until = self.until.max(until);
            }
            What::Checked { held: true, until } => self.until = self.until.max(*until),
            What::Slots { slots } => self.slots = slots,
            What::Denied => self.denied = Some(at),
            What::Failed { unknown } => self.failed = Some((at, *unknown)),
            // Who goes on with a second resource is told again.
            What::Told => self.told = self.told.or(Some(at)),
            What::Release => self.release = Some(at),
            What::Keep { at_least } => (self.release, self.kept) = (Some(at), Some(*at_least)),
            What::Showed { value } => self.showed = Some(value),
            What::Released { held } => self.released = Some((at, Some(*held))),
            What::ReleaseFailed => self.released = Some((at, None)),
            _ => {}
        }
    }

    pub(crate) fn answered(&self) -> u64 {
        self.granted.map_or(u64::MAX, |(at, _)| at)
    }

    pub(crate) fn token(&self) -> u64 {
        self.granted.map_or(0, |(_, token)| token)
    }

    /// Must it not be held at the same time as the other? Those of a semaphore are asked with one slot in common.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        self.mode != Mode::Shared || other.mode != Mode::Shared
    }

    /// The earliest moment at which the store may have ended this hold: when the client asked for it, or when its time
    /// was up.
    pub(crate) fn earliest_end(&self) -> u64 {
        // Over before the client could look, because it was stopped: all it saw was that nothing is left, not since when.
        if self.until <= self.answered() {
            return self.asked;
        }
        match (self.release, self.released) {
            (None, _) => self.until,
            // To keep it is no question for its end.
            (Some(_), Some((_, Some(false)))) if self.kept.is_some() => self.until,
            (Some(release), Some((_, Some(true)))) => {
                let kept = self.kept.map_or(0, |kept| self.asked.saturating_add(kept));
                release.min(self.until).max(kept)
            }
            (Some(release), _) => release.min(self.until),
        }
    }

    /// Did the client believe to hold at this moment, after the grant?
    pub(crate) fn believed(&self, at: u64) -> bool {
        self.until > at && self.release.is_none_or(|release| release > at) && self.told.is_none_or(|told| told > at)
    }

    /// When the client stopped believing that it holds.
    pub(crate) fn belief_end(&self) -> u64 {
        let ends = [self.release, self.told, self.pauses.killed];
        ends.into_iter().flatten().fold(self.until, u64::min)
    }

    /// Was it granted, renewed, or found held at its release, by a store that had forgotten everything before `to`?
    pub(crate) fn was_held_after(&self, to: u64) -> bool {
        let held_at_release = matches!((self.release, self.released), (Some(at), Some((_, Some(true)))) if at > to);
        held_at_release || self.until > to.saturating_add(self.lease)
    }

    /// Its events without questions whose answer a later one tells too.
    pub(crate) fn telling_events(&self) -> impl Iterator<Item = Event> {
        let held = |event: &Event| matches!(event.what, What::Checked { held: true, .. });
        let next = self.events.iter().skip(1).map(Some).chain([None]);
        let telling =
            move |(event, next): &(&&Event, Option<&&Event>)| !(held(event) && next.is_some_and(|next| held(next)));
        self.events.iter().zip(next).filter(telling).map(|(event, _)| (*event).clone())
    }

    /// The last that is known of it.
    pub(crate) fn last_sign(&self) -> Option<u64> {
        self.events.last().map(|event| event.at)
    }

    /// Until when it may be the reason why another is denied; `None` if it cannot be.
    pub(crate) fn occupies(&self) -> Option<u64> {
        if self.denied.is_some() || matches!(self.failed, Some((_, false))) {
            return None;
        }
        let last = self.last_sign().unwrap_or(self.asked);
        let answered = matches!(self.released, Some((_, Some(_)))) || self.failed.is_some();
        let last = match (answered, self.told) {
            (true, _) => last,
            (false, Some(_)) => last.max(self.until),
            // Not ended by any answer: it may have gone on until its process died, or for good.
            (false, None) => last.max(self.until).max(self.pauses.killed.unwrap_or(u64::MAX)),
        };
        Some(last.saturating_add(self.lease).saturating_add(self.kept.unwrap_or(0)))
    }

    /// The stop, longer than the lease, after which the first question was answered "held"; and when that was.
    pub(crate) fn trusted_after_stop(&self) -> Option<(u64, u64)> {
        let (granted, _) = self.granted?;
        self.pauses.stops.iter().find_map(|&(stopped, continued)| {
            let long = continued.saturating_sub(stopped);
            if stopped < granted || long <= self.lease {
                return None;
            }
            let first = self.events.iter().find_map(|event| match event.what {
                What::Checked { held, .. } if event.at > continued => Some((event.at, held)),
                _ => None,
            })?;
            first.1.then_some((long, first.0))
        })
    }
}

/// For which times a client's process was stopped, and when it was killed.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pauses {
    stops: Vec<(u64, u64)>,
    marks: Vec<(u64, bool)>,
    pub(crate) killed: Option<u64>,
}

impl Pauses {
    pub(crate) fn add(&mut self, at: u64, what: &What) {
        match what {
            What::Stopped => self.marks.push((at, true)),
            What::Continued => self.marks.push((at, false)),
            _ => self.killed = Some(at),
        }
    }

    pub(crate) fn sort(&mut self) {
        self.marks.sort_unstable();
        let mut since = None;
        for &(at, stopped) in &self.marks {
            if stopped {
                since = Some(at);
            } else if let Some(since) = since.take() {
                self.stops.push((since, at));
            }
        }
        if let (Some(since), Some(killed)) = (since, self.killed) {
            self.stops.push((since, killed));
        }
    }

    /// For how long it was stopped between these two moments.
    pub(crate) fn within(&self, from: u64, to: u64) -> u64 {
        self.stops.iter().map(|&(start, end)| end.min(to).saturating_sub(start.max(from))).sum()
    }
}
