//! The queue in the process, over Redis: tasks that want one name, against `tokio::sync::Mutex` and against a bare baton
//! that passes from task to task while one lock in the store is kept.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_core::{Locks, Unlocked};
use lock_redis::RedisLock;
use test_servers::RedisServer;
use tokio::sync::oneshot;

use crate::Figure;

const TASKS: usize = 64;

/// The rate of tasks that work for some time, and how evenly they got their turns.
struct Run {
    rate: f64,
    jain: f64,
    /// The middle time from wanting the lock to having it, in microseconds, and the one that a hundredth exceeds.
    waits: (f64, f64),
}

/// 64 tasks on one name, with an empty section.
pub async fn one_name(rounds: usize, each: Duration) -> [Figure; 3] {
    let server = RedisServer::start();
    let locks = connect(&server).await;
    let (mut to_tokio, mut to_baton, mut jain) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let mutex = Arc::new(tokio::sync::Mutex::new(()));
        let tokio = run(each, move || {
            let mutex = Arc::clone(&mutex);
            async move {
                let _held = mutex.lock().await;
                Instant::now()
            }
        });
        let tokio = tokio.await;
        let kept = locks.mutex("kept").lock().await.expect("free");
        let baton = Arc::new(Baton::default());
        let baton = run(each, move || {
            let baton = Arc::clone(&baton);
            async move {
                baton.take().await;
                let taken = Instant::now();
                baton.pass();
                taken
            }
        });
        let baton = baton.await;
        kept.unlock().await.expect("held");
        let mutex = locks.mutex("one");
        let ours = run(each, move || {
            let mutex = mutex.clone();
            async move {
                let held = mutex.lock().await.expect("free at times");
                let taken = Instant::now();
                assert_eq!(held.unlock().await.expect("answered"), Unlocked::Released);
                taken
            }
        });
        let ours = ours.await;
        for (what, run) in [("tokio::sync::Mutex", &tokio), ("bare baton", &baton), ("ours", &ours)] {
            println!(
                "    {TASKS} tasks, one name: {:.0}/s, waits {:.0} us, p99 {:.0} us ({what})",
                run.rate, run.waits.0, run.waits.1
            );
        }
        to_tokio.push(ours.rate / tokio.rate);
        to_baton.push(ours.rate / baton.rate);
        jain.push(ours.jain);
    }
    [
        Figure::at_least("redis: 64 tasks on one name, rate / tokio::sync::Mutex", to_tokio, 0.2),
        Figure::at_least("redis: 64 tasks on one name, rate / bare baton in the process", to_baton, 0.6),
        Figure::at_least("redis: 64 tasks on one name, Jain's index", jain, 0.99),
    ]
}

/// 64 tasks on 64 names, against the same without the queue: a `fair` acquisition goes past it.
pub async fn many_names(rounds: usize, each: Duration) -> Figure {
    let server = RedisServer::start();
    let locks = connect(&server).await;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let mut rates = [0.0; 2];
        // In turns, so that neither is always the first.
        for fair in [round % 2 == 0, round % 2 != 0] {
            let names = Arc::new(Mutex::new((0..TASKS).collect::<Vec<_>>()));
            let locks = locks.clone();
            let run = run(each, move || {
                let mine = names.lock().expect("no panic").pop().expect("a name for each");
                let mutex = locks.mutex(&mine.to_string()).fair(fair);
                let names = Arc::clone(&names);
                async move {
                    let held = mutex.lock().await.expect("free");
                    let taken = Instant::now();
                    held.unlock().await.expect("answered");
                    names.lock().expect("no panic").push(mine);
                    taken
                }
            });
            rates[usize::from(fair)] = run.await.rate;
        }
        println!("    {TASKS} names: {:.0}/s, without the queue {:.0}/s", rates[0], rates[1]);
        ratios.push(rates[0] / rates[1]);
    }
    Figure::at_least("redis: 64 names, rate / without the queue", ratios, 0.97)
}

async fn connect(server: &RedisServer) -> Locks {
    Locks::new(Arc::new(RedisLock::connect(&server.url(), "bench").await.expect("a server")))
}

/// First come, first served, and nothing else.
#[derive(Default)]
struct Baton(Mutex<(bool, VecDeque<oneshot::Sender<()>>)>);

impl Baton {
    async fn take(&self) {
        let turn = {
            let mut state = self.0.lock().expect("no panic");
            if !state.0 {
                state.0 = true;
                return;
            }
            let (sender, turn) = oneshot::channel();
            state.1.push_back(sender);
            turn
        };
        turn.await.expect("everybody gets a turn");
    }

    fn pass(&self) {
        let mut state = self.0.lock().expect("no panic");
        match state.1.pop_front() {
            Some(next) => next.send(()).expect("nobody is cancelled"),
            None => state.0 = false,
        }
    }
}

async fn run<F>(during: Duration, cycle: impl Fn() -> F + Clone + Send + 'static) -> Run
where
    F: Future<Output = Instant> + Send,
{
    let start = Instant::now();
    let tasks: Vec<_> = (0..TASKS)
        .map(|_| {
            let cycle = cycle.clone();
            tokio::spawn(async move {
                let mut waits = Vec::new();
                loop {
                    let wanted = Instant::now();
                    if wanted - start >= during {
                        return waits;
                    }
                    waits.push(cycle().await - wanted);
                }
            })
        })
        .collect();
    let (mut turns, mut waits) = (Vec::new(), Vec::new());
    for task in tasks {
        let its = task.await.expect("no panic");
        turns.push(its.len() as f64);
        waits.extend(its);
    }
    let took = start.elapsed().as_secs_f64();
    let (sum, squares): (f64, f64) = (turns.iter().sum(), turns.iter().map(|turn| turn * turn).sum());
    waits.sort_unstable();
    let at = |share: usize| waits[waits.len() * share / 100].as_secs_f64() * 1e6;
    Run { rate: sum / took, jain: sum * sum / (squares * turns.len() as f64), waits: (at(50), at(99)) }
}
