//! A hold that outlives its owner: nobody's, and not free until its time is over.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use lock_core::{Claim, DistributedLock, Kept, Locks, Once, OnceRun, OwnerId, Renewal, Unlocked};

use crate::ctx::{BOUND, Ctx, LONG, claim, name, soon, take, until, waiters};
use crate::harness::Fault;
use lock_core::testing::{Effect, Verb};

/// Who holds the lock, if its owner has gone.
async fn kept_by(backend: &dyn DistributedLock, lock: &str) -> Option<OwnerId> {
    let holder = backend.holder(&name(lock)).await.unwrap();
    holder.filter(|holder| holder.kept).map(|holder| holder.owner)
}

fn waits(backend: &Arc<dyn DistributedLock>, claim: &Claim) -> tokio::task::JoinHandle<lock_core::Grant> {
    let (backend, claim) = (Arc::clone(backend), claim.clone());
    tokio::spawn(async move { backend.lock(&claim).await.unwrap() })
}

/// 183. Nobody renews, releases or keeps it anew, and it outlives the client of its owner, until its time is over.
pub(crate) async fn kept_hold_outlives_its_owner(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let rest = ctx.lease() * 3;
    let claim = claim("x", ctx.lease());
    let grant = ours.try_lock(&claim).await.unwrap().unwrap();
    let began = Instant::now();
    for _ in 0..2 {
        assert_eq!(ours.keep(&claim, rest).await.unwrap(), Kept::Kept);
    }
    let renewed = ours.renew(std::slice::from_ref(&claim)).await.pop().unwrap();
    assert_eq!(renewed.unwrap(), Renewal::NotHeld);
    assert_eq!(ours.unlock(&claim).await.unwrap(), Unlocked::NotHeld);
    ours.close().await.unwrap();
    drop(ours);
    let next = self::claim("x", LONG);
    assert_eq!(others.try_lock(&next).await.unwrap(), None);
    let holder = others.inspect(&name("x")).await.unwrap().into_holder().unwrap();
    assert!(holder.kept && holder.remaining <= rest, "{holder:?}");
    assert_eq!((&holder.owner, holder.token), (&claim.owner, grant.token));
    let next = soon("the grant", others.lock(&next)).await.unwrap();
    assert!(began.elapsed() >= rest, "free after {:?}", began.elapsed());
    assert!(next.token > grant.token);
}

/// 184. Its time counts, and not the lease of who had it: who waits already is granted the lock when that is over.
pub(crate) async fn kept_hold_ends_in_time(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    // Shorter than the lease.
    let claim = claim("x", LONG);
    ours.try_lock(&claim).await.unwrap().unwrap();
    let next = self::claim("x", LONG);
    let waiting = waits(&others, &next);
    until("it waits", async || !others.capabilities().fair || waiters(&*others, "x").await == 1).await;
    assert_eq!(ours.keep(&claim, ctx.lease()).await.unwrap(), Kept::Kept);
    soon("the grant", waiting).await.unwrap();
    // Longer than the lease, and ended by an operator.
    let claim = self::claim("y", ctx.lease());
    ours.try_lock(&claim).await.unwrap().unwrap();
    assert_eq!(ours.keep(&claim, LONG).await.unwrap(), Kept::Kept);
    let next = self::claim("y", LONG);
    let waiting = waits(&others, &next);
    tokio::time::sleep(ctx.lease() * 2).await;
    assert!(!waiting.is_finished());
    let evicted = ours.evict(&name("y")).await.unwrap().unwrap();
    assert!(evicted.kept && evicted.owner == claim.owner);
    soon("the grant", waiting).await.unwrap();
}

/// 185. Whoever does not hold the lock keeps nothing, and changes nothing for who does.
pub(crate) async fn only_the_holder_keeps(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let (holder, stranger) = (claim("x", LONG), claim("x", LONG));
    assert_eq!(ours.keep(&holder, LONG).await.unwrap(), Kept::NotHeld);
    ours.try_lock(&holder).await.unwrap().unwrap();
    assert_eq!(others.keep(&stranger, LONG).await.unwrap(), Kept::NotHeld);
    assert_eq!(others.unlock(&stranger).await.unwrap(), Unlocked::NotHeld);
    assert_eq!(ours.unlock(&holder).await.unwrap(), Unlocked::Released);
    assert_eq!(ours.keep(&holder, LONG).await.unwrap(), Kept::NotHeld);
    others.try_lock(&stranger).await.unwrap().unwrap();
    assert_eq!(ours.keep(&holder, LONG).await.unwrap(), Kept::NotHeld);
    assert_eq!(others.unlock(&stranger).await.unwrap(), Unlocked::Released);
}

/// 186. A store that keeps its locks over a restart keeps these.
pub(crate) async fn kept_hold_survives_a_restart(ctx: Ctx) {
    let locks = ctx.locks(Duration::from_secs(60)).await;
    let held = take(&locks, "held").await;
    let OnceRun::Ran(()) = locks.once("kept").at_least(LONG).run(async |_| ()).await.unwrap() else { panic!() };
    ctx.inject(Fault::Restart).await;
    let held = ctx.store().raw_holder(held.name()).await.is_some();
    let kept = ctx.store().raw_holder(&name("kept")).await;
    assert_eq!(kept.is_some(), held, "{kept:?}");
    let again = async || matches!(other(&ctx, "kept").await.run(async |_| ()).await, Ok(OnceRun::Ran(())));
    assert_eq!(soon("an answer", again()).await, !held);
}

/// What another client would run.
async fn other(ctx: &Ctx, job: &str) -> Once {
    ctx.locks(LONG).await.once(job).at_least(LONG)
}

/// 187. Ten clients think it is time for a slot: one runs it, and the others are told who does, or has.
pub(crate) async fn once_in_a_slot(ctx: Ctx) {
    let clients: Vec<Locks> = join_all((0..10).map(|_| ctx.locks(LONG))).await;
    for slot in ["09:00", "10:00"] {
        let ran = join_all(clients.iter().map(|locks| async move {
            let job = locks.once("job").slot(slot);
            match job.run(async |lease| lease.owner().clone()).await.unwrap() {
                OnceRun::Ran(owner) => Ok(owner),
                OnceRun::Skipped(skipped) => Err(skipped.by),
            }
        }))
        .await;
        let runners: Vec<_> = ran.iter().filter_map(|ran| ran.as_ref().ok()).collect();
        let [runner] = runners[..] else { panic!("{runners:?} ran it") };
        assert!(ran.iter().filter_map(|ran| ran.as_ref().err()).all(|by| by.as_ref().is_none_or(|by| by == runner)));
        let OnceRun::Skipped(skipped) = clients[0].once("job").slot(slot).run(async |_| ()).await.unwrap() else {
            panic!("it ran twice")
        };
        assert!(skipped.done && skipped.by.as_ref() == Some(runner) && skipped.remaining > LONG, "{skipped:?}");
    }
}

/// 188. That it is done is said until the store has heard it.
pub(crate) async fn once_if_replies_are_lost(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let others = ctx.backend().await;
    for (job, effect) in [("refused", Effect::AWAY), ("unanswered", Effect::LoseReply), ("late", Effect::Cut)] {
        faulty.once(Verb::Keep, effect);
        assert_eq!(locks.once(job).at_least(LONG).run(async |_| 7).await.unwrap(), OnceRun::Ran(7));
        until("it is kept", async || kept_by(&*others, job).await.is_some()).await;
    }
    // Dropped while it is said.
    faulty.once(Verb::Keep, Effect::DelayRequest(BOUND));
    let job = locks.once("dropped").at_least(LONG);
    assert!(tokio::time::timeout(Duration::from_millis(300), job.run(async |_| ())).await.is_err());
    until("it is kept", async || kept_by(&*others, "dropped").await.is_some()).await;
}

/// 189. What failed counts as done, or is run again at once, as one chooses; a panic and a drop are failures.
pub(crate) async fn once_again_after_a_failure(ctx: Ctx) {
    let (locks, others) = (ctx.locks(LONG).await, ctx.backend().await);
    for keep in [true, false] {
        let job = |kind: &str| locks.once(format!("{kind} {keep}")).at_least(LONG).keep_on_failure(keep);
        let ended = async |kind: &str| {
            let job = name(&format!("{kind} {keep}"));
            until("its end", async || others.holder(&job).await.unwrap().is_none_or(|holder| holder.kept)).await;
            assert_eq!(others.holder(&job).await.unwrap().is_some(), keep, "{kind}");
        };
        let failed = job("failed").try_run(async |_| Err::<(), _>("no")).await.unwrap();
        assert_eq!(failed, OnceRun::Ran(Err("no")));
        ended("failed").await;
        let panics = job("panics");
        let panicked = tokio::spawn(async move { panics.run(async |_| panic!("the test's job panics")).await });
        assert!(panicked.await.is_err());
        ended("panics").await;
        let endless = job("dropped");
        let begun = tokio::sync::Notify::new();
        let dropped = endless.run(async |_| {
            begun.notify_one();
            std::future::pending::<()>().await
        });
        tokio::select! {
            ended = dropped => panic!("{ended:?} of a job without an end"),
            () = begun.notified() => {}
        }
        ended("dropped").await;
    }
    // What is lost is to be run again, whatever is chosen.
    let job = locks.once("lost").at_least(LONG).at_most(ctx.lease());
    job.run(async |_| std::future::pending::<()>().await).await.unwrap_err();
    until("it is free", async || others.holder(&name("lost")).await.unwrap().is_none()).await;
}
