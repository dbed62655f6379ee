//! The keeper: one task renews the leases of one `Locks`, in batches, and says when one is over.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use futures_util::FutureExt;
use futures_util::stream::{BoxStream, FuturesUnordered, StreamExt};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

use crate::contract::{Clock, DistributedLock, Error, ErrorKind, Instant, Notice, Renewal, Result};
use crate::engine::core::sleep_until;
use crate::engine::hold::{Course, End, Hold};
use crate::engine::request::Queue;
use crate::engine::telemetry::{Began, Telemetry};
use crate::engine::timing;
use crate::engine::worker::Worker;

/// The most claims in one call.
const BATCH: usize = 1000;

#[derive(Debug)]
pub(crate) struct Keeper {
    shared: Arc<Shared>,
    worker: Worker,
}

#[derive(Debug)]
struct Shared {
    backend: Arc<dyn DistributedLock>,
    clock: Arc<dyn Clock>,
    /// Learns when a hold is over whose guard is still there.
    queue: Arc<Queue>,
    telemetry: Telemetry,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    holds: HashMap<u64, Entry, RandomState>,
    order: BTreeSet<(Instant, u64)>,
    /// Until when the task sleeps; an entry before that must wake it.
    asleep_until: Option<Instant>,
    /// How often the store had doubts.
    doubts: u64,
    closed: bool,
}

struct Entry {
    due: Instant,
    renew: bool,
    hold: Arc<Hold>,
}

impl std::fmt::Debug for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} due {:?}", self.hold.claim.name, self.due)
    }
}

impl State {
    fn schedule(&mut self, hold: Arc<Hold>, due: Instant, renew: bool) {
        let id = hold.id;
        if let Some(before) = self.holds.insert(id, Entry { due, renew, hold }) {
            self.order.remove(&(before.due, id));
        }
        self.order.insert((due, id));
    }

    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.holds.remove(&id)?;
        self.order.remove(&(entry.due, id));
        Some(entry)
    }
}

impl Keeper {
    pub(crate) fn new(
        backend: Arc<dyn DistributedLock>,
        clock: Arc<dyn Clock>,
        queue: Arc<Queue>,
        telemetry: Telemetry,
    ) -> Self {
        let shared = Shared { backend, clock, queue, telemetry, state: Mutex::default(), wake: Notify::new() };
        Self { shared: Arc::new(shared), worker: Worker::default() }
    }

    /// Sees to it that the task runs, if called inside a runtime.
    pub(crate) fn start(&self) {
        self.worker.ensure(|| run(Arc::clone(&self.shared), self.shared.backend.notices()));
    }

    /// Ends when the task stops: its runtime is gone.
    pub(crate) fn stopped(&self) -> Notified<'_> {
        self.worker.stopped()
    }

    /// Watches over a hold from now on.
    pub(crate) fn keep(&self, hold: &Arc<Hold>, course: Course, now: Instant) {
        self.start();
        self.shared.schedule(hold, course, now);
    }

    /// No longer watches over a hold.
    pub(crate) fn forget(&self, id: u64) {
        self.shared.state().remove(id);
    }

    /// Watches over nothing any more; answers what it did watch over.
    pub(crate) fn drain(&self) -> Vec<Arc<Hold>> {
        let mut state = self.shared.state();
        state.order.clear();
        std::mem::take(&mut state.holds).into_values().map(|entry| entry.hold).collect()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.wake.notify_one();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a hold in its place for its next renewal, or for its end.
    fn schedule(&self, hold: &Arc<Hold>, Course { until, renew }: Course, now: Instant) {
        self.insert(hold, if renew { timing::renewal(hold.claim.lease, until, now, hold.id) } else { until }, renew);
    }

    fn insert(&self, hold: &Arc<Hold>, due: Instant, renew: bool) {
        let mut state = self.state();
        state.schedule(Arc::clone(hold), due, renew);
        if state.asleep_until.is_none_or(|until| due < until) {
            state.asleep_until = Some(due);
            self.wake.notify_one();
        }
    }

    /// Takes out what is due: what to renew, and what is over.
    fn take_due(&self, now: Instant) -> (Vec<Arc<Hold>>, Vec<Arc<Hold>>) {
        let mut state = self.state();
        let (mut batch, mut over) = (Vec::new(), Vec::new());
        while let Some(&(due, id)) = state.order.first()
            && let Some(entry) = state.holds.get(&id)
            && (due <= now || !batch.is_empty() && entry.renew && due <= now + timing::slack(entry.hold.claim.lease))
        {
            let Some(Entry { hold, renew, .. }) = state.remove(id) else { break };
            match hold.renewal_due(now) {
                // Its release is under way: a shutdown may still ask for it.
                None if renew && hold.is_releasing() => {
                    let later = now + hold.claim.lease;
                    state.schedule(hold, later, false);
                }
                None => over.push(hold),
                Some(course) if renew && course.renew => {
                    batch.push(Arc::clone(&hold));
                    // While the renewal is on its way, and if it never comes back, the end is what is due next.
                    state.schedule(hold, course.until, false);
                }
                // Handed over just now, it has more time.
                Some(course) => state.schedule(hold, course.until, course.renew),
            }
        }
        (batch, over)
    }

    /// Another task than this watched over them before, perhaps, and its renewals never come back.
    fn resume(&self) {
        let now = self.clock.now();
        let state = self.state();
        let unrenewed = state.holds.values().filter(|entry| !entry.renew).map(|entry| Arc::clone(&entry.hold));
        let unrenewed: Vec<_> = unrenewed.collect();
        drop(state);
        for hold in unrenewed {
            if let Some(course) = hold.what_next(now) {
                self.schedule(&hold, course, now);
            }
        }
    }

    /// What a batch was answered.
    fn apply(&self, Batch { holds, answers, doubts }: Batch) {
        let now = self.clock.now();
        let mut answers = answers.into_iter();
        // Then this may have been answered before what is doubted.
        let doubted = self.state().doubts != doubts;
        for hold in holds {
            match answers.next() {
                Some(Ok(Renewal::Held { valid_until })) => {
                    // Released while the renewal was on its way: it stays out.
                    match hold.confirm(valid_until) {
                        Some(course) if doubted && course.renew => self.insert(&hold, now, true),
                        Some(course) => self.schedule(&hold, course, now),
                        None => {}
                    }
                }
                Some(Ok(Renewal::NotHeld)) => self.lose(&hold),
                failed => {
                    let error = failed.and_then(Result::err).unwrap_or_else(|| {
                        Error::new(ErrorKind::Unknown, "the backend gave fewer answers than it got claims")
                    });
                    tracing::warn!(name = %hold.claim.name, owner = %hold.claim.owner, ?error, "renewal failed");
                    self.risk(&hold, now);
                }
            }
        }
    }

    fn lose(&self, hold: &Arc<Hold>) {
        hold.end(End::NotHeld);
        self.state().remove(hold.id);
        self.queue.vacate(hold);
    }

    /// It is at risk, and its renewal is tried again soon.
    fn risk(&self, hold: &Arc<Hold>, now: Instant) {
        hold.risk();
        let pause = timing::renewal_pause(hold.claim.lease);
        if let Some(course) = hold.what_next(now) {
            self.insert(hold, (now + pause).min(course.until), true);
        }
    }

    /// The store said something unasked. Answers whether it has a doubt.
    fn hear(&self, notices: Vec<Notice>) -> bool {
        let mut doubt = false;
        let mut of = HashMap::new();
        for notice in notices {
            match notice {
                Notice::NotHeld(owner) => drop(of.insert(owner, true)),
                Notice::AtRisk(owner) => drop(of.entry(owner).or_insert(false)),
                Notice::Doubt => doubt = true,
            }
        }
        let now = self.clock.now();
        // One pass, however many lost their locks with one session.
        let mut meant = Vec::new();
        if !of.is_empty() {
            let state = self.state();
            let holds = state.holds.values().map(|entry| &entry.hold);
            meant.extend(holds.filter_map(|hold| Some((Arc::clone(hold), *of.get(&hold.claim.owner)?))));
        }
        for (hold, lost) in meant {
            match lost {
                true => self.lose(&hold),
                // Nothing renews a fixed hold: its time goes on.
                false if hold.options.hold_for.is_some() => {}
                false => self.risk(&hold, now),
            }
        }
        doubt
    }

    /// The store may have lost holds: all that are renewed at all are due now.
    fn doubt(&self) {
        let now = self.clock.now();
        let mut state = self.state();
        state.doubts += 1;
        let renewed: Vec<_> =
            state.holds.values().filter(|entry| entry.renew).map(|entry| Arc::clone(&entry.hold)).collect();
        renewed.into_iter().for_each(|hold| state.schedule(hold, now, true));
    }

    /// Sends one batch. Without an answer in time the holds are at risk, and renewed again. An answer that comes after
    /// that counts all the same.
    async fn renew(&self, holds: Vec<Arc<Hold>>) -> Batch {
        let doubts = self.state().doubts;
        let began = Began::now();
        let claims: Vec<_> = holds.iter().map(|hold| hold.claim.clone()).collect();
        let bound = claims.iter().map(|claim| timing::answer(claim.lease)).min().unwrap_or_default();
        let late = self.clock.now() + bound;
        let failed = |message: &str| {
            let error = || Err(Error::new(ErrorKind::Unknown, message));
            holds.iter().map(|_| error()).collect()
        };
        let longest = claims.iter().map(|claim| claim.lease).max().unwrap_or_default();
        let over = self.clock.now() + longest;
        let asking = AssertUnwindSafe(async { self.backend.renew(&claims).await }).catch_unwind();
        let mut asking = pin!(asking.map(|answers| answers.unwrap_or_else(|_| failed("the backend panicked"))));
        let answers = tokio::select! {
            biased;
            answers = &mut asking => answers,
            () = self.clock.sleep_until(late) => {
                tracing::warn!(leases = holds.len(), ?bound, "renewal not answered yet");
                holds.iter().for_each(|hold| self.risk(hold, self.clock.now()));
                tokio::select! {
                    biased;
                    answers = asking => answers,
                    () = self.clock.sleep_until(over) => failed("no answer within the lease"),
                }
            }
        };
        let renewed = answers.iter().filter(|answer: &&Result<_>| answer.is_ok()).count().min(holds.len());
        self.telemetry.renewed(began, holds.len(), holds.len() - renewed);
        Batch { holds, answers, doubts }
    }
}

/// What was renewed at once.
struct Batch {
    holds: Vec<Arc<Hold>>,
    answers: Vec<Result<Renewal>>,
    /// How often the store had had doubts when it was sent.
    doubts: u64,
}

/// What is renewed together has leases of about one length: a short one bounds the time for the answer to all.
fn batches(mut due: Vec<Arc<Hold>>) -> Vec<Vec<Arc<Hold>>> {
    let size = |hold: &Arc<Hold>| hold.claim.lease.as_millis().max(1).ilog2();
    due.sort_by_key(size);
    let alike = due.chunk_by(|one, next| size(one) == size(next));
    alike.flat_map(|alike| alike.chunks(BATCH)).map(<[_]>::to_vec).collect()
}

/// The wall clock beside ours.
#[derive(Default)]
struct Wall {
    ahead: Option<Duration>,
}

impl Wall {
    /// Was it set since the last question?
    fn stepped(&mut self, clock: &dyn Clock) -> bool {
        let ahead = clock.wall().map(|wall| wall.saturating_sub(clock.now().since_origin()));
        let before = std::mem::replace(&mut self.ahead, ahead);
        before.zip(ahead).is_some_and(|(before, ahead)| before.abs_diff(ahead) > timing::STEP_OF_WALL)
    }
}

async fn run(shared: Arc<Shared>, notices: BoxStream<'static, Notice>) {
    shared.resume();
    let mut notices = notices.ready_chunks(BATCH);
    // When the doubt that was heard counts.
    let (mut doubt_at, mut breath_until) = (None, None);
    let mut wall = Wall::default();
    let process = std::process::id();
    let mut on_their_way = FuturesUnordered::new();
    loop {
        if wall.stepped(&*shared.clock) {
            tracing::warn!("the wall clock was set, or this machine stood still unnoticed: all leases are renewed");
            shared.doubt();
        }
        // A fork has a copy of this task's memory: it must not renew what its parent holds.
        if std::process::id() != process {
            return;
        }
        let (due, over) = shared.take_due(shared.clock.now());
        for hold in over {
            // Tells its end, if nobody did.
            hold.ended();
            shared.queue.vacate(&hold);
        }
        for batch in batches(due) {
            on_their_way.push(shared.renew(batch));
        }
        let next = {
            let mut state = shared.state();
            if state.closed && state.holds.is_empty() {
                return;
            }
            let due = state.order.first().map(|&(due, _)| due);
            let look = due.and(wall.ahead).map(|_| shared.clock.now() + timing::LOOK_AT_WALL);
            state.asleep_until = due.map(|due| look.map_or(due, |look| due.min(look)));
            state.asleep_until
        };
        tokio::select! {
            Some(batch) = on_their_way.next() => shared.apply(batch),
            Some(heard) = notices.next() => if shared.hear(heard) {
                let now = shared.clock.now();
                doubt_at = Some(breath_until.map_or(now, |until| now.max(until)));
            },
            () = sleep_until(&*shared.clock, doubt_at) => {
                shared.doubt();
                doubt_at = None;
                breath_until = Some(shared.clock.now() + timing::BETWEEN_DOUBTS);
            }
            () = shared.wake.notified() => {}
            () = sleep_until(&*shared.clock, next) => {}
        }
    }
}
