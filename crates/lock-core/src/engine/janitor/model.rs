//! A model of the janitor, run under many orders: its task ends with its runtime wherever it is, and another goes on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shuttle::future::{block_on, spawn, yield_now};
use shuttle::thread;

use super::*;
use crate::contract::ManualClock;
use crate::engine::models::polled;
use crate::memory::{MemoryLock, Verb};

const ORDERS: usize = 500;
const LEASE: Duration = Duration::from_secs(30);

fn claim(number: usize) -> Claim {
    Claim::new(LockName::new(&number.to_string()).unwrap(), OwnerId::from_store(&format!("owner {number}")), LEASE)
}

#[test]
fn whichever_of_its_tasks_ends_nothing_is_forgotten() {
    for polls in [0, 1, 2, 5] {
        shuttle::check_random(
            move || {
                let clock = ManualClock::new();
                let store = MemoryLock::with_clock(Arc::new(clock.clone()));
                let janitor = Janitor::new(Arc::new(store.clone()), Arc::new(clock.clone()));
                let claims: Vec<_> = (0..3).map(claim).collect();
                block_on(async {
                    for claim in &claims {
                        store.try_lock(claim).await.unwrap().unwrap();
                    }
                });
                store.script().fail(Verb::Unlock, ErrorKind::Unavailable, 2);
                let shared = Arc::clone(&janitor.shared);
                let tasks = spawn(async move {
                    polled(run(Arc::clone(&shared)), polls).await;
                    run(shared).await;
                });
                let over = Arc::new(AtomicBool::new(false));
                let time = spawn({
                    let over = Arc::clone(&over);
                    async move {
                        while !over.load(Ordering::SeqCst) {
                            clock.advance(LEASE / 1000);
                            yield_now().await;
                        }
                    }
                });
                // Guards go on threads of their own.
                let janitor = Arc::new(janitor);
                let dropped = claims.clone().into_iter().map(|claim| {
                    let janitor = Arc::clone(&janitor);
                    thread::spawn(move || janitor.release(claim))
                });
                dropped.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
                block_on(janitor.idle());
                assert_eq!(janitor.unfinished(), []);
                block_on(async {
                    for claim in &claims {
                        assert!(store.inspect(&claim.name).await.unwrap().holder().is_none());
                    }
                });
                drop(janitor);
                block_on(tasks).unwrap();
                over.store(true, Ordering::SeqCst);
                block_on(time).unwrap();
            },
            ORDERS,
        );
    }
}
