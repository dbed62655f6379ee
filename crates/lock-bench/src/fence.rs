//! A write with a check of its fencing token beside the same write without, over the same connection.

use std::time::{Duration, Instant};

use lock_fence::{Access, redis as fence};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use test_servers::RedisServer;

use crate::peers::bare_connection;
use crate::tasks::run;
use crate::{Figure, interleaved};

const VALUE: [u8; 100] = [b'x'; 100];

/// A value of 100 bytes, where nothing is saved and where each write is: the median time by one task, and the rate by
/// 64.
pub async fn redis(rounds: usize, each: Duration) -> [Figure; 4] {
    let [times, rates] = beside_bare(&RedisServer::start(), rounds, each).await;
    let [saved_times, saved_rates] = beside_bare(&RedisServer::start_durable(), rounds, each).await;
    [
        Figure::at_most("redis: a checked SET, median time / SET", times, 1.1),
        Figure::at_least("redis: 64 tasks, checked SETs, rate / SET", rates, 0.25),
        Figure::at_most("redis: each write saved, a checked SET, median time / SET", saved_times, 1.1),
        Figure::at_least("redis: each write saved, 64 tasks, checked SETs, rate / SET", saved_rates, 0.5),
    ]
}

async fn beside_bare(server: &RedisServer, rounds: usize, each: Duration) -> [Vec<f64>; 2] {
    let connection = bare_connection(&server.url()).await;
    let access = Access::new("orders/42", 7_u64).expect("a name");
    let (mut times, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        let (mut bare, mut checking) = (connection.clone(), connection.clone());
        let [base, ours] =
            interleaved(each, async || set(&mut bare, 0).await, async || checked_set(&mut checking, &access, 0).await)
                .await;
        times.push(ours / base);
        println!("    redis: a checked SET in {:.1} us, SET in {:.1} us", ours * 1e6, base * 1e6);
        let (bare, checking, access) = (connection.clone(), connection.clone(), access.clone());
        let base = run(64, each, move |task| {
            let mut bare = bare.clone();
            async move {
                set(&mut bare, task).await;
                Instant::now()
            }
        });
        let base = base.await;
        let ours = run(64, each, move |task| {
            let (mut checking, access) = (checking.clone(), access.clone());
            async move {
                checked_set(&mut checking, &access, task).await;
                Instant::now()
            }
        });
        let ours = ours.await;
        rates.push(ours.rate / base.rate);
        println!("    redis, 64 tasks: {:.0} checked SETs/s, {:.0} SETs/s", ours.rate, base.rate);
    }
    [times, rates]
}

async fn set(connection: &mut MultiplexedConnection, task: usize) {
    let () = connection.set(format!("orders/{task}"), &VALUE).await.expect("a server");
}

async fn checked_set(connection: &mut MultiplexedConnection, access: &Access, task: usize) {
    fence::set(connection, access, format!("orders/{task}"), &VALUE).await.expect("no later holder");
}
