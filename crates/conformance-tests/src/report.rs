//! What came of a torture, in figures and, if a rule was broken, with the shortest history that shows it.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::acquisition::acquisitions;
use crate::footprint::Footprint;
use crate::foreign::{self, Library};
use crate::ghosts::{ghosts, misled};
use crate::history::{Event, What};
use crate::liveness::{paralysis, silence};
use crate::oracle::{self, Tolerance, Violation};
use crate::ordeal::{Ordeal, freed, ordeals, recoveries};
use crate::protected::{Logged, Places};
use crate::torture::{GRACE, TortureOptions};
use crate::uses::{self, Writes};
use crate::workload::{PERMITS, Workload, of_slot};

/// How late a loss may be told, beside stops: what a busy machine needs to get round to it.
const NOTICE: Duration = Duration::from_secs(1);

/// What came of a torture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How many grants there were.
    pub grants: usize,
    /// How many of them were other libraries', and what came of those, by the libraries' names.
    pub foreign: BTreeMap<&'static str, Foreign>,
    /// How many times somebody was denied.
    pub denials: usize,
    /// How many acquisitions and releases ended with an error.
    pub failures: usize,
    /// How many holders were told of a loss.
    pub losses: usize,
    /// How late, at worst, after the lease was over, not counting stops.
    pub worst_notice: Duration,
    /// How many writes the resources let in.
    pub counted: u64,
    /// What came of the writes, in each place where resources are.
    pub writes: BTreeMap<String, Writes>,
    /// How many times each thing was done.
    pub blows: BTreeMap<String, usize>,
    /// How many times the store forgot everything, and how many holders learnt that.
    pub forgotten: (usize, usize),
    /// How long after it was back, at worst, not counting stops.
    pub worst_forgotten: Duration,
    /// How long it took, at worst, from the end of something to the next grant of who had suffered it, or of anybody if
    /// that was a server; and what it was.
    pub worst_recovery: Option<(Duration, Ordeal)>,
    /// How many locks whose holder was killed went to one who waited by then, and how long after that at worst.
    pub freed: (usize, Duration),
    /// The least that the process of each worker that is never killed took up in the second tenth of the time, and at
    /// the end.
    pub footprints: BTreeMap<String, [Footprint; 2]>,
    /// What there was in the store before anybody took a lock, and at the end, of each thing that is counted there.
    pub counts: BTreeMap<String, [u64; 2]>,
    /// What was broken; empty if nothing.
    pub violations: Vec<Violation>,
    /// When the history begins, in nanoseconds of the machine's monotonic time.
    pub began: u64,
    /// Where the histories were left, if anything was broken.
    pub folder: Option<PathBuf>,
}

impl Report {
    /// Reads and judges what these clients left in the folder.
    pub(crate) async fn of(
        options: &TortureOptions,
        folder: &Path,
        places: &Places,
        clients: &[String],
        ended: u64,
    ) -> io::Result<Self> {
        let events = Workload::events(folder, clients)?;
        let verdict = oracle::check(&events, Tolerance { notice: Some(NOTICE), grace: GRACE });
        let (mut violations, mut counted) = (verdict.violations, 0);
        let resources = options.names().into_iter().chain((0..PERMITS).map(of_slot));
        let logs = places.logs(resources).await?;
        for Logged { place, resource, accesses } in &logs {
            for mut violation in oracle::check_resource(accesses) {
                violation.what = format!("{place}, {resource}: {}", violation.what);
                violation.show(resource, &events);
                violations.push(violation);
            }
            counted += accesses.last().map_or(0, |last| last.value);
        }
        violations.extend(uses::check(&events, &logs));
        let ordeals = ordeals(&events);
        violations.extend(paralysis(&events, &ordeals, options.calm()));
        violations.extend(silence(&events, ended, options.longest_silence()));
        violations.extend(ghosts(&events).chain(misled(&events, &ordeals)));
        let mut blows = BTreeMap::new();
        for ordeal in &ordeals {
            *blows.entry(ordeal.blow.clone()).or_default() += 1;
        }
        let freed = freed(&events);
        let count = |wanted: fn(&What) -> bool| events.iter().filter(|event| wanted(&event.what)).count();
        Ok(Self {
            seed: options.seed,
            grants: verdict.grants,
            foreign: of_others(&events),
            denials: verdict.denials,
            failures: count(|what| matches!(what, What::Failed { .. } | What::ReleaseFailed)),
            losses: verdict.losses,
            worst_notice: verdict.worst_notice,
            counted,
            writes: uses::writes(&events, |client| Library::of(client).is_none()),
            blows,
            forgotten: (count(|what| *what == What::Forgotten), verdict.forgotten),
            worst_forgotten: verdict.worst_forgotten,
            worst_recovery: recoveries(&events, &ordeals).into_iter().max_by_key(|(time, _)| *time),
            freed: (freed.len(), freed.into_iter().max().unwrap_or_default()),
            footprints: BTreeMap::new(),
            counts: BTreeMap::new(),
            violations,
            began: events.iter().map(|event| event.at).min().unwrap_or_default(),
            folder: None,
        })
    }

    /// How many times this was done.
    pub fn count(&self, blow: &str) -> usize {
        self.blows.get(blow).copied().unwrap_or(0)
    }

    /// Which rules were broken, and how often.
    pub fn broken(&self) -> BTreeMap<&'static str, usize> {
        let mut rules = BTreeMap::new();
        for violation in &self.violations {
            *rules.entry(violation.rule).or_default() += 1;
        }
        rules
    }

    /// How long after the beginning the history shows for the first time that this rule was broken, if it does.
    fn first_shown(&self, rule: &str) -> Option<Duration> {
        let broken = self.violations.iter().filter(|violation| violation.rule == rule);
        let first = broken.map(Violation::shown_at).filter(|at| *at > 0).min()?;
        Some(Duration::from_nanos(first.saturating_sub(self.began)))
    }
}

/// What came of another library's locks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// How many grants.
    pub grants: usize,
    /// How many holders heard from the store that they had lost it.
    pub lost: usize,
    /// How many went on past the time for which the store had confirmed that it keeps it: their own fault.
    pub past: usize,
    /// How many held the lock, looked at it, and were not shown as holders.
    pub misled: usize,
    /// What came of their writes.
    pub writes: Writes,
}

fn of_others(events: &[Event]) -> BTreeMap<&'static str, Foreign> {
    let mut all = BTreeMap::<_, Foreign>::new();
    for acquisition in acquisitions(events) {
        let Some(library) = Library::of(acquisition.client) else { continue };
        let its = all.entry(library.name()).or_default();
        if acquisition.granted.is_some() {
            its.grants += 1;
            its.lost += usize::from(acquisition.released.is_some_and(|(_, held)| held == Some(false)));
            its.past += usize::from(acquisition.release.is_some_and(|release| release > acquisition.until));
        }
    }
    for (name, its) in &mut all {
        let is_its = |client: &str| Library::of(client).is_some_and(|library| library.name() == *name);
        let misled = |event: &&Event| matches!(event.what, What::Misled { .. }) && is_its(&event.client);
        its.misled = events.iter().filter(misled).count();
        let places = uses::writes(events, is_its);
        its.writes = places.into_values().fold(Writes::default(), Writes::and);
    }
    all
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, grants, denials, failures, counted, losses, worst_notice, .. } = self;
        writeln!(f, "seed {seed}: {grants} grants, {denials} denials, {failures} failures, {counted} writes let in")?;
        for (name, Foreign { grants, lost, past, misled, writes }) in &self.foreign {
            let Writes { let_in, late, late_refused, .. } = writes;
            writeln!(
                f,
                "{name}: {grants} of the grants, {lost} heard of their loss, {past} went on past what the store keeps, \
                 {misled} looked and were not shown; {let_in} writes let in, {late} late, {late_refused} of these refused"
            )?;
        }
        if !self.foreign.is_empty() {
            let libraries = self.foreign.keys().filter_map(|name| Library::named(name));
            writeln!(f, "{}", foreign::told(libraries).join("\n"))?;
        }
        for (place, writes) in &self.writes {
            let Writes { let_in, refused, late, late_refused, woken, woken_refused } = writes;
            writeln!(
                f,
                "{place}: {let_in} writes let in, {refused} refused; after the lease {late}, {late_refused} refused, \
                 of these after a stop {woken}, {woken_refused} refused"
            )?;
        }
        let blows: Vec<_> = self.blows.iter().map(|(blow, count)| format!("{count} {blow}")).collect();
        writeln!(f, "blows: {}", if blows.is_empty() { "none".to_owned() } else { blows.join(", ") })?;
        write!(f, "{losses} losses told, at worst {worst_notice:?} late")?;
        if let (times @ 1.., holders) = self.forgotten {
            write!(
                f,
                "; the store forgot all {times} times, {holders} holders learnt it within {:?}",
                self.worst_forgotten
            )?;
        }
        if let Some((time, ordeal)) = &self.worst_recovery {
            write!(f, "; at worst {time:?} to the next grant, after {} of {}", ordeal.blow, ordeal.whose)?;
        }
        if let (locks @ 1.., worst) = self.freed {
            write!(f, "; {locks} locks of killed holders went on, at worst after {worst:?}")?;
        }
        for (worker, [early, last]) in &self.footprints {
            write!(f, "\n{worker} took up {early} at first, and {last} at the end")?;
        }
        for (what, [before, after]) in &self.counts {
            write!(f, "\n{what}: {before} before, {after} at the end")?;
        }
        write!(f, "\n{} rules broken", self.broken().len())?;
        // The first to be seen first: the others may follow from it.
        let mut rules: Vec<_> = self.broken().into_iter().collect();
        rules.sort_by_key(|(rule, _)| self.first_shown(rule).unwrap_or(Duration::MAX));
        for (rule, times) in rules {
            let broken = self.violations.iter().filter(|violation| violation.rule == rule);
            let Some(shortest) = broken.min_by_key(|violation| violation.length()) else { continue };
            write!(f, "\n\n{rule} was broken {times} times")?;
            if let Some(after) = self.first_shown(rule) {
                write!(f, ", first within {:.1} s of the beginning", after.as_secs_f64())?;
            }
            write!(f, "; the shortest part of the history that shows it:\n{shortest}")?;
        }
        if let Some(folder) = &self.folder {
            write!(
                f,
                "\n\nthe histories, an event a line, and what the resources let in are in {}; the rules stand in \
                 crates/conformance-tests/src/oracle.rs",
                folder.display()
            )?;
        }
        Ok(())
    }
}
