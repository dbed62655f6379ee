//! Random acquisitions, cancellations, releases, losses and steps of time, against a plain list.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use lock_core::memory::MemoryLock;
use lock_core::{Error, ErrorKind, FencingToken, LockGuard, Locks, ManualClock};
use proptest::prelude::*;
use tokio::task::JoinHandle;

const LEASE: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, Debug)]
enum Step {
    Acquire,
    /// Cancels the one who waits there, counted round.
    Cancel(usize),
    Release,
    Drop,
    /// The store takes the lock away, and the next renewal learns it.
    Lose,
    /// Past the time for hand-overs, or not.
    Pause(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Acquire),
        1 => (0_usize..8).prop_map(Step::Cancel),
        2 => Just(Step::Release),
        1 => Just(Step::Drop),
        1 => Just(Step::Lose),
        1 => (1_u64..20).prop_map(Step::Pause),
    ]
}

type Task = JoinHandle<Result<LockGuard, Error>>;

/// The engine, and what should be true of it: one holder, and a list.
struct Run {
    store: MemoryLock,
    clock: ManualClock,
    locks: Locks,
    holder: Option<LockGuard>,
    waiting: VecDeque<Task>,
    newest: Option<FencingToken>,
}

async fn settle() {
    for _ in 0..30 {
        tokio::task::yield_now().await;
    }
}

impl Run {
    fn new(hand_overs: u8) -> Self {
        let clock = ManualClock::new();
        let store = MemoryLock::with_clock(Arc::new(clock.clone()));
        let locks = Locks::builder(Arc::new(store.clone())).hand_overs(hand_overs).build().unwrap();
        Self { store, clock, locks, holder: None, waiting: VecDeque::new(), newest: None }
    }

    async fn step(&mut self, step: Step) {
        match step {
            Step::Acquire => {
                let mutex = self.locks.mutex("x");
                self.waiting.push_back(tokio::spawn(async move { mutex.lock().await }));
            }
            Step::Cancel(at) if !self.waiting.is_empty() => {
                let at = at % self.waiting.len();
                self.waiting.remove(at).unwrap().abort();
            }
            Step::Release => {
                if let Some(guard) = self.holder.take() {
                    guard.unlock().await.unwrap();
                }
            }
            Step::Drop => self.holder = None,
            Step::Lose => {
                if let Some(guard) = self.holder.take() {
                    assert!(self.store.script().lose("x"));
                    self.clock.advance(LEASE / 3);
                    settle().await;
                    assert!(!guard.is_held());
                    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
                }
            }
            Step::Pause(ms) => self.clock.advance(Duration::from_millis(ms)),
            Step::Cancel(_) => {}
        }
        settle().await;
        self.check().await;
    }

    /// The first who waits has the lock if it is free; nobody else has.
    async fn check(&mut self) {
        if self.holder.is_none()
            && let Some(first) = self.waiting.pop_front()
        {
            assert!(first.is_finished(), "the first has it when it is free");
            let guard = first.await.unwrap().unwrap();
            assert!(self.newest < Some(guard.fencing_token()), "tokens rise");
            self.newest = Some(guard.fencing_token());
            self.holder = Some(guard);
        }
        assert!(self.holder.as_ref().is_none_or(|guard| guard.is_held()));
        assert!(self.waiting.iter().all(|task| !task.is_finished()), "nobody else has it");
        let in_store = self.locks.inspect("x").await.unwrap();
        assert_eq!(
            in_store.holder().map(|holder| holder.owner.clone()),
            self.holder.as_ref().map(|guard| guard.owner().clone())
        );
        assert!(in_store.waiters.is_empty(), "those of one process wait there");
    }
}

proptest! {
    #[test]
    fn the_queue_is_a_list(hand_overs in prop_oneof![Just(0), Just(1), Just(255)], steps in prop::collection::vec(step(), 1..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut run = Run::new(hand_overs);
            for step in steps {
                run.step(step).await;
            }
        });
    }
}
