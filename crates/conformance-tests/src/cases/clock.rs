//! Clocks that are wrong.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lock_core::ErrorKind;

use crate::ctx::{Ctx, LONG, soon, take};
use crate::host::{Host, build_shim};
use crate::worker::{Answer, Order, Worker};

const HOUR: u64 = 3600;

/// 84. Clients whose wall clocks are an hour ahead and an hour behind exclude each other, hold no longer and no
///     shorter, and get tokens in one order.
pub(crate) async fn client_wall_moved(ctx: Ctx) {
    let folder = tempfile::tempdir().unwrap();
    let shim = build_shim(folder.path()).unwrap();
    let here = ctx.locks(LONG).await;
    let lease = ctx.lease() * 2;
    let worker = async |name: &str, seconds| {
        let host = Host::new(&folder.path().join(name), &shim, None).unwrap();
        host.set_clock(seconds).unwrap();
        ctx.worker_on_host(lease, &host).await
    };
    let mut ahead = worker("ahead", 3600).await;
    let mut behind = worker("behind", -3600).await;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    assert!(wall_clock(&mut ahead).await > now + HOUR / 2);
    assert!(wall_clock(&mut behind).await < now - HOUR / 2);

    let lock = Order::Lock { name: "x".into(), fair: false };
    let try_lock = Order::TryLock { name: "x".into() };
    let mut last = 0;
    for turn in 0..3 {
        let (holder, other) = if turn == 1 { (&mut behind, &mut ahead) } else { (&mut ahead, &mut behind) };
        let token = locked(soon("the lock", holder.ask(&lock)).await.unwrap());
        assert!(token > last, "{token} after {last}");
        last = token;
        assert_eq!(other.ask(&try_lock).await.unwrap(), Answer::Denied);
        assert!(here.mutex("x").try_lock().await.unwrap().is_none());
        // Renewed all the while, by each of them.
        if turn < 2 {
            tokio::time::sleep(lease + lease / 2).await;
        }
        assert_eq!(other.ask(&try_lock).await.unwrap(), Answer::Denied);
        assert_eq!(holder.ask(&Order::Check).await.unwrap(), Answer::Checked { held: true });
        assert_eq!(holder.ask(&Order::Unlock).await.unwrap(), Answer::Unlocked { held: true });
        let guard = take(&here, "x").await;
        assert!(guard.fencing_token().get() > last);
        last = guard.fencing_token().get();
        assert_eq!(other.ask(&try_lock).await.unwrap(), Answer::Denied);
        guard.unlock().await.unwrap();
    }
    // And their leases end when they die.
    for mut worker in [ahead, behind] {
        locked(soon("the lock", worker.ask(&lock)).await.unwrap());
        worker.kill().await.unwrap();
        take(&here, "x").await.unlock().await.unwrap();
    }
}

fn locked(answer: Answer) -> u64 {
    match answer {
        Answer::Locked { token, .. } => token,
        other => panic!("{other:?}"),
    }
}

async fn wall_clock(worker: &mut Worker) -> u64 {
    match worker.ask(&Order::WallClock).await.unwrap() {
        Answer::WallClock(seconds) => seconds,
        other => panic!("{other:?}"),
    }
}

/// 85. The client's own clock jumps past the lease's end: lost at once, whatever the store would still say.
pub(crate) async fn client_clock_ahead(ctx: Ctx) {
    let (faulty, locks) = ctx.faulty(LONG).await;
    let guard = take(&locks, "x").await;
    faulty.advance_clock(Duration::from_secs(7));
    assert!(guard.is_held());
    assert!(guard.remaining() <= LONG - Duration::from_secs(7));
    faulty.advance_clock(LONG);
    assert!(!guard.is_held());
    soon("the loss", guard.lost()).await;
    assert_eq!(guard.run(std::future::pending::<()>()).await.unwrap_err().kind(), ErrorKind::Lost);
}
