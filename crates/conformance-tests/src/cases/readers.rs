//! Readers, who share a lock, and writers, who do not.

use lock_core::{ListQuery, LockGuard, Locks, Mode, Unlocked};
use tokio::task::JoinSet;

use super::permits::{granted, released, status, waiting, wants};
use crate::ctx::{BOUND, Ctx, LONG, holds, judge, name, soon, until, waiters};
use crate::history::Log;
use crate::recorder::{Recorder, waited};
use crate::worker::Order;

/// A hold of its own, which others of the client do not share.
async fn reads(locks: &Locks) -> LockGuard {
    locks.rw_lock("x").unwrap().wait(BOUND).hand_overs(0).read().await.unwrap()
}

/// 197. Many read at the same time, nobody writes meanwhile, and while one writes nobody reads: beside the mutex, too.
pub(crate) async fn readers_together(ctx: Ctx) {
    let clients = [ctx.locks(LONG).await, ctx.locks(LONG).await, ctx.locks(LONG).await];
    let rw_locks = clients.each_ref().map(|locks| locks.rw_lock("x").unwrap());
    let mut readers = vec![reads(&clients[0]).await];
    for locks in &clients {
        readers.push(reads(locks).await);
    }
    assert!(readers.iter().all(|reader| reader.mode() == Mode::Shared && reader.slot().is_none()));
    assert!(rw_locks[1].try_write().await.unwrap().is_none());
    assert!(clients[2].mutex("x").try_lock().await.unwrap().is_none());
    let seen = clients[0].inspect("x").await.unwrap();
    assert_eq!(seen.holders.len(), 4, "{seen:?}");
    assert!(seen.holders.iter().all(|holder| holder.mode == Mode::Shared));
    for reader in &readers {
        assert!(seen.holders.iter().any(|holder| holder.owner == *reader.owner()));
    }
    for reader in readers {
        assert!(rw_locks[1].try_write().await.unwrap().is_none());
        reader.unlock().await.unwrap();
    }
    let writer = rw_locks[0].try_write().await.unwrap().unwrap();
    assert!(rw_locks[1].try_read().await.unwrap().is_none());
    assert!(clients[2].mutex("x").try_lock().await.unwrap().is_none());
    writer.unlock().await.unwrap();
    let mutex = clients[2].mutex("x").try_lock().await.unwrap().unwrap();
    assert!(rw_locks[0].try_read().await.unwrap().is_none() && rw_locks[0].try_write().await.unwrap().is_none());
    mutex.unlock().await.unwrap();
    assert!(rw_locks[0].try_read().await.unwrap().is_some());
}

/// 198. Who waits to write stops those who come later to read, and is granted the lock after those who came before.
pub(crate) async fn a_writer_stops_later_readers(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let [early, writes, late, last] =
        [Mode::Shared, Mode::Exclusive, Mode::Shared, Mode::Shared].map(|mode| wants("x", LONG, mode));
    granted(&*ours, &early).await;
    let writer = waiting(&others, &writes, 1).await;
    assert_eq!(ours.try_lock(&wants("x", LONG, Mode::Shared)).await.unwrap(), None);
    let (reader, another) = (waiting(&ours, &late, 2).await, waiting(&others, &last, 3).await);
    let modes: Vec<_> = status(&*ours, "x").await.waiters.iter().map(|waiter| waiter.mode).collect();
    assert_eq!(modes, [Mode::Exclusive, Mode::Shared, Mode::Shared]);
    assert!(!reader.is_finished() && !another.is_finished());
    released(&*ours, &early).await;
    let written = soon("the writer's turn", writer).await.unwrap();
    assert_eq!(status(&*ours, "x").await.holders.len(), 1);
    assert!(!reader.is_finished() && !another.is_finished());
    released(&*others, &writes).await;
    for reader in [reader, another] {
        let read = soon("the readers' turn", reader).await.unwrap();
        assert!(read.token > written.token);
    }
    assert!(holds(&*ours, &late).await && holds(&*others, &last).await);
}

/// 199. A writer gives up: those who stood behind it read, beside those who do already.
pub(crate) async fn a_writer_gives_up(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let [early, writes, late, last] =
        [Mode::Shared, Mode::Exclusive, Mode::Shared, Mode::Shared].map(|mode| wants("x", LONG, mode));
    granted(&*ours, &early).await;
    let writer = waiting(&others, &writes, 1).await;
    let readers = [waiting(&ours, &late, 2).await, waiting(&others, &last, 3).await];
    writer.abort();
    assert!(writer.await.unwrap_err().is_cancelled());
    assert_eq!(others.unlock(&writes).await.unwrap(), Unlocked::NotHeld);
    for reader in readers {
        soon("the readers' turn", reader).await.unwrap();
    }
    for (backend, claim) in [(&ours, &early), (&ours, &late), (&others, &last)] {
        assert!(holds(&**backend, claim).await);
    }
}

/// 200. A reader dies: it frees itself and nobody else, and no other's renewals keep it.
pub(crate) async fn a_dead_reader(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let alive = ctx.locks(ctx.lease()).await;
    let live = reads(&alive).await;
    let (dead, long) = (wants("x", ctx.lease(), Mode::Shared), wants("x", LONG, Mode::Shared));
    granted(&*others, &long).await;
    granted(&*ours, &dead).await;
    let writes = wants("x", LONG, Mode::Exclusive);
    let writer = waiting(&others, &writes, 1).await;
    until("the end of its lease", async || {
        status(&*others, "x").await.holders.iter().all(|holder| holder.owner != dead.owner)
    })
    .await;
    assert!(!holds(&*ours, &dead).await);
    assert_eq!(ours.unlock(&dead).await.unwrap(), Unlocked::NotHeld);
    assert!(live.is_held() && holds(&*others, &long).await);
    released(&*others, &long).await;
    // One of them renews on and on.
    tokio::time::sleep(ctx.lease() * 2).await;
    assert!(live.is_held() && !writer.is_finished());
    live.unlock().await.unwrap();
    soon("the writer's turn", writer).await.unwrap();
}

/// 201. Who waits to write is granted the lock when the leases of dead readers are over, and dead writers free readers.
pub(crate) async fn the_dead_in_turn(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    for _ in 0..2 {
        granted(&*ours, &wants("x", ctx.lease(), Mode::Shared)).await;
    }
    granted(&*others, &wants("x", ctx.lease(), Mode::Exclusive)).await;
    let readers = [wants("x", LONG, Mode::Shared), wants("x", LONG, Mode::Shared)];
    for reader in &readers {
        granted(&*ours, reader).await;
    }
    assert!(holds(&*ours, &readers[0]).await && holds(&*ours, &readers[1]).await);
}

/// 202. Tokens of readers are above those of all earlier writers and below those of all later ones.
pub(crate) async fn tokens_of_readers(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let mut written = None;
    for _ in 0..20 {
        let mut readers = Vec::new();
        for backend in [&ours, &others, &ours] {
            let claim = wants("x", LONG, Mode::Shared);
            let grant = granted(&**backend, &claim).await;
            assert!(written.is_none_or(|written| written < grant.token));
            assert_eq!(backend.try_lock(&claim).await.unwrap().unwrap().token, grant.token);
            readers.push((backend, claim, grant.token));
        }
        for (backend, claim, _) in &readers {
            released(&***backend, claim).await;
            assert_eq!(backend.unlock(claim).await.unwrap(), Unlocked::NotHeld);
        }
        let claim = wants("x", LONG, Mode::Exclusive);
        let token = granted(&*others, &claim).await.token;
        assert!(readers.iter().all(|(.., read)| *read < token));
        released(&*others, &claim).await;
        written = Some(token);
    }
}

/// 203. An eviction ends the holds of all readers, and the next in line has the lock.
pub(crate) async fn readers_are_evicted(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let readers = [wants("x", LONG, Mode::Shared), wants("x", LONG, Mode::Shared)];
    for (reader, backend) in readers.iter().zip([&ours, &others]) {
        granted(&**backend, reader).await;
    }
    let writes = wants("x", LONG, Mode::Exclusive);
    let writer = waiting(&others, &writes, 1).await;
    let evicted = others.evict(&name("x")).await.unwrap().unwrap();
    assert!(readers.iter().any(|reader| reader.owner == evicted.owner), "{evicted:?}");
    soon("the writer's turn", writer).await.unwrap();
    for (reader, backend) in readers.iter().zip([&ours, &others]) {
        until("the loss", async || !holds(&**backend, reader).await).await;
        assert_eq!(backend.unlock(reader).await.unwrap(), Unlocked::NotHeld);
    }
    assert!(holds(&*others, &writes).await);
    released(&*others, &writes).await;
    // One of them alone.
    let readers = [wants("x", LONG, Mode::Shared), wants("x", LONG, Mode::Shared)];
    for reader in &readers {
        granted(&*ours, reader).await;
    }
    let evicted = others.evict_owner(&name("x"), &readers[0].owner).await.unwrap().unwrap();
    assert_eq!(evicted.owner, readers[0].owner);
    assert_eq!(others.evict_owner(&name("x"), &readers[0].owner).await.unwrap(), None);
    until("the loss", async || !holds(&*ours, &readers[0]).await).await;
    assert!(holds(&*ours, &readers[1]).await);
}

/// 204. Nine tasks of three clients read and write: no writer beside another holder, and the history has no fault.
pub(crate) async fn readers_and_writers(ctx: Ctx) {
    let log = Log::in_memory("suite");
    let mut tasks = JoinSet::new();
    for client in 0..3 {
        let locks = ctx.locks(LONG).await;
        for task in 0..3 {
            let recorder = Recorder::new(log.client(&format!("{client}.{task}")));
            let rw_lock = locks.rw_lock("x").unwrap().wait(6 * BOUND);
            tasks.spawn(async move {
                for round in 0..8 {
                    let held = if (round + task) % 3 == 0 {
                        recorder.taking("x", Mode::Exclusive, LONG, waited(rw_lock.write())).await
                    } else {
                        recorder.taking("x", Mode::Shared, LONG, waited(rw_lock.read())).await
                    };
                    let held = held.unwrap().unwrap();
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

/// 205. Who gives up before it may read leaves nothing behind.
pub(crate) async fn readers_give_up(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let writes = wants("x", LONG, Mode::Exclusive);
    granted(&*others, &writes).await;
    for _ in 0..3 {
        let claim = wants("x", LONG, Mode::Shared);
        let reader = waiting(&ours, &claim, 1).await;
        reader.abort();
        assert!(reader.await.unwrap_err().is_cancelled());
        assert_eq!(ours.unlock(&claim).await.unwrap(), Unlocked::NotHeld);
        assert_eq!(waiters(&*others, "x").await, 0);
        assert_eq!(ours.try_lock(&wants("x", LONG, Mode::Shared)).await.unwrap(), None);
    }
    released(&*others, &writes).await;
    assert!(ours.try_lock(&wants("x", LONG, Mode::Exclusive)).await.unwrap().is_some());
}

/// 226. A reader alone is seen as one, is evicted as one, and keeps what it has when others join it.
pub(crate) async fn an_only_reader(ctx: Ctx) {
    let (ours, others) = (ctx.backend().await, ctx.backend().await);
    let [first, second, third] = [(); 3].map(|()| wants("x", LONG, Mode::Shared));
    let grant = granted(&*ours, &first).await;
    assert_eq!(granted(&*ours, &first).await.token, grant.token, "asked again");
    let seen_as_reader = async |count| {
        let page = others.list(&ListQuery::default()).await.unwrap();
        for seen in [status(&*others, "x").await, page.locks.into_iter().next().unwrap()] {
            assert_eq!(seen.holders.len(), count, "{seen:?}");
            let one = seen.holders.iter().find(|holder| holder.owner == first.owner).unwrap();
            assert_eq!((one.token, one.mode), (grant.token, Mode::Shared), "{seen:?}");
        }
    };
    seen_as_reader(1).await;
    assert!(holds(&*ours, &first).await);
    let joined = granted(&*others, &second).await;
    assert!(joined.token > grant.token);
    seen_as_reader(2).await;
    assert!(holds(&*ours, &first).await && holds(&*others, &second).await);
    released(&*ours, &first).await;
    assert_eq!(others.try_lock(&wants("x", LONG, Mode::Exclusive)).await.unwrap(), None);
    released(&*others, &second).await;
    let alone = granted(&*ours, &third).await;
    assert!(alone.token > joined.token);
    let evicted = others.evict_owner(&name("x"), &third.owner).await.unwrap().unwrap();
    assert_eq!((evicted.owner, evicted.mode), (third.owner.clone(), Mode::Shared));
    until("the loss", async || !holds(&*ours, &third).await).await;
    assert_eq!(ours.unlock(&third).await.unwrap(), Unlocked::NotHeld);
    assert!(others.try_lock(&wants("x", LONG, Mode::Exclusive)).await.unwrap().is_some());
}

/// 258. A process that waits to write is killed: who comes to read meanwhile does not wait for as long as others read.
pub(crate) async fn a_waiting_writer_is_killed(ctx: Ctx) {
    let (here, other) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let reader = reads(&here).await;
    let mut worker = ctx.worker(ctx.lease()).await;
    worker.tell(&Order::Lock { name: "x".into(), fair: true }).await.unwrap();
    until("the writer in line", async || waiters(&**here.backend(), "x").await == 1).await;
    worker.kill().await.unwrap();
    soon("another reader's turn", reads(&other)).await.unlock().await.unwrap();
    reader.unlock().await.unwrap();
}
