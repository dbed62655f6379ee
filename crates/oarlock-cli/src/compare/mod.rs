//! `compare`: stores measured on what matters for locks, in turns.
//!
//! Whatever takes a lock is a worker, a process of its own (`worker`). We start workers, tell them when to begin, and
//! study when each of them had the lock, by the one clock that all processes of a machine share. A step is done with
//! one backend after the other before the next step begins, so that a machine that is slow for a while is slow for all.

mod crew;
mod figures;
mod html;
mod progress;
mod relay;
mod renewals;
mod report;
mod statistics;
mod steps;
mod subject;
mod svg;
mod table;
mod worker;

use std::fs::File;
use std::io::{self, BufRead};
use std::path::Path;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::args::{CompareArgs, Settings};
use crate::exit::{CONFLICT, Failure, OS_ERROR, SIGNAL, USAGE};
use crate::output::{print, print_json, say};
use crate::run::Signals;
use crew::Roster;
use figures::Step;
use progress::Progress;
use report::{Machine, Notes, Report};
use steps::Trial;
use subject::Subject;
pub(crate) use worker::work;

/// Those that end it early.
const INTERRUPTIONS: &[Signal] = &[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];
/// A round is no longer than this for each backend: more time makes for more rounds.
const ROUND: Duration = Duration::from_secs(20);
const LEAST_ROUNDS: usize = 3;
/// Less shows nothing but the start.
const LEAST_SLICE: Duration = Duration::from_millis(100);

pub(crate) async fn compare(args: &CompareArgs, settings: &Settings) -> Result<u8, Failure> {
    let mut signals = Signals::listen(INTERRUPTIONS)?;
    if let Some(file) = &args.html {
        // Told before the measuring, not after.
        File::options().create(true).append(true).open(file).map_err(|error| cannot_write(file, &error))?;
    }
    // A user of the store may be allowed names with ours in them alone.
    let prefix = format!("compare-oarlock-{:016x}", rand::random::<u64>());
    let subjects = connect(&urls(args, settings)?, &prefix).await?;
    let mut run = Run::new(args, &prefix, subjects).await;
    let roster = Roster::default();
    let interrupted = tokio::select! {
        biased;
        signal = signals.next() => Some(signal),
        () = run.all(&roster) => None,
    };
    if interrupted.is_some() {
        say("interrupted: cleaning up");
    }
    roster.settle().await;
    let report = run.end().await;
    if args.json {
        print_json(&report)?;
    } else {
        print(&table::table(&report))?;
    }
    if let Some(file) = &args.html {
        std::fs::write(file, html::page(&report)).map_err(|error| cannot_write(file, &error))?;
    }
    Ok(match interrupted {
        Some(signal) => SIGNAL + signal as u8,
        None if report.backends.iter().all(report::Backend::is_sound) => 0,
        None => CONFLICT,
    })
}

fn cannot_write(file: &Path, error: &io::Error) -> Failure {
    Failure::new(OS_ERROR, format!("cannot write {}: {error}", file.display()))
}

/// Those of the command line; `-` stands for those on standard input, a line each.
fn urls(args: &CompareArgs, settings: &Settings) -> Result<Vec<String>, Failure> {
    let mut urls = Vec::new();
    for url in settings.url.iter().chain(&args.urls) {
        if url == "-" {
            let lines = io::stdin().lock().lines().collect::<io::Result<Vec<_>>>()?;
            urls.extend(lines.iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()));
        } else {
            urls.push(url.clone());
        }
    }
    if urls.is_empty() { Err(Failure::new(USAGE, "compare needs the URL of a store at least")) } else { Ok(urls) }
}

async fn connect(urls: &[String], prefix: &str) -> Result<Vec<Subject>, Failure> {
    let mut subjects: Vec<Subject> = Vec::new();
    for url in urls {
        let mut subject = Subject::connect(url, prefix).await?;
        let same = subjects.iter().filter(|other| other.name == subject.name).count();
        if same > 0 {
            subject.name = format!("{} {}", subject.name, same + 1);
        }
        subjects.push(subject);
    }
    Ok(subjects)
}

/// A comparison under way.
struct Run<'a> {
    prefix: &'a str,
    subjects: Vec<(Subject, Notes)>,
    seconds: Duration,
    rounds: usize,
    started: String,
    complete: bool,
}

impl<'a> Run<'a> {
    async fn new(args: &CompareArgs, prefix: &'a str, connected: Vec<Subject>) -> Self {
        let mut subjects = Vec::new();
        for subject in connected {
            let findings = subject.locks.doctor().await.ok();
            subjects.push((subject, Notes::of(findings)));
        }
        let seconds = Duration::from_secs(args.seconds);
        let rounds = LEAST_ROUNDS.max(seconds.div_duration_f64(ROUND) as usize);
        Self { prefix, subjects, seconds, rounds, started: report::date(), complete: false }
    }

    /// All rounds. Dropped, it leaves what was found so far.
    async fn all(&mut self, roster: &Roster) {
        let slice = self.slice();
        let estimate = |step: Step, subject: &Subject| step.estimate(subject, slice);
        let round =
            |(subject, _): &(Subject, Notes)| Step::ALL.map(|step| estimate(step, subject)).iter().sum::<Duration>();
        let planned: Duration = self.subjects.iter().map(round).sum();
        let mut progress = Progress::new(planned * self.rounds as u32);
        for round in 0..self.rounds {
            for step in Step::ALL {
                let count = self.subjects.len();
                for turn in 0..count {
                    // Whoever comes first is another one each time.
                    let (subject, notes) = &mut self.subjects[(turn + round) % count];
                    progress.begin(&format!("{}: {}", subject.name, step.title()));
                    let trial = Trial { subject, prefix: self.prefix, slice, roster };
                    notes.add(step, trial.run(step).await);
                    progress.end(estimate(step, subject));
                }
            }
        }
        self.complete = true;
    }

    /// What each step gets, of those whose length is ours to choose.
    fn slice(&self) -> Duration {
        LEAST_SLICE.max(self.seconds / (self.rounds * Step::ALL.len()) as u32)
    }

    /// Cleans up, and reports.
    async fn end(self) -> Report {
        let mut backends = Vec::new();
        for (subject, notes) in self.subjects {
            match subject.sweep().await {
                Ok(left) if left.is_empty() => {}
                Ok(left) => say(format!("{}: these locks are left: {}", subject.name, left.join(", "))),
                Err(failure) => say(failure.message.unwrap_or_default()),
            }
            let backend = notes.report(&subject);
            drop(subject.locks.shutdown(crate::SHUTDOWN).await);
            backends.push(backend);
        }
        Report {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started: self.started,
            prefix: self.prefix.to_owned(),
            seconds: self.seconds.as_secs_f64(),
            rounds: self.rounds,
            complete: self.complete,
            machine: Machine::this(),
            backends,
        }
    }
}
