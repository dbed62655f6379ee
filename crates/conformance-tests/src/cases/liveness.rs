//! Who waits gets it, or is told in time.

use std::time::{Duration, Instant};

use lock_core::{ErrorKind, ListQuery};
use tokio::task::JoinSet;

use crate::ctx::{BOUND, Ctx, LONG, name, soon, take, until, waiters};
use crate::faulty::Verb;
use crate::harness::Fault;

/// 14. A waiter is granted soon after the release, not at the end of a lease.
pub(crate) async fn lock_waits_then_gets(ctx: Ctx) {
    let (one, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let guard = take(&one, "x").await;
    let token = guard.fencing_token();
    let waiter = tokio::spawn(async move { take(&other, "x").await.fencing_token() });
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(!waiter.is_finished());
    guard.unlock().await.unwrap();
    assert!(waiter.await.unwrap() > token);
}

/// 15. Nobody wakes the waiter, the lock just is free: it is granted all the same, not only at the end of the lease.
pub(crate) async fn lost_wakeup(ctx: Ctx) {
    let (one, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let _guard = take(&one, "x").await;
    let waiter = tokio::spawn(async move { take(&other, "x").await });
    tokio::time::sleep(Duration::from_millis(300)).await;
    ctx.inject(Fault::DeleteHold(name("x"))).await;
    waiter.await.unwrap().unlock().await.unwrap();
}

/// 18. A wait that is over is an error, not sooner than asked, that names the holder; it leaves nothing behind.
pub(crate) async fn timeout_exact(ctx: Ctx) {
    let wait = Duration::from_millis(300);
    let (one, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let guard = take(&one, "x").await;
    let start = Instant::now();
    let error = soon("the end of the wait", other.mutex("x").wait(wait).lock()).await.unwrap_err();
    assert!(start.elapsed() >= wait);
    assert_eq!(error.kind(), ErrorKind::Timeout);
    if let Some(holder) = error.holder() {
        assert_eq!(&holder.owner, guard.owner());
    }
    until("an empty line", async || waiters(&**one.backend(), "x").await == 0).await;
    let token = guard.fencing_token();
    guard.unlock().await.unwrap();
    assert!(take(&one, "x").await.fencing_token() > token);
}

/// 19. Fifty waiters of five clients are all served, with at most two requests to the store for each.
pub(crate) async fn herd_50(ctx: Ctx) {
    let first = ctx.locks(LONG).await;
    let guard = take(&first, "x").await;
    let mut clients = Vec::new();
    let mut tasks = JoinSet::new();
    for _ in 0..5 {
        let (faulty, locks) = ctx.faulty(LONG).await;
        for _ in 0..10 {
            let mutex = locks.mutex("x");
            tasks.spawn(async move { mutex.lock().await.unwrap().unlock().await.unwrap() });
        }
        clients.push(faulty);
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    guard.unlock().await.unwrap();
    tasks.join_all().await;
    for client in clients {
        let requests = client.calls(Verb::Lock) + client.calls(Verb::TryLock) + client.calls(Verb::Unlock);
        assert!(requests <= 2 * 10, "{requests} requests for 10 acquisitions");
    }
}

/// All held locks are listed, in the order of their names, whatever the size of a page.
pub(crate) async fn list_pages(ctx: Ctx) {
    let locks = ctx.locks(LONG).await;
    let mut held = Vec::new();
    for number in 0..25 {
        held.push(take(&locks, &format!("a/{number:02}")).await);
        held.push(take(&locks, &format!("b/{number:02}")).await);
    }
    let mut query = ListQuery::new("a/").limit(10);
    let (mut found, mut pages) = (Vec::new(), 0);
    soon("the last page", async {
        loop {
            let page = locks.list(&query).await.unwrap();
            pages += 1;
            assert!(page.locks.len() <= 10);
            found.extend(page.locks.into_iter().map(|lock| lock.name.to_string()));
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
    })
    .await;
    let wanted: Vec<_> = (0..25).map(|number| format!("a/{number:02}")).collect();
    assert_eq!(found, wanted);
    assert!(pages >= 3);
    for guard in held {
        guard.unlock().await.unwrap();
    }
    assert!(locks.shutdown(BOUND).await.unreleased.is_empty());
    assert!(ctx.locks(LONG).await.list(&ListQuery::default()).await.unwrap().locks.is_empty());
}
