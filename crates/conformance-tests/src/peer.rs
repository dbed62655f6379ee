//! A worker that takes locks by another library: a program of its own is told what to do line by line, and what it does is
//! logged here.
//!
//! It is told `lock NAME` and `unlock`, and answers `locked`, perhaps with what the store calls the holder, and
//! `unlocked`; or `failed`, and then nothing of it is left. It ends when its standard input does.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Stdio};
use std::time::Duration;

use lock_core::{FencingToken, Holder, Locks, Mode};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use crate::history::{Log, What, monotonic, nanos};
use crate::protected::{Places, Shown, Visitor};
use crate::workload::{Workload, pause};

/// How long it holds a lock, in milliseconds. Other libraries promise nothing to who holds for longer than the store
/// keeps a lock.
const HOLDS: u64 = 40;

/// As much of a lease is left for that, if the store says how much there is.
const LEFT: Duration = Duration::from_secs(3);

/// What its history says of its lease, which it is not told.
const LEASE: Duration = Duration::from_secs(15);

/// How long it may take to leave nothing behind.
const FAREWELL: Duration = Duration::from_secs(10);

/// A program with another library's lock.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Program {
    words: Vec<String>,
    names: String,
}

impl Program {
    /// A program with its arguments. Where it locks, the names of locks begin with `names`.
    pub fn of(command: &Command, names: &str) -> Self {
        let text = |word: &OsStr| word.to_string_lossy().into_owned();
        let words = [command.get_program()].into_iter().chain(command.get_args()).map(text).collect();
        Self { words, names: names.to_owned() }
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
        command.args(&program.words[1..]).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // What it says of servers that are struck.
        command.stderr(Stdio::null());
        let mut child = command.spawn()?;
        let gone = || io::Error::other("the program has no pipe");
        let orders = child.stdin.take().ok_or_else(gone)?;
        let answers = BufReader::new(child.stdout.take().ok_or_else(gone)?).lines();
        Ok(Self { child, orders, answers })
    }

    async fn ask(&mut self, order: &str) -> io::Result<String> {
        self.orders.write_all(format!("{order}\n").as_bytes()).await?;
        self.answers.next_line().await?.ok_or_else(|| io::Error::other("the program with another's lock ended"))
    }

    async fn end(mut self) -> io::Result<()> {
        drop(self.orders);
        let ended = tokio::time::timeout(FAREWELL, self.child.wait()).await;
        ended.map_err(|_| io::Error::other("the program with another's lock does not end"))?.map(drop)
    }
}

/// How far an acquisition has come.
enum Stage {
    Asked,
    Held,
    Over,
}

struct Rounds<'a> {
    locks: &'a Locks,
    workload: &'a Workload,
    places: &'a Places,
    program: &'a Program,
    log: Log,
    op: u64,
    stage: Stage,
}

/// Takes locks until the parent lets go.
pub(crate) async fn run(
    locks: &Locks,
    workload: &Workload,
    places: &Places,
    program: &Program,
    mut parent: impl Future<Output = ()> + Unpin,
) -> io::Result<()> {
    let mut peer = Peer::start(program)?;
    let mut rng = StdRng::seed_from_u64(workload.seed);
    let mut rounds = Rounds { locks, workload, places, program, log: workload.log()?, op: 0, stage: Stage::Over };
    loop {
        tokio::select! {
            biased;
            () = &mut parent => break,
            done = rounds.one(&mut peer, &mut rng) => done?,
        }
    }
    match rounds.stage {
        Stage::Asked => rounds.log.log(rounds.op, What::Failed { unknown: true }),
        Stage::Held => rounds.log.log(rounds.op, What::Release),
        Stage::Over => {}
    }
    peer.end().await
}

impl Rounds<'_> {
    async fn one(&mut self, peer: &mut Peer, rng: &mut StdRng) -> io::Result<()> {
        let name = &self.workload.names[rng.random_range(0..self.workload.names.len())];
        self.op += 1;
        self.log.log(
            self.op,
            What::Acquire { name: name.clone(), mode: Mode::Exclusive, lease: nanos(LEASE), watched: false },
        );
        self.stage = Stage::Asked;
        let locked = peer.ask(&format!("lock {}{name}", self.program.names)).await?;
        let holder = match locked.strip_prefix("locked") {
            Some(holder) => self.holder(name, holder.split(' ').nth(1)).await,
            None => None,
        };
        let Some(holder) = holder else {
            self.log.log(self.op, What::Failed { unknown: true });
            self.stage = Stage::Over;
            if locked.starts_with("locked") {
                peer.ask("unlock").await?;
            }
            tokio::time::sleep(Duration::from_millis(HOLDS)).await;
            return Ok(());
        };
        let token = FencingToken::new(holder.token).get();
        self.log.log(self.op, What::Granted { token, until: monotonic() + nanos(LEASE) });
        self.stage = Stage::Held;
        let visitor = Visitor { shown: Shown::alone(name, token), lease: None, log: &self.log };
        self.places.count(name, &visitor, pause(rng, HOLDS)).await?;
        self.log.log(self.op, What::Release);
        self.stage = Stage::Over;
        let unlocked = peer.ask("unlock").await?;
        let what = if unlocked == "unlocked" { What::Released { held: true } } else { What::ReleaseFailed };
        self.log.log(self.op, what);
        pause(rng, 2).await;
        Ok(())
    }

    /// What the store says of who holds, if it answers, and if that is still the program: what it calls the holder has the
    /// owner in it.
    async fn holder(&self, name: &str, called: Option<&str>) -> Option<Holder> {
        let holder = self.locks.inspect(name).await.ok()?.into_holder()?;
        let is_its = |called: &str| called.contains(holder.owner.as_str()) && holder.remaining >= LEFT;
        // Nobody can tell what came before and after one without a token.
        (called.is_none_or(is_its) && holder.token != Holder::NO_TOKEN).then_some(holder)
    }
}
