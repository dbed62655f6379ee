//! A quorum of three Redis servers against one of them.

use std::sync::Arc;
use std::time::Duration;

use lock_core::DistributedLock;
use lock_quorum::QuorumOptions;
use lock_redis::RedisLock;
use test_servers::RedisServer;

use crate::Figure;
use crate::redis::our_cycle;
use crate::tasks::run;

/// One task, the median time of a lock and a release per that of one server.
pub async fn uncontended(rounds: usize, each: Duration) -> Figure {
    let servers = [(); 3].map(|()| RedisServer::start());
    let mut stores = Vec::new();
    for server in &servers {
        stores
            .push(Arc::new(RedisLock::connect(&server.url(), "bench").await.expect("a server"))
                as Arc<dyn DistributedLock>);
    }
    let one = Arc::clone(&stores[0]);
    let quorum = Arc::new(QuorumOptions::default().over(stores).await.expect("three stores"));
    let mut times = Vec::new();
    for _ in 0..rounds {
        let (one, quorum) = (Arc::clone(&one), Arc::clone(&quorum));
        let base = run(1, each, move |_| our_cycle(Arc::clone(&one), 0)).await;
        let ours = run(1, each, move |_| our_cycle(Arc::clone(&quorum), 1)).await;
        println!("    quorum: {:.0} cycles/s, one Redis {:.0} cycles/s", ours.rate, base.rate);
        times.push(ours.at(0.5).as_secs_f64() / base.at(0.5).as_secs_f64());
    }
    Figure::at_most("quorum: of three Redis, lock + unlock, median time / one Redis", times, 2.5)
}
