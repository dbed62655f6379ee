//! Worker processes that take the same few locks, stopped and killed at random; and the oracle over all they logged.
//!
//! The workers are this same program, started again: its `main` has to begin with [`worker_main`](crate::worker_main).

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::Signal;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::history::{self, Log, What};
use crate::oracle::{self, Tolerance, Violation};
use crate::resource::Resource;
use crate::worker::{Role, Worker};
use crate::workload::Workload;

/// How to torture.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TortureOptions {
    /// How the workers connect.
    pub url: String,
    /// For how long.
    pub duration: Duration,
    /// What all choices come from. (The times at which they take effect are the machine's.)
    pub seed: u64,
    /// How many processes at a time.
    pub workers: usize,
    /// How many locks there are.
    pub names: usize,
    /// The lease of the locks. Stops are longer.
    pub lease: Duration,
}

impl TortureOptions {
    /// A minute, four processes, two locks, leases of a second.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            duration: Duration::from_secs(60),
            seed: 1,
            workers: 4,
            names: 2,
            lease: Duration::from_secs(1),
        }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Report {
    /// The seed.
    pub seed: u64,
    /// How many grants there were.
    pub grants: usize,
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
    /// How many times a worker was stopped for longer than a lease.
    pub stops: usize,
    /// How many times a worker was killed.
    pub kills: usize,
    /// What was broken; empty if nothing.
    pub violations: Vec<Violation>,
    /// Where the histories were left, if anything was broken.
    pub folder: Option<PathBuf>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, grants, denials, failures, losses, worst_notice, counted, stops, kills, violations, folder } =
            self;
        write!(
            f,
            "seed {seed}: {grants} grants, {denials} denials, {failures} failures, {counted} writes let in, {stops} stops, {kills} kills, "
        )?;
        write!(f, "{losses} losses told, at worst {worst_notice:?} late; {} rules broken", violations.len())?;
        for violation in violations {
            write!(f, "\n{violation}")?;
        }
        if let Some(folder) = folder {
            write!(f, "\nthe histories are in {}", folder.display())?;
        }
        Ok(())
    }
}

/// How late a loss may be told, beside stops: what a busy machine needs to get round to it.
const NOTICE: Duration = Duration::from_secs(1);

/// How much longer than its lease a dead client may be in the way of others.
const GRACE: Duration = Duration::from_secs(5);

/// Tortures a store.
///
/// # Errors
/// If a process cannot be started or a history not be read. What the locks did wrong is in the [`Report`].
pub async fn run(options: &TortureOptions) -> io::Result<Report> {
    let folder = tempfile::tempdir()?;
    let log = Log::to_file("supervisor", &Workload::history(folder.path(), "supervisor"))?;
    let end = Instant::now() + options.duration;
    let mut tasks = JoinSet::new();
    for number in 0..options.workers {
        let task = Tormentor {
            options: options.clone(),
            folder: folder.path().to_owned(),
            log: log.clone(),
            number,
            rng: StdRng::seed_from_u64(options.seed.wrapping_mul(1000).wrapping_add(number as u64)),
            clients: Vec::new(),
        };
        tasks.spawn(task.torment(end));
    }
    let mut clients = vec!["supervisor".to_owned()];
    while let Some(done) = tasks.join_next().await {
        clients.extend(done.map_err(io::Error::other)??);
    }
    let mut report = report(options, folder.path(), &clients)?;
    if !report.violations.is_empty() {
        report.folder = Some(folder.keep());
    }
    Ok(report)
}

fn names(options: &TortureOptions) -> Vec<String> {
    (0..options.names.max(1)).map(|name| format!("torture-{name}")).collect()
}

fn report(options: &TortureOptions, folder: &Path, clients: &[String]) -> io::Result<Report> {
    let mut events = Vec::new();
    for client in clients {
        match history::read(&Workload::history(folder, client)) {
            Ok(read) => events.extend(read),
            // Killed before it had begun.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    let verdict = oracle::check(&events, Tolerance { notice: Some(NOTICE), grace: GRACE });
    let (mut violations, mut counted) = (verdict.violations, 0);
    for name in names(options) {
        let path = Workload::resource(folder, &name);
        if path.exists() {
            let log = Resource::log(&path)?;
            violations.extend(oracle::check_resource(&log));
            counted += log.last().map_or(0, |last| last.value);
        }
    }
    let count = |wanted: fn(&What) -> bool| events.iter().filter(|event| wanted(&event.what)).count();
    Ok(Report {
        seed: options.seed,
        grants: verdict.grants,
        denials: verdict.denials,
        failures: count(|what| matches!(what, What::Failed { .. } | What::ReleaseFailed)),
        losses: verdict.losses,
        worst_notice: verdict.worst_notice,
        counted,
        stops: count(|what| *what == What::Stopped),
        kills: count(|what| *what == What::Killed),
        violations,
        folder: None,
    })
}

/// What is done to one worker, and to those that take its place.
struct Tormentor {
    options: TortureOptions,
    folder: PathBuf,
    log: Log,
    number: usize,
    rng: StdRng,
    clients: Vec<String>,
}

impl Tormentor {
    /// Answers the clients that there were.
    async fn torment(mut self, end: Instant) -> io::Result<Vec<String>> {
        let mut worker = self.start()?;
        loop {
            let peace = self.leases(0.3, 2.0);
            if tokio::time::timeout_at(end, tokio::time::sleep(peace)).await.is_err() {
                break;
            }
            let log = self.log.client(self.clients.last().map_or("", String::as_str));
            if self.rng.random_ratio(1, 3) {
                log.log(0, What::Killed);
                worker.kill().await?;
                worker = self.start()?;
            } else {
                let stop = self.leases(1.2, 2.5);
                worker.signal(Signal::SIGSTOP)?;
                log.log(0, What::Stopped);
                tokio::time::sleep(stop).await;
                log.log(0, What::Continued);
                worker.signal(Signal::SIGCONT)?;
            }
        }
        let patience = self.options.lease + Duration::from_secs(30);
        if !worker.end(patience).await? {
            return Err(io::Error::other("a worker did not end well"));
        }
        Ok(self.clients)
    }

    fn leases(&mut self, from: f64, to: f64) -> Duration {
        self.options.lease.mul_f64(self.rng.random_range(from..to))
    }

    fn start(&mut self) -> io::Result<Worker> {
        let client = format!("worker-{}-{}", self.number, self.clients.len());
        let lease_ms = self.options.lease.as_millis() as u64;
        let workload = Workload {
            client: client.clone(),
            folder: self.folder.clone(),
            names: names(&self.options),
            rounds: None,
            seed: self.rng.random(),
            // Sections that renewals must keep.
            section_ms: lease_ms * 2,
        };
        self.clients.push(client);
        let role = Role { url: self.options.url.clone(), lease_ms, workload: Some(workload) };
        Worker::spawn(&role, &[])
    }
}
