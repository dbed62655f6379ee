//! What a worker does by itself: takes locks, counts in the resource that they protect, and logs everything.

use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures_util::FutureExt;
use lock_core::{LockValue, Locks, Mode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::history::{self, Event, Log};
use crate::peer::{self, Program};
use crate::protected::Places;
use crate::recorder::{Recorded, Recorder, waited};
use crate::resource::{Access, Resource};
use crate::worker::Orders;

/// What a job is done for is half of this at most, also where the lease is longer: others wait for all of it.
const LONGEST_JOB: Duration = Duration::from_secs(2);

/// The semaphore that is taken beside the locks, where the store has any. Each slot protects a resource of its own.
pub(crate) const SEMAPHORE: &str = "torture-permits";

/// How many permits the torture's semaphore has.
pub const PERMITS: u32 = 3;

/// The resource of a slot.
pub(crate) fn of_slot(slot: u32) -> String {
    format!("{SEMAPHORE}-{slot}")
}

/// What a worker does by itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Workload {
    /// Its name in the history.
    pub(crate) client: String,
    /// Where the history and the resources are.
    pub(crate) folder: PathBuf,
    /// Which locks to take, one at a time; each protects a resource of its own.
    pub(crate) names: Vec<String>,
    /// After how many counted rounds to end; without it, when standard input ends.
    pub(crate) rounds: Option<u64>,
    /// The places where the resources are, by their URLs; without any, they are files in the folder.
    pub(crate) places: Vec<String>,
    /// What its choices come from.
    pub(crate) seed: u64,
    /// How long the longest section takes, in milliseconds.
    pub(crate) section_ms: u64,
    /// The program that locks in its stead, if it is another library's lock that does.
    pub(crate) peer: Option<Program>,
}

impl Workload {
    pub(crate) fn log(&self) -> io::Result<Log> {
        Log::to_file(&self.client, &Self::history(&self.folder, &self.client))
    }

    pub(crate) fn history(folder: &Path, client: &str) -> PathBuf {
        folder.join(format!("{client}.jsonl"))
    }

    pub(crate) fn resource(folder: &Path, name: &str) -> PathBuf {
        folder.join(format!("{name}.resource"))
    }

    /// What these clients logged in the folder.
    pub(crate) fn events(folder: &Path, clients: &[String]) -> io::Result<Vec<Event>> {
        let mut events = Vec::new();
        for client in clients {
            match history::read(&Self::history(folder, client)) {
                Ok(read) => events.extend(read),
                // Killed before it had begun.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(events)
    }

    /// What each of these resources let in, of those that somebody used.
    pub(crate) fn accesses(
        folder: &Path,
        names: impl Iterator<Item = String>,
    ) -> io::Result<Vec<(String, Vec<Access>)>> {
        let used = names.map(|name| (Self::resource(folder, &name), name)).filter(|(path, _)| path.exists());
        used.map(|(path, name)| Ok((name, Resource::log(&path)?))).collect()
    }
}

/// A worker's progress, which it takes along to another runtime.
pub(crate) struct Going {
    /// None if the worker has no workload.
    recorder: Option<Recorder>,
    rng: StdRng,
    counted: u64,
}

impl Going {
    pub(crate) fn new(workload: Option<&Workload>) -> io::Result<Self> {
        let recorder = workload.map(|workload| workload.log().map(Recorder::new)).transpose()?;
        let rng = StdRng::seed_from_u64(workload.map_or(0, |workload| workload.seed));
        Ok(Self { recorder, rng, counted: 0 })
    }
}

pub(crate) async fn run(
    locks: &Locks,
    lease: Duration,
    workload: &Workload,
    places: &Places,
    going: &mut Going,
    orders: &mut Orders,
) -> io::Result<()> {
    // Ends when the parent lets go of its end of the pipe, or dies.
    let mut parent = std::pin::pin!(async move { while orders.recv().await.is_some() {} });
    if let Some(program) = &workload.peer {
        return peer::run(locks, lease, workload, places, program, parent).await;
    }
    let Going { recorder: Some(recorder), rng, counted } = going else { return Ok(()) };
    while workload.rounds.is_none_or(|rounds| *counted < rounds) {
        tokio::select! {
            biased;
            () = &mut parent => break,
            round = AssertUnwindSafe(round(locks, lease, workload, places, recorder, rng)).catch_unwind() => match round {
                Ok(round) => *counted += u64::from(round?),
                Err(panic) if is_ordered(&*panic) => {}
                Err(panic) => resume_unwind(panic),
            }
        }
    }
    // What it could not release, the store ends by itself.
    let _ = locks.shutdown(lease).await;
    Ok(())
}

/// Is it a panic that the torture wanted?
pub(crate) fn is_ordered(panic: &(dyn Any + Send)) -> bool {
    panic.downcast_ref::<String>().is_some_and(|text| text.starts_with("the test makes"))
}

/// One acquisition; answers whether it counted what a lock protects.
async fn round(
    locks: &Locks,
    lease: Duration,
    workload: &Workload,
    places: &Places,
    recorder: &Recorder,
    rng: &mut StdRng,
) -> io::Result<bool> {
    let can = locks.capabilities();
    if can.modes.permits && rng.random_ratio(1, 5) {
        return with_permits(locks, lease, workload, places, recorder, rng).await;
    }
    let name = &workload.names[rng.random_range(0..workload.names.len())];
    if can.modes.shared && rng.random_ratio(1, 3) {
        return read(locks, lease, workload, places, recorder, rng, name).await;
    }
    let mutex = locks.mutex(name).lease(lease).wait(lease * 5);
    // As nobody else calls it: whoever sees it knows whose it is.
    let value =
        (can.values && rng.random_ratio(1, 4)).then(|| format!("{} {:x}", workload.client, rng.random::<u64>()));
    let mutex = match &value {
        Some(value) => mutex.value(LockValue::new(value).map_err(io::Error::other)?),
        None => mutex,
    };
    // Without renewals, nothing makes good for a lease that was counted wrongly.
    let fixed = rng.random_ratio(1, 3);
    let mutex = if fixed { mutex.hold_for(lease) } else { mutex };
    // Some sections are long, so that many are in the middle of one when they are struck; or when their time is over.
    let long = rng.random_ratio(if fixed { 3 } else { 1 }, 6);
    let section_ms = if long { workload.section_ms } else { workload.section_ms / 20 };
    let is_job = can.keeps && value.is_none() && rng.random_ratio(1, 6);
    let answer = if is_job {
        // Some are done for longer than they take.
        recorder.once(locks, name, lease, lease.min(LONGEST_JOB).mul_f64(rng.random_range(0.0..0.5))).await
    } else if rng.random_ratio(1, 5) {
        recorder.try_lock(&mutex, lease).await
    } else {
        recorder.lock(&mutex, lease).await
    };
    let held = match answer {
        Ok(Some(held)) => held,
        Ok(None) => {
            pause(rng, 5).await;
            return Ok(false);
        }
        Err(_) => return failed(lease).await,
    };
    if let Some(value) = &value {
        held.shows(value);
    }
    let section = async {
        pause(rng, section_ms).await;
        if rng.random_ratio(1, 4)
            && let Ok(status) = locks.inspect(name).await
            && let Some(holder) = status.holder()
            // Curator's `Revoker` writes over a node: then it is not to be seen any more whose it is, nor what it shows.
            && holder.owner.host().is_some()
        {
            recorder.seen(name, holder);
        }
        held.check();
    };
    let counted = held.carelessly(lease / 20, places.count(name, &held.visitor(), section)).await?;
    held.check();
    over(held, rng).await;
    Ok(counted)
}

/// A server that is away answers at once, and is not to be asked as fast.
pub(crate) async fn failed(lease: Duration) -> io::Result<bool> {
    tokio::time::sleep(lease / 50).await;
    Ok(false)
}

async fn over(held: Recorded, rng: &mut StdRng) {
    if rng.random_ratio(1, 10) {
        drop(held);
    } else {
        // An error is in the history.
        let _ = held.unlock().await;
    }
    pause(rng, 2).await;
}

/// One acquisition that many may have, who only look.
async fn read(
    locks: &Locks,
    lease: Duration,
    workload: &Workload,
    places: &Places,
    recorder: &Recorder,
    rng: &mut StdRng,
    name: &str,
) -> io::Result<bool> {
    let rw_lock = locks.rw_lock(name).map_err(io::Error::other)?.lease(lease).wait(lease * 5);
    let answer = match rng.random_ratio(1, 5) {
        true => recorder.taking(name, Mode::Shared, lease, rw_lock.try_read()).await,
        false => recorder.taking(name, Mode::Shared, lease, waited(rw_lock.read())).await,
    };
    let Ok(held) = answer else { return failed(lease).await };
    let Some(held) = held else {
        pause(rng, 5).await;
        return Ok(false);
    };
    let section_ms = if rng.random_ratio(1, 6) { workload.section_ms } else { workload.section_ms / 20 };
    let section = async {
        pause(rng, section_ms).await;
        held.check();
        places.share(name, &held.visitor()).await
    };
    held.carelessly(lease / 20, section).await?;
    held.check();
    over(held, rng).await;
    Ok(false)
}

/// One acquisition of a permit or two, each with a slot that is nobody else's meanwhile.
async fn with_permits(
    locks: &Locks,
    lease: Duration,
    workload: &Workload,
    places: &Places,
    recorder: &Recorder,
    rng: &mut StdRng,
) -> io::Result<bool> {
    let semaphore = locks.semaphore(SEMAPHORE, PERMITS).map_err(io::Error::other)?.lease(lease).wait(lease * 5);
    let take = rng.random_range(1..=2);
    let mode = Mode::Permits { take, of: PERMITS };
    let answer = match rng.random_ratio(1, 5) {
        true => recorder.taking(SEMAPHORE, mode, lease, semaphore.try_acquire_many(take)).await,
        false => recorder.taking(SEMAPHORE, mode, lease, waited(semaphore.acquire_many(take))).await,
    };
    let Ok(held) = answer else { return failed(lease).await };
    let Some(held) = held else {
        pause(rng, 5).await;
        return Ok(false);
    };
    let section_ms = if rng.random_ratio(1, 6) { workload.section_ms } else { workload.section_ms / 20 };
    use_slots(held, places, lease, section_ms, rng).await?;
    Ok(false)
}

/// Counts in the resource of each slot, and gives the permits back.
pub(crate) async fn use_slots(
    held: Recorded,
    places: &Places,
    lease: Duration,
    section_ms: u64,
    rng: &mut StdRng,
) -> io::Result<()> {
    for slot in held.slots().to_vec() {
        let section = async {
            pause(rng, section_ms).await;
            held.check();
        };
        held.carelessly(lease / 20, places.count(&of_slot(slot), &held.visitor(), section)).await?;
    }
    held.check();
    over(held, rng).await;
    Ok(())
}

pub(crate) async fn pause(rng: &mut StdRng, most_ms: u64) {
    tokio::time::sleep(Duration::from_micros(rng.random_range(0..=most_ms * 1000))).await;
}
