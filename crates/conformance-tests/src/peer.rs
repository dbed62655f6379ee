//! A worker that takes locks by another library: a program of its own is told what to do line by line, and what it does is
//! logged here. Both are one group of processes, and are stopped and killed together.
//!
//! The program is told `lock NAME`, or another [order](Order) that takes a lock, and `unlock`; of a semaphore
//! `permits NAME TAKE OF` and `give`. It answers `locked`, with what the store calls the holder if its locks have tokens,
//! and `unlocked`; or `failed`, and then nothing of it is left once its session is over. To `check` it answers `held MS`
//! if the store, asked after the order, confirmed that it holds, and keeps that for at least so many milliseconds from the
//! order on; `lost` if the store says that it does not; and `failed` if the store did not say. To `unlock` it may answer
//! `lost`, too. It ends when its standard input does.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use lock_core::{FencingToken, Holder, Locks, Mode};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep, timeout};

use crate::foreign::is_asked;
use crate::history::{Log, What, monotonic, nanos};
use crate::protected::{Places, Shown, Visitor};
use crate::torture::GRACE;
use crate::workload::{SEMAPHORE, Workload, failed, pause};

/// How long it may take to leave nothing behind.
const FAREWELL: Duration = Duration::from_secs(5);

/// A program with another library's lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    words: Vec<String>,
    environment: Vec<(String, String)>,
    names: String,
    orders: Vec<Order>,
}

/// How a lock is taken.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    word: String,
    mode: Mode,
}

impl Program {
    /// A program with its arguments. Where it locks, the names of locks begin with `names`. It is told one of the orders,
    /// each of which takes a lock in this mode.
    pub fn of(command: &Command, names: &str, orders: &[(&str, Mode)]) -> Self {
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        let words = [command.get_program()].into_iter().chain(command.get_args()).map(text).collect();
        let environment = command.get_envs().filter_map(|(key, value)| Some((text(key), text(value?)))).collect();
        let orders = orders.iter().map(|(word, mode)| Order { word: (*word).to_owned(), mode: *mode }).collect();
        Self { words, environment, names: names.to_owned(), orders }
    }
}

/// The program while it runs.
struct Peer {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    fn start(program: &Program) -> io::Result<Self> {
        let mut command = tokio::process::Command::new(&program.words[0]);
        command.args(&program.words[1..]).envs(program.environment.iter().map(|(key, value)| (key, value)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // What it says of servers that are struck.
        command.stderr(Stdio::null());
        let mut child = command.spawn()?;
        let gone = || io::Error::other("the program has no pipe");
        let orders = child.stdin.take().ok_or_else(gone)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
        Ok(Self { child, orders, answers })
    }

    /// What it answers; `None` if it ended by itself.
    async fn ask(&mut self, order: &str) -> Option<String> {
        self.orders.write_all(format!("{order}\n").as_bytes()).await.ok()?;
        self.answers.next_line().await.ok()?
    }

    /// Lets it leave nothing behind, for which it may need servers that are struck.
    async fn end(mut self) -> io::Result<()> {
        drop(self.orders);
        match timeout(FAREWELL, self.child.wait()).await {
            Ok(ended) => ended.map(drop),
            Err(_) => self.child.kill().await,
        }
    }
}

/// How far an acquisition has come.
#[derive(PartialEq)]
enum Stage {
    Asked,
    Held,
    Over,
}

/// What the store shows to who took a lock.
enum Looked {
    /// Its token; 0 if the library's locks have none.
    Own(u64),
    /// Others in its place, or nobody.
    Another(String),
}

struct Rounds<'a> {
    locks: &'a Locks,
    lease: Duration,
    workload: &'a Workload,
    places: &'a Places,
    program: &'a Program,
    peer: Option<Peer>,
    log: Log,
    op: u64,
    stage: Stage,
}

/// Takes locks until the parent lets go.
pub(crate) async fn run(
    locks: &Locks,
    lease: Duration,
    workload: &Workload,
    places: &Places,
    program: &Program,
    mut parent: impl Future<Output = ()> + Unpin,
) -> io::Result<()> {
    let mut rng = StdRng::seed_from_u64(workload.seed);
    let log = workload.log()?;
    let mut rounds = Rounds { locks, lease, workload, places, program, peer: None, log, op: 0, stage: Stage::Over };
    loop {
        tokio::select! {
            biased;
            () = &mut parent => break,
            done = rounds.one(&mut rng) => done?,
        }
    }
    match rounds.stage {
        Stage::Asked => rounds.log(What::Failed { unknown: true }),
        Stage::Held => rounds.log(What::Release),
        Stage::Over => {}
    }
    rounds.end().await
}

impl Rounds<'_> {
    fn log(&self, what: What) {
        self.log.log(self.op, what);
    }

    async fn one(&mut self, rng: &mut StdRng) -> io::Result<()> {
        if self.peer.is_none() {
            self.peer = Some(Peer::start(self.program)?);
        }
        let (program, workload) = (self.program, self.workload);
        let Some(Order { word, mode }) = program.orders.choose(rng) else { return Ok(()) };
        let name = &workload.names[rng.random_range(0..workload.names.len())];
        let (name, back, permits) = match mode {
            Mode::Permits { take, of } => (SEMAPHORE, "give", format!(" {take} {of}")),
            _ => (name.as_str(), "unlock", String::new()),
        };
        self.op += 1;
        self.log(What::Acquire { name: name.to_owned(), mode: *mode, lease: nanos(self.lease), watched: false });
        self.stage = Stage::Asked;
        let answer = self.ask(&format!("{word} {}{name}{permits}", program.names)).await?;
        let locked = answer.as_deref().and_then(|answer| answer.strip_prefix("locked"));
        let until = AtomicU64::new(0);
        let looked = match locked {
            Some(own) => self.look(name, own).await,
            None => None,
        };
        // In this order: who held before and holds now did so when that was seen.
        let looked = if looked.is_some() && self.check(&until).await? == Some(true) { looked } else { None };
        let Some(Looked::Own(token)) = looked else {
            if let Some(Looked::Another(owner)) = looked {
                self.log(What::Misled { name: name.to_owned(), owner });
            }
            self.log(What::Failed { unknown: true });
            self.stage = Stage::Over;
            if locked.is_some() {
                self.ask(back).await?;
            }
            return failed(self.lease).await.map(drop);
        };
        self.log(What::Granted { token, until: until.load(Relaxed) });
        self.stage = Stage::Held;
        self.hold(name, *mode, token, &until, rng).await?;
        if self.stage == Stage::Held {
            self.log(What::Release);
            self.stage = Stage::Over;
            let answer = self.ask(back).await?;
            self.log(match answer.as_deref() {
                Some("unlocked") => What::Released { held: true },
                Some("lost") => What::Released { held: false },
                _ => What::ReleaseFailed,
            });
        }
        pause(rng, 2).await;
        Ok(())
    }

    /// Looks for the holder of this name, by which the program calls itself. `None` if the store does not answer, or
    /// knows no token of it.
    async fn look(&self, name: &str, own: &str) -> Option<Looked> {
        if !is_asked("S0", &self.workload.client) {
            return Some(Looked::Own(0));
        }
        let holders = self.locks.inspect(name).await.ok()?.holders;
        // It may be a part of a path.
        let is_own = |holder: &&Holder| own.split([' ', '/']).any(|part| part == holder.owner.as_str());
        let Some(holder) = holders.iter().find(is_own) else {
            let owners: Vec<_> = holders.iter().map(|holder| holder.owner.to_string()).collect();
            return Some(Looked::Another(owners.join(", ")));
        };
        // Nobody can tell what came before and after one without a token.
        (holder.token != Holder::NO_TOKEN).then(|| Looked::Own(FencingToken::new(holder.token).get()))
    }

    /// Uses what the lock protects, and goes on with that after the lock was lost: that is what the token is for.
    async fn hold(
        &mut self,
        name: &str,
        mode: Mode,
        token: u64,
        until: &AtomicU64,
        rng: &mut StdRng,
    ) -> io::Result<()> {
        let (log, places) = (self.log.clone(), self.places);
        let shown = Shown { shared: mode == Mode::Shared, ..Shown::alone(name, token) };
        let visitor = Visitor { shown, held: Box::new(|| monotonic() < until.load(Relaxed)), log: &log };
        let longest = if rng.random_ratio(1, 6) { self.workload.section_ms } else { self.workload.section_ms / 20 };
        let section = self.section(until, Duration::from_micros(rng.random_range(0..=longest * 1000)));
        match mode {
            _ if token == 0 => {
                section.await;
                Ok(())
            }
            Mode::Exclusive => places.count(name, &visitor, section).await.map(drop),
            _ => {
                section.await;
                places.share(name, &visitor).await
            }
        }
    }

    /// Takes its time, and asks again and again whether it still holds.
    async fn section(&mut self, until: &AtomicU64, lasting: Duration) {
        let end = Instant::now() + lasting;
        while self.stage == Stage::Held && end > Instant::now() {
            sleep((end - Instant::now()).min(self.lease / 3)).await;
            let asked = monotonic();
            // A program that cannot be ended is no reason to end.
            match self.check(until).await.unwrap_or(None) {
                Some(true) => {
                    let until = until.load(Relaxed);
                    self.log.log_at(asked, self.op, What::Checked { held: true, until });
                }
                Some(false) => {
                    self.log(What::Release);
                    self.log(What::Released { held: false });
                    self.stage = Stage::Over;
                }
                None => {}
            }
        }
    }

    /// Does it hold? If so, then the store keeps it until then; `None`: the store does not say.
    async fn check(&mut self, until: &AtomicU64) -> io::Result<Option<bool>> {
        let asked = monotonic();
        let answer = self.ask("check").await?;
        let held = answer.as_ref().and_then(|answer| answer.strip_prefix("held "));
        Ok(match held.map(str::parse::<u64>) {
            Some(Ok(ms)) => {
                until.store(asked + ms * 1_000_000, Relaxed);
                Some(true)
            }
            _ => answer.filter(|answer| answer == "lost").map(|_| false),
        })
    }

    /// Asks the program; `None` if it does not answer, and then the next acquisition has a new one.
    async fn ask(&mut self, order: &str) -> io::Result<Option<String>> {
        let Some(peer) = &mut self.peer else { return Ok(None) };
        if let Ok(Some(answer)) = timeout(self.lease * 5 + GRACE, peer.ask(order)).await {
            return Ok(Some(answer));
        }
        if self.stage == Stage::Held {
            self.log(What::Release);
            self.stage = Stage::Over;
        }
        self.end().await.map(|()| None)
    }

    async fn end(&mut self) -> io::Result<()> {
        match self.peer.take() {
            Some(peer) => peer.end().await,
            None => Ok(()),
        }
    }
}
