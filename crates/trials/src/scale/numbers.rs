//! One step: so many of something, and what one operation costs then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, TryStreamExt, stream};
use oarlock::{Claim, DistributedLock, LockName, Locks, OwnerId};
use test_servers::Disk;
use tokio::sync::{Barrier, mpsc};
use tokio::task::JoinSet;

use super::usage::Usage;
use super::{Crowd, Step};
use crate::torture::site;

/// So long clients take locks while they are measured, and kept locks are watched.
const WATCHED: Duration = Duration::from_secs(5);

/// Of so many operations, one after the other, the median is told.
const TURNS: usize = 200;

/// So many requests are under way at once while a crowd comes together.
const AT_ONCE: usize = 64;

/// Longer than any step, where the store gives such a lease.
const LEASE: Duration = Duration::from_secs(600);

/// For how long kept locks are held at a time: each is renewed a few times in a minute.
const KEPT: Duration = Duration::from_secs(10);

type Result<T> = std::result::Result<T, String>;

/// On a store made for it.
pub(crate) async fn step(store: &str, crowd: Crowd, number: usize) -> Result<Step> {
    let folder = test_servers::folder(Disk::Memory);
    let site = site(store, folder.path())?;
    let url = site.url();
    match crowd {
        Crowd::ClientsOfOne => clients(&url, number, |_| "scale".to_owned()).await,
        Crowd::ClientsApart => clients(&url, number, |client| format!("scale-{client}")).await,
        Crowd::Waiters => waiters(&connect(&url).await?, number).await,
        Crowd::Held => held(&connect(&url).await?, number).await,
        Crowd::Free => free(&connect(&url).await?, number).await,
        Crowd::Kept => kept(&connect(&url).await?, number).await,
    }
}

fn failed(error: impl std::fmt::Display) -> String {
    error.to_string()
}

async fn connect(url: &str) -> Result<Locks> {
    oarlock::connect(url).await.map_err(failed)
}

fn claim(locks: &Locks, name: &str, number: usize) -> Result<Claim> {
    let lease = locks.capabilities().max_lease.map_or(LEASE, |longest| longest.min(LEASE));
    let owner = OwnerId::from_store(&format!("scale@here:1#00000000-0000-4000-8000-{number:012x}"));
    Ok(Claim::new(LockName::new(name).map_err(failed)?, owner, lease))
}

/// The difference that a crowd of this number made to memory, and one of the operations to the rest.
fn cost(number: usize, operations: usize, before: &Usage, gathered: &Usage, after: &Usage) -> Step {
    let each = |total: f64| total / operations.max(1) as f64;
    let microseconds = |total: Duration| each(total.as_secs_f64() * 1e6);
    let one = |grown: f64| (grown / number as f64).max(0.0);
    Step {
        number,
        time: 0.0,
        segments: each(after.segments - gathered.segments),
        server_cpu: microseconds(after.server_cpu.saturating_sub(gathered.server_cpu)),
        client_cpu: microseconds(after.client_cpu.saturating_sub(gathered.client_cpu)),
        server_bytes: one(gathered.server_bytes - before.server_bytes),
        client_bytes: one(gathered.client_bytes - before.client_bytes),
    }
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort_unstable();
    times.get(times.len() / 2).map_or(0.0, |time| time.as_secs_f64() * 1e6)
}

async fn clients(url: &str, number: usize, name: impl Fn(usize) -> String) -> Result<Step> {
    let before = Usage::now();
    let connected = stream::iter(0..number).map(|_| connect(url)).buffered(16);
    let clients: Vec<Locks> = connected.try_collect().await?;
    let ready = Arc::new(Barrier::new(number + 1));
    let mut working = JoinSet::new();
    for (client, locks) in clients.iter().enumerate() {
        let (mutex, ready) = (locks.mutex(name(client)).wait(None), Arc::clone(&ready));
        working.spawn(async move {
            // A connection that comes with the first request is there before anything is measured.
            mutex.lock().await?.unlock().await?;
            ready.wait().await;
            let (begun, mut taken) = (Instant::now(), 0);
            while begun.elapsed() < WATCHED {
                mutex.lock().await?.unlock().await?;
                taken += 1;
            }
            Ok::<usize, oarlock::Error>(taken)
        });
    }
    // One that fails never comes to the barrier.
    tokio::select! {
        _ = ready.wait() => {}
        Some(Ok(Err(error))) = working.join_next() => return Err(failed(error)),
    }
    let (gathered, begun) = (Usage::now(), Instant::now());
    let mut taken = 0;
    while let Some(done) = working.join_next().await {
        taken += done.map_err(failed)?.map_err(failed)?;
    }
    let mut step = cost(number, taken, &before, &gathered, &Usage::now());
    step.time = begun.elapsed().as_secs_f64() * 1e6 / taken.max(1) as f64;
    Ok(step)
}

/// What it takes from the question for a release to the answer of who is next. Whoever was served stands in line again.
async fn waiters(locks: &Locks, number: usize) -> Result<Step> {
    let backend = locks.backend();
    if !backend.capabilities().fair {
        return Err("it has no line: whoever waits asks again from time to time".to_owned());
    }
    let mut holder = claim(locks, "scale", 0)?;
    backend.lock(&holder).await.map_err(failed)?;
    let before = Usage::now();
    let (granted, mut grants) = mpsc::unbounded_channel();
    let mut waiting = JoinSet::new();
    let mut join = |number| {
        let (claim, backend, granted) = (claim(locks, "scale", number)?, Arc::clone(backend), granted.clone());
        waiting.spawn(async move {
            let answer = backend.lock(&claim).await;
            // Nobody listens any more once all is measured.
            let _ = granted.send((Instant::now(), answer.map(|_| claim)));
        });
        Ok::<_, String>(())
    };
    (1..=number).try_for_each(&mut join)?;
    while backend.inspect(&holder.name).await.map_err(failed)?.waiters.len() < number {
        tokio::time::sleep(Duration::from_millis(100)).await;
        if let Ok((_, answer)) = grants.try_recv() {
            return Err(answer.map_or_else(failed, |_| "granted while it was held".to_owned()));
        }
    }
    let gathered = Usage::now();
    let mut times = Vec::new();
    for turn in 1..=TURNS {
        let asked = Instant::now();
        backend.unlock(&holder).await.map_err(failed)?;
        let (at, next) = grants.recv().await.ok_or("nobody waits")?;
        times.push(at.saturating_duration_since(asked));
        holder = next.map_err(failed)?;
        join(number + turn)?;
    }
    let step = cost(number, times.len(), &before, &gathered, &Usage::now());
    Ok(Step { time: median(times), ..step })
}

/// The names of a crowd, each with what is done to it.
async fn gather<T>(number: usize, one: impl AsyncFn(usize) -> Result<T>) -> Result<Vec<T>> {
    stream::iter(1..=number).map(|number| one(number)).buffer_unordered(AT_ONCE).try_collect().await
}

/// A lock is taken and given back, one time after the other.
async fn pairs(locks: &Locks) -> Result<Vec<Duration>> {
    let mut times = Vec::new();
    for turn in 0..TURNS {
        let begun = Instant::now();
        pair(locks, "scale", turn).await?;
        times.push(begun.elapsed());
    }
    Ok(times)
}

async fn pair(locks: &Locks, name: &str, number: usize) -> Result<()> {
    let claim = claim(locks, name, number)?;
    taken(&**locks.backend(), &claim).await?;
    locks.backend().unlock(&claim).await.map(drop).map_err(failed)
}

async fn taken(backend: &dyn DistributedLock, claim: &Claim) -> Result<()> {
    backend.try_lock(claim).await.map_err(failed)?.map(drop).ok_or_else(|| format!("{} is taken", claim.name))
}

/// Pairs beside a crowd, each of which came in this way.
async fn beside(locks: &Locks, number: usize, one: impl AsyncFn(usize) -> Result<()>) -> Result<Step> {
    pairs(locks).await?;
    let before = Usage::now();
    gather(number, one).await?;
    let gathered = Usage::now();
    let times = pairs(locks).await?;
    let step = cost(number, times.len(), &before, &gathered, &Usage::now());
    Ok(Step { time: median(times), ..step })
}

async fn held(locks: &Locks, number: usize) -> Result<Step> {
    let one = async |number| taken(&**locks.backend(), &claim(locks, &format!("held-{number}"), number)?).await;
    beside(locks, number, one).await
}

async fn free(locks: &Locks, number: usize) -> Result<Step> {
    let one = async |number| pair(locks, &format!("free-{number}"), number).await;
    beside(locks, number, one).await
}

/// The time is that of a pair beside them; the rest is what one lock costs in a second.
async fn kept(locks: &Locks, number: usize) -> Result<Step> {
    pairs(locks).await?;
    let before = Usage::now();
    let one = async |number| {
        let lease = locks.capabilities().min_lease.max(KEPT);
        locks.mutex(format!("kept-{number}")).lease(lease).lock().await.map_err(failed)
    };
    let guards = gather(number, one).await?;
    let (gathered, begun) = (Usage::now(), Instant::now());
    tokio::time::sleep(WATCHED * 2).await;
    let watched = begun.elapsed().as_secs_f64();
    let step = cost(number, (number as f64 * watched) as usize, &before, &gathered, &Usage::now());
    let time = median(pairs(locks).await?);
    if let Some(lost) = guards.iter().find(|guard| !guard.is_held()) {
        return Err(format!("{} was not kept", lost.name()));
    }
    Ok(Step { time, ..step })
}
