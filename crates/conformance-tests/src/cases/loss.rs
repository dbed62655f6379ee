//! Who loses a lock is told, once for all, and before another can have it.

use std::time::Duration;

use lock_core::{ErrorKind, LeaseState, LockGuard};

use crate::ctx::{BOUND, Ctx, LONG, claim, holds, name, soon, take, until};
use crate::harness::Fault;
use lock_core::testing::{Effect, Verb};

/// A lease that is renewed after a third of it, long before its end.
const RENEWED: Duration = Duration::from_secs(40);

/// Told at the next renewal, long before the lease's end.
async fn told_at_renewal(guard: &LockGuard) {
    tokio::time::timeout(RENEWED * 5 / 6, guard.lost()).await.expect("the loss is told");
    assert!(!guard.is_held());
    assert_eq!(guard.state(), LeaseState::Lost);
}

/// 39. Somebody deletes the hold with the store's own tools: told at the next renewal.
pub(crate) async fn lost_on_admin_delete(ctx: Ctx) {
    let guard = take(&ctx.locks(RENEWED).await, "x").await;
    ctx.inject(Fault::DeleteHold(name("x"))).await;
    told_at_renewal(&guard).await;
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
}

/// 39. An operator evicts the holder, and learns whom: told at the next renewal, and free for the next at once.
pub(crate) async fn lost_on_evict(ctx: Ctx) {
    let (locks, operator) = (ctx.locks(RENEWED).await, ctx.locks(LONG).await);
    let guard = take(&locks, "x").await;
    let evicted = operator.evict("x").await.unwrap().unwrap();
    assert_eq!(&evicted.owner, guard.owner());
    assert_eq!(evicted.token, guard.fencing_token().store());
    assert_eq!(operator.evict("x").await.unwrap(), None);
    let next = take(&operator, "x").await;
    assert!(next.fencing_token() > guard.fencing_token());
    told_at_renewal(&guard).await;
    assert!(next.is_held());
}

/// 41. The holder is cut off: lost by its own clock before the store grants the lock to another, and its section ends.
pub(crate) async fn lost_on_cut(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease()).await;
    let guard = take(&locks, "x").await;
    faulty.everything(Effect::Cut);
    let section = guard.run(std::future::pending::<()>());
    let other = ctx.backend().await;
    let next = async {
        other.lock(&claim("x", LONG)).await.unwrap();
        assert!(!guard.is_held(), "another has it");
    };
    let (ended, ()) = soon("the loss", async { tokio::join!(section, next) }).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::Lost);
}

/// 46. An outage shorter than the lease: the hold is at risk, and then held again; never lost.
pub(crate) async fn outage_shorter_than_lease(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease() * 6).await;
    let guard = take(&locks, "x").await;
    faulty.always(Verb::Renew, Effect::AWAY);
    until("a renewal that fails", async || guard.state() == LeaseState::AtRisk).await;
    assert!(guard.is_held());
    faulty.always(Verb::Renew, Effect::Pass);
    until("a renewal that succeeds", async || guard.state() == LeaseState::Held).await;
    guard.unlock().await.unwrap();
}

/// 47. One loss, told to all who look at the hold, for good: it does not come back when the store does.
pub(crate) async fn lost_once(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease()).await;
    let guard = take(&locks, "x").await;
    let listeners: Vec<_> = (0..3)
        .map(|_| {
            let view = guard.lease();
            tokio::spawn(async move {
                view.lost().await;
                view.state()
            })
        })
        .collect();
    faulty.everything(Effect::Cut);
    for listener in listeners {
        assert_eq!(soon("the loss", listener).await.unwrap(), LeaseState::Lost);
    }
    faulty.everything(Effect::Pass);
    tokio::time::sleep(ctx.lease()).await;
    assert_eq!(guard.state(), LeaseState::Lost);
    soon("a loss that was told before", guard.lost()).await;
    assert_eq!(guard.run(async {}).await.unwrap_err().kind(), ErrorKind::Lost);
}

/// 48. A release after the loss says so, and the successor is unharmed.
pub(crate) async fn unlock_after_lost(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(ctx.lease()).await;
    let other = ctx.backend().await;
    let guard = take(&locks, "x").await;
    faulty.everything(Effect::Cut);
    let successor = claim("x", LONG);
    soon("the lease's end", other.lock(&successor)).await.unwrap();
    faulty.everything(Effect::Pass);
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(locks.shutdown(BOUND).await.unreleased.is_empty());
    assert!(holds(&*other, &successor).await);
}
