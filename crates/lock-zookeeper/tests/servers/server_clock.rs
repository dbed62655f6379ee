//! The server's wall clock is set: sessions do not go by it.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::raw::{PERSISTENT, raw};
use lock_core::Locks;
use lock_zookeeper::ZookeeperLock;
use test_servers::{Proxy, ZookeeperServers};
use zookeeper_client::Client;

const HOUR: Duration = Duration::from_secs(3600);

/// Never over while a test runs, though sooner than an hour.
const LONG: Duration = Duration::from_secs(300);

/// Longer than a busy machine pauses, and short enough to wait for.
const LEASE: Duration = Duration::from_secs(4);

/// For what waits for the end of the short lease alone.
const BOUND: Duration = Duration::from_secs(60);

async fn locks(url: &str, lease: Duration) -> Locks {
    Locks::builder(Arc::new(ZookeeperLock::connect(url, "oarlock").await.unwrap())).lease(lease).build().unwrap()
}

/// 83. An hour ahead, an hour behind: who holds goes on to hold, who waits waits on, what a dead client held is free
/// when its session is over and no sooner, and tokens rise.
#[tokio::test(flavor = "multi_thread")]
async fn server_wall_plus_minus_1h() {
    let (servers, clock) = ZookeeperServers::start_with_clock();
    let (one, other) = (locks(&servers.url(), LONG).await, locks(&servers.url(), LONG).await);
    let held = one.mutex("x").lock().await.unwrap();
    let token = held.fencing_token();
    let waiting = tokio::spawn({
        let mutex = other.mutex("x");
        async move { mutex.lock().await.unwrap() }
    });
    while one.inspect("x").await.unwrap().waiters.is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let raw = raw(&servers).await;
    for (name, from, to) in [("ahead", 0, 1), ("behind", 1, -1)] {
        let proxy = Proxy::new(servers.addresses()[0]);
        let dead = locks(&format!("zookeeper://{}", proxy.address()), LEASE).await.mutex(name).lock().await.unwrap();
        assert_eq!(hours_ahead(&raw, &format!("/{name}-before")).await, from);
        proxy.hold();
        if to > 0 {
            clock.ahead(HOUR)
        } else {
            clock.behind(HOUR)
        }
        assert_eq!(hours_ahead(&raw, &format!("/{name}-after")).await, to);
        let next = tokio::time::timeout(BOUND, other.mutex(name).lock()).await.expect("its session ends").unwrap();
        assert!(!dead.is_held() && next.fencing_token() > dead.fencing_token());
        assert!(held.is_held() && !waiting.is_finished());
    }
    held.unlock().await.unwrap();
    let next = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap();
    assert!(next.fencing_token() > token);
    next.unlock().await.unwrap();
}

/// How wrong the server's clock is, as it notes when a node was made.
async fn hours_ahead(raw: &Client, node: &str) -> i64 {
    let (made, _) = raw.create(node, b"", &PERSISTENT).await.unwrap();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    ((made.ctime as f64 / 1000.0 - now.as_secs_f64()) / HOUR.as_secs_f64()).round() as i64
}
