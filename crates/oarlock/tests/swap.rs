//! Another store is another URL, and nothing else.
#![cfg(all(feature = "redis", feature = "zookeeper"))]
// The example has a `main`, which is not what is called here.
#![allow(dead_code)]

#[path = "../examples/scheduled_job.rs"]
mod scheduled_job;

use std::time::Duration;

use oarlock::Config;
use test_servers::{RedisServer, ZookeeperServers};

/// The README's example.
async fn readme(url: &str) -> oarlock::Result<()> {
    let locks = oarlock::connect(url).await?;
    let guard = locks.mutex("orders/42").wait(Duration::from_secs(5)).lock().await?;
    assert!(guard.fencing_token().get() > 0);
    guard.run(async {}).await?;
    guard.unlock().await?;
    if let Some(guard) = locks.mutex("orders/42").try_lock().await? {
        assert!(guard.is_held());
    }
    let report = locks.shutdown(Duration::from_secs(2)).await;
    assert!(report.unreleased.is_empty());
    Ok(())
}

#[tokio::test]
async fn redis_and_zookeeper_differ_by_their_urls() {
    let (redis, zookeeper) = (RedisServer::start(), ZookeeperServers::start());
    for url in [redis.url(), zookeeper.url()] {
        readme(&url).await.unwrap();
        scheduled_job::demo(Config::from_url(&url).unwrap()).await.unwrap();
    }
}
