//! Processes that die, are stopped, and stores that are not what they were.

use std::time::Duration;

use lock_core::{Config, ErrorKind, Unlocked};
use nix::sys::signal::Signal;
use tokio::task::JoinSet;

use crate::ctx::{BOUND, Ctx, LONG, claim, judge_events, none, soon, take, until, waiters};
use crate::harness::Fault;
use crate::history::{self, monotonic, nanos};
use crate::oracle::check_resource;
use crate::resource::Resource;
use crate::torture::{self, Blow, Site, TortureOptions};
use crate::worker::{Answer, Order, Worker};
use crate::workload::Workload;

fn lock() -> Order {
    Order::Lock { name: "x".into(), fair: false }
}

async fn locked(worker: &mut Worker, order: &Order) -> (u64, u64) {
    match soon("the lock", worker.ask(order)).await.unwrap() {
        Answer::Locked { token, asked, .. } => (token, asked),
        other => panic!("{other:?}"),
    }
}

/// 2. Four processes, 200 rounds: the history has no fault, and no update is lost.
pub(crate) async fn excl_processes(ctx: Ctx) {
    const ROUNDS: u64 = 50;
    let folder = tempfile::tempdir().unwrap();
    let clients: Vec<_> = (0..4).map(|number| format!("worker-{number}")).collect();
    let mut workers = Vec::new();
    for (seed, client) in (1..).zip(&clients) {
        workers.push(ctx.worker_on(
            LONG,
            Workload {
                client: client.clone(),
                folder: folder.path().to_owned(),
                names: vec!["x".into()],
                places: Vec::new(),
                rounds: Some(ROUNDS),
                seed,
                section_ms: 10,
                peer: None,
            },
        ));
    }
    for worker in &mut workers {
        assert!(worker.ended().await.unwrap());
    }
    let mut events = Vec::new();
    for client in &clients {
        events.extend(history::read(&Workload::history(folder.path(), client)).unwrap());
    }
    assert!(judge_events(&events).grants as u64 >= 4 * ROUNDS);
    let log = Resource::log(&Workload::resource(folder.path(), "x")).unwrap();
    none(&check_resource(&log));
    assert_eq!(log.last().unwrap().value, 4 * ROUNDS);
}

/// 13. The store's server is killed and started again while a lock is held: the hold is what it was; or the store
///     forgot it, then its holder is told at its next renewal, and the next token is higher.
pub(crate) async fn restarted_while_held(ctx: Ctx) {
    // Two thirds of it are left when a renewal is due: more than a restart takes.
    let lease = Duration::from_secs(60);
    let (locks, other) = (ctx.locks(lease).await, ctx.locks(LONG).await);
    let guard = take(&locks, "x").await;
    let other = other.mutex("x");
    ctx.inject(Fault::Restart).await;
    let kept = ctx.store().raw_holder(guard.name()).await.is_some();
    match answered(|| other.try_lock()).await {
        None => {
            assert!(kept, "denied, though nobody holds it");
            assert!(guard.is_held());
            assert_eq!(answered(|| locks.inspect("x")).await.into_holder().unwrap().owner, *guard.owner());
            guard.unlock().await.unwrap();
        }
        Some(next) => {
            assert!(!kept, "granted, though it is held");
            assert!(next.fencing_token() > guard.fencing_token());
            tokio::time::timeout(lease * 5 / 6, guard.lost()).await.expect("the loss is told");
            assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
            next.unlock().await.unwrap();
        }
    }
}

/// 20. The store's server is killed and started again while fifty wait: all are served, those with an error at their
///     next try.
pub(crate) async fn restarted_with_waiters(ctx: Ctx) {
    let locks = ctx.locks(LONG).await;
    let guard = take(&locks, "x").await;
    let mut tasks = JoinSet::new();
    let fair = locks.capabilities().fair;
    for _ in 0..5 {
        let client = ctx.locks(LONG).await;
        for _ in 0..10 {
            let mutex = client.mutex("x").fair(fair);
            // What its release answers is another case.
            tasks.spawn(async move { drop(in_the_end(|| mutex.lock()).await.unlock().await) });
        }
    }
    until("fifty in line", async || !fair || waiters(&**locks.backend(), "x").await == 50).await;
    ctx.inject(Fault::Restart).await;
    drop(guard);
    assert_eq!(soon("the last of them", tasks.join_all()).await.len(), 50);
    take(&locks, "x").await.unlock().await.unwrap();
}

/// What the store answers when it is back: until then, there are errors that say that it is away.
async fn answered<T, F: Future<Output = lock_core::Result<T>>>(ask: impl Fn() -> F) -> T {
    soon("an answer", in_the_end(ask)).await
}

/// The same, however long the store is away.
async fn in_the_end<T, F: Future<Output = lock_core::Result<T>>>(ask: impl Fn() -> F) -> T {
    loop {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
                // Not so soon that fifty who ask keep the server from starting.
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// 16. `kill -9` of a holder: the next has the lock not before the lease's end, and within it and a second of the
///     death.
pub(crate) async fn holder_killed(ctx: Ctx) {
    let lease = ctx.lease();
    let mut worker = ctx.worker(lease).await;
    let (token, asked) = locked(&mut worker, &lock()).await;
    let here = ctx.locks(LONG).await;
    let waiting = tokio::spawn(async move {
        let guard = take(&here, "x").await;
        (guard.fencing_token().get(), monotonic())
    });
    tokio::time::sleep(lease / 2).await;
    let killed = monotonic();
    worker.kill().await.unwrap();
    let (next, granted) = waiting.await.unwrap();
    assert!(next > token);
    assert!(granted >= asked + nanos(lease), "granted before the lease was over");
    let took = Duration::from_nanos(granted - killed);
    assert!(took <= lease + Duration::from_secs(1), "took {took:?}");
}

/// 17. `kill -9` of a waiter in the line: those behind it are served all the same.
pub(crate) async fn waiter_killed(ctx: Ctx) {
    let (here, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let guard = take(&here, "x").await;
    let mut worker = ctx.worker(ctx.lease()).await;
    let fair = here.capabilities().fair;
    worker.tell(&Order::Lock { name: "x".into(), fair }).await.unwrap();
    until("the worker in line", async || !fair || waiters(&**here.backend(), "x").await == 1).await;
    let behind =
        tokio::spawn(async move { other.mutex("x").fair(fair).wait(BOUND).lock().await.unwrap().unlock().await });
    until("another in line", async || !fair || waiters(&**here.backend(), "x").await == 2).await;
    worker.kill().await.unwrap();
    guard.unlock().await.unwrap();
    behind.await.unwrap().unwrap();
}

/// 33. A holder is stopped for two leases between its read and its write: the write is refused, for its token is older,
///     and no update of the next holder is lost.
pub(crate) async fn fenced_counter_pause(ctx: Ctx) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("counter");
    let path = file.to_str().unwrap().to_owned();
    let (mut one, mut other) = (ctx.worker(ctx.lease()).await, ctx.worker(LONG).await);
    let (old, _) = locked(&mut one, &lock()).await;
    let read = Order::Read { path: path.clone() };
    assert_eq!(one.ask(&read).await.unwrap(), Answer::Value(Some(0)));
    one.signal(Signal::SIGSTOP).unwrap();
    tokio::time::sleep(ctx.lease() * 2).await;
    let (new, _) = locked(&mut other, &lock()).await;
    assert!(new > old);
    assert_eq!(other.ask(&read).await.unwrap(), Answer::Value(Some(0)));
    one.signal(Signal::SIGCONT).unwrap();
    let write = Order::Write { path, value: 1 };
    assert_eq!(one.ask(&write).await.unwrap(), Answer::Value(None));
    assert_eq!(other.ask(&write).await.unwrap(), Answer::Value(Some(1)));
    none(&check_resource(&Resource::log(&file).unwrap()));
}

/// 44. A holder is stopped for twice its lease: on waking, the first question is answered "not held", and it is told.
pub(crate) async fn lost_after_sigstop(ctx: Ctx) {
    let mut worker = ctx.worker(ctx.lease()).await;
    locked(&mut worker, &lock()).await;
    assert_eq!(worker.ask(&Order::Check).await.unwrap(), Answer::Checked { held: true });
    worker.signal(Signal::SIGSTOP).unwrap();
    tokio::time::sleep(ctx.lease() * 2).await;
    worker.signal(Signal::SIGCONT).unwrap();
    assert_eq!(worker.ask(&Order::Check).await.unwrap(), Answer::Checked { held: false });
    assert_eq!(soon("the loss", worker.ask(&Order::Lost)).await.unwrap(), Answer::Told);
    assert_eq!(worker.ask(&Order::Unlock).await.unwrap(), Answer::Unlocked { held: false });
}

/// 80. Something keeps every request in front of the store: an error in bounded time, not a denial and not a wait
///     without end; and then it works again.
pub(crate) async fn writer_stopped(ctx: Ctx) {
    let backend = ctx.backend().await;
    let (held, renewed) = (claim("held", LONG), claim("renewed", LONG));
    for claim in [&held, &renewed] {
        backend.try_lock(claim).await.unwrap().unwrap();
    }
    ctx.inject(Fault::HoldRequests).await;
    let (free, waited) = (claim("free", LONG), claim("waited", LONG));
    // At once: none is bounded by the end of another.
    let (tried, locked, unlocked) = tokio::join!(
        soon("an error", backend.try_lock(&free)),
        soon("an error", backend.lock(&waited)),
        soon("an error", backend.unlock(&held)),
    );
    // By now what was confirmed before is too old to answer it.
    let renewals = soon("an error", backend.renew(std::slice::from_ref(&renewed))).await;
    let renewal = renewals.into_iter().next().unwrap().unwrap_err();
    let unlock = unlocked.unwrap_err();
    for error in [&tried.unwrap_err(), &locked.unwrap_err(), &renewal, &unlock] {
        assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Unknown), "{error}");
    }
    ctx.inject(Fault::ReleaseRequests).await;
    for claim in [&free, &waited] {
        soon("the release", backend.unlock(claim)).await.unwrap();
    }
    let mut after = claim("free", LONG);
    after.fair = true;
    soon("a grant", backend.lock(&after)).await.unwrap();
    let released = soon("a release", backend.unlock(&held)).await.unwrap();
    // The first one, of unknown outcome, may have been done meanwhile.
    assert!(released == Unlocked::Released || unlock.kind() == ErrorKind::Unknown);
    assert_eq!(ctx.store().raw_holder(&held.name).await, None);
}

/// 81. The store is replaced by an empty one: every hold is lost, and told at its next renewal; new locks exclude those
///     of clients that connect later.
pub(crate) async fn store_replaced(ctx: Ctx) {
    let lease = Duration::from_secs(30);
    let locks = ctx.locks(lease).await;
    let guard = take(&locks, "x").await;
    let unlocked = take(&locks, "y").await;
    ctx.inject(Fault::ReplaceStore).await;
    assert_eq!(unlocked.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    tokio::time::timeout(lease * 5 / 6, guard.lost()).await.expect("the loss is told");
    // The old client and a new one see the same store.
    let later = ctx.locks(LONG).await;
    let again = take(&locks, "x").await;
    assert!(later.mutex("x").try_lock().await.unwrap().is_none());
    assert_eq!(guard.unlock().await.unwrap_err().kind(), ErrorKind::Lost);
    assert!(again.is_held());
}

/// 82. The store is not there: an error that says so, in bounded time.
pub(crate) async fn store_down_at_start(ctx: Ctx) {
    let url = ctx.store().url_of_nothing().expect("a store can be missing, or the case is declared");
    let connecting = async {
        let locks = ctx.harness().registry().connect(Config::from_url(&url)?).await?;
        locks.mutex("x").try_lock().await
    };
    let error = soon("an error", connecting).await.map(drop).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Unavailable | ErrorKind::Refused | ErrorKind::Invalid), "{error}");
}

/// 100. A short torture with a fixed seed. `cargo xtask torture` runs longer ones.
pub(crate) async fn torture(ctx: Ctx) {
    // In so short a time not everything happens.
    let blows = vec![Blow::Stop, Blow::Kill];
    let mut options = TortureOptions { lease: ctx.lease(), blows, ..TortureOptions::default() };
    options.duration = options.calm() + Duration::from_secs(8);
    let report = torture::run(&options, Site::at(ctx.url())).await.unwrap();
    assert!(report.violations.is_empty(), "{report}");
    assert!(report.grants > 0 && report.counted > 0, "{report}");
    assert!(report.count("stop") > 0 && report.count("kill") > 0, "{report}");
}
