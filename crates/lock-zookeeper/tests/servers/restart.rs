//! Servers that die and come back with what they keep.

use std::time::Duration;

use lock_core::{Config, Locks, Observed, OnceRun, Registry};
use lock_zookeeper::ZookeeperFactory;
use test_servers::ZookeeperServers;

/// Never over while a test runs.
const LONG: &str = "300s";

/// For what needs no lease's end.
const BOUND: Duration = Duration::from_secs(60);

async fn connect(url: &str) -> Locks {
    let mut registry = Registry::new();
    registry.register(ZookeeperFactory);
    registry.connect(Config::from_url(&format!("{url}?lease={LONG}")).unwrap()).await.unwrap()
}

/// 13, 20, 186. Each server is killed and started again in turn, or the only one is: the hold is what it was, and what is
/// kept stays so, who waits is served, and tokens rise.
#[tokio::test(flavor = "multi_thread")]
async fn servers_are_restarted() {
    for count in [1, 3] {
        let mut servers = ZookeeperServers::start_with(count, &[]);
        let (locks, other) = (connect(&servers.url()).await, connect(&servers.url()).await);
        let guard = locks.mutex("x").lock().await.unwrap();
        let before = guard.fencing_token();
        let job = locks.once("kept").at_least(Duration::from_secs(300));
        assert_eq!(job.run(async |_| ()).await.unwrap(), OnceRun::Ran(()));
        let waiting = tokio::spawn(async move {
            // Whoever asks while no server serves is told so, and asks again.
            loop {
                if let Ok(guard) = other.mutex("x").lock().await {
                    return (guard.fencing_token(), guard.unlock().await);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        while locks.inspect("x").await.unwrap().waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for number in 0..count {
            servers.restart(number);
        }
        assert!(guard.is_held());
        assert!(!waiting.is_finished());
        let released = async {
            while locks.inspect("x").await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            guard.unlock().await.unwrap()
        };
        tokio::time::timeout(BOUND, released).await.unwrap();
        let (after, _) = tokio::time::timeout(BOUND, waiting).await.unwrap().unwrap();
        assert!(after > before, "{after:?} after {before:?}");
        let OnceRun::Skipped(skipped) = job.run(async |_| ()).await.unwrap() else { panic!("it ran again") };
        assert!(skipped.done);
    }
}

/// The server is away for longer than a session lasts: who observes is told of that, and sees again what is there when the
/// server is back.
#[tokio::test]
async fn who_observes_sees_again() {
    let mut servers = ZookeeperServers::start();
    let mut observer = connect(&servers.url()).await.observe("x").unwrap();
    let mut next = async || tokio::time::timeout(BOUND, observer.next()).await.unwrap().unwrap();
    assert!(matches!(next().await, Observed::Free));
    servers.kill(0);
    assert!(matches!(next().await, Observed::Blind(_)));
    servers.restart(0);
    assert!(matches!(next().await, Observed::Free));
}
