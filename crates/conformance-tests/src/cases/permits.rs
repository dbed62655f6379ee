//! Permits, of which several holders have some each.

use std::sync::Arc;
use std::time::Duration;

use lock_core::{Claim, DistributedLock, ErrorKind, LockStatus, Mode, Unlocked};
use tokio::task::{JoinHandle, JoinSet};

use crate::ctx::{BOUND, Ctx, LONG, claim, holds, judge, name, soon, take, until, waiters};
use crate::history::Log;
use crate::recorder::{Recorder, waited};

const fn permits(take: u32, of: u32) -> Mode {
    Mode::Permits { take, of }
}

/// A claim in this mode.
pub(super) fn wants(lock: &str, lease: Duration, mode: Mode) -> Claim {
    let mut claim = claim(lock, lease);
    claim.mode = mode;
    claim
}

/// A claim in this mode that waits, and is known to by now.
pub(super) async fn waiting(
    backend: &Arc<dyn DistributedLock>,
    claim: &Claim,
    place: usize,
) -> JoinHandle<lock_core::Grant> {
    let waits = tokio::spawn({
        let (backend, claim) = (Arc::clone(backend), claim.clone());
        async move { backend.lock(&claim).await.unwrap() }
    });
    until("it waits", async || waiters(&**backend, claim.name.as_str()).await == place).await;
    waits
}

pub(super) async fn granted(backend: &dyn DistributedLock, claim: &Claim) -> lock_core::Grant {
    soon("the grant", backend.lock(claim)).await.unwrap()
}

pub(super) async fn released(backend: &dyn DistributedLock, claim: &Claim) {
    assert_eq!(backend.unlock(claim).await.unwrap(), Unlocked::Released);
}

pub(super) async fn status(backend: &dyn DistributedLock, lock: &str) -> LockStatus {
    backend.inspect(&name(lock)).await.unwrap()
}

/// 206. A name that is in use as a lock is no semaphore, nor the reverse, nor one of another number, until it is free again.
pub(crate) async fn another_kind(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let kinds = [Mode::Exclusive, Mode::Shared, permits(1, 2), permits(3, 3)];
    for first in kinds {
        let held = wants("x", LONG, first);
        granted(&*ours, &held).await;
        for other in kinds.into_iter().filter(|other| !other.is_kind_of(first)) {
            let claim = wants("x", LONG, other);
            for error in
                [others.try_lock(&claim).await.unwrap_err(), soon("the answer", others.lock(&claim)).await.unwrap_err()]
            {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                let named =
                    |mode: Mode| mode.permits().map_or("a lock".to_owned(), |of| format!("a semaphore of {of}"));
                let text = error.to_string();
                assert!(text.contains(&named(first)) && text.contains(&named(other)), "{text}");
            }
            assert_eq!(others.unlock(&claim).await.unwrap(), Unlocked::NotHeld);
        }
        assert!(holds(&*ours, &held).await && waiters(&*ours, "x").await == 0);
        released(&*ours, &held).await;
    }
}

/// 207. No more permits are held than there are, each holder has slots of its own, and what is given back goes to the next.
pub(crate) async fn permits_are_counted(ctx: Ctx) {
    let (ours, others) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let semaphores = [ours.semaphore("x", 4).unwrap(), others.semaphore("x", 4).unwrap()];
    let mut held = vec![semaphores[0].acquire().await.unwrap(), semaphores[1].acquire_many(2).await.unwrap()];
    assert!(semaphores[0].try_acquire_many(2).await.unwrap().is_none());
    held.push(semaphores[0].try_acquire().await.unwrap().unwrap());
    assert!(semaphores[1].try_acquire().await.unwrap().is_none());
    let mut slots: Vec<_> = held.iter().flat_map(|guard| guard.slots().to_vec()).collect();
    slots.sort_unstable();
    assert_eq!(slots, [0, 1, 2, 3]);
    let seen = ours.inspect("x").await.unwrap();
    assert_eq!(seen.holders.len(), 3, "{seen:?}");
    for guard in &held {
        let holder = seen.holders.iter().find(|holder| holder.owner == *guard.owner()).unwrap();
        assert_eq!((holder.mode, holder.slots.as_slice()), (guard.mode(), guard.slots()));
    }
    let freed = held.remove(1);
    let slots = freed.slots().to_vec();
    freed.unlock().await.unwrap();
    let next = semaphores[1].clone().wait(BOUND).acquire_many(2).await.unwrap();
    assert_eq!(next.slots(), slots);
    assert!(held.iter().all(|guard| guard.is_held()));
}

/// 208. Who wants many permits waits at the head of the line until they are there, and those behind wait too.
pub(crate) async fn many_permits_at_the_head(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let held = [wants("x", LONG, permits(1, 3)), wants("x", LONG, permits(1, 3))];
    for claim in &held {
        granted(&*ours, claim).await;
    }
    let (all, one) = (wants("x", LONG, permits(3, 3)), wants("x", LONG, permits(1, 3)));
    let head = waiting(&others, &all, 1).await;
    assert_eq!(ours.try_lock(&wants("x", LONG, permits(1, 3))).await.unwrap(), None);
    let behind = waiting(&ours, &one, 2).await;
    released(&*ours, &held[0]).await;
    assert_eq!(waiters(&*ours, "x").await, 2);
    released(&*ours, &held[1]).await;
    let grant = soon("the turn of the head", head).await.unwrap();
    assert_eq!(grant.slots.as_slice(), [0, 1, 2]);
    assert!(!behind.is_finished() && status(&*ours, "x").await.holders.len() == 1);
    released(&*others, &all).await;
    assert_eq!(soon("the next", behind).await.unwrap().slots.as_slice().len(), 1);
}

/// 209. A holder dies: its permit is free after its lease, and its slot another's with a higher token; the others keep theirs.
pub(crate) async fn a_dead_holders_permit(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let (dead, live) = (wants("x", ctx.lease(), permits(1, 2)), wants("x", LONG, permits(1, 2)));
    let lost = granted(&*ours, &dead).await;
    let kept = granted(&*others, &live).await;
    let next = wants("x", LONG, permits(1, 2));
    let grant = granted(&*others, &next).await;
    assert_eq!(grant.slots, lost.slots);
    assert_ne!(grant.slots, kept.slots);
    assert!(lost.token < grant.token);
    assert!(!holds(&*ours, &dead).await);
    assert!(holds(&*others, &live).await && holds(&*others, &next).await);
    assert_eq!(ours.try_lock(&wants("x", LONG, permits(1, 2))).await.unwrap(), None);
}

/// 210. More permits go to those who wait at once, of fewer nobody loses one, and the number is that of all from then on.
pub(crate) async fn resized(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let lock = name("x");
    assert!(!others.resize(&lock, 3).await.unwrap());
    let held = [wants("x", LONG, permits(1, 2)), wants("x", LONG, permits(1, 2))];
    for claim in &held {
        granted(&*ours, claim).await;
    }
    let (next, after) = (wants("x", LONG, permits(1, 2)), wants("x", LONG, permits(1, 3)));
    let waits = waiting(&ours, &next, 1).await;
    assert!(others.resize(&lock, 3).await.unwrap());
    let grant = soon("the permit that is new", waits).await.unwrap();
    assert_eq!(grant.slots.as_slice(), [2]);
    assert_eq!(others.try_lock(&wants("x", LONG, permits(1, 2))).await.unwrap_err().kind(), ErrorKind::Invalid);
    let waits = waiting(&others, &after, 1).await;
    assert!(ours.resize(&lock, 1).await.unwrap() && ours.resize(&lock, 1).await.unwrap());
    for claim in [&held[0], &held[1], &next] {
        assert!(holds(&*ours, claim).await);
    }
    released(&*ours, &held[1]).await;
    released(&*ours, &next).await;
    assert_eq!(status(&*ours, "x").await.holders.len(), 1);
    assert!(!waits.is_finished());
    released(&*ours, &held[0]).await;
    assert_eq!(soon("the last permit", waits).await.unwrap().slots.as_slice(), [0]);
    // Whoever asked before for one of three has one of the one that there is, though nobody had it for a moment.
    assert_eq!(status(&*ours, "x").await.holders[0].mode, permits(1, 1));
    assert_eq!(others.try_lock(&wants("x", LONG, permits(1, 1))).await.unwrap(), None);
    let many = wants("y", LONG, permits(2, 2));
    granted(&*ours, &many).await;
    let both = wants("y", LONG, permits(2, 2));
    let waits = waiting(&others, &both, 1).await;
    assert_eq!(ours.resize(&name("y"), 1).await.unwrap_err().kind(), ErrorKind::Invalid);
    released(&*ours, &many).await;
    soon("the turn of the next", waits).await.unwrap();
    granted(&*ours, &wants("z", LONG, Mode::Exclusive)).await;
    assert_eq!(ours.resize(&name("z"), 1).await.unwrap_err().kind(), ErrorKind::Invalid);
}

/// 211. Nine tasks of three clients take one or two of five permits: no slot is two holders', and the history has no fault.
pub(crate) async fn permits_of_many(ctx: Ctx) {
    let log = Log::in_memory("suite");
    let mut tasks = JoinSet::new();
    for client in 0..3 {
        let locks = ctx.locks(LONG).await;
        for task in 0..3 {
            let recorder = Recorder::new(log.client(&format!("{client}.{task}")));
            let semaphore = locks.semaphore("x", 5).unwrap().wait(6 * BOUND);
            tasks.spawn(async move {
                for round in 0..8 {
                    let take = 1 + (round + task) % 2;
                    let taken = waited(semaphore.acquire_many(take));
                    let held = recorder.taking("x", permits(take, 5), LONG, taken).await.unwrap().unwrap();
                    tokio::task::yield_now().await;
                    assert!(held.check());
                    held.unlock().await.unwrap();
                }
            });
        }
    }
    tasks.join_all().await;
    assert_eq!(judge(&log).grants, 72);
}

/// 212. What no store could grant is refused before it is asked.
pub(crate) async fn permits_that_cannot_be(ctx: Ctx) {
    let locks = ctx.locks(LONG).await;
    for of in [0, Mode::MOST_PERMITS + 1] {
        assert_eq!(locks.semaphore("x", of).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(locks.resize("x", of).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    let semaphore = locks.semaphore("x", 2).unwrap();
    for take in [0, 3] {
        assert_eq!(semaphore.acquire_many(take).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
    let most = locks.semaphore("x", Mode::MOST_PERMITS).unwrap().acquire_many(Mode::MOST_PERMITS).await.unwrap();
    assert_eq!(most.slots().len(), Mode::MOST_PERMITS as usize);
    most.unlock().await.unwrap();
    let mutex = take(&locks, "x").await;
    assert_eq!((mutex.mode(), mutex.slot()), (Mode::Exclusive, None));
}
