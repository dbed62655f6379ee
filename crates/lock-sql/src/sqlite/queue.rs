//! The requests of this client, in the order in which they came, and the turn at the file.
//!
//! A caller puts its request down and then, if nobody has the turn, takes it and runs all that wait, so it needs no other
//! thread. Nobody has the turn while it waits for anything: a turn is one call without an `await`, or one closure on a
//! thread for blocking calls. So a future that is kept and not polled blocks nobody, and others run its request with
//! theirs. A request whose future was dropped does not run any more, unless it runs already, and then before all that come
//! later.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lock_core::Error;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, oneshot};

use super::connection::Opened;
use super::statements::{Ask, Asked};
use super::store::{Answer, Failure};

/// How many requests share one transaction: it keeps other processes from writing meanwhile.
const TOGETHER: usize = 64;

/// A disk this slow is waited for on other threads than the runtime's, for some time.
const SLOW: Duration = Duration::from_millis(5);
const FOR_SOME_TIME: Duration = Duration::from_secs(1);

/// The connection, or why there is none.
pub(super) enum Slot {
    Empty,
    Open(Opened),
    Closed,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    freed: Notify,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Job>,
    /// None while somebody has the turn.
    slot: Option<Slot>,
    slow_until: Option<Instant>,
}

/// How far a request is.
#[derive(Default)]
pub(super) struct Progress {
    /// Has it run? Then nobody knows what came of it, until there is an answer.
    pub(super) sent: AtomicBool,
    /// Did it find the file busy?
    pub(super) busy: AtomicBool,
}

/// A request that waits for the turn, or runs.
pub(super) struct Job {
    pub(super) asked: Asked,
    pub(super) start: Instant,
    pub(super) progress: Arc<Progress>,
    answer: oneshot::Sender<Result<Answer, Failure>>,
}

impl Job {
    pub(super) fn answer(self, answer: Result<Answer, Failure>) {
        // Nobody may want it any more.
        let _ = self.answer.send(answer);
    }
}

/// The caller's end of a request.
pub(super) struct Waits {
    pub(super) answer: oneshot::Receiver<Result<Answer, Failure>>,
    pub(super) progress: Arc<Progress>,
}

impl Waits {
    /// The answer, if it is there.
    pub(super) fn answered(&mut self) -> Option<Result<Answer, Failure>> {
        match self.answer.try_recv() {
            Ok(answer) => Some(answer),
            Err(oneshot::error::TryRecvError::Empty) => None,
            Err(oneshot::error::TryRecvError::Closed) => Some(Err(Error::closed().into())),
        }
    }
}

/// The right to use the connection, and the requests to use it for. Dropped, it gives back what it has not done.
pub(super) struct Turn {
    queue: Arc<Queue>,
    pub(super) slot: Slot,
    pub(super) jobs: VecDeque<Job>,
    began: Instant,
    /// May it take long though the disk is fast?
    long: bool,
    /// Is it to run on a thread for blocking calls?
    pub(super) blocks: bool,
}

impl Queue {
    pub(super) fn new() -> Arc<Self> {
        let queue = Self::default();
        queue.state().slot = Some(Slot::Empty);
        Arc::new(queue)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, ask: Ask<'_>, start: Instant) -> Waits {
        let (sender, answer) = oneshot::channel();
        let progress = Arc::<Progress>::default();
        let job = Job { asked: ask.into(), start, progress: Arc::clone(&progress), answer: sender };
        self.state().waiting.push_back(job);
        Waits { answer, progress }
    }

    /// Ends when the turn was given back, after this call.
    pub(super) fn freed(&self) -> Notified<'_> {
        self.freed.notified()
    }

    /// The turn, if nobody has it, with what waits. It must not be kept over an `await`.
    pub(super) fn turn(self: &Arc<Self>) -> Option<Turn> {
        let mut state = self.state();
        let slot = state.slot.take()?;
        let began = Instant::now();
        // Whose caller is gone must not run after what that caller asks for next.
        state.waiting.retain(|job| !job.answer.is_closed());
        let count = state.waiting.len().min(TOGETHER);
        let jobs: VecDeque<_> = state.waiting.drain(..count).collect();
        let slow = state.slow_until.is_some_and(|until| began < until);
        let long = !matches!(slot, Slot::Open(_)) || jobs.iter().any(|job| job.asked.long);
        Some(Turn { queue: Arc::clone(self), slot, jobs, began, long, blocks: slow || long })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let slot = std::mem::replace(&mut self.slot, Slot::Empty);
        let mut state = self.queue.state();
        if std::thread::panicking() {
            // What made it panic would do so again.
            self.jobs.clear();
            state.slot = Some(Slot::Empty);
        } else {
            state.slot = Some(slot);
        }
        while let Some(job) = self.jobs.pop_back() {
            job.progress.sent.store(false, Ordering::Relaxed);
            state.waiting.push_front(job);
        }
        if !self.long && self.began.elapsed() > SLOW {
            state.slow_until = Some(Instant::now() + FOR_SOME_TIME);
        }
        drop(state);
        // All of them: a single one may be of a future that nobody polls.
        self.queue.freed.notify_waiters();
    }
}
