//! How each step is done.

use std::time::Duration;

use oarlock::{LockGuard, Mode};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::crew::{Roster, Worker};
use super::figures::{Measure, Step};
use super::relay::{self, Relay};
use super::statistics::{Study, Times, Turn};
use super::subject::{self, Subject};
use super::worker::{IDLE, Job, RENEWALS, Span, Word, Work, now, until};

/// The lease of locks whose holder is not killed: no renewal falls into a short round, and a crash of ours is soon
/// over.
const LEASE: Duration = Duration::from_secs(10);
/// The lease where many are held, none of which shall be renewed meanwhile; the library's own, which any store gives.
const LONG_LEASE: Duration = Duration::from_secs(30);
/// The lease of the holder that is killed, where the store gives one so short.
const SHORT_LEASE: Duration = Duration::from_secs(2);
/// How long who waits may take until it stands in line.
const SETTLED: Duration = Duration::from_millis(200);
/// How long who waits in vain may take until it asks as seldom as it ever does, where waiting is asking.
const IDLE_SETTLED: Duration = Duration::from_secs(2);
/// Between the order to start and the start.
const AHEAD: Duration = Duration::from_millis(20);
/// A hold that is long enough for a waiter to go to sleep.
const LONG_HOLD: Duration = Duration::from_millis(50);
/// How much longer than planned a step may take before it is given up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many tasks there are where there are many.
const TASKS: u32 = 64;
/// A hold of those who read.
const READ: Duration = Duration::from_millis(2);
/// A permit, of fewer than want one.
const PERMIT: Mode = Mode::Permits { take: 1, of: 2 };

/// What a step found.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) figures: Vec<(Measure, f64)>,
    pub(super) times: Option<Times>,
    /// How often more held it at once than may.
    pub(super) overlaps: u64,
}

/// One backend, for the time of one step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trial<'a> {
    pub(super) subject: &'a Subject,
    pub(super) prefix: &'a str,
    pub(super) slice: Duration,
    pub(super) roster: &'a Roster,
}

impl Step {
    /// About how long it takes with this backend.
    pub(super) fn estimate(self, subject: &Subject, slice: Duration) -> Duration {
        let started = Duration::from_millis(300);
        if !self.is_possible(subject) {
            return Duration::ZERO;
        }
        started
            + match self {
                Self::Recovery => SETTLED + subject.lease(SHORT_LEASE),
                Self::Renewals => Duration::from_secs(1),
                Self::Idle => IDLE_SETTLED + slice,
                _ => self.length(slice),
            }
    }

    /// Can it be done with this backend? Where not, nothing is found.
    fn is_possible(self, subject: &Subject) -> bool {
        let modes = subject.locks.capabilities().modes;
        match self {
            Self::Reading | Self::Readers => modes.shared,
            Self::Permit | Self::Permits => modes.permits,
            // There has to be one server that a relay can stand in front of.
            Self::Messages => relay::place(&subject.url).is_some(),
            _ => true,
        }
    }

    /// How long it is measured where others are for this long.
    fn length(self, slice: Duration) -> Duration {
        match self {
            Self::Wake => slice.max(10 * LONG_HOLD),
            // Both loads have half of it, of which half is for connections and the like to be made.
            Self::Messages => slice.max(Duration::from_secs(1)),
            _ => slice,
        }
    }
}

impl Trial<'_> {
    /// Does a step, in bounded time. Whatever it took is given back when this is over, or soon after it was dropped.
    pub(super) async fn run(self, step: Step) -> Result<Found, String> {
        if !step.is_possible(self.subject) {
            return Ok(Found::default());
        }
        let limit = step.estimate(self.subject, self.slice) + 2 * self.subject.lease(LEASE) + PATIENCE;
        let trial = Self { slice: step.length(self.slice), ..self };
        let found = timeout(limit, trial.perform(step)).await;
        self.roster.settle().await;
        found.unwrap_or_else(|_| Err(format!("given up after {limit:?}")))
    }

    async fn perform(self, step: Step) -> Result<Found, String> {
        let nothing = Duration::ZERO;
        match step {
            Step::Alone => self.alone_in("alone", Mode::Exclusive, [Measure::AloneP50Us, Measure::AloneP99Us]).await,
            Step::Names => {
                let study = self.study(1, turns("", TASKS, true, nothing)).await?;
                Ok(Found { figures: vec![(Measure::NamesPerS, study.rate)], ..Found::default() })
            }
            Step::Tasks => {
                let study = self.study(1, turns("tasks", TASKS, false, nothing)).await?;
                Ok(contended(study, [Measure::TasksPerS, Measure::TasksP50Us, Measure::TasksP99Us]))
            }
            Step::Pair => {
                let study = self.study(2, turns("pair", 1, false, nothing)).await?;
                Ok(contended(study, [Measure::PairPerS, Measure::PairP50Us, Measure::PairP99Us]))
            }
            Step::Eight => {
                let study = self.study(8, turns("eight", 1, false, nothing)).await?;
                let more = [
                    (Measure::EightFairness, study.fairness),
                    (Measure::EightLongestWaitUs, study.longest_wait.as_secs_f64() * 1e6),
                ];
                let mut found = contended(study, [Measure::EightPerS, Measure::EightP50Us, Measure::EightP99Us]);
                found.figures.extend(more);
                Ok(found)
            }
            Step::Wake => {
                let study = self.study(2, turns("wake", 1, false, LONG_HOLD)).await?;
                if study.hand_offs.count() == 0 {
                    return Err(format!("in {:?} the lock never passed from one process to the other", self.slice));
                }
                let figures = percentiles(&study.hand_offs, Measure::WakeP50Us, Measure::WakeP99Us).collect();
                Ok(Found { figures, overlaps: study.overlaps, times: Some(study.hand_offs) })
            }
            Step::Reading => self.alone_in("reading", Mode::Shared, [Measure::ReadP50Us, Measure::ReadP99Us]).await,
            Step::Readers => {
                let study = self.study(8, in_mode("readers", Mode::Shared, READ)).await?;
                Ok(Found { figures: vec![(Measure::ReadersPerS, study.rate)], ..Found::default() })
            }
            Step::Permit => self.alone_in("permit", PERMIT, [Measure::PermitP50Us, Measure::PermitP99Us]).await,
            Step::Permits => {
                let study = self.study(8, in_mode("permits", PERMIT, nothing)).await?;
                let longest = study.longest_wait.as_secs_f64() * 1e6;
                let figures = vec![(Measure::PermitsPerS, study.rate), (Measure::PermitsLongestWaitUs, longest)];
                Ok(Found { figures, overlaps: study.overlaps, times: None })
            }
            Step::Recovery => self.recovery().await,
            Step::Idle => self.idle().await,
            Step::Renewals => self.renewals().await,
            Step::Messages => self.messages().await,
        }
    }

    fn job(self, work: Work, lease: Duration) -> Job {
        let lease = self.subject.lease(lease);
        Job { url: self.subject.url.clone(), prefix: self.prefix.to_owned(), lease, work }
    }

    /// Has so many workers do the same at once, and studies it.
    async fn study(self, processes: usize, work: Work) -> Result<Study, String> {
        self.counted(processes, self.job(work, LEASE), || 0).await.map(|(study, _)| study)
    }

    /// The same, and by how much a count rises for each turn. In the second half, when all connections are made.
    async fn counted(self, processes: usize, job: Job, count: impl Fn() -> u64) -> Result<(Study, f64), String> {
        let Work::Turns { tasks, apart, mode, .. } = job.work else { return Err(confused()) };
        let mut workers = Vec::new();
        for _ in 0..processes {
            workers.push(self.roster.start(&job).await?);
        }
        for worker in &mut workers {
            expect_ready(worker).await?;
        }
        let span = self.soon();
        for worker in &mut workers {
            worker.order(&span).await?;
        }
        until(u64::midpoint(span.start, span.end)).await;
        let (before, since) = (count(), now());
        let mut takers: Vec<Vec<Turn>> = Vec::new();
        for worker in &mut workers {
            for _ in 0..tasks {
                let Word::Turns(turns) = worker.word().await? else { return Err(confused()) };
                let turns = turns.into_iter().map(|[asked, had, gave, done]| Turn { asked, had, gave, done });
                takers.push(turns.collect());
            }
        }
        // All turns have ended, so that of those that began since then nothing is left out.
        let rise = count() - before;
        let turns = takers.iter().flatten().filter(|turn| turn.asked >= since).count();
        let at_once = match mode {
            Mode::Permits { take, of } => Some(of / take),
            Mode::Exclusive if !apart => Some(1),
            _ => None,
        };
        Ok((Study::of(&takers, span, at_once), rise as f64 / turns as f64))
    }

    /// One task, nobody else there.
    async fn alone_in(self, name: &str, mode: Mode, [median, tail]: [Measure; 2]) -> Result<Found, String> {
        let study = self.study(1, in_mode(name, mode, Duration::ZERO)).await?;
        let figures = percentiles(&study.cycles, median, tail);
        Ok(Found { figures: figures.collect(), times: Some(study.cycles), overlaps: study.overlaps })
    }

    fn soon(self) -> Span {
        let nanos = |duration: Duration| duration.as_nanos() as u64;
        let start = now() + nanos(AHEAD);
        Span { start, end: start + nanos(self.slice) }
    }

    /// The holder is killed as soon as another waits, so that nearly all of its lease is still to come.
    async fn recovery(self) -> Result<Found, String> {
        let name = "recovery".to_owned();
        let mut holder = self.roster.start(&self.job(Work::Hold { name: name.clone() }, SHORT_LEASE)).await?;
        let Word::Had(_) = holder.word().await? else { return Err(confused()) };
        let mut waiter = self.roster.start(&self.job(Work::Wait { name }, SHORT_LEASE)).await?;
        expect_ready(&mut waiter).await?;
        sleep(SETTLED).await;
        let killed = now();
        holder.kill();
        let Word::Had(had) = waiter.word().await? else { return Err(confused()) };
        let overlaps = u64::from(had < killed);
        Ok(Found {
            figures: vec![(Measure::RecoveryUs, had.saturating_sub(killed) as f64 / 1e3)],
            times: None,
            overlaps,
        })
    }

    /// We hold what a worker waits for.
    async fn idle(self) -> Result<Found, String> {
        let mut taking = JoinSet::new();
        for number in 0..IDLE {
            let mutex = self.subject.locks.mutex(subject::one_of_many(number)).lease(self.subject.lease(LONG_LEASE));
            taking.spawn(async move { mutex.wait(PATIENCE).lock().await });
        }
        let held: Result<Vec<LockGuard>, _> = taking.join_all().await.into_iter().collect();
        let held = held.map_err(|error| error.to_string())?;
        let mut worker = self.roster.start(&self.job(Work::Idle { names: IDLE }, LEASE)).await?;
        expect_ready(&mut worker).await?;
        sleep(IDLE_SETTLED).await;
        worker.order(&self.soon()).await?;
        let Word::Figure(share) = worker.word().await? else { return Err(confused()) };
        // They leave before the locks come free, else each would be woken.
        drop(worker);
        self.roster.settle().await;
        let mut releasing: JoinSet<_> = held.into_iter().map(LockGuard::unlock).collect();
        while let Some(released) = releasing.join_next().await {
            released.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        }
        Ok(Found { figures: vec![(Measure::IdleCoreShare, share)], ..Found::default() })
    }

    async fn renewals(self) -> Result<Found, String> {
        let mut worker = self.roster.start(&self.job(Work::Renew { leases: RENEWALS }, LONG_LEASE)).await?;
        let Word::Figure(micros) = worker.word().await? else { return Err(confused()) };
        Ok(Found { figures: vec![(Measure::RenewalsUs, micros)], ..Found::default() })
    }

    async fn messages(self) -> Result<Found, String> {
        let Some((before, address, after)) = relay::place(&self.subject.url) else { return Ok(Found::default()) };
        let relay = Relay::start(address.to_owned()).await.map_err(|error| error.to_string())?;
        let url = format!("{before}127.0.0.1:{}{after}", relay.port());
        let slice = self.slice / 2;
        let mut figures = Vec::new();
        for (processes, measure) in [(1, Measure::AloneMessages), (8, Measure::EightMessages)] {
            let job = Job { url: url.clone(), ..self.job(turns("messages", 1, false, Duration::ZERO), LEASE) };
            let (_, sent) = Self { slice, ..self }.counted(processes, job, || relay.sent()).await?;
            // Where the store is so slow that no turn began in time, there is nothing to tell.
            if sent.is_finite() {
                figures.push((measure, sent));
            }
        }
        Ok(Found { figures, ..Found::default() })
    }
}

fn turns(name: &str, tasks: u32, apart: bool, hold: Duration) -> Work {
    Work::Turns { name: name.to_owned(), tasks, apart, hold, mode: Mode::Exclusive }
}

fn in_mode(name: &str, mode: Mode, hold: Duration) -> Work {
    Work::Turns { name: name.to_owned(), tasks: 1, apart: false, hold, mode }
}

async fn expect_ready(worker: &mut Worker) -> Result<(), String> {
    match worker.word().await? {
        Word::Ready => Ok(()),
        _ => Err(confused()),
    }
}

fn confused() -> String {
    "a worker said something out of turn".to_owned()
}

fn percentiles(times: &Times, median: Measure, tail: Measure) -> impl Iterator<Item = (Measure, f64)> + use<> {
    [(median, times.at(0.5)), (tail, times.at(0.99))]
        .into_iter()
        .filter_map(|(measure, value)| value.map(|value| (measure, value)))
}

fn contended(study: Study, [rate, median, tail]: [Measure; 3]) -> Found {
    let mut figures = vec![(rate, study.hand_off_rate)];
    figures.extend(percentiles(&study.hand_offs, median, tail));
    Found { figures, overlaps: study.overlaps, times: Some(study.hand_offs) }
}
