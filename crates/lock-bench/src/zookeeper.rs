//! ZooKeeper: a lock against a bare node, made and deleted by the same client crate; and eight processes on one name against
//! that crate's own recipe, Curator's, and `flock`.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use lock_core::{Claim, DistributedLock, LockName, Locks, OwnerId};
use lock_zookeeper::ZookeeperLock;
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use test_servers::ZookeeperServers;
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix};

use crate::Figure;

/// The first argument of a worker process.
pub const WORKER: &str = "--worker";

/// Long enough for any run.
const LEASE: Duration = Duration::from_secs(30);

const PROCESSES: usize = 8;

/// The lock that all want, as Curator sees it.
const FOLDER: &str = "/bench/job";

fn servers() -> ZookeeperServers {
    // As it comes: what is answered is on the disk.
    ZookeeperServers::start_with(1, &["forceSync=yes"])
}

/// Lock and unlock, nobody else there: the median cycle per that of a bare node.
pub async fn uncontended(rounds: usize, each: Duration) -> Figure {
    let servers = servers();
    let lock = ZookeeperLock::connect(&servers.url(), "bench").await.expect("a server");
    let bare = Client::connect(&servers.addresses()[0].to_string()).await.expect("a server");
    let container = CreateMode::Container.with_acls(Acls::anyone_all());
    bare.mkdir("/bare", &container).await.expect("a new server");
    let node = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let base = middle(each, async |_| {
            let (_, number) = bare.create("/bare/n-", b"bench@host:1#1", &node).await.expect("a node");
            bare.delete(&format!("/bare/n-{number}"), None).await.expect("the node");
        });
        let base = base.await;
        let ours = middle(each, async |turn| {
            let owner = OwnerId::from_store(&format!("bench@host:1#{turn}"));
            let claim = Claim::new(LockName::new("job").expect("a name"), owner, LEASE);
            lock.lock(&claim).await.expect("free");
            lock.unlock(&claim).await.expect("held");
        });
        let ours = ours.await;
        println!("    zookeeper: {:.0} us, bare create + delete {:.0} us", ours * 1e6, base * 1e6);
        ratios.push(ours / base);
    }
    Figure::at_most("zookeeper: lock + unlock, median time / bare create + delete", ratios, 1.10)
}

async fn middle(during: Duration, mut cycle: impl AsyncFnMut(usize)) -> f64 {
    let (start, mut times) = (Instant::now(), Vec::new());
    while start.elapsed() < during {
        let begun = Instant::now();
        cycle(times.len()).await;
        times.push(begun.elapsed());
    }
    let at = times.len() / 2;
    times.select_nth_unstable(at).1.as_secs_f64()
}

/// Eight processes on one name: hand-offs without a pause per those of the client crate's recipe and of Curator, and
/// acquisitions with holds and pauses of 2 ms per those of `flock`.
pub fn eight_processes(folder: &Path, rounds: usize, each: Duration) -> [Figure; 3] {
    let servers = servers();
    let address = servers.addresses()[0].to_string();
    let [mut by_crate, mut by_curator, mut by_flock] = [const { Vec::new() }; 3];
    for _ in 0..rounds {
        let [ours, recipe, curator] =
            ["ours", "recipe", "curator"].map(|kind| run(kind, &address, Duration::ZERO, each).hand_offs);
        by_crate.push(ours / recipe);
        by_curator.push(ours / curator);
        let pause = Duration::from_millis(2);
        let file = folder.join("flock").display().to_string();
        let base = run("flock", &file, pause, each).rate;
        by_flock.push(run("ours", &address, pause, each).rate / base);
    }
    [
        Figure::at_least("zookeeper: 8 processes, hand-offs / the client crate's recipe", by_crate, 1.2),
        Figure::at_least("zookeeper: 8 processes, hand-offs / Curator", by_curator, 4.0),
        Figure::at_least("zookeeper: 8 processes, 2 ms holds and pauses / flock", by_flock, 0.8),
    ]
}

/// What a round of processes did, each second.
struct Round {
    rate: f64,
    /// From one process to another that was waiting.
    hand_offs: f64,
}

/// One turn of one process: when it asked, had and gave back, by the machine's clock.
type Turn = [u64; 3];

fn run(kind: &str, place: &str, pause: Duration, each: Duration) -> Round {
    // Eight Java machines take a while.
    let begin = if kind == "curator" { Duration::from_secs(6) } else { Duration::from_secs(1) };
    let start = now() + begin.as_nanos() as u64;
    let end = start + each.as_nanos() as u64;
    let arguments = [kind, place, &pause.as_micros().to_string(), &start.to_string(), &end.to_string()];
    let workers: Vec<_> = (0..PROCESSES).map(|_| spawn(&arguments)).collect();
    let mut turns: Vec<Turn> = workers.into_iter().flat_map(turns_of).collect();
    turns.sort_by_key(|turn| turn[1]);
    let mut hand_offs = Vec::new();
    for pair in turns.windows(2) {
        // A release that is not awaited may be noted late; one that is never is.
        assert!(pair[1][1] >= pair[0][2] || kind == "recipe", "{kind}: two processes held the lock at once");
        if pair[1][0] < pair[0][2] {
            hand_offs.push(pair[1][1].saturating_sub(pair[0][2]));
        }
    }
    hand_offs.sort_unstable();
    let at = |share: f64| hand_offs.get((hand_offs.len() as f64 * share) as usize).map_or(0, |ns| ns / 1000);
    let second = each.as_secs_f64();
    let round = Round { rate: turns.len() as f64 / second, hand_offs: hand_offs.len() as f64 / second };
    println!(
        "    {kind}, pauses of {pause:?}: {:.0} acquisitions/s, {:.0} hand-offs/s, p50 {} us, p99 {} us",
        round.rate,
        round.hand_offs,
        at(0.5),
        at(0.99)
    );
    round
}

fn spawn(arguments: &[&str]) -> Child {
    let mut worker = if arguments[0] == "curator" {
        const JARS: [&str; 9] = [
            "curator-recipes",
            "curator-framework",
            "curator-client",
            "guava",
            "zookeeper",
            "zookeeper-jute",
            "slf4j-api",
            "slf4j-nop",
            "netty-all",
        ];
        let jars: Vec<_> = JARS.iter().map(|jar| format!("/usr/share/java/{jar}.jar")).collect();
        let mut java = Command::new("java");
        java.args(["-Xmx96m", "-XX:+UseSerialGC", "-cp", &jars.join(":")]);
        java.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/src/CuratorWorker.java")).arg(FOLDER);
        java
    } else {
        let mut worker = Command::new(std::env::current_exe().expect("this program has a path"));
        worker.arg(WORKER);
        worker
    };
    worker.args(arguments).stdout(Stdio::piped()).spawn().expect("a worker can be started")
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
    let (kind, place) = (next(), next());
    let [pause, start, end] = [(); 3].map(|()| next().parse::<u64>().expect("a number"));
    let pause = Duration::from_micros(pause);
    let turns = match kind.as_str() {
        "flock" => {
            let file = File::create(place).expect("a file");
            let lock = async || flock(&file, FlockOperation::LockExclusive).expect("a lock");
            take_turns([start, end], pause, lock, async |()| flock(&file, FlockOperation::Unlock).expect("held")).await
        }
        "recipe" => {
            let client = Client::connect(&place).await.expect("a server");
            let parents = CreateMode::Container.with_acls(Acls::anyone_all());
            let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents).expect("parents");
            let lock = async || {
                let prefix = LockPrefix::new_curator(FOLDER, "lock-").expect("a path");
                client.lock(prefix, b"bench", options.clone()).await.expect("a lock")
            };
            let turns = take_turns([start, end], pause, lock, async |held| drop(held)).await;
            // It releases in the background.
            tokio::time::sleep(Duration::from_millis(300)).await;
            turns
        }
        _ => {
            let lock = ZookeeperLock::connect(&format!("zookeeper://{place}"), "bench").await.expect("a server");
            let locks = Locks::builder(Arc::new(lock)).lease(LEASE).build().expect("options");
            // Connected before it counts.
            let warm = locks.mutex(&std::process::id().to_string()).lock().await.expect("free");
            warm.unlock().await.expect("held");
            let mutex = locks.mutex("job");
            let lock = async || mutex.lock().await.expect("a lock");
            let turns = take_turns([start, end], pause, lock, async |held| {
                held.unlock().await.expect("held");
            });
            let turns = turns.await;
            drop(locks.shutdown(Duration::from_secs(1)).await);
            turns
        }
    };
    let mut output = std::io::stdout().lock();
    for [asked, had, gave] in turns {
        writeln!(output, "{asked} {had} {gave}").expect("the parent reads");
    }
}

async fn take_turns<T>(
    [start, end]: [u64; 2],
    pause: Duration,
    lock: impl AsyncFn() -> T,
    unlock: impl AsyncFn(T),
) -> Vec<Turn> {
    tokio::time::sleep(Duration::from_nanos(start.saturating_sub(now()))).await;
    let rest = async || {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
    };
    let mut turns = Vec::new();
    while now() < end {
        let asked = now();
        let held = lock().await;
        let had = now();
        rest().await;
        turns.push([asked, had, now()]);
        unlock(held).await;
        rest().await;
    }
    turns
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
