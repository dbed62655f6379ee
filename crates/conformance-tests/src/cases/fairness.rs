//! Whose turn it is; and that one handle is no better than two.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use lock_core::{Claim, DistributedLock, Owner, Unlocked};
use tokio::task::JoinHandle;

use crate::ctx::{Ctx, LONG, claim, name, soon, take, until, waiters};

/// 49, 50. Twenty waiters of as many clients are granted the lock in the order in which they came.
pub(crate) async fn fifo(ctx: Ctx) {
    let mut line = Line::new(&ctx).await;
    for _ in 0..20 {
        line.join(&ctx).await;
    }
    assert_eq!(line.serve().await, (0..20).collect::<Vec<_>>());
}

/// 52. One who gives up in the middle of the line changes nothing for the rest.
pub(crate) async fn cancelled_in_queue(ctx: Ctx) {
    let mut line = Line::new(&ctx).await;
    for _ in 0..6 {
        line.join(&ctx).await;
    }
    for gone in [2, 0, 5] {
        line.leave(gone).await;
    }
    assert_eq!(line.serve().await, [1, 3, 4]);
}

/// A lock that is held, and those who wait for it.
struct Line {
    holder: Arc<dyn DistributedLock>,
    held: Claim,
    waiting: Vec<Waiting>,
    served: Arc<Mutex<Vec<usize>>>,
}

struct Waiting {
    client: Arc<dyn DistributedLock>,
    claim: Claim,
    /// `None`: it left.
    task: Option<JoinHandle<()>>,
}

impl Line {
    async fn new(ctx: &Ctx) -> Self {
        let holder = ctx.backend().await;
        let held = fair_claim();
        holder.try_lock(&held).await.unwrap().unwrap();
        Self { holder, held, waiting: Vec::new(), served: Arc::default() }
    }

    async fn join(&mut self, ctx: &Ctx) {
        let (client, claim, number) = (ctx.backend().await, fair_claim(), self.waiting.len());
        let task = tokio::spawn({
            let (client, claim, served) = (Arc::clone(&client), claim.clone(), Arc::clone(&self.served));
            async move {
                client.lock(&claim).await.unwrap();
                served.lock().unwrap().push(number);
                client.unlock(&claim).await.unwrap();
            }
        });
        self.waiting.push(Waiting { client, claim, task: Some(task) });
        self.as_the_store_says().await;
    }

    async fn leave(&mut self, number: usize) {
        let gone = &mut self.waiting[number];
        let task = gone.task.take().unwrap();
        task.abort();
        assert!(task.await.unwrap_err().is_cancelled());
        assert_eq!(gone.client.unlock(&gone.claim).await.unwrap(), Unlocked::NotHeld);
        self.as_the_store_says().await;
    }

    async fn as_the_store_says(&self) {
        let here: Vec<_> = self.waiting.iter().filter(|w| w.task.is_some()).map(|w| w.claim.owner.clone()).collect();
        until("the line as it should be", async || {
            self.holder
                .inspect(&name("x"))
                .await
                .unwrap()
                .waiters
                .into_iter()
                .map(|waiter| waiter.owner)
                .eq(here.iter().cloned())
        })
        .await;
    }

    /// Lets all have it, and answers in which order they had.
    async fn serve(self) -> Vec<usize> {
        self.holder.unlock(&self.held).await.unwrap();
        for task in self.waiting.into_iter().filter_map(|waiting| waiting.task) {
            soon("its turn", task).await.unwrap();
        }
        std::mem::take(&mut *self.served.lock().unwrap())
    }
}

fn fair_claim() -> Claim {
    let mut claim = claim("x", LONG);
    claim.fair = true;
    claim
}

/// 51. Eight tasks of four clients, 2000 grants: nobody is passed over by more than ten times as many as there are,
///     where each client's turn is one for each of its tasks. The machine may keep a client's thread from asking, of
///     the hundredth that waits longest: that is no matter of the store, but nobody is to wait for half of all the
///     grants.
pub(crate) async fn bounded_bypass(ctx: Ctx) {
    const TASKS: u64 = 8;
    const GRANTS: u64 = 2000;
    // On one thread, where no task is kept from running while others go round.
    let running = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let grants = AtomicU64::new(0);
            let mut tasks = Vec::new();
            for _ in 0..TASKS / 2 {
                let locks = ctx.locks(LONG).await;
                for _ in 0..2 {
                    let (mutex, grants) = (locks.mutex("x").hand_overs(1), &grants);
                    tasks.push(async move {
                        let mut passed = Vec::new();
                        for _ in 0..GRANTS / TASKS {
                            let before = grants.load(Ordering::Relaxed);
                            let guard = mutex.lock().await.unwrap();
                            passed.push(grants.fetch_add(1, Ordering::Relaxed) - before);
                            guard.unlock().await.unwrap();
                        }
                        passed
                    });
                }
            }
            futures_util::future::join_all(tasks).await
        })
    });
    let mut passed = running.await.unwrap().concat();
    passed.sort_unstable();
    let (most, worst) = (passed[passed.len() * 99 / 100], passed[passed.len() - 1]);
    assert!(most <= 10 * TASKS && worst < GRANTS / 2, "passed over {most} times, and {worst} at worst");
}

/// 53. A second acquisition by the same handle is denied; it neither gets the lock nor hangs.
pub(crate) async fn not_reentrant_default(ctx: Ctx) {
    let mutex = ctx.locks(LONG).await.mutex("x");
    let guard = mutex.lock().await.unwrap();
    assert!(soon("the denial", mutex.try_lock()).await.unwrap().is_none());
    assert!(guard.is_held());
}

/// 54. An owner gets its lock again, with the same token; the store sees one hold, until the last guard goes.
pub(crate) async fn reentrant_counts(ctx: Ctx) {
    let (locks, other) = (ctx.locks(LONG).await, ctx.backend().await);
    let owner = Owner::new();
    let mutex = locks.mutex("x").owner(&owner);
    let outer = mutex.lock().await.unwrap();
    let mut inner = Vec::new();
    for _ in 0..3 {
        inner.push(soon("its own lock", mutex.lock()).await.unwrap());
        assert_eq!(inner.last().unwrap().fencing_token(), outer.fencing_token());
    }
    let stranger = locks.mutex("x").owner(&Owner::new());
    assert!(soon("the denial", stranger.try_lock()).await.unwrap().is_none());
    outer.unlock().await.unwrap();
    for guard in inner {
        assert!(guard.is_held());
        assert_eq!(other.try_lock(&claim("x", LONG)).await.unwrap(), None);
        guard.unlock().await.unwrap();
    }
    assert!(other.try_lock(&claim("x", LONG)).await.unwrap().is_some());
}

/// 55. Two handles on one connection never both hold.
pub(crate) async fn two_handles_exclude(ctx: Ctx) {
    let backend = ctx.backend().await;
    let (one, other) = (claim("x", LONG), fair_claim());
    backend.try_lock(&one).await.unwrap().unwrap();
    assert_eq!(backend.try_lock(&other).await.unwrap(), None);
    let waiting = tokio::spawn({
        let (backend, other) = (Arc::clone(&backend), other.clone());
        async move { backend.lock(&other).await.unwrap() }
    });
    until("the other in line, or asking", async || waiters(&*backend, "x").await == 1 || !backend.capabilities().fair)
        .await;
    assert!(!waiting.is_finished());
    assert_eq!(backend.unlock(&one).await.unwrap(), Unlocked::Released);
    soon("its turn", waiting).await.unwrap();
    assert_eq!(backend.try_lock(&one).await.unwrap(), None);
}

/// 56. A hold is released once: whoever else looked at it sees its end, and a second release finds nothing.
pub(crate) async fn unlock_once(ctx: Ctx) {
    let locks = ctx.locks(LONG).await;
    let guard = take(&locks, "x").await;
    let views = [guard.lease(), guard.lease()];
    let released = Claim::new(guard.name().clone(), guard.owner().clone(), LONG);
    guard.unlock().await.unwrap();
    for view in views {
        assert!(!view.is_held());
        soon("the end of the hold", view.lost()).await;
    }
    let next = take(&locks, "x").await;
    assert_eq!(locks.backend().unlock(&released).await.unwrap(), Unlocked::NotHeld);
    assert!(next.is_held());
    next.unlock().await.unwrap();
}
