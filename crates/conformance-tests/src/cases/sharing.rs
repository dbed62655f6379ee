//! Readers of one process, who share what the store granted one of them; and writers elsewhere, who are not to wait for
//! that.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lock_core::testing::Verb;
use lock_core::{Locks, Mode, OwnerId, RwLock};
use tokio::task::JoinSet;

use crate::ctx::{BOUND, Ctx, LONG, judge, name, soon, until, waiters};
use crate::history::{Log, monotonic, nanos};
use crate::recorder::{Recorded, Recorder, waited};

/// No grant lets readers in for longer.
const OPEN: Duration = Duration::from_millis(100);

/// 215. Readers of one process share a hold, for which the store is asked once and which is given back once. A client
///      elsewhere sees one holder, has a hold of its own to read, and may write when the last has gone.
pub(crate) async fn readers_share_in_a_process(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let other = ctx.locks(LONG).await.rw_lock("x").unwrap();
    // As long as it can be, so that a busy machine does not keep them from it for ever.
    let rw_lock = locks.rw_lock("x").unwrap().hand_over_for(LONG);
    until("a hold that is shared", async || {
        let (asked, released) = (faulty.calls(Verb::Lock), faulty.calls(Verb::Unlock));
        let mut readers = Vec::new();
        for _ in 0..4 {
            readers.push(rw_lock.read().await.unwrap());
        }
        let holds: HashSet<_> = readers.iter().map(|reader| (reader.owner().clone(), reader.fencing_token())).collect();
        assert_eq!(faulty.calls(Verb::Lock) - asked, holds.len());
        let elsewhere = other.try_read().await.unwrap().unwrap();
        let seen = locks.inspect("x").await.unwrap();
        assert_eq!(seen.holders.len(), holds.len() + 1, "{seen:?}");
        elsewhere.unlock().await.unwrap();
        for reader in readers {
            assert!(reader.is_held() && other.try_write().await.unwrap().is_none());
            reader.unlock().await.unwrap();
        }
        assert_eq!(faulty.calls(Verb::Unlock) - released, holds.len());
        other.try_write().await.unwrap().unwrap().unlock().await.unwrap();
        holds.len() < 4
    })
    .await;
}

/// 216. Eight tasks of a process come to read again and again, and share. A writer elsewhere waits for those who came
///      before the last grant was a tenth of a second old, and for nobody who came later.
pub(crate) async fn a_writer_elsewhere_gets_its_turn(ctx: Ctx) {
    let locks = ctx.locks(LONG).await;
    // So long that the time ends the sharing, and not the number of those who may come in.
    let section = Duration::from_millis(20);
    let readers = Readers::start(&ctx, &[locks], (8, section), |rw_lock| rw_lock.hand_over_for(LONG)).await;
    let mut waited_for = Vec::new();
    for _ in 0..3 {
        waited_for.push(readers.a_writer_comes(&ctx).await);
    }
    let turns = readers.stop().await;
    let mut granted = HashMap::new();
    for turn in &turns {
        let first: &mut u64 = granted.entry(&turn.owner).or_insert(turn.granted);
        *first = turn.granted.min(*first);
    }
    for turn in &turns {
        let open = granted[&turn.owner] + nanos(OPEN);
        assert!(turn.asked <= open, "let in {:?} too late", Duration::from_nanos(turn.asked - open));
    }
    passed_by_nobody(&waited_for, &turns, &granted);
}

/// 217. Sixty-four tasks of four clients come to read again and again, each in the store's line. A writer among them
///      waits only for those who held when it came: nobody who asks after that reads before it has written.
pub(crate) async fn a_writer_among_64_readers(ctx: Ctx) {
    let clients = [ctx.locks(LONG).await, ctx.locks(LONG).await, ctx.locks(LONG).await, ctx.locks(LONG).await];
    let section = Duration::from_millis(2);
    let readers = Readers::start(&ctx, &clients, (64, section), |rw_lock| rw_lock.fair(true)).await;
    let mut waited_for = Vec::new();
    for _ in 0..3 {
        waited_for.push(readers.a_writer_comes(&ctx).await);
    }
    let turns = readers.stop().await;
    let granted: HashMap<_, _> = turns.iter().map(|turn| (&turn.owner, turn.granted)).collect();
    assert_eq!(granted.len(), turns.len(), "each has a hold of its own");
    passed_by_nobody(&waited_for, &turns, &granted);
}

/// From when on a writer stood in line, and when it gave the lock back.
type Wrote = (u64, u64);

/// What was asked of the store after a writer stood in line was granted after it had written.
fn passed_by_nobody(writers: &[Wrote], turns: &[Turn], granted: &HashMap<&OwnerId, u64>) {
    let mut asked = HashMap::new();
    for turn in turns {
        let first: &mut u64 = asked.entry(&turn.owner).or_insert(turn.asked);
        *first = turn.asked.min(*first);
    }
    for (owner, asked) in asked {
        for &(in_line, written) in writers {
            let passed = asked > in_line && granted[owner] < written;
            assert!(!passed, "{owner} asked {:?} after a writer, and passed it", Duration::from_nanos(asked - in_line));
        }
    }
}

/// A reader's turn, by whose hold it was.
struct Turn {
    asked: u64,
    granted: u64,
    owner: OwnerId,
}

/// Tasks that come to read again and again, until they are told to stop.
struct Readers {
    log: Log,
    count: usize,
    /// Reads from before a writer comes until all readers stand behind it.
    early: RwLock,
    stop: Arc<AtomicBool>,
    turns: Arc<Mutex<Vec<Turn>>>,
    tasks: JoinSet<()>,
}

impl Readers {
    /// So many of them, each of which reads for so long.
    async fn start(
        ctx: &Ctx,
        clients: &[Locks],
        (count, section): (usize, Duration),
        with: impl Fn(RwLock) -> RwLock,
    ) -> Self {
        let log = Log::in_memory("suite");
        let early = ctx.locks(LONG).await.rw_lock("x").unwrap().wait(6 * BOUND);
        let (stop, turns, mut tasks) = (Arc::default(), Arc::default(), JoinSet::new());
        for task in 0..count {
            let rw_lock = with(clients[task % clients.len()].rw_lock("x").unwrap().wait(6 * BOUND));
            let recorder = Recorder::new(log.client(&format!("reader {task}")));
            tasks.spawn(come_again(recorder, rw_lock, section, Arc::clone(&stop), Arc::clone(&turns)));
        }
        Self { log, count, early, stop, turns, tasks }
    }

    /// A writer of another client comes and has its turn.
    async fn a_writer_comes(&self, ctx: &Ctx) -> Wrote {
        let backend = ctx.backend().await;
        let rw_lock = ctx.locks(LONG).await.rw_lock("x").unwrap().wait(6 * BOUND);
        let (reads, writes) = (Recorder::new(self.log.client("early")), Recorder::new(self.log.client("writer")));
        let early = self.early.read();
        let early = reads.taking("x", Mode::Shared, LONG, waited(early)).await.unwrap().unwrap();
        let writer = tokio::spawn(async move {
            writes.taking("x", Mode::Exclusive, LONG, waited(rw_lock.write())).await.unwrap().unwrap()
        });
        until("the writer in line", async || {
            let seen = backend.inspect(&name("x")).await.unwrap();
            seen.waiters.iter().any(|waiter| waiter.mode == Mode::Exclusive)
        })
        .await;
        let in_line = monotonic();
        until("all readers behind it", async || waiters(&*backend, "x").await == self.count + 1).await;
        assert!(early.check() && !writer.is_finished());
        early.unlock().await.unwrap();
        let written: Recorded = soon("the writer's turn", writer).await.unwrap();
        assert!(written.check());
        let before = monotonic();
        written.unlock().await.unwrap();
        (in_line, before)
    }

    /// Sends them away, and answers their turns. The oracle finds nothing in what they and the writers did.
    async fn stop(self) -> Vec<Turn> {
        self.stop.store(true, Ordering::SeqCst);
        soon("the end of all turns", self.tasks.join_all()).await;
        judge(&self.log);
        std::mem::take(&mut *self.turns.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn come_again(
    recorder: Recorder,
    rw_lock: RwLock,
    section: Duration,
    stop: Arc<AtomicBool>,
    turns: Arc<Mutex<Vec<Turn>>>,
) {
    while !stop.load(Ordering::SeqCst) {
        let (asked, mut owner) = (monotonic(), None);
        let reading = async {
            let guard = waited(rw_lock.read()).await?;
            owner = guard.as_ref().map(|guard| guard.owner().clone());
            Ok(guard)
        };
        let held = recorder.taking("x", Mode::Shared, LONG, reading).await.unwrap().unwrap();
        let turn = Turn { asked, granted: monotonic(), owner: owner.unwrap() };
        turns.lock().unwrap_or_else(PoisonError::into_inner).push(turn);
        tokio::time::sleep(section).await;
        assert!(held.check());
        held.unlock().await.unwrap();
    }
}
