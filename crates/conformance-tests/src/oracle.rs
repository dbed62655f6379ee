//! Judges a history: did the locks keep their promises?
//!
//! The rules, for the acquisitions of one name. `ret` is when a grant was answered, `until` the end of what the client
//! believed at its last question, before any release, loss or death of its process:
//!
//! - **T1** Tokens are unique. **T2** A grant that was asked for after another was answered has a higher token.
//! - **S0** The grants, in the order of their tokens, fit one after the other: each somewhere between its question and
//!   its answer, and none before the one before it was released or had run out. (Tokens fix the only order possible, so
//!   placing each as early as it can be is exact.) An operator's eviction ends a hold too.
//! - **B1** No two clients believe to hold at the same time.
//! - **D1** Who was denied was denied for a reason: somebody held, or asked, at that time or shortly before.
//! - **R1** A release that says "was held until now" comes before the next grant; one that says "was lost before" comes
//!   after the end of what the client believed.
//! - **V1** Whoever looks sees with a token what was shown with that grant, and nothing where nothing was.
//! - **N1** Who loses a lock is told in time, not counting the time for which its process was stopped.
//! - **E1** After the store has forgotten everything, who held before does not believe so for longer than a lease.
//!   (Until then it cannot know, and B1 and S0 forgive it. Whoever believes longer was granted or renewed after that,
//!   and is not forgiven.)
//!   Where one of several stores forgot everything, R1 and S0 forgive a hold that ended then: the majority may be gone
//!   that had granted it. B1 forgives nothing.
//! - **N2** After a stop that was longer than the lease, the first question is answered "not held".
//!
//! Those who share a lock break none of them among each other: for a reader only writers count, in T1, T2, S0, B1, R1 and D1.
//! A semaphore is taken apart into its slots, each of which has to keep T1, T2, S0, B1 and R1 as a lock does; besides:
//!
//! - **P1** A grant has as many slots as it took permits, no more than there are, and each once.
//! - **P2** No more permits are held than there are, whatever their slots.
//!
//! [`family::permits`](crate::family::permits) has a rule more, for a semaphore that many want all the time.
//!
//! Clients of other libraries are not asked what these do not promise, see `foreign.rs`.
//!
//! And for a resource's own log, in its order, see [`check_resource`]: **F1** tokens of what was let in never fall,
//! **F2** no update is lost. [`uses`](crate::uses) has three rules more, for what the users of resources were answered.
//! Of the whole history, `ghosts.rs` has L2 and I1, and `liveness.rs` L1 and L3.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use lock_core::Mode;

use crate::acquisition::{Acquisition, Pauses, acquisitions};
use crate::foreign::is_asked;
use crate::history::{Event, What, nanos};
use crate::ordeal::ordeals;
use crate::resource::{Access, Kind};
use crate::rivals::{Reasons, Rivals, by_slot, one_too_many};
pub use crate::violation::Violation;

/// What the clock of a busy machine may cost, where a rule speaks of it.
#[derive(Clone, Copy, Debug)]
pub struct Tolerance {
    /// N1: how late a loss may be told. `None`: nobody was listening.
    pub notice: Option<Duration>,
    /// D1: for how long after its lease a hold may still cause denials.
    pub grace: Duration,
}

/// What the oracle says of a history.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// How many grants there were.
    pub grants: usize,
    /// How many times somebody was denied.
    pub denials: usize,
    /// How many holders were told of a loss.
    pub losses: usize,
    /// How late, at worst, after the end of what the client believed.
    pub worst_notice: Duration,
    /// How many holders learnt that the store had forgotten them.
    pub forgotten: usize,
    /// How long after it was back, at worst, not counting stops.
    pub worst_forgotten: Duration,
    /// What was broken; empty if nothing.
    pub violations: Vec<Violation>,
}

/// Judges a history, in O(n log n) of its events, which may come in any order.
pub fn check(events: &[Event], tolerance: Tolerance) -> Verdict {
    let mut verdict = Verdict::default();
    let mut pauses = HashMap::<&str, Pauses>::new();
    let mut evictions = HashMap::<&str, Vec<u64>>::new();
    let mut seen = HashMap::<&str, Vec<&Event>>::new();
    let (mut forgetting, mut forgotten, mut emptied) = (Vec::new(), Vec::new(), Vec::new());
    for event in events {
        match &event.what {
            What::Stopped | What::Continued | What::Killed => {
                pauses.entry(&event.client).or_default().add(event.at, &event.what);
            }
            What::Evict { name } => evictions.entry(name).or_default().push(event.at),
            What::Seen { name, .. } => seen.entry(name).or_default().push(event),
            What::Forgetting => forgetting.push(event.at),
            What::Forgotten => forgotten.push(event.at),
            What::Emptied => emptied.push(event.at),
            _ => {}
        }
    }
    pauses.values_mut().for_each(Pauses::sort);
    forgetting.sort_unstable();
    forgotten.sort_unstable();
    emptied.sort_unstable();
    // It is never restarted twice at a time.
    let forgot: Vec<_> = forgetting.into_iter().zip(forgotten).collect();
    let mut by_name = BTreeMap::<&str, Vec<Acquisition<'_>>>::new();
    for mut acquisition in acquisitions(events) {
        acquisition.pauses = pauses.get(acquisition.client).cloned().unwrap_or_default();
        by_name.entry(acquisition.name).or_default().push(acquisition);
    }
    for (name, all) in by_name {
        let mut evicted = evictions.remove(name).unwrap_or_default();
        evicted.sort_unstable();
        let seen = seen.remove(name).unwrap_or_default();
        Name { all, evicted, seen, forgot: &forgot, emptied: &emptied, tolerance, verdict: &mut verdict }.judge();
    }
    if !verdict.violations.is_empty() {
        let ordeals = ordeals(events);
        verdict.violations.iter_mut().for_each(|violation| violation.suffered(&ordeals));
    }
    verdict
}

/// Everything about one name.
struct Name<'a, 'v> {
    all: Vec<Acquisition<'a>>,
    evicted: Vec<u64>,
    seen: Vec<&'a Event>,
    /// From when to when the store was losing all it knew.
    forgot: &'v [(u64, u64)],
    /// When one of several stores lost all it knew.
    emptied: &'v [u64],
    tolerance: Tolerance,
    verdict: &'v mut Verdict,
}

impl<'a> Name<'a, '_> {
    fn judge(&mut self) {
        let mut grants: Vec<_> = self.all.iter().filter(|a| a.granted.is_some()).cloned().collect();
        self.verdict.grants += grants.len();
        self.slots(&grants);
        for mut alone in by_slot(&grants) {
            self.beliefs(&mut alone);
            alone.sort_by_key(|grant| (grant.token(), grant.asked));
            self.releases(&alone);
            alone.retain(|grant| is_asked("S0", grant.client));
            self.later_tokens(&mut alone);
            alone.sort_by_key(|grant| (grant.token(), grant.asked));
            self.unique_tokens(&alone);
            self.lease_mutex(&alone);
        }
        self.forgotten(&grants);
        grants.sort_by_key(|grant| (grant.token(), grant.asked));
        self.notices(&grants);
        self.values(&grants);
        self.denials();
    }

    fn broken(&mut self, rule: &'static str, what: String, involved: &[&Acquisition<'a>]) {
        let mut violation = Violation::new(rule, what, involved);
        if let [one, other] = involved {
            // Whoever ended a hold that was another's did so between their grants.
            let between = one.answered().min(other.answered())..=one.answered().max(other.answered());
            let others =
                self.all.iter().filter(|a| involved.iter().all(|i| (a.client, a.asked) != (i.client, i.asked)));
            let ends =
                others.flat_map(|a| a.events.iter().filter(|event| event.what.ends() && between.contains(&event.at)));
            violation.beside(ends.map(|event| (*event).clone()));
        }
        self.verdict.violations.push(violation);
    }

    /// When a hold was ended from outside: by an operator, or because the store forgot it.
    fn forced_end(&self, grant: &Acquisition<'a>) -> u64 {
        let next = self.evicted.partition_point(|evicted| *evicted < grant.asked);
        let evicted = self.evicted.get(next).copied().unwrap_or(u64::MAX);
        let next = self.forgot.partition_point(|(_, to)| *to < grant.asked);
        let forgot =
            self.forgot[next..].iter().find(|(_, to)| !grant.was_held_after(*to)).map_or(u64::MAX, |&(from, _)| from);
        evicted.min(forgot)
    }

    /// When it may have ended early, or was ended: for what a store says, not for what a client believes.
    fn early_end(&self, grant: &Acquisition<'a>) -> u64 {
        let next = self.emptied.partition_point(|emptied| *emptied < grant.asked);
        let emptied = self.emptied[next..].iter().find(|emptied| !grant.was_held_after(**emptied));
        emptied.copied().unwrap_or(u64::MAX).min(self.forced_end(grant))
    }

    fn forgotten(&mut self, grants: &[Acquisition<'a>]) {
        for grant in grants {
            let next = self.forgot.partition_point(|(from, _)| *from < grant.answered());
            if let Some(&(_, to)) = self.forgot.get(next)
                && grant.was_held_after(to)
            {
                let what = format!("token {} was believed after the store had forgotten it", grant.token());
                self.broken("E1", what, &[grant]);
            }
            // It held when the store forgot, and came to know.
            if let Some(&(from, to)) = self.forgot.get(next)
                && grant.belief_end() > from
                && let Some(learnt) = grant.told.or(grant.released.map(|(at, _)| at))
            {
                let late = Duration::from_nanos(learnt.saturating_sub(to + grant.pauses.within(to, learnt)));
                self.verdict.forgotten += 1;
                self.verdict.worst_forgotten = self.verdict.worst_forgotten.max(late);
            }
        }
    }

    fn unique_tokens(&mut self, by_token: &[Acquisition<'a>]) {
        for pair in by_token.windows(2) {
            if pair[0].token() == pair[1].token() && pair[0].excludes(&pair[1]) {
                self.broken("T1", format!("token {} was given twice", pair[0].token()), &[&pair[0], &pair[1]]);
            }
        }
    }

    fn later_tokens(&mut self, grants: &mut [Acquisition<'a>]) {
        grants.sort_by_key(|grant| grant.asked);
        let mut answered: Vec<_> = grants.iter().collect();
        answered.sort_by_key(|grant| grant.answered());
        let mut found = Vec::new();
        let (mut seen, mut highest) = (0, Rivals::default());
        for grant in grants.iter() {
            while let Some(before) = answered.get(seen).filter(|before| before.answered() < grant.asked) {
                highest.put(before.token(), before);
                seen += 1;
            }
            if let Some(before) =
                highest.of(grant).map(|(_, before)| before).filter(|before| before.token() >= grant.token())
            {
                found.push((before.clone(), grant.clone()));
            }
        }
        for (before, grant) in found {
            let what = format!("token {} was given after token {}", grant.token(), before.token());
            self.broken("T2", what, &[&before, &grant]);
        }
    }

    fn lease_mutex(&mut self, by_token: &[Acquisition<'a>]) {
        let mut last = Rivals::default();
        for grant in by_token {
            let before = last.of(grant);
            let place = grant.asked.max(before.map_or(0, |(end, _)| end));
            if place > grant.answered()
                && let Some((_, before)) = before
            {
                let late = Duration::from_nanos(place - grant.answered());
                let what = format!("token {} was granted {late:?} before the one before it ended", grant.token());
                self.broken("S0", what, &[before, grant]);
            }
            let place = place.min(grant.answered());
            let own_end = grant.earliest_end().min(self.early_end(grant)).max(place);
            last.put(own_end, grant);
        }
    }

    fn beliefs(&mut self, grants: &mut [Acquisition<'a>]) {
        grants.sort_by_key(|grant| grant.answered());
        let mut found = Vec::new();
        let mut longest = Rivals::default();
        for grant in grants.iter() {
            let end = grant.belief_end().min(self.forced_end(grant));
            if let Some((until, before)) = longest.of(grant)
                && until > grant.answered()
                && end > grant.answered()
            {
                found.push((until.min(end) - grant.answered(), before.clone(), grant.clone()));
            }
            longest.put(end, grant);
        }
        for (overlap, before, grant) in found {
            let overlap = Duration::from_nanos(overlap);
            let what = format!("tokens {} and {} both believed to hold for {overlap:?}", before.token(), grant.token());
            self.broken("B1", what, &[&before, &grant]);
        }
    }

    fn releases(&mut self, by_token: &[Acquisition<'a>]) {
        // The earliest answer of any grant with a higher token.
        let mut next = Rivals::default();
        for grant in by_token.iter().rev() {
            if let (Some(asked), Some((answered, Some(held)))) = (grant.release, grant.released) {
                let says = held && is_asked("R1", grant.client);
                if let Some(next) = next.of(grant).map(|(_, next)| next).filter(|next| says && next.answered() < asked)
                {
                    let what = format!(
                        "token {} was released as held after token {} was granted",
                        grant.token(),
                        next.token()
                    );
                    self.broken("R1", what, &[grant, next]);
                }
                let end = grant.until.min(self.early_end(grant));
                if !held && end > answered {
                    let early = Duration::from_nanos(end - answered);
                    let what = format!("token {} was lost {early:?} before its time was up", grant.token());
                    self.broken("R1", what, &[grant]);
                }
            }
            next.put(u64::MAX - grant.answered(), grant);
        }
    }

    fn notices(&mut self, grants: &[Acquisition<'a>]) {
        for grant in grants {
            if let Some((stop, question)) = grant.trusted_after_stop().filter(|_| is_asked("N2", grant.client)) {
                let stop = Duration::from_nanos(stop);
                let what = format!("token {} was still trusted after a stop of {stop:?}", grant.token());
                self.broken("N2", format!("{what}, at {question} ns"), &[grant]);
            }
            let Some(limit) = self.tolerance.notice else { continue };
            if !grant.watched || grant.release.is_some_and(|release| release <= grant.until) {
                continue;
            }
            // Told, or never told as long as there is a sign of life.
            let Some(learnt) = grant.told.or(grant.release).or(grant.last_sign()) else { continue };
            let late = learnt.saturating_sub(grant.until);
            let late = Duration::from_nanos(late.saturating_sub(grant.pauses.within(grant.until, learnt)));
            if grant.told.is_some() {
                self.verdict.losses += 1;
                self.verdict.worst_notice = self.verdict.worst_notice.max(late);
            }
            if late > limit {
                let told = if grant.told.is_some() { "told" } else { "not told" };
                self.broken(
                    "N1",
                    format!("token {} was {told} of its loss {late:?} after it", grant.token()),
                    &[grant],
                );
            }
        }
    }

    fn values(&mut self, by_token: &[Acquisition<'a>]) {
        for event in std::mem::take(&mut self.seen) {
            let What::Seen { token, value, .. } = &event.what else { continue };
            let place = by_token.partition_point(|grant| grant.token() < *token);
            // Of another library's, or one whose answer was lost, nothing is known.
            let Some(grant) = by_token.get(place).filter(|grant| grant.token() == *token) else { continue };
            // Killed, perhaps, before it could say what it shows.
            let said_nothing = grant.events.last().is_some_and(|last| matches!(last.what, What::Granted { .. }));
            if !said_nothing && grant.showed != value.as_deref() {
                let what = format!("with token {token} {value:?} was seen, and not {:?}", grant.showed);
                self.broken("V1", what, &[grant]);
            }
        }
    }

    fn slots(&mut self, grants: &[Acquisition<'a>]) {
        for grant in grants {
            let Mode::Permits { take, of } = grant.mode else { continue };
            if !is_asked("P1", grant.client) {
                continue;
            }
            let rise = grant.slots.is_sorted_by(|one, next| one < next);
            if grant.slots.len() != take as usize || !rise || grant.slots.last().is_some_and(|last| *last >= of) {
                let what = format!("token {} has the slots {:?} for {take} of {of}", grant.token(), grant.slots);
                self.broken("P1", what, &[grant]);
            }
        }
        let holds = grants.iter().map(|grant| (grant, grant.belief_end().min(self.forced_end(grant))));
        if let Some((grant, held)) = one_too_many(holds) {
            self.broken("P2", format!("{held} permits were held with token {}", grant.token()), &[grant]);
        }
    }

    fn denials(&mut self) {
        let denied: Vec<_> = self.all.iter().filter(|a| a.denied.is_some()).cloned().collect();
        self.verdict.denials += denied.len();
        let grace = nanos(self.tolerance.grace);
        let writers = self.all.iter().filter(|a| a.mode != Mode::Shared);
        let (writers, all) = (Reasons::among(writers, grace), Reasons::among(self.all.iter(), grace));
        for denied in denied {
            let from = denied.asked;
            let to = denied.denied.unwrap_or(0);
            let (reasons, enough) = match denied.mode {
                Mode::Shared => (&writers, 1),
                Mode::Permits { take, of } => (&all, u64::from(of - take) + 1),
                _ => (&all, 1),
            };
            if reasons.within(from, to) < enough {
                self.broken("D1", "denied, and nobody held or asked".to_owned(), &[&denied]);
            }
        }
    }
}

/// Judges what a resource let in, in its own order: **F1** tokens never fall, but
/// those of readers who share a lock keep nobody else out, and **F2** every write counts on from the
/// one before.
pub fn check_resource(log: &[Access]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut broken = |rule, what, tokens: [u64; 2]| violations.push(Violation::of_tokens(rule, what, &tokens));
    let (mut newest, mut writer, mut value) = (0, 0, 0);
    for (line, access) in log.iter().enumerate() {
        let token = access.token;
        if token < newest {
            broken("F1", format!("access {line} with token {token} was let in after token {newest}"), [token, newest]);
        }
        if access.kind != Kind::Share {
            newest = newest.max(token);
        }
        if access.kind == Kind::Write {
            if access.value != value + 1 {
                let what = format!("access {line} wrote {} over {value}: an update was lost", access.value);
                broken("F2", what, [token, writer]);
            }
            (writer, value) = (token, access.value);
        }
    }
    violations
}
