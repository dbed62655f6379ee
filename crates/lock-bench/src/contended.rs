//! Several processes that want one lock. A new kind of lock is a line in [`work`] and a
//! `Peer`, or a line in `connect` if it is ours.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lock_core::DistributedLock;
use lock_etcd::EtcdLock;
use lock_redis::RedisLock;
use lock_sql::{MySqlLock, MySqlSessionLock, PostgresLock, PostgresSessionLock, SqliteLock};
use lock_zookeeper::ZookeeperLock;
use rustix::time::{ClockId, clock_gettime};
use test_servers::Statements;

use crate::Figure;
use crate::etcd::Service;
use crate::peers::{ADVISORY, Advisory, Baton, Flock, GET_LOCK, GetLock, Ours, POLLED, Peer, Polled, RSLOCK, Rslock};
use crate::tasks::jain;
use crate::zookeeper::{self, CURATOR, RECIPE, Recipe};

/// The first argument of a worker process.
pub const WORKER: &str = "--worker";

const PROCESSES: usize = 8;

/// What a worker does with the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// How long it holds the lock.
    pub(crate) hold: Duration,
    /// How long it then does without.
    pub(crate) pause: Duration,
    /// How long all that goes on.
    pub(crate) during: Duration,
}

impl Load {
    /// It does without the lock for as long as it holds it.
    pub(crate) fn even(pause: Duration, during: Duration) -> Self {
        Self { hold: pause, pause, during }
    }

    /// It asks again as soon as it has given back.
    pub(crate) fn sections(hold: Duration, during: Duration) -> Self {
        Self { hold, pause: Duration::ZERO, during }
    }
}

/// What a round of processes did.
pub(crate) struct Round {
    /// Acquisitions per second.
    pub(crate) rate: f64,
    /// From a release to the return of the next acquisition, where that waited already; sorted.
    pub(crate) hand_offs: Vec<Duration>,
    /// The same per second.
    pub(crate) hand_off_rate: f64,
    /// When each of them was, since the start; sorted.
    times: Vec<Duration>,
    during: Duration,
    /// Jain's index over the processes: 1 if all had the lock equally often.
    pub(crate) fairness: f64,
    pub(crate) longest_wait: Duration,
    /// How many statements an SQL database was sent, as those count who sent them.
    pub(crate) statements: u64,
}

impl Round {
    /// The hand-off that this share of them was no slower than.
    pub(crate) fn at(&self, share: f64) -> Duration {
        let last = self.hand_offs.len().checked_sub(1).expect("processes that wait for each other");
        self.hand_offs[(last as f64 * share) as usize]
    }

    /// How many hand-offs there were in the last part of this length, for each one in the first.
    pub(crate) fn last_per_first(&self, part: Duration) -> f64 {
        let first = self.times.partition_point(|at| *at < part);
        let last = self.times.len() - self.times.partition_point(|at| *at < self.during - part);
        last as f64 / first as f64
    }
}

impl std::fmt::Display for Round {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:.0} acquisitions/s, {:.0} hand-offs/s, p50 {} us, p99 {} us, fairness {:.3}, longest wait {} ms",
            self.rate,
            self.hand_off_rate,
            self.at(0.5).as_micros(),
            self.at(0.99).as_micros(),
            self.fairness,
            self.longest_wait.as_millis()
        )
    }
}

/// What processes did of whom several may hold at once.
pub(crate) struct Crowd {
    /// Acquisitions per second.
    pub(crate) rate: f64,
    /// How many there were.
    pub(crate) acquisitions: f64,
    /// The most who held at the same time.
    pub(crate) at_once: usize,
    /// As of a [`Round`].
    pub(crate) statements: u64,
}

/// One turn of one process: when it asked, had and gave back, by the machine's clock.
type Turn = [u64; 3];

/// What one process did.
#[derive(Default)]
struct Done {
    turns: Vec<Turn>,
    statements: u64,
}

/// Runs the processes, on a lock of this kind at this place: a path or a URL.
pub(crate) fn run(kind: &str, place: impl AsRef<Path>, load: Load) -> Round {
    run_many(PROCESSES, kind, place, load)
}

/// The same with so many processes.
fn run_many(count: usize, kind: &str, place: impl AsRef<Path>, load: Load) -> Round {
    let (start, done) = processes(count, kind, place.as_ref(), load);
    let counts: Vec<f64> = done.iter().map(|done| done.turns.len() as f64).collect();
    let fairness = jain(&counts);
    let statements = done.iter().map(|done| done.statements).sum();
    let mut all: Vec<Turn> = done.into_iter().flat_map(|done| done.turns).collect();
    all.sort_by_key(|turn| turn[1]);
    let (mut hand_offs, mut times) = (Vec::new(), Vec::new());
    for pair in all.windows(2) {
        // A recipe that releases in the background cannot be told.
        assert!(pair[1][1] >= pair[0][2] || kind == RECIPE, "{kind}: two processes held the lock at once");
        // Only where the next one was waiting already.
        if pair[1][0] < pair[0][2] {
            hand_offs.push(Duration::from_nanos(pair[1][1].saturating_sub(pair[0][2])));
            times.push(Duration::from_nanos(pair[1][1].saturating_sub(start)));
        }
    }
    hand_offs.sort();
    let longest_wait = all.iter().map(|turn| Duration::from_nanos(turn[1] - turn[0])).max().unwrap_or_default();
    let seconds = load.during.as_secs_f64();
    let hand_off_rate = hand_offs.len() as f64 / seconds;
    let (rate, during) = (all.len() as f64 / seconds, load.during);
    let round = Round { rate, hand_offs, hand_off_rate, times, during, fairness, longest_wait, statements };
    println!("    {kind}, {count} processes: {round}");
    round
}

/// Runs the processes in a mode in which several may hold the lock at once: the kind ends with one of `Ours::new`'s.
pub(crate) fn run_together(kind: &str, place: impl AsRef<Path>, load: Load) -> Crowd {
    let (_, done) = processes(PROCESSES, kind, place.as_ref(), load);
    let statements = done.iter().map(|done| done.statements).sum();
    let turns = done.iter().flat_map(|done| &done.turns);
    // Ends come first: who gave back at the moment at which another had it was not there beside it.
    let mut edges: Vec<_> = turns.flat_map(|[_, had, gave]| [(*gave, -1), (*had, 1)]).collect();
    edges.sort_unstable();
    let (mut there, mut at_once) = (0_isize, 0);
    for (_, edge) in &edges {
        there += edge;
        at_once = at_once.max(there);
    }
    let acquisitions = edges.len() as f64 / 2.0;
    let rate = acquisitions / load.during.as_secs_f64();
    println!("    {kind}, {PROCESSES} processes: {rate:.0} acquisitions/s, at most {at_once} at once");
    Crowd { rate, acquisitions, at_once: at_once.unsigned_abs(), statements }
}

/// A hundred processes on one name, per two of them: their hand-offs per second, at the place that is started.
pub(crate) fn crowded<S, P: AsRef<Path>>(
    (store, kind): (&str, &str),
    rounds: usize,
    during: Duration,
    start: impl Fn() -> S,
    place: impl Fn(&S) -> P,
) -> Figure {
    let rate = |count| {
        let server = start();
        run_many(count, kind, place(&server), Load::even(Duration::ZERO, during)).hand_off_rate
    };
    let ratios = (0..rounds).map(|_| rate(100) / rate(2)).collect();
    Figure::at_least(format!("{store}: hand-offs with 100 processes / with 2"), ratios, 0.8)
}

/// Locks by sessions, with 8 processes on one name and sections of nothing: the rate, per that of the server's own lock,
/// which has no leases and no tokens; and Jain's index.
pub(crate) fn by_sessions(
    (store, url): (&str, String),
    (ours, theirs): (&str, &str),
    least: f64,
    rounds: usize,
    during: Duration,
) -> [Figure; 2] {
    let load = Load::even(Duration::ZERO, during);
    let (mut rates, mut fairness) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let base = run(theirs, &url, load);
        let ours = run(ours, &url, load);
        rates.push(ours.rate / base.rate);
        fairness.push(ours.fairness);
    }
    [
        Figure::at_least(format!("{store} by sessions: 8 processes, rate / {theirs}"), rates, least),
        Figure::at_least(format!("{store} by sessions: 8 processes, Jain's index"), fairness, 0.99),
    ]
}

/// One process alone: the median time from asking for the lock to asking for it again, which is lock and unlock.
pub(crate) fn alone(kind: &str, place: impl AsRef<Path>, during: Duration) -> Duration {
    let (_, done) = processes(1, kind, place.as_ref(), Load::even(Duration::ZERO, during));
    let turns = &done[0].turns;
    let mut cycles: Vec<_> = turns.windows(2).map(|pair| Duration::from_nanos(pair[1][0] - pair[0][0])).collect();
    let at = cycles.len() / 2;
    *cycles.select_nth_unstable(at).1
}

/// When they began, and what each of so many processes did.
fn processes(count: usize, kind: &str, place: &Path, load: Load) -> (u64, Vec<Done>) {
    // Eight Java machines take a while, and so do a hundred of ours.
    let begin = if kind == CURATOR { Duration::from_secs(6) } else { Duration::from_secs(1) };
    let begin = begin + Duration::from_millis(50) * count.try_into().unwrap_or(u32::MAX);
    let start = now() + begin.as_nanos() as u64;
    let workers: Vec<_> = (0..count).map(|_| spawn(kind, place, load, start)).collect();
    (start, workers.into_iter().map(done_by).collect())
}

/// A process beside this one that takes turns at once.
pub(crate) struct Another(Child);

impl Another {
    pub(crate) fn start(kind: &str, place: impl AsRef<Path>, load: Load) -> Self {
        Self(spawn(kind, place.as_ref(), load, now()))
    }

    /// How long it waited for each of its turns, sorted. Blocks until it is done.
    pub(crate) fn waits(self) -> Vec<Duration> {
        let done = done_by(self.0);
        let mut waits: Vec<_> = done.turns.iter().map(|turn| Duration::from_nanos(turn[1] - turn[0])).collect();
        waits.sort();
        waits
    }
}

fn spawn(kind: &str, place: &Path, load: Load, start: u64) -> Child {
    let mut worker = if kind == CURATOR { zookeeper::curator() } else { this_program() };
    worker.arg(WORKER).arg(kind).arg(place).args([
        start.to_string(),
        (start + load.during.as_nanos() as u64).to_string(),
        load.hold.as_nanos().to_string(),
        load.pause.as_nanos().to_string(),
    ]);
    worker.stdout(Stdio::piped()).spawn().expect("a worker can be started")
}

fn this_program() -> Command {
    Command::new(std::env::current_exe().expect("this program has a path"))
}

fn done_by(mut worker: Child) -> Done {
    let output = BufReader::new(worker.stdout.take().expect("it was asked for"));
    let mut done = Done::default();
    for line in output.lines() {
        let line = line.expect("a worker writes text");
        let numbers: Vec<u64> =
            line.split(' ').map(|number| number.parse().expect("a worker writes numbers")).collect();
        match numbers[..] {
            [asked, had, gave] => done.turns.push([asked, had, gave]),
            [statements] => done.statements = statements,
            _ => panic!("a worker writes its turns and its statements, not {line}"),
        }
    }
    assert!(worker.wait().expect("it is our child").success(), "a worker failed");
    done
}

/// What a worker process does, with the arguments after [`WORKER`].
pub async fn work(mut arguments: impl Iterator<Item = String>) {
    let mut next = || arguments.next().expect("an argument");
    let (kind, place) = (next(), next());
    let [start, end, hold, pause] = [(); 4].map(|()| next().parse::<u64>().expect("a time"));
    let [hold, pause] = [hold, pause].map(Duration::from_nanos);
    let times = Times { start, end, hold, pause };
    let statements = Statements::listen();
    let turns = match kind.as_str() {
        "flock" => times.take_turns(Flock::new(&place)).await,
        "baton" => times.take_turns(Baton::new(&place).await).await,
        RSLOCK => times.take_turns(Rslock::new(&place)).await,
        POLLED => times.take_turns(Polled::new(&place).await).await,
        GET_LOCK => times.take_turns(GetLock::new(&place).await).await,
        ADVISORY => times.take_turns(Advisory::new(&place).await).await,
        RECIPE => {
            let turns = times.take_turns(Recipe::new(&place).await).await;
            // What it releases in the background would otherwise keep the others waiting for the end of its session.
            tokio::time::sleep(Duration::from_millis(500)).await;
            turns
        }
        "etcd-service" => times.take_turns(Service::new(&place).await).await,
        ours => {
            let (store, mode) = ours.split_once('/').unwrap_or((ours, ""));
            times.take_turns(Ours::new(connect(store, &place).await, mode).await).await
        }
    };
    let mut output = std::io::stdout().lock();
    let lines: String = turns.iter().map(|[asked, had, gave]| format!("{asked} {had} {gave}\n")).collect();
    writeln!(output, "{lines}{}", statements.sent()).expect("the parent reads");
}

/// Our lock over the store of this kind at this place.
pub(crate) async fn connect(kind: &str, place: &str) -> Arc<dyn DistributedLock> {
    match kind {
        "sqlite" => Arc::new(SqliteLock::open(place, "bench").await.expect("a file")),
        "redis" => Arc::new(RedisLock::connect(place, "bench").await.expect("a server")),
        "postgres" => Arc::new(PostgresLock::connect(place, "bench").await.expect("a server")),
        "postgres-session" => Arc::new(PostgresSessionLock::connect(place, "bench").await.expect("a server")),
        "mysql-session" => Arc::new(MySqlSessionLock::connect(place, "bench").await.expect("a server")),
        "mysql" => Arc::new(MySqlLock::connect(place, "bench").await.expect("a server")),
        "zookeeper" => Arc::new(ZookeeperLock::connect(place, "bench").await.expect("a server")),
        "etcd" => Arc::new(EtcdLock::connect(place, "bench").await.expect("a server")),
        other => panic!("no lock is called {other}"),
    }
}

struct Times {
    start: u64,
    end: u64,
    hold: Duration,
    pause: Duration,
}

impl Times {
    async fn take_turns(self, mut lock: impl Peer) -> Vec<Turn> {
        let mut turns = Vec::new();
        tokio::time::sleep(Duration::from_nanos(self.start.saturating_sub(now()))).await;
        while now() < self.end {
            let asked = now();
            lock.acquire().await;
            let had = now();
            sleep(self.hold).await;
            turns.push([asked, had, now()]);
            lock.release().await;
            sleep(self.pause).await;
        }
        turns
    }
}

/// A timer's least is a millisecond, so none of nothing.
async fn sleep(time: Duration) {
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
