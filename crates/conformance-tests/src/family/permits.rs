//! A semaphore that many want all the time, while processes are killed: as many hold it as may, and no more.
//!
//! Besides the rules of the [oracle](crate::oracle), which keep each slot for one holder at a time:
//!
//! - **P2** No more hold than there are permits, whatever their slots.
//! - **P3** While somebody waits, fewer hold for no longer than a lease and [`FILLED`]. What a killed process held
//!   counts for so long, so this time begins anew with each kill.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use lock_core::{Locks, Mode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::FamilyReport;
use super::crew::{Duty, Task, in_folder};
use crate::acquisition::{Acquisition, Pauses, acquisitions};
use crate::ghosts::{self, ghosts};
use crate::history::{Event, Log, What, monotonic};
use crate::oracle::{self, Tolerance, Violation};
use crate::plan::Blow;
use crate::protected::Places;
use crate::recorder::{Recorder, waited};
use crate::torture::{GRACE, Site};
use crate::victim::Seat;
use crate::worker::Role;
use crate::workload::{SEMAPHORE, Workload, failed, of_slot, use_slots};

/// How much longer than its lease a hold whose process was killed may keep a permit from those who wait.
const FILLED: Duration = Duration::from_secs(1);

/// How late a loss may be told on a busy machine.
const NOTICE: Duration = Duration::from_secs(1);

/// How many permits there are, who wants them, and for how long.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PermitsOptions {
    /// How many permits there are.
    pub permits: u32,
    /// How many wait for one, beside those who hold.
    pub waiters: usize,
    /// In how many processes.
    pub processes: usize,
    /// For how long.
    pub duration: Duration,
    /// The lease. One of the processes is killed every few of it.
    pub lease: Duration,
    /// What all choices come from. (The times at which they take effect are the machine's.)
    pub seed: u64,
    /// Where the histories are written, and kept if a rule was broken. It has to be there.
    pub histories: PathBuf,
}

impl PermitsOptions {
    /// Five permits and 64 waiters in eight processes, leases of a second, histories in the folder for temporary files.
    pub fn new(duration: Duration) -> Self {
        let (lease, histories) = (Duration::from_secs(1), std::env::temp_dir());
        Self { permits: 5, waiters: 64, processes: 8, duration, lease, seed: 1, histories }
    }
}

/// In a process: so many tasks that want a permit, again and again.
pub(super) async fn work(locks: &Locks, lease: Duration, task: &Task, of: u32, tasks: usize) -> io::Result<()> {
    let log = Log::to_file(&task.client, &Workload::history(&task.folder, &task.client))?;
    let recorder = Recorder::new(log);
    let places = Arc::new(Places::files(&task.folder));
    let mut wanting = JoinSet::new();
    for number in 0..tasks {
        let rng = StdRng::seed_from_u64(task.seed ^ (number as u64) << 16);
        wanting.spawn(want(locks.clone(), recorder.clone(), Arc::clone(&places), lease, of, rng));
    }
    match wanting.join_next().await {
        Some(ended) => ended.map_err(io::Error::other)?,
        None => Ok(()),
    }
}

async fn want(
    locks: Locks,
    recorder: Recorder,
    places: Arc<Places>,
    lease: Duration,
    of: u32,
    mut rng: StdRng,
) -> io::Result<()> {
    let semaphore = locks.semaphore(SEMAPHORE, of).map_err(io::Error::other)?.lease(lease);
    let mode = Mode::Permits { take: 1, of };
    loop {
        // Some stand in the store's line themselves, some in that of the process.
        let semaphore = semaphore.clone().fair(rng.random_ratio(1, 2));
        match recorder.taking(SEMAPHORE, mode, lease, waited(semaphore.acquire())).await {
            Ok(Some(held)) => {
                // Some sections need renewals; the others have permits change hands.
                let leases = if rng.random_ratio(1, 6) { 2.0 } else { 0.1 };
                use_slots(held, &places, lease, lease.mul_f64(leases).as_millis() as u64, &mut rng).await?;
            }
            Ok(None) => {}
            Err(_) => drop(failed(lease).await?),
        }
    }
}

/// Has many want the permits of a semaphore, while one process after the other is killed.
///
/// # Errors
/// If a process cannot be started or does not end well, or its history cannot be read.
pub async fn permits(options: &PermitsOptions, site: Site) -> io::Result<FamilyReport> {
    in_folder(&options.histories, async |folder| {
        let log = Log::to_file("parent", &Workload::history(&folder, "parent"))?;
        let crew = (0..options.processes).map(|number| seat(options, &site.url(), number, &folder));
        let mut crew = crew.collect::<io::Result<Vec<_>>>()?;
        let mut rng = StdRng::seed_from_u64(options.seed);
        let end = Instant::now() + options.duration;
        loop {
            // So long that P3 has something to say after most.
            let next = Instant::now() + options.lease.mul_f64(rng.random_range(0.5..6.0));
            tokio::time::sleep_until(next.min(end)).await;
            if next >= end {
                break;
            }
            crew[rng.random_range(0..options.processes)].strike(Blow::Kill, &log).await?;
        }
        let over = monotonic();
        let mut ending = JoinSet::new();
        for seat in crew {
            ending.spawn(seat.end(options.lease + Duration::from_secs(30)));
        }
        let mut clients = vec!["parent".to_owned()];
        while let Some(ended) = ending.join_next().await {
            clients.extend(ended.map_err(io::Error::other)??);
        }
        ghosts::look(vec![SEMAPHORE.to_owned()], options.lease, site.url(), &log).await?;
        report(options, &folder, &clients, over)
    })
    .await
}

fn seat(options: &PermitsOptions, url: &str, number: usize, folder: &Path) -> io::Result<Seat> {
    let (of, seed, lease_ms) = (options.permits, options.seed, options.lease.as_millis() as u64);
    let tasks = (options.waiters + of as usize).div_ceil(options.processes);
    let (url, folder) = (url.to_owned(), folder.to_owned());
    Seat::new(vec![Blow::Kill], None, move |successor| {
        let client = format!("worker-{number}-{successor}");
        let seed = seed ^ (number as u64) << 48 ^ (successor as u64) << 32;
        let duty = Duty::Permits { of, tasks };
        let task = Task { client: client.clone(), folder: folder.clone(), seed, duty };
        (client, Role { url: url.clone(), lease_ms, workload: None, task: Some(task) })
    })
}

fn report(options: &PermitsOptions, folder: &Path, clients: &[String], over: u64) -> io::Result<FamilyReport> {
    let events = Workload::events(folder, clients)?;
    let (mut report, mut violations) = judge(&events, options, over);
    let mut writes = 0;
    for (_, log) in Workload::accesses(folder, (0..options.permits).map(of_slot))? {
        violations.extend(oracle::check_resource(&log));
        writes += log.last().map_or(0, |last| last.value);
    }
    report.counts.push(("writes that the slots' resources let in", writes as usize));
    report.violations = violations.iter().map(ToString::to_string).collect();
    Ok(report)
}

/// What the history shows, up to the moment at which all were told to end.
fn judge(events: &[Event], options: &PermitsOptions, over: u64) -> (FamilyReport, Vec<Violation>) {
    let verdict = oracle::check(events, Tolerance { notice: Some(NOTICE), grace: GRACE });
    let mut pauses = HashMap::<&str, Pauses>::new();
    for event in events.iter().filter(|event| event.what == What::Killed) {
        pauses.entry(&event.client).or_default().add(event.at, &event.what);
    }
    let mut all = acquisitions(events);
    for acquisition in &mut all {
        acquisition.pauses = pauses.get(acquisition.client).cloned().unwrap_or_default();
    }
    let kills: Vec<_> = pauses.values().filter_map(|pauses| pauses.killed).collect();
    let holders = |kill: &&u64| all.iter().any(|a| a.pauses.killed == Some(**kill) && held_at(a, **kill));
    let struck = kills.iter().filter(holders).count();
    let seen = count(&all, &kills, options, over);
    let mut violations = verdict.violations;
    violations.extend(ghosts(events));
    violations.extend(seen.violations);
    let counts = vec![
        ("grants", verdict.grants),
        ("processes killed", kills.len()),
        ("of them with a permit", struck),
        ("held at once, at the most", seen.most as usize),
        ("waited at once, at the most", seen.waited),
    ];
    let longest = vec![("with fewer holders than permits while somebody waited, since the last kill", seen.longest)];
    (FamilyReport { counts, longest, ..FamilyReport::default() }, violations)
}

/// Was it held when its process was killed?
fn held_at(acquisition: &Acquisition<'_>, kill: u64) -> bool {
    acquisition.answered() < kill && acquisition.believed(kill)
}

#[derive(Default)]
struct Seen {
    most: u32,
    waited: usize,
    longest: Duration,
    violations: Vec<Violation>,
}

/// What changes at a moment. Who ends is not there any more when another begins at that moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    HoldEnds(u32),
    WaitEnds,
    Kill,
    HoldBegins(u32),
    WaitBegins,
    Over,
}

/// Counts holders and waiters at each moment: **P2** and **P3**.
fn count(all: &[Acquisition<'_>], kills: &[u64], options: &PermitsOptions, over: u64) -> Seen {
    let mut changes: Vec<_> = kills.iter().map(|kill| (*kill, Change::Kill)).chain([(over, Change::Over)]).collect();
    for acquisition in all {
        let weight = acquisition.mode.weight();
        let answers = [acquisition.denied, acquisition.failed.map(|(at, _)| at), acquisition.pauses.killed];
        let answered = answers.into_iter().flatten().fold(acquisition.answered(), u64::min);
        // Not where it asked between the note of its kill and its death.
        if answered > acquisition.asked {
            changes.extend([(acquisition.asked, Change::WaitBegins), (answered, Change::WaitEnds)]);
        }
        let end = acquisition.belief_end();
        if acquisition.granted.is_some() && end > acquisition.answered() {
            changes.extend([(acquisition.answered(), Change::HoldBegins(weight)), (end, Change::HoldEnds(weight))]);
        }
    }
    changes.retain(|(at, _)| *at <= over);
    changes.sort_unstable();
    let (limit, mut seen) = (options.lease + FILLED, Seen::default());
    let (mut holders, mut waiters) = (0_u32, 0_usize);
    let mut few_since = None::<u64>;
    for (at, change) in changes {
        match change {
            Change::HoldEnds(weight) => holders -= weight,
            Change::WaitEnds => waiters -= 1,
            Change::HoldBegins(weight) => {
                holders += weight;
                if holders > options.permits {
                    seen.broken("P2", format!("{holders} permits of {} were held", options.permits), at, at);
                }
            }
            Change::WaitBegins => waiters += 1,
            Change::Kill | Change::Over => {}
        }
        (seen.most, seen.waited) = (seen.most.max(holders), seen.waited.max(waiters));
        let few = holders < options.permits && waiters > 0;
        if let Some(since) = few_since
            && (!few || matches!(change, Change::Kill | Change::Over))
        {
            let lasted = Duration::from_nanos(at - since);
            seen.longest = seen.longest.max(lasted);
            if lasted > limit {
                let what =
                    format!("fewer than {} permits were held for {lasted:?}, and others waited", options.permits);
                seen.broken("P3", what, since, at);
            }
            few_since = None;
        }
        if few && few_since.is_none() {
            few_since = Some(at);
        }
    }
    seen
}

impl Seen {
    fn broken(&mut self, rule: &'static str, what: String, from: u64, to: u64) {
        let what = format!("{what}, from {from} to {to} ns of the histories");
        self.violations.push(Violation::of_tokens(rule, what, &[]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::nanos;

    const MS: u64 = 1_000_000;
    const OVER: u64 = 60_000;
    const OF: u32 = 2;

    /// A history, times in milliseconds.
    #[derive(Default)]
    struct History(Vec<Event>, u64);

    impl History {
        fn at(&mut self, at: u64, client: &str, op: u64, what: What) {
            self.0.push(Event { at: at * MS, client: client.into(), op, what });
        }

        fn asks(&mut self, client: &str, at: u64) -> u64 {
            self.1 += 1;
            let mode = Mode::Permits { take: 1, of: OF };
            let lease = nanos(Duration::from_secs(1));
            self.at(at, client, self.1, What::Acquire { name: SEMAPHORE.into(), mode, lease, watched: false });
            self.1
        }

        /// Holds this slot from one time to the other.
        fn holds(mut self, client: &str, slot: u32, token: u64, [from, to]: [u64; 2]) -> Self {
            let op = self.asks(client, from.saturating_sub(1));
            self.at(from, client, op, What::Slots { slots: vec![slot] });
            self.at(from, client, op, What::Granted { token, until: (to + 1000) * MS });
            self.at(to, client, op, What::Release);
            self.at(to, client, op, What::Released { held: true });
            self
        }

        fn waits(mut self, client: &str, [from, to]: [u64; 2]) -> Self {
            let op = self.asks(client, from);
            self.at(to, client, op, What::Failed { unknown: false });
            self
        }

        fn kill(mut self, client: &str, at: u64) -> Self {
            self.at(at, client, 0, What::Killed);
            self
        }

        fn breaks(&self, expected: &[&str]) {
            let options = PermitsOptions { permits: OF, ..PermitsOptions::new(Duration::ZERO) };
            let (_, violations) = judge(&self.0, &options, OVER * MS);
            let mut rules: Vec<_> = violations.iter().map(|violation| violation.rule).collect();
            rules.sort_unstable();
            rules.dedup();
            assert_eq!(rules, expected, "{violations:?}");
        }
    }

    /// Both permits are held all the time, and a third client waits.
    fn full() -> History {
        History::default().holds("a", 0, 1, [0, OVER]).holds("b", 1, 2, [0, OVER]).waits("c", [10, OVER])
    }

    #[test]
    fn as_many_hold_as_may() {
        full().breaks(&[]);
        let (report, _) = judge(&full().0, &PermitsOptions::new(Duration::ZERO), OVER * MS);
        assert_eq!((report.counts[0].1, report.counts[3].1), (2, 2));
    }

    #[test]
    fn more_than_there_are_permits_is_too_many() {
        // Three slots, so that no slot is shared.
        full().holds("d", 2, 3, [20, 30]).breaks(&["P1", "P2"]);
        // One ends at the moment at which the next begins.
        let turns = History::default().holds("a", 0, 1, [0, 100]).holds("d", 0, 3, [100, OVER]);
        turns.holds("b", 1, 2, [0, OVER]).waits("c", [10, OVER]).breaks(&[]);
    }

    #[test]
    fn a_slot_is_not_shared() {
        let shared = History::default().holds("a", 0, 1, [0, OVER]).holds("b", 0, 2, [5, OVER]);
        shared.waits("c", [10, OVER]).breaks(&["B1", "R1", "S0"]);
    }

    #[test]
    fn permits_are_not_left_lying_while_somebody_waits() {
        // A lease and a second, and then longer than that.
        let pause = |next: u64, waits: [u64; 2]| {
            let history = History::default().holds("a", 0, 1, [0, 1000]).holds("b", 1, 2, [0, OVER]);
            history.holds("d", 0, 3, [next, OVER]).waits("c", waits)
        };
        pause(3000, [10, OVER]).breaks(&[]);
        pause(3001, [10, OVER]).breaks(&["P3"]);
        // Nobody waits for most of it.
        pause(3001, [2000, OVER]).breaks(&[]);
        // Until the end.
        let left = History::default().holds("a", 0, 1, [0, OVER]);
        left.waits("c", [10, OVER]).breaks(&["P3"]);
    }

    #[test]
    fn a_kill_makes_the_time_begin_anew() {
        let killed = |again: &[u64], next: u64| {
            let mut history = History::default().holds("a", 0, 1, [0, 1000]).kill("a", 1000);
            // It did not come to that.
            history.0.retain(|event| !matches!(event.what, What::Release | What::Released { .. }));
            let history = again.iter().fold(history, |history, at| history.kill(&format!("w{at}"), *at));
            history.holds("d", 0, 3, [next, OVER]).holds("b", 1, 2, [0, OVER]).waits("c", [10, OVER])
        };
        killed(&[], 3000).breaks(&[]);
        killed(&[], 3001).breaks(&["P3"]);
        killed(&[2000], 4000).breaks(&[]);
        killed(&[2000], 4001).breaks(&["P3"]);
    }
}
