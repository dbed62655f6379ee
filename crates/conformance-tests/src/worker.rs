//! Holders in other processes: this program started again, told what to do over its standard input.

use std::io;
use std::path::PathBuf;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lock_core::testing::{Effect, Faulty, Verb};
use lock_core::{Config, ErrorKind, FencingToken, LockGuard, Locks, Registry};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use rustix::process::{Resource as Limited, Rlimit, getrlimit, prlimit};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::family::{self, Task};
use crate::history::monotonic;
use crate::host::Host;
use crate::protected::{HUNGRY, Open, Places, is_hungry};
use crate::resource::Resource;
use crate::workload::{self, Going, Workload};

/// The environment variable that makes a process a worker.
const ROLE: &str = "CONFORMANCE_WORKER";

/// What a worker process is for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Role {
    /// How to connect.
    pub(crate) url: String,
    /// The lease of its locks, in milliseconds.
    pub(crate) lease_ms: u64,
    /// What to do; without it and without a task, what the [`Order`]s say.
    pub(crate) workload: Option<Workload>,
    /// What to do in another proof.
    pub(crate) task: Option<Task>,
}

/// What to do next.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Wait for the lock.
    Lock { name: String, fair: bool },
    /// Take it for a fixed time.
    Hold { name: String, ms: u64 },
    /// Try to take it.
    TryLock { name: String },
    /// Say whether it is held.
    Check,
    /// Read the resource in this file.
    Read { path: String },
    /// Write to it, whether or not the lock is held.
    Write { path: String, value: u64 },
    /// Release it.
    Unlock,
    /// Wait until told of the loss.
    Lost,
    /// Say what the time is by the wall clock.
    WallClock,
    /// Say how the lock stands.
    Inspect { name: String },
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// The worker is connected.
    Ready,
    /// The lock is held, asked for and granted at these times.
    Locked { token: u64, asked: u64, granted: u64 },
    /// It is not.
    Denied,
    /// Whether it is held.
    Checked { held: bool },
    /// The resource's value, or `None`: the token was refused.
    Value(Option<u64>),
    /// Whether it was held until then.
    Unlocked { held: bool },
    /// Told of the loss.
    Told,
    /// Seconds since 1970.
    WallClock(u64),
    /// The fencing token of who holds the lock, if anybody does, and how many wait.
    Status { token: Option<u64>, waiters: usize },
    /// It went wrong.
    Failed(String),
}

/// Call this first in `main` of a program that runs the suite or the torture: in a worker process, it does the worker's
/// job and answers the exit code; in any other it answers `None`. The registry must know the backend under test.
pub fn worker_main(registry: &Registry) -> Option<ExitCode> {
    main_of(registry, None)
}

/// The same, for a torture whose resources are [elsewhere](crate::protected::Elsewhere): this opens their places.
pub fn worker_main_with(registry: &Registry, open: Open) -> Option<ExitCode> {
    main_of(registry, Some(open))
}

fn main_of(registry: &Registry, open: Option<Open>) -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let role: Role = serde_json::from_str(&role).expect("the parent writes roles");
    // Of a panic that was ordered nobody has to hear.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !workload::is_ordered(info.payload()) {
            hook(info)
        }
    }));
    let (mut begun, mut orders) = (None, orders());
    let done = loop {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
        let done = runtime.and_then(|runtime| {
            let done = runtime.block_on(work(registry, &role, open, &mut begun, &mut orders));
            runtime.shutdown_background();
            done
        });
        match done {
            Ok(Next::AnotherRuntime) => {}
            Ok(Next::End) => break Ok(()),
            // It was about to begin.
            Err(error) if is_hungry(&error) => std::thread::sleep(HUNGRY),
            Err(error) => break Err(error),
        }
    };
    Some(match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("worker: {error}");
            ExitCode::FAILURE
        }
    })
}

/// What the parent tells, a line each; it ends when the parent lets go of its end of the pipe, or dies.
pub(crate) type Orders = UnboundedReceiver<String>;

/// Reads them on a thread of its own, which outlives every runtime.
fn orders() -> Orders {
    let (told, orders) = unbounded_channel();
    std::thread::spawn(move || {
        let lines = io::stdin().lines().map_while(Result::ok);
        // It fails if nobody works any more.
        lines.map(|line| told.send(line)).take_while(Result::is_ok).for_each(drop);
    });
    orders
}

/// What a worker does after what it did on one runtime.
enum Next {
    AnotherRuntime,
    End,
}

/// What a worker has once it is connected.
struct Begun {
    locks: Locks,
    going: Going,
    /// Around the backend of a worker that works by itself.
    faulty: Option<Faulty>,
}

impl Begun {
    fn new(locks: Locks, role: &Role) -> io::Result<Self> {
        let going = Going::new(role.workload.as_ref())?;
        if role.workload.is_none() {
            return Ok(Self { locks, going, faulty: None });
        }
        let faulty = Faulty::new(Arc::clone(locks.backend()));
        let locks = Locks::builder(faulty.backend()).build().map_err(io::Error::other)?;
        Ok(Self { locks, going, faulty: Some(faulty) })
    }
}

/// Tells a worker that its backend is to panic.
const PANIC: Signal = Signal::SIGURG;

/// How long after it was called a backend panics at the latest: within the time that an answer takes, or after it.
const SOON: Duration = Duration::from_millis(1);

/// The next call of each kind panics.
fn panic_soon(faulty: &Faulty) {
    for verb in [Verb::TryLock, Verb::Lock, Verb::Unlock, Verb::Renew, Verb::Keep, Verb::Inspect] {
        faulty.once(verb, Effect::PanicLater(SOON));
    }
}

/// Works until the end, or until it is to go on on another runtime with what was `begun`.
async fn work(
    registry: &Registry,
    role: &Role,
    open: Option<Open>,
    begun: &mut Option<Begun>,
    orders: &mut Orders,
) -> io::Result<Next> {
    let config = Config::from_url(&role.url).map_err(io::Error::other)?;
    let lease = Duration::from_millis(role.lease_ms);
    let mut replaced = signal(SignalKind::window_change())?;
    let Begun { locks, going, faulty } = match begun {
        Some(begun) => begun,
        None => {
            let Some(locks) = connected(registry, &config, role, lease, orders).await? else {
                return Ok(Next::End);
            };
            begun.insert(Begun::new(locks, role)?)
        }
    };
    match (&role.workload, &role.task) {
        (Some(workload), _) => {
            let places = match (workload.places.is_empty(), open) {
                (true, _) => Places::files(&workload.folder),
                (false, Some(open)) => Places::open(&workload.places, open).await?,
                (false, None) => return Err(io::Error::other("this program opens no places: see `worker_main_with`")),
            };
            let mut told = signal(SignalKind::from_raw(PANIC as i32))?;
            let panicking = async {
                while told.recv().await.is_some() {
                    faulty.iter().for_each(panic_soon);
                }
                std::future::pending().await
            };
            tokio::select! {
                biased;
                _ = replaced.recv(), if workload.peer.is_none() => return Ok(Next::AnotherRuntime),
                done = workload::run(locks, lease, workload, &places, going, orders) => done?,
                () = panicking => {}
            }
        }
        (_, Some(task)) => family::work(locks, lease, task, orders).await?,
        _ => obey(locks, lease, orders).await?,
    }
    Ok(Next::End)
}

/// Connects. None: nobody waits for it any more.
async fn connected(
    registry: &Registry,
    config: &Config,
    role: &Role,
    lease: Duration,
    orders: &mut Orders,
) -> io::Result<Option<Locks>> {
    loop {
        match registry.connect(config.clone()).await {
            Ok(locks) => return Ok(Some(locks)),
            // It works by itself, and may have come into a fault.
            Err(error) if (role.workload.is_some() || role.task.is_some()) && error.kind() != ErrorKind::Invalid => {
                if let Ok(None) = tokio::time::timeout(lease / 10, orders.recv()).await {
                    return Ok(None);
                }
            }
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

/// Does what it is told, until nobody is there to tell any more.
async fn obey(locks: &Locks, lease: Duration, orders: &mut Orders) -> io::Result<()> {
    let mut guard = None;
    say(&Answer::Ready);
    while let Some(line) = orders.recv().await {
        let order = serde_json::from_str(&line)?;
        say(&follow(locks, lease, &mut guard, order).await?);
    }
    Ok(())
}

fn say(answer: &Answer) {
    println!("{}", serde_json::to_string(answer).expect("an answer is always JSON"));
}

async fn follow(locks: &Locks, lease: Duration, held: &mut Option<LockGuard>, order: Order) -> io::Result<Answer> {
    let mutex = |name: &str| locks.mutex(name).lease(lease);
    let asked = monotonic();
    let answer = match order {
        Order::Lock { name, fair } => mutex(&name).fair(fair).lock().await.map(Some),
        Order::Hold { name, ms } => mutex(&name).hold_for(Duration::from_millis(ms)).lock().await.map(Some),
        Order::TryLock { name } => mutex(&name).try_lock().await,
        Order::Unlock => {
            let guard = held.take().ok_or_else(nothing_held)?;
            return Ok(match guard.unlock().await {
                Ok(()) => Answer::Unlocked { held: true },
                Err(error) if error.kind() == ErrorKind::Lost => Answer::Unlocked { held: false },
                Err(error) => Answer::Failed(error.to_string()),
            });
        }
        Order::WallClock => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            return Ok(Answer::WallClock(now.unwrap_or_default().as_secs()));
        }
        Order::Inspect { name } => {
            return Ok(match locks.inspect(&name).await {
                Ok(status) => Answer::Status {
                    token: status.holder().map(|holder| FencingToken::new(holder.token).get()),
                    waiters: status.waiters.len(),
                },
                Err(error) => Answer::Failed(error.to_string()),
            });
        }
        other => return with_guard(held.as_ref().ok_or_else(nothing_held)?, other).await,
    };
    Ok(match answer {
        Ok(Some(guard)) => {
            let token = guard.fencing_token().get();
            *held = Some(guard);
            Answer::Locked { token, asked, granted: monotonic() }
        }
        Ok(None) => Answer::Denied,
        Err(error) if error.kind() == ErrorKind::Timeout => Answer::Denied,
        Err(error) => Answer::Failed(error.to_string()),
    })
}

fn nothing_held() -> io::Error {
    io::Error::other("an order for a lock, and none was taken")
}

async fn with_guard(guard: &LockGuard, order: Order) -> io::Result<Answer> {
    let token = guard.fencing_token().get();
    Ok(match order {
        Order::Read { path } => Answer::Value(Resource::open(path.as_ref())?.read(token)?.ok()),
        Order::Write { path, value } => Answer::Value(Resource::open(path.as_ref())?.write(token, value)?.ok()),
        Order::Lost => {
            guard.lost().await;
            Answer::Told
        }
        _ => Answer::Checked { held: guard.is_held() },
    })
}

/// A worker process, seen from its parent. Dropping it kills it.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    orders: Option<ChildStdin>,
    answers: Lines<BufReader<ChildStdout>>,
    /// What it writes to as soon as it works.
    history: Option<PathBuf>,
}

impl Worker {
    /// Starts this program again as a worker, on another host if one is given.
    pub(crate) fn spawn(role: &Role, host: Option<&Host>) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let command = host.map_or_else(|| std::process::Command::new(&program), |host| host.command(&program));
        let mut child = Command::from(command)
            .env(ROLE, serde_json::to_string(role)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // With whatever it starts itself.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()?;
        let gone = || io::Error::other("the worker has no pipe");
        let orders = child.stdin.take().ok_or_else(gone)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
        let history = role.workload.as_ref().map(|work| Workload::history(&work.folder, &work.client));
        Ok(Self { child, orders: Some(orders), answers, history })
    }

    /// Its process, as long as it was not waited for.
    pub(crate) fn pid(&self) -> Option<Pid> {
        self.child.id().and_then(|pid| i32::try_from(pid).ok()).map(Pid::from_raw)
    }

    fn running(&self) -> io::Result<Pid> {
        self.pid().ok_or_else(|| io::Error::other("the worker was waited for"))
    }

    /// Gives an order without waiting for the answer.
    pub(crate) async fn tell(&mut self, order: &Order) -> io::Result<()> {
        let orders = self.orders.as_mut().ok_or_else(|| io::Error::other("the worker was let go"))?;
        orders.write_all(format!("{}\n", serde_json::to_string(order)?).as_bytes()).await
    }

    /// Waits for the next answer.
    pub(crate) async fn answer(&mut self) -> io::Result<Answer> {
        let line = self.answers.next_line().await?.ok_or_else(|| io::Error::other("the worker died"))?;
        Ok(serde_json::from_str(&line)?)
    }

    /// Gives an order and waits for the answer.
    pub(crate) async fn ask(&mut self, order: &Order) -> io::Result<Answer> {
        self.tell(order).await?;
        self.answer().await
    }

    /// Does it work by itself already?
    pub(crate) fn has_begun(&self) -> bool {
        self.history.as_ref().is_some_and(|history| history.exists())
    }

    /// Limits what it may have of something, and answers what the limit was. The upper limit stays.
    pub(crate) fn limit(&self, something: Limited, limit: Rlimit) -> io::Result<Rlimit> {
        let pid = self.pid().and_then(|pid| rustix::process::Pid::from_raw(pid.as_raw()));
        let pid = pid.ok_or_else(|| io::Error::other("the worker was waited for"))?;
        let limit = Rlimit { maximum: getrlimit(something).maximum, ..limit };
        Ok(prlimit(Some(pid), something, limit)?)
    }

    /// Has it ended by itself?
    pub(crate) fn has_died(&mut self) -> io::Result<bool> {
        Ok(self.child.try_wait()?.is_some())
    }

    /// Has it drop its runtime, and go on on another. A worker that does not listen yet, or is about to end, ignores the
    /// signal.
    pub(crate) fn replace_runtime(&self) -> io::Result<()> {
        Ok(kill(self.running()?, Signal::SIGWINCH)?)
    }

    /// Has its backend panic. A worker that does not listen yet, or is about to end, ignores the signal.
    pub(crate) fn panic(&self) -> io::Result<()> {
        Ok(kill(self.running()?, PANIC)?)
    }

    /// Sends it a signal, and what it started.
    pub(crate) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(killpg(self.running()?, signal)?)
    }

    /// Kills it and what it started, `kill -9`, and waits until it is dead.
    pub(crate) async fn kill(&mut self) -> io::Result<()> {
        self.signal(Signal::SIGKILL)?;
        self.child.wait().await.map(drop)
    }

    /// Waits until it ended by itself. Answers whether it ended well.
    pub(crate) async fn ended(&mut self) -> io::Result<bool> {
        Ok(self.child.wait().await?.success())
    }

    /// Lets it end, as one that is told nothing more does, and kills it if it takes longer than this. Answers
    /// whether it ended well.
    pub(crate) async fn end(&mut self, patience: Duration) -> io::Result<bool> {
        self.orders = None;
        match tokio::time::timeout(patience, self.ended()).await {
            Ok(well) => well,
            Err(_) => self.kill().await.map(|()| false),
        }
    }
}
