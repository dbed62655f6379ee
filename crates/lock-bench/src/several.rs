//! Several locks at once beside single locks taken by hand in the right order; and the permits that a rate limiter gives.
//! Where several locks are wanted, it is also seen that nobody else has one of them meanwhile.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use lock_core::Locks;
use rand::seq::SliceRandom;
use tokio::task::JoinSet;

use crate::Figure;
use crate::contended::connect;
use crate::modes::Store;

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const TAKEN: usize = 3;
const CLIENTS: usize = 8;

/// Of the rate limiter: what it may give, and what has to arrive.
const PERMITS: u32 = 60_000;
const WANTED: f64 = 50_000.0;

/// Eight clients, each of which wants 3 of 5 names in random orders: how often they get them per single locks by hand.
pub async fn random_orders(store: &str, folder: &Path, rounds: usize, each: Duration) -> Figure {
    let server = Store::start(store, folder);
    let (kind, place) = server.place();
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        clients.push(Locks::new(connect(kind, &place).await));
    }
    // Stores with a row for each name make them now.
    for name in NAMES {
        clients[0].mutex(name).lock().await.expect("a lock").unlock().await.expect("it was held");
    }
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let by_hand = crowd(&clients, each, true).await;
        let together = crowd(&clients, each, false).await;
        println!("    {store}: {together:.0} times a second, single locks in order {by_hand:.0}");
        ratios.push(together / by_hand);
    }
    Figure::at_least(format!("{store}: 3 of 5 locks at once, 8 clients, rate / single locks in order"), ratios, 0.5)
}

/// How often a second all of them together get three locks.
async fn crowd(clients: &[Locks], each: Duration, by_hand: bool) -> f64 {
    let inside: Arc<[AtomicU32; NAMES.len()]> = Arc::default();
    let count = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for locks in clients {
        let (locks, inside, count) = (locks.clone(), Arc::clone(&inside), Arc::clone(&count));
        tasks.spawn(async move {
            while start.elapsed() < each {
                let mut order: [usize; NAMES.len()] = std::array::from_fn(|at| at);
                order.shuffle(&mut rand::rng());
                let order = &mut order[..TAKEN];
                if by_hand {
                    order.sort_unstable();
                    let mut held = Vec::new();
                    for lock in &*order {
                        held.push(locks.mutex(NAMES[*lock]).lock().await.expect("a lock"));
                    }
                    alone(&inside, order).await;
                    for guard in held {
                        guard.unlock().await.expect("it was held");
                    }
                } else {
                    let guard = locks.all(order.iter().map(|lock| NAMES[*lock])).lock().await.expect("three locks");
                    alone(&inside, order).await;
                    guard.unlock().await.expect("they were held");
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended.expect("nobody else has one of the locks");
    }
    count.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64()
}

/// A section in which nobody else may have one of these.
async fn alone(inside: &[AtomicU32; NAMES.len()], order: &[usize]) {
    for lock in order {
        assert_eq!(inside[*lock].fetch_add(1, Ordering::SeqCst), 0, "two have {}", NAMES[*lock]);
    }
    tokio::task::yield_now().await;
    for lock in order {
        inside[*lock].fetch_sub(1, Ordering::SeqCst);
    }
}

/// What a limiter of 60,000 permits a second gives 64 tasks of four clients, per 50,000 a second.
pub async fn permits(store: &str, folder: &Path, rounds: usize, each: Duration) -> Figure {
    let server = Store::start(store, folder);
    let (kind, place) = server.place();
    let mut limiters = Vec::new();
    for _ in 0..4 {
        let locks = Locks::new(connect(kind, &place).await);
        limiters.push(locks.rate_limiter("permits", PERMITS, Duration::from_secs(1)).expect("it limits rates"));
    }
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        for limiter in limiters.iter().flat_map(|limiter| std::iter::repeat_n(limiter, 16)) {
            let limiter = limiter.clone();
            tasks.spawn(async move {
                let mut taken = 0_u64;
                while start.elapsed() < each {
                    limiter.acquire(1).await.expect("a permit");
                    taken += 1;
                }
                taken
            });
        }
        let mut taken = 0;
        while let Some(ended) = tasks.join_next().await {
            taken += ended.expect("it ends");
        }
        let rate = taken as f64 / start.elapsed().as_secs_f64();
        println!("    {store}: {rate:.0} permits/s of {PERMITS}/s");
        ratios.push(rate / WANTED);
    }
    Figure::at_least(format!("{store}: permits of a limiter of 60,000/s / 50,000 a second"), ratios, 1.0)
}
