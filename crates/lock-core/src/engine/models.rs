//! Models of the queue and of a hold's states, run under many orders of their threads.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use shuttle::future::{JoinHandle, block_on, spawn, yield_now};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use shuttle::thread;

use crate::contract::options::LockOptions;
use crate::contract::{Claim, Clock, Error, ErrorKind, Grant, Instant, LockName, ManualClock, OwnerId, StoreToken};
use crate::engine::Lease;
use crate::engine::hold::{End, Hold, Process};
use crate::engine::queue::{Entry, Leave, Permit, Queue, Ticket, Turn};
use crate::engine::telemetry::Telemetry;

const ORDERS: usize = 2000;
const LEASE: Duration = Duration::from_secs(30);

/// A store of one lock, and what must be true of its holders.
struct World {
    queue: Arc<Queue<Guard, ()>>,
    clock: ManualClock,
    /// The tokens given so far, and whether the last one is out.
    store: Mutex<(u64, bool)>,
    /// So many who ask it next are not answered.
    away: AtomicUsize,
    inside: AtomicUsize,
    newest: AtomicU64,
}

struct Guard {
    lease: Lease,
    world: Arc<World>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let world = Arc::clone(&self.world);
        if let Leave::Release(_) = world.queue.leave(&self.lease, |lease| world.guard(lease)) {
            world.store.lock().unwrap().1 = false;
        }
    }
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            queue: Arc::new(Queue::new(Telemetry::new("model"))),
            clock: ManualClock::new(),
            store: Mutex::new((0, false)),
            away: AtomicUsize::new(0),
            inside: AtomicUsize::new(0),
            newest: AtomicU64::new(0),
        })
    }

    fn guard(self: &Arc<Self>, lease: Lease) -> Guard {
        Guard { lease, world: Arc::clone(self) }
    }

    /// Comes for the lock; `patience` is how often it lets others go first before it gives up.
    async fn acquire(self: &Arc<Self>, options: LockOptions, patience: Option<usize>) -> Option<Guard> {
        let ticket = Ticket { options: &options, owner: None, waits: true };
        let name = name();
        match self.queue.enter(&name, ticket) {
            Entry::Ask(permit) => self.ask(options, permit, patience).await,
            Entry::Wait(place) => {
                let turn = match patience {
                    Some(patience) => polled(place.turn(), patience).await?,
                    None => place.turn().await,
                };
                self.take(turn.expect("nobody is sent away"), options).await
            }
            Entry::Again(_) | Entry::Busy => unreachable!("no owner, and it waits"),
        }
    }

    async fn take(self: &Arc<Self>, turn: Turn<Guard, ()>, options: LockOptions) -> Option<Guard> {
        match turn {
            Turn::Held(guard) => Some(guard),
            Turn::Ask(permit) => self.ask(options, Some(permit), None).await,
            Turn::Failed(..) => None,
            Turn::GoOn(()) => unreachable!("nobody passes it on"),
        }
    }

    async fn ask(
        self: &Arc<Self>,
        options: LockOptions,
        permit: Option<Permit<Guard, ()>>,
        patience: Option<usize>,
    ) -> Option<Guard> {
        let less = |away: usize| away.checked_sub(1);
        if self.away.fetch_update(Ordering::SeqCst, Ordering::SeqCst, less).is_ok() {
            permit.into_iter().for_each(|permit| permit.failed(&Error::new(ErrorKind::Unavailable, "away"), None));
            return None;
        }
        for tries in 0.. {
            if patience.is_some_and(|patience| tries > patience) {
                return None;
            }
            let granted = {
                let mut store = self.store.lock().unwrap();
                (!store.1).then(|| *store = (store.0 + 1, true)).map(|()| store.0)
            };
            if let Some(token) = granted {
                let lease = Lease { hold: self.hold(token, options), turn: 0 };
                self.queue.granted(&lease, None, permit, |lease| self.guard(lease));
                return Some(self.guard(lease));
            }
            yield_now().await;
        }
        None
    }

    fn hold(&self, token: u64, options: LockOptions) -> Arc<Hold> {
        let now = self.clock.now();
        let claim = Claim::new(name(), OwnerId::from_store("model"), LEASE);
        let grant = Grant::new(StoreToken::new(token).unwrap(), now + LEASE);
        let clock = Arc::new(self.clock.clone());
        let process = Process { clock, telemetry: Telemetry::new("model"), id: None };
        Arc::new(Hold::new(claim, grant, token, options, process, now))
    }

    /// A section that nobody else may be in, under a token that is higher than all before it.
    async fn section(&self, guard: Guard) {
        assert!(guard.lease.is_held());
        assert_eq!(self.inside.fetch_add(1, Ordering::SeqCst), 0);
        let token = guard.lease.fencing_token().get();
        assert!(self.newest.swap(token, Ordering::SeqCst) < token);
        yield_now().await;
        assert_eq!(self.inside.fetch_sub(1, Ordering::SeqCst), 1);
    }

    fn is_at_rest(&self) {
        assert_eq!(format!("{:?}", self.queue), "Queue { names: 0, waiting: 0 }");
        assert!(!self.store.lock().unwrap().1);
    }
}

/// What comes of it within so many polls; after them it is dropped.
pub(crate) async fn polled<T>(future: impl Future<Output = T>, times: usize) -> Option<T> {
    let mut future = pin!(future);
    for _ in 0..times {
        if let Poll::Ready(output) = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await {
            return Some(output);
        }
        yield_now().await;
    }
    None
}

/// Waits for all of these.
fn all_end(tasks: Vec<JoinHandle<()>>) {
    block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
}

fn name() -> LockName {
    LockName::new("x").unwrap()
}

fn options(hand_overs: u8) -> LockOptions {
    LockOptions { hand_overs, ..LockOptions::default() }
}

/// Some tasks come twice each, some give up somewhere; everybody else has a turn, alone, and nothing is left.
#[test]
fn everybody_has_a_turn_and_nobody_two() {
    let all = |hand_overs| {
        shuttle::check_random(
            move || {
                let world = World::new();
                let patience = [None, Some(0), None, Some(2), None];
                let tasks: Vec<_> = patience
                    .into_iter()
                    .map(|patience| {
                        let world = Arc::clone(&world);
                        spawn(async move {
                            let mut turns = 0;
                            for _ in 0..2 {
                                if let Some(guard) = world.acquire(options(hand_overs), patience).await {
                                    world.section(guard).await;
                                    turns += 1;
                                }
                            }
                            assert!(turns == 2 || patience.is_some());
                        })
                    })
                    .collect();
                all_end(tasks);
                world.is_at_rest();
            },
            ORDERS,
        );
    };
    std::thread::scope(|scope| {
        for hand_overs in [0, 1, 255] {
            scope.spawn(move || all(hand_overs));
        }
    });
}

/// The store fails some of those who ask; whoever is told so, by it or by who asked for all, comes again: everybody has a
/// turn, and nothing is left.
#[test]
fn a_failure_forgets_nobody() {
    shuttle::check_random(
        || {
            let world = World::new();
            world.away.store(3, Ordering::SeqCst);
            let tasks: Vec<_> = [0, 255, 0, 255]
                .into_iter()
                .map(|hand_overs| {
                    let world = Arc::clone(&world);
                    spawn(async move {
                        let mut failures = 0;
                        let guard = loop {
                            match world.acquire(options(hand_overs), None).await {
                                Some(guard) => break guard,
                                None => failures += 1,
                            }
                        };
                        // No failure is told twice to one.
                        assert!(failures <= 3, "{failures}");
                        world.section(guard).await;
                    })
                })
                .collect();
            all_end(tasks);
            world.is_at_rest();
        },
        ORDERS,
    );
}

/// While somebody holds the lock for long, those who came and gave up are not remembered.
#[test]
fn who_gives_up_leaves_nothing() {
    shuttle::check_random(
        || {
            let world = World::new();
            let held = block_on(world.acquire(options(255), None)).unwrap();
            let tasks: Vec<_> = (0..3)
                .map(|patience| {
                    let world = Arc::clone(&world);
                    spawn(async move { assert!(world.acquire(options(255), Some(patience)).await.is_none()) })
                })
                .collect();
            all_end(tasks);
            assert_eq!(format!("{:?}", world.queue), "Queue { names: 1, waiting: 0 }");
            drop(held);
            world.is_at_rest();
        },
        ORDERS,
    );
}

/// A hold is lost while its holder is about to pass it on, or does not notice, and others wait: no waiter is forgotten.
#[test]
fn a_loss_forgets_nobody() {
    for notices in [true, false] {
        shuttle::check_random(move || lose(notices), ORDERS);
    }
}

fn lose(notices: bool) {
    let world = World::new();
    let first = block_on(world.acquire(options(255), None)).unwrap();
    let hold = Arc::clone(&first.lease.hold);
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let world = Arc::clone(&world);
            spawn(async move { drop(world.acquire(options(255), None).await.unwrap()) })
        })
        .collect();
    let keeper = thread::spawn({
        let world = Arc::clone(&world);
        move || {
            hold.end(End::NotHeld);
            world.store.lock().unwrap().1 = false;
            world.queue.vacate(&hold);
        }
    });
    let kept = (!notices).then_some(first);
    keeper.join().unwrap();
    all_end(waiters);
    drop(kept);
}

/// Hand-overs, renewals, an end, and somebody who looks: an end is final, and no two turns are held at once.
#[test]
fn an_end_is_final_and_turns_are_apart() {
    shuttle::check_random(
        || {
            let world = World::new();
            let hold = world.hold(1, options(255));
            let passing = thread::spawn({
                let hold = Arc::clone(&hold);
                move || {
                    let mut turns = vec![0];
                    turns.extend((0..3).filter_map(|_| hold.hand_over()));
                    turns
                }
            });
            let keeper = thread::spawn({
                let hold = Arc::clone(&hold);
                move || {
                    hold.risk();
                    let held = hold.confirm(Instant::from_origin(Duration::MAX)).is_some();
                    hold.end(End::NotHeld);
                    assert!(hold.confirm(Instant::from_origin(Duration::MAX)).is_none());
                    held
                }
            });
            let looking = thread::spawn({
                let (hold, now) = (Arc::clone(&hold), world.clock.now());
                move || {
                    let mut over = [false; 4];
                    for _ in 0..3 {
                        let held = [0, 1, 2, 3].map(|turn| hold.turn(turn, now).is_some());
                        for turn in 0..4 {
                            assert!(!(over[turn] && held[turn]), "what was over is held again");
                            // A turn that was seen is over when a later one is.
                            over[turn] |= held[turn + 1..].contains(&true);
                        }
                        if hold.ended().is_some() {
                            over = [true; 4];
                        }
                    }
                }
            });
            let turns = passing.join().unwrap();
            assert!(turns.windows(2).all(|pair| pair[1] == pair[0] + 1), "{turns:?}");
            assert!(keeper.join().unwrap());
            looking.join().unwrap();
            assert_eq!(hold.ended(), Some(End::NotHeld));
        },
        ORDERS,
    );
}
