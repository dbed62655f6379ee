//! Who waits gets it, or is told in time.

use std::time::{Duration, Instant};

use lock_core::{ErrorKind, ListQuery};
use tokio::task::JoinSet;

use crate::ctx::{BOUND, Ctx, LONG, name, soon, take, until, waiters};
use crate::harness::Fault;
use lock_core::testing::Verb;

/// Some stores take a share of it to notice that a connection is dead.
const LEASE: Duration = Duration::from_secs(10);

/// Long enough for a client to connect once more.
const MOMENT: Duration = Duration::from_millis(300);

/// How long a lock may stay free that somebody waits for whose connection is dead without a word: six seconds on a machine
/// that is not busy, and no lease's end helps.
const SWALLOWED: Duration = Duration::from_secs(9);

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

/// 172. A waiter has several connections, and the network swallows one of them for good, or forgets it, so that the server
///      sees its end and the client does not: whichever that is, it has the lock soon after its release.
pub(crate) async fn any_connection_swallowed(ctx: Ctx) {
    let (holder, watcher) = (ctx.impatient(LEASE).await, ctx.backend().await);
    let mut tried = 0;
    loop {
        let guard = take(&holder, "x").await;
        let before = ctx.store().connections();
        let locks = ctx.impatient(LEASE).await;
        let waiting = {
            let locks = locks.clone();
            tokio::spawn(async move { take(&locks, "x").await })
        };
        until("it waits", async || waiters(&*watcher, "x").await == 1).await;
        // What listens for it may be connected only then.
        tokio::time::sleep(MOMENT).await;
        let made = before.iter().zip(ctx.store().connections()).enumerate();
        let mut made = made.flat_map(|(server, (&before, after))| (before..after).map(move |number| (server, number)));
        let Some((server, number)) = made.nth(tried / 2) else {
            let (tried, least) = (tried / 2, ctx.store().waits_over());
            assert!(
                tried >= least,
                "{tried} of {least} connections swallowed: let the harness do so, or declare this case"
            );
            guard.unlock().await.unwrap();
            waiting.await.unwrap().unlock().await.unwrap();
            return;
        };
        let fault = if tried % 2 == 0 { Fault::Swallow(server, number) } else { Fault::Forget(server, number) };
        tried += 1;
        ctx.inject(fault).await;
        guard.unlock().await.unwrap();
        let next = tokio::time::timeout(SWALLOWED, waiting).await;
        ctx.inject(Fault::ReleaseRequests).await;
        let Ok(next) = next else { panic!("not within {SWALLOWED:?}, without connection {number} to server {server}") };
        drop(next.unwrap());
        assert_eq!(locks.shutdown(BOUND).await.unreleased, []);
    }
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
