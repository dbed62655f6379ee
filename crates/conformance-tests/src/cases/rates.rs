//! Rates that all clients keep together.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lock_core::{ErrorKind, ListQuery, Reservation, Reserved};

use crate::ctx::{Ctx, LONG, name, soon};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// 243. Over no window of time more permits are taken than the rate gives in it, and a block for each client.
pub(crate) async fn never_above_the_rate(ctx: Ctx) {
    const RATE: u32 = 200;
    const BLOCK: u32 = 10;
    const CLIENTS: u32 = 3;
    const TASKS: u32 = 4;
    const EACH: u32 = 20;
    type Taken = (Instant, Instant, u32);
    let taken: Arc<Mutex<Vec<Taken>>> = Arc::default();
    let mut tasks = Vec::new();
    for _ in 0..CLIENTS {
        let limiter = ctx.locks(LONG).await.rate_limiter("mails", RATE, SECOND).unwrap().block(BLOCK);
        for task in 0..TASKS {
            let (limiter, taken) = (limiter.clone(), Arc::clone(&taken));
            tasks.push(tokio::spawn(async move {
                for round in 0..EACH {
                    // Some want more than a block at once.
                    let many = if round % 10 == 9 && task == 0 { 2 * BLOCK } else { 1 };
                    let called = Instant::now();
                    limiter.acquire(many).await.unwrap();
                    taken.lock().unwrap().push((called, Instant::now(), many));
                }
            }));
        }
    }
    for task in tasks {
        soon("the permits", task).await.unwrap();
    }
    let taken = std::mem::take(&mut *taken.lock().unwrap());
    for (from, _, _) in &taken {
        // Those that were taken within the window for sure, in the order of its ends.
        let mut within: Vec<_> = taken.iter().filter(|(called, _, _)| called >= from).collect();
        within.sort_by_key(|(_, returned, _)| *returned);
        let mut sum = 0;
        for (_, until, many) in within {
            sum += many;
            let most = until.duration_since(*from).as_secs_f64() * f64::from(RATE) + f64::from(CLIENTS * BLOCK);
            assert!(f64::from(sum) <= most, "{sum} permits in {:?}", until.duration_since(*from));
        }
    }
}

/// 244. Permits come later than somebody can wait: it is told so, and takes none.
pub(crate) async fn permits_that_come_too_late(ctx: Ctx) {
    let (ours, others) = (ctx.locks(LONG).await, ctx.locks(LONG).await);
    let limiter = ours.rate_limiter("reports", 1, HOUR).unwrap();
    limiter.acquire(1).await.unwrap();
    for locks in [&ours, &others] {
        let limiter = locks.rate_limiter("reports", 1, HOUR).unwrap();
        assert!(!limiter.try_acquire(1).await.unwrap());
        let error = soon("the answer", limiter.wait(SECOND).acquire(1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Timeout, "{error}");
        assert!(error.to_string().contains("the permits come in"), "{error}");
    }
    assert_eq!(limiter.acquire(0).await.unwrap_err().kind(), ErrorKind::Invalid);
    for (permits, per) in [(0, HOUR), (1, Duration::ZERO), (1, HOUR * 24 * 400)] {
        assert_eq!(ours.rate_limiter("reports", permits, per).unwrap_err().kind(), ErrorKind::Invalid);
    }
    // Whoever was refused has reserved nothing, and stretches follow each other.
    let (backend, name) = (ctx.backend().await, name("stretches"));
    let reserve = async |length, ahead, within| {
        let wanted = Reservation::new(length, ahead, within);
        backend.reserve(&name, &wanted).await.unwrap()
    };
    assert_eq!(reserve(HOUR, Duration::ZERO, Duration::ZERO).await, Reserved::In(Duration::ZERO));
    for (ahead, least) in [(Duration::ZERO, HOUR), (HOUR, 2 * HOUR)] {
        let Reserved::TooLate(wait) = reserve(HOUR, ahead, SECOND).await else { panic!("reserved") };
        assert!(wait <= least && wait > least - HOUR / 2, "{wait:?}");
    }
    for number in 1..4 {
        let Reserved::In(wait) = reserve(HOUR, SECOND, 10 * HOUR).await else { panic!("not reserved") };
        assert!(wait <= number * HOUR + SECOND && wait > number * HOUR - HOUR / 2, "{wait:?}");
    }
}

/// 245. A rate limiter is no lock of its name, and nobody sees it among the locks.
pub(crate) async fn limiters_are_no_locks(ctx: Ctx) {
    let locks = ctx.locks(LONG).await;
    let guard = locks.mutex("orders").lock().await.unwrap();
    let limiter = locks.rate_limiter("orders", 1, HOUR).unwrap();
    limiter.acquire(1).await.unwrap();
    let listed = locks.list(&ListQuery::default()).await.unwrap();
    assert_eq!(listed.locks.iter().map(|lock| lock.name.as_str()).collect::<Vec<_>>(), ["orders"]);
    guard.unlock().await.unwrap();
    assert!(locks.list(&ListQuery::default()).await.unwrap().locks.is_empty());
    locks.evict("orders").await.unwrap();
    assert!(!limiter.try_acquire(1).await.unwrap());
}
