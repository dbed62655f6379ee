//! Several processes that want one lock, with 2 ms holds and 2 ms pauses: SQLite against `flock`, and how soon a waiter
//! in another process has a lock that was released.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lock_core::Locks;
use lock_sql::SqliteLock;
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};

use crate::{Figure, etcd};

const PAUSE: Duration = Duration::from_millis(2);

/// The first argument of a worker process.
pub const WORKER: &str = "--worker";

/// 8 processes on one name: acquisitions per second by SQLite, per those by `flock` in the same round.
pub fn eight_processes(folder: &Path, rounds: usize, each: Duration) -> Figure {
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let base = run(folder, "flock", 8, each);
        let ours = run(&folder.join(format!("{round}.db")), "sqlite", 8, each);
        println!("    flock {base}");
        println!("    sqlite {ours}");
        ratios.push(ours.rate / base.rate);
    }
    Figure::at_least("sqlite: 8 processes, 2 ms holds and pauses / flock", ratios, 0.8)
}

/// What a round of processes did.
pub(crate) struct Round {
    pub(crate) rate: f64,
    pub(crate) hand_offs: Vec<Duration>,
    /// Jain's index over the processes: 1 if all had the lock equally often.
    fairness: f64,
    longest_wait: Duration,
}

impl Round {
    /// The hand-off that this share of them is not slower than.
    pub(crate) fn at(&self, share: f64) -> Duration {
        self.hand_offs[((self.hand_offs.len() - 1) as f64 * share) as usize]
    }
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.0} acquisitions/s, from release to the next grant p50 {} us, p99 {} us, fairness {:.3}, longest wait {} ms",
            self.rate,
            self.at(0.5).as_micros(),
            self.at(0.99).as_micros(),
            self.fairness,
            self.longest_wait.as_millis()
        )
    }
}

/// One turn of one process: when it asked, had and gave back, by the machine's clock.
pub(crate) type Turn = [u64; 3];

pub(crate) fn run(place: &Path, kind: &str, processes: usize, each: Duration) -> Round {
    let start = now() + 300_000_000;
    let program = std::env::current_exe().expect("this program has a path");
    let spawn = |_| -> Child {
        let mut worker = Command::new(&program);
        worker
            .arg(WORKER)
            .arg(kind)
            .arg(place)
            .arg(start.to_string())
            .arg((start + each.as_nanos() as u64).to_string());
        worker.stdout(Stdio::piped()).spawn().expect("this program can be started")
    };
    let workers: Vec<_> = (0..processes).map(spawn).collect();
    let turns: Vec<Vec<Turn>> = workers.into_iter().map(turns_of).collect();
    let counts: Vec<f64> = turns.iter().map(|turns| turns.len() as f64).collect();
    let sum: f64 = counts.iter().sum();
    let fairness = sum * sum / (counts.len() as f64 * counts.iter().map(|count| count * count).sum::<f64>());
    let mut all: Vec<Turn> = turns.into_iter().flatten().collect();
    all.sort_by_key(|turn| turn[1]);
    let mut hand_offs = Vec::new();
    for pair in all.windows(2) {
        assert!(pair[1][1] >= pair[0][2], "{kind}: two processes held the lock at once");
        // Only where the next one was waiting already.
        if pair[1][0] < pair[0][2] {
            hand_offs.push(Duration::from_nanos(pair[1][1] - pair[0][2]));
        }
    }
    hand_offs.sort();
    let longest_wait = all.iter().map(|turn| Duration::from_nanos(turn[1] - turn[0])).max().unwrap_or_default();
    Round { rate: sum / each.as_secs_f64(), hand_offs, fairness, longest_wait }
}

fn turns_of(mut worker: Child) -> Vec<Turn> {
    let output = BufReader::new(worker.stdout.take().expect("it was asked for"));
    let turns = output.lines().map(|line| {
        let line = line.expect("a worker writes text");
        let mut numbers = line.split(' ').map(|number| number.parse().expect("a worker writes numbers"));
        [(); 3].map(|()| numbers.next().expect("three of them"))
    });
    let turns = turns.collect();
    assert!(worker.wait().expect("it is our child").success(), "a worker failed");
    turns
}

/// What a worker process does, with the arguments after [`WORKER`].
pub async fn work(mut arguments: impl Iterator<Item = String>) {
    let mut next = || arguments.next().expect("an argument");
    let kind = next();
    let place = PathBuf::from(next());
    let [start, end] = [(); 2].map(|()| next().parse::<u64>().expect("a time"));
    let mut turns = Vec::new();
    if kind.starts_with(etcd::KIND) {
        turns = etcd::work(&kind, &place.to_string_lossy(), start, end, PAUSE).await;
    } else if kind == "flock" {
        let file = File::create(place.join("flock")).expect("a new file");
        wait_for(start).await;
        while now() < end {
            let asked = now();
            flock(&file, FlockOperation::LockExclusive).expect("a lock");
            let had = now();
            tokio::time::sleep(PAUSE).await;
            turns.push([asked, had, now()]);
            flock(&file, FlockOperation::Unlock).expect("held");
            tokio::time::sleep(PAUSE).await;
        }
    } else {
        let locks = Locks::new(Arc::new(SqliteLock::open(&place, "bench").await.expect("a file")));
        let mutex = locks.mutex("bench");
        wait_for(start).await;
        while now() < end {
            let asked = now();
            let guard = mutex.lock().await.expect("a lock");
            let had = now();
            tokio::time::sleep(PAUSE).await;
            turns.push([asked, had, now()]);
            guard.unlock().await.expect("held");
            tokio::time::sleep(PAUSE).await;
        }
        drop(locks.shutdown(Duration::from_secs(1)).await);
    }
    let mut output = std::io::stdout().lock();
    for [asked, had, gave] in turns {
        writeln!(output, "{asked} {had} {gave}").expect("the parent reads");
    }
}

pub(crate) async fn wait_for(start: u64) {
    tokio::time::sleep(Duration::from_nanos(start.saturating_sub(now()))).await;
}

pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
