//! A worker process: this program, started again. It takes its orders from standard input and ends with it, so that it
//! leaves no lock even when the process that started it is killed.

use std::io::Write;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use oarlock::{Clock, Instant, LockGuard, Locks, Mode, Mutex, RwLock, Semaphore, SystemClock};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::task::JoinSet;

use super::renewals::Kept;
use super::statistics::Turn;
use super::subject;
use crate::exit::{Failure, OS_ERROR};

/// How much longer than its round a worker waits for a turn.
const PATIENCE: Duration = Duration::from_secs(10);

/// How many wait in vain.
pub(crate) const IDLE: u32 = 100;
/// How many leases are renewed.
pub(crate) const RENEWALS: u32 = 1_000;

/// What a worker does, the first line of its orders. On standard input, since it may hold a password.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) url: String,
    pub(crate) prefix: String,
    pub(crate) lease: Duration,
    pub(crate) work: Work,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Takes the lock in this mode and gives it back, again and again; `apart`: each task has one of many locks.
    Turns { name: String, tasks: u32, apart: bool, hold: Duration, mode: Mode },
    /// Takes the lock and keeps it until it is told to end.
    Hold { name: String },
    /// Waits for the lock once.
    Wait { name: String },
    /// Waits for so many locks in vain, and tells what share of a core that takes.
    Idle { names: u32 },
    /// Takes so many locks, renews them once, and tells how many microseconds that took.
    Renew { leases: u32 },
}

/// From when to when, the second line: nanoseconds since the origin of the machine's clock.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Span {
    pub(crate) start: u64,
    pub(crate) end: u64,
}

/// What a worker says, one line each.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Word {
    /// It is connected, or, of [`Work::Idle`], waiting.
    Ready,
    /// It has the lock, since then.
    Had(u64),
    /// The turns of one task: asked, had, gave, done.
    Turns(Vec<[u64; 4]>),
    /// What was asked for, as a number.
    Figure(f64),
    /// Why it could not.
    Failed(String),
}

/// Now, on the clock that all processes of the machine share.
pub(crate) fn now() -> u64 {
    u64::try_from(SystemClock.now().since_origin().as_nanos()).unwrap_or(u64::MAX)
}

pub(crate) async fn work() -> Result<u8, Failure> {
    let mut orders = Orders::open()?;
    let Some(job) = orders.next::<Job>().await else { return Ok(0) };
    let locks = match subject::connect(&job.url, &job.prefix).await {
        Ok(locks) => locks,
        Err(failure) => return say(&Word::Failed(failure.message.unwrap_or_default())).map(|()| 0),
    };
    let done = perform(&job, &locks, &mut orders).await;
    if let Err(error) = &done {
        say(&Word::Failed(error.message.clone().unwrap_or_default()))?;
    }
    drop(locks.shutdown(crate::SHUTDOWN).await);
    Ok(0)
}

async fn perform(job: &Job, locks: &Locks, orders: &mut Orders) -> Result<(), Failure> {
    let mutex = |name: &str| locks.mutex(name).lease(job.lease);
    match &job.work {
        Work::Turns { name, tasks, apart, hold, mode } => {
            // The first request of a connection is not what is measured.
            mutex("warm-up").wait(PATIENCE).lock().await?.unlock().await?;
            say(&Word::Ready)?;
            let Some(span) = orders.next::<Span>().await else { return Ok(()) };
            let tasks = (0..*tasks).map(|task| {
                let name = if *apart { subject::one_of_many(task) } else { name.clone() };
                Ok(take_turns(Handle::of(locks, &name, *mode, job.lease)?, span, *hold))
            });
            let mut tasks: JoinSet<_> = tasks.collect::<oarlock::Result<Vec<_>>>()?.into_iter().collect();
            while let Some(turns) = orders.unless_over(tasks.join_next()).await.flatten() {
                let turns = turns.map_err(|error| Failure::new(OS_ERROR, error.to_string()))??;
                let turns = turns.iter().map(|turn| [turn.asked, turn.had, turn.gave, turn.done]);
                say(&Word::Turns(turns.collect()))?;
            }
        }
        Work::Hold { name } => {
            if let Some(guard) = orders.unless_over(mutex(name).lock()).await {
                let guard = guard?;
                say(&Word::Had(now()))?;
                orders.unless_over(std::future::pending::<()>()).await;
                guard.unlock().await?;
            }
        }
        Work::Wait { name } => {
            say(&Word::Ready)?;
            if let Some(guard) = orders.unless_over(mutex(name).lock()).await {
                let (guard, had) = (guard?, now());
                say(&Word::Had(had))?;
                guard.unlock().await?;
            }
        }
        Work::Idle { names } => {
            let mut waiting = JoinSet::new();
            for number in 0..*names {
                let mutex = mutex(&subject::one_of_many(number));
                waiting.spawn(async move { mutex.lock().await.map(drop) });
            }
            say(&Word::Ready)?;
            let Some(span) = orders.next::<Span>().await else { return Ok(()) };
            until(span.start).await;
            let before = used();
            let early = tokio::select! {
                () = until(span.end) => None,
                early = orders.unless_over(waiting.join_next()) => Some(early),
            };
            match early {
                None => say(&Word::Figure((used() - before).as_secs_f64() * 1e9 / (span.end - span.start) as f64))?,
                Some(Some(_)) => say(&Word::Failed("a lock that another holds was granted".to_owned()))?,
                Some(None) => {}
            }
            waiting.shutdown().await;
        }
        Work::Renew { leases } => {
            let mut kept = Kept::default();
            let renewing = kept.renew(locks.backend(), *leases, job.lease);
            let took = orders.unless_over(renewing).await;
            kept.give_back(locks.backend()).await?;
            if let Some(took) = took {
                say(&Word::Figure(took?.as_secs_f64() * 1e6))?;
            }
        }
    }
    Ok(())
}

/// One lock in one of its modes.
enum Handle {
    Lock(Mutex),
    Reading(RwLock),
    Permits(Semaphore, u32),
}

impl Handle {
    fn of(locks: &Locks, name: &str, mode: Mode, lease: Duration) -> oarlock::Result<Self> {
        Ok(match mode {
            Mode::Shared => Self::Reading(locks.rw_lock(name)?.lease(lease).wait(PATIENCE)),
            Mode::Permits { take, of } => Self::Permits(locks.semaphore(name, of)?.lease(lease).wait(PATIENCE), take),
            _ => Self::Lock(locks.mutex(name).lease(lease).wait(PATIENCE)),
        })
    }

    async fn take(&self) -> oarlock::Result<LockGuard> {
        match self {
            Self::Lock(mutex) => mutex.lock().await,
            Self::Reading(rw_lock) => rw_lock.read().await,
            Self::Permits(semaphore, take) => semaphore.acquire_many(*take).await,
        }
    }
}

async fn take_turns(handle: Handle, span: Span, hold: Duration) -> Result<Vec<Turn>, Failure> {
    let mut turns = Vec::new();
    until(span.start).await;
    loop {
        let asked = now();
        if asked >= span.end {
            return Ok(turns);
        }
        let guard = handle.take().await?;
        let had = now();
        // A timer's least is a millisecond, so none of nothing.
        if !hold.is_zero() {
            tokio::time::sleep(hold).await;
        }
        let gave = now();
        guard.unlock().await?;
        turns.push(Turn { asked, had, gave, done: now() });
    }
}

pub(crate) async fn until(nanos: u64) {
    SystemClock.sleep_until(Instant::from_origin(Duration::from_nanos(nanos))).await;
}

/// The processor's time that this process has used.
fn used() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map(Duration::from).unwrap_or_default()
}

fn say(word: &Word) -> Result<(), Failure> {
    let text = serde_json::to_string(word).map_err(std::io::Error::from)?;
    let mut stdout = std::io::stdout().lock();
    Ok(writeln!(stdout, "{text}").and_then(|()| stdout.flush())?)
}

/// Standard input.
struct Orders(Lines<BufReader<pipe::Receiver>>);

impl Orders {
    fn open() -> Result<Self, Failure> {
        // Not tokio's own stdin, whose thread keeps the program from ending.
        let pipe = pipe::OpenOptions::new().open_receiver("/dev/fd/0")?;
        Ok(Self(BufReader::new(pipe).lines()))
    }

    /// The next order; `None` when it is time to end.
    async fn next<T: for<'a> Deserialize<'a>>(&mut self) -> Option<T> {
        let line = self.0.next_line().await.ok()??;
        serde_json::from_str(&line).ok()
    }

    /// What the future answers, unless it is time to end before.
    async fn unless_over<T>(&mut self, future: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = future => Some(answer),
            _ = self.0.next_line() => None,
        }
    }
}
